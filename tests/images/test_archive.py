"""The stream that containerd imports, read back by Python's own tar reader."""

import io
import json
import tarfile
from pathlib import Path

from images import archive, folders, layout


def test_the_archive_holds_what_its_names_say(tmp_path: Path) -> None:
    store = layout.Layout(tmp_path / "layout")
    manifest = store.write({"a": 1})
    site = tmp_path / "site"
    site.mkdir()
    (site / "module.py").write_text("x" * 1000)
    hasher = folders.Hasher()
    folders.write_layer(site, folders.PACKAGES_PREFIX, hasher)
    heavy = layout.Blob(hasher.digest, hasher.size, str(site))

    out = io.BytesIO()
    reference = "localhost/firsttoken/runtime:abc"
    archive.write(out, store, {reference: manifest}, [heavy, manifest, manifest])

    out.seek(0)
    with tarfile.open(fileobj=out, mode="r|") as tar:
        content = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    blobs = {name: data for name, data in content.items() if name.startswith("blobs/")}
    assert set(blobs) == {f"blobs/{blob.digest.replace(':', '/')}" for blob in (heavy, manifest)}
    for name, data in blobs.items():
        assert layout.digest_of(data) == name.removeprefix("blobs/").replace("/", ":")
    index = json.loads(content["index.json"])
    assert index["manifests"][0]["annotations"]["io.containerd.image.name"] == reference
    assert json.loads(content["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
