"""An OCI archive written as a stream, with only those blobs that its reader does not have yet."""

import json
import shutil
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from images import folders, layout


def write(
    out: IO[bytes],
    store: layout.Layout,
    manifests: Mapping[str, layout.Blob],
    blobs: Iterable[layout.Blob],
) -> None:
    """Writes the images `manifests` (full reference -> manifest) with `blobs`, each blob once."""
    _write_file(out, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
    _write_file(out, "index.json", json.dumps(index(manifests)).encode())
    for blob in {each.digest: each for each in blobs}.values():
        _write_blob(out, store, blob)
    out.write(bytes(2 * tarfile.BLOCKSIZE))


def index(manifests: Mapping[str, layout.Blob]) -> layout.Document:
    """The archive's index.json; containerd names the images by these annotations."""
    return {
        "schemaVersion": 2,
        "manifests": [
            {
                "mediaType": layout.MANIFEST_TYPE,
                "digest": manifest.digest,
                "size": manifest.size,
                "annotations": {
                    "io.containerd.image.name": reference,
                    "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
                },
                "platform": {"architecture": "amd64", "os": "linux"},
            }
            for reference, manifest in manifests.items()
        ],
    }


def _write_header(out: IO[bytes], name: str, size: int) -> None:
    """By hand, because a member made from a folder is streamed, never held as a whole."""
    member = tarfile.TarInfo(name)
    member.size = size
    out.write(member.tobuf(tarfile.GNU_FORMAT))


def _write_padding(out: IO[bytes], size: int) -> None:
    out.write(bytes(-size % tarfile.BLOCKSIZE))


def _write_file(out: IO[bytes], name: str, data: bytes) -> None:
    _write_header(out, name, len(data))
    out.write(data)
    _write_padding(out, len(data))


def _write_blob(out: IO[bytes], store: layout.Layout, blob: layout.Blob) -> None:
    _write_header(out, f"blobs/{blob.digest.replace(':', '/')}", blob.size)
    if blob.folder:
        folders.write_layer(Path(blob.folder), folders.PACKAGES_PREFIX, out)
    else:
        with store.blob(blob.digest).open("rb") as content:
            shutil.copyfileobj(content, out, folders.COPY_BYTES)
    _write_padding(out, blob.size)
