"""An OCI image layout in the cache: blobs named by their digest, and what we know of each image.

A heavy layer is not stored a second time as a blob: it stays the folder of installed packages that it is made
from, and is written out as the same bytes whenever it is wanted (`folders`).
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Document = dict[str, Any]

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True)
class Blob:
    """A reference to bytes by digest (`sha256:…`) and size in bytes. `folder`: made from there on demand."""

    digest: str
    size: int
    folder: str = ""


@dataclass(frozen=True)
class Layer:
    """A blob as part of an image: its media type, and the digest of what is left when it is unpacked."""

    blob: Blob
    media_type: str
    diff_id: str


@dataclass(frozen=True)
class Image:
    """An image in parts, lowest layer first."""

    config: Document
    layers: tuple[Layer, ...]

    def to_json(self) -> str:
        return json.dumps(
            {"config": self.config, "layers": [asdict(layer) for layer in self.layers]}, indent=1
        )


def image_from_json(text: str) -> Image:
    document = json.loads(text)
    layers = tuple(
        Layer(Blob(**each["blob"]), each["media_type"], each["diff_id"]) for each in document["layers"]
    )
    return Image(config=document["config"], layers=layers)


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass(frozen=True)
class Layout:
    """The folder that buildah pushes into and that archives are read from."""

    folder: Path

    def blob(self, digest: str) -> Path:
        algorithm, _, value = digest.partition(":")
        return self.folder / "blobs" / algorithm / value

    def read(self, digest: str) -> Document:
        document: Document = json.loads(self.blob(digest).read_bytes())
        return document

    def write(self, document: Document) -> Blob:
        """Stores a document; its digest depends on its content only."""
        data = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        blob = Blob(digest_of(data), len(data))
        path = self.blob(blob.digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return blob

    def image(self, name: str) -> Image:
        """The image that was pushed into this layout under `name`."""
        index = json.loads((self.folder / "index.json").read_bytes())
        digests = [
            entry["digest"]
            for entry in index["manifests"]
            if entry.get("annotations", {}).get("org.opencontainers.image.ref.name") == name
        ]
        assert len(digests) == 1, f"{name} is {len(digests)} times in {self.folder}"
        manifest = self.read(digests[0])
        config = self.read(manifest["config"]["digest"])
        layers = tuple(
            Layer(Blob(layer["digest"], layer["size"]), layer["mediaType"], diff_id)
            for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True)
        )
        return Image(config, layers)
