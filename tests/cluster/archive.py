"""Packs one static program as a container image archive, by hand: the pause image needs no builder for that.

The layout is the one `docker save` writes (manifest.json, config, layers), which containerd imports. All
times and owners are fixed, so equal inputs give equal bytes.
"""

import hashlib
import io
import json
import tarfile
from pathlib import Path


def write(path: Path, reference: str, program: Path) -> None:
    """Writes an image archive `reference` to `path` whose only file and entrypoint is `program`."""
    layer = _tar({program.name: (program.read_bytes(), 0o755)})
    config = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": [f"/{program.name}"], "User": "65535:65535"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
            "history": [{"created_by": "firsttoken"}],
        }
    )
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = _json([{"Config": config_name, "RepoTags": [reference], "Layers": ["layer.tar"]}])
    members = {config_name: (config, 0o644), "layer.tar": (layer, 0o644), "manifest.json": (manifest, 0o644)}
    path.write_bytes(_tar(members))


def _json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _tar(members: dict[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, (content, mode) in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mode = mode
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
