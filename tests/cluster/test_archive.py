import hashlib
import io
import json
import tarfile
from pathlib import Path

from cluster import archive


def _members(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        files = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        return {name: file.read() for name, file in files.items() if file is not None}


def test_archive_holds_one_program_and_says_so_truly(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF-ish")
    packed = tmp_path / "pause.tar"
    archive.write(packed, "localhost/x/pause:1", program)
    members = _members(packed.read_bytes())
    [manifest] = json.loads(members["manifest.json"])
    assert manifest["RepoTags"] == ["localhost/x/pause:1"]
    config_bytes = members[manifest["Config"]]
    assert manifest["Config"] == f"{hashlib.sha256(config_bytes).hexdigest()}.json"
    config, layer = json.loads(config_bytes), members["layer.tar"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    assert config["config"]["Entrypoint"] == ["/pause"]
    assert _members(layer) == {"pause": b"\x7fELF-ish"}


def test_equal_inputs_give_equal_bytes(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"x" * 1025)
    for name in ("one.tar", "two.tar"):
        archive.write(tmp_path / name, "localhost/x/pause:1", program)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
