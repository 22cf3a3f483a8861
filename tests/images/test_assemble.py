"""An image built on nothing, laid over another one."""

from images import assemble, layout


def image(*names: str, **settings: object) -> layout.Image:
    layers = tuple(
        layout.Layer(layout.Blob(f"sha256:{name}", 7), f"{layout.LAYER_TYPE}+gzip", f"sha256:un{name}")
        for name in names
    )
    config = {
        "architecture": "amd64",
        "config": settings,
        "history": [{}],
        "rootfs": {"diff_ids": [layer.diff_id for layer in layers]},
    }
    return layout.Image(config, layers)


def test_layers_add_up_and_settings_are_the_upper_ones() -> None:
    lower = image("base", "packages", Env=["PATH=/bin", "LANG=C"], Cmd=["bash"])
    upper = image("code", Env=["PATH=/opt/bin"], User="10001:10001", Entrypoint=["firsttoken"])
    result = assemble.over(lower, upper)
    assert [layer.blob.digest for layer in result.layers] == ["sha256:base", "sha256:packages", "sha256:code"]
    assert result.config["rootfs"]["diff_ids"] == ["sha256:unbase", "sha256:unpackages", "sha256:uncode"]
    assert result.config["config"] == {
        "Env": ["LANG=C", "PATH=/opt/bin"],
        "User": "10001:10001",
        "Entrypoint": ["firsttoken"],
    }
    assert "history" not in result.config


def test_a_layer_made_from_a_folder_is_not_compressed() -> None:
    result = assemble.with_layer(image("base"), layout.Blob("sha256:site", 3, "/cache/site"))
    assert result.layers[-1] == layout.Layer(
        layout.Blob("sha256:site", 3, "/cache/site"), layout.LAYER_TYPE, "sha256:site"
    )


def test_the_manifest_names_blobs_not_diff_ids() -> None:
    manifest = assemble.manifest(image("a", "b"), layout.Blob("sha256:config", 11))
    assert [each["digest"] for each in manifest["layers"]] == ["sha256:a", "sha256:b"]
    assert manifest["config"]["size"] == 11


def test_an_image_survives_being_written_down() -> None:
    original = assemble.with_layer(image("a", User="1"), layout.Blob("sha256:site", 3, "/cache/site"))
    assert layout.image_from_json(original.to_json()) == original
