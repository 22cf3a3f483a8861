"""Puts images together from parts. Pure.

The last stages of our Dockerfiles copy files and state settings, nothing else, so the layer they make is the
same on every base: it is built once on nothing, and laid over the heavy layers here.
"""

from images import layout


def over(lower: layout.Image, upper: layout.Image) -> layout.Image:
    """`upper`, built on nothing, as if it had been built on `lower`.

    Settings are `upper`'s; variables of the environment that only `lower` has are kept.
    """
    settings = dict(upper.config.get("config", {}))
    own = settings.get("Env", [])
    names = {variable.partition("=")[0] for variable in own}
    inherited = [
        each for each in lower.config.get("config", {}).get("Env", []) if each.partition("=")[0] not in names
    ]
    settings["Env"] = inherited + own
    layers = lower.layers + upper.layers
    config = {**upper.config, "config": settings, "rootfs": _rootfs(layers)}
    config.pop("history", None)  # it would have to name every layer; it is optional
    return layout.Image(config, layers)


def with_layer(lower: layout.Image, blob: layout.Blob) -> layout.Image:
    """`lower` with one more layer, not compressed, on top."""
    layers = (*lower.layers, layout.Layer(blob, layout.LAYER_TYPE, blob.digest))
    config = {**lower.config, "rootfs": _rootfs(layers)}
    config.pop("history", None)
    return layout.Image(config, layers)


def manifest(image: layout.Image, config: layout.Blob) -> layout.Document:
    """The OCI manifest of an image whose config is stored as `config`."""
    return {
        "schemaVersion": 2,
        "mediaType": layout.MANIFEST_TYPE,
        "config": {"mediaType": layout.CONFIG_TYPE, "digest": config.digest, "size": config.size},
        "layers": [
            {"mediaType": layer.media_type, "digest": layer.blob.digest, "size": layer.blob.size}
            for layer in image.layers
        ],
    }


def _rootfs(layers: tuple[layout.Layer, ...]) -> layout.Document:
    return {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]}
