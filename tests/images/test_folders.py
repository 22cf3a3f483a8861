"""A folder as a layer: the same bytes whatever the files' owners and times are."""

import io
import os
import tarfile
from pathlib import Path

from images import folders


def make(root: Path) -> Path:
    (root / "torch/lib").mkdir(parents=True)
    (root / "torch/lib/big.so").write_bytes(b"\0" * (folders.COPY_BYTES + 7))
    (root / "torch/run").write_bytes(b"#!")
    (root / "torch/run").chmod(0o755)
    (root / "b.py").write_text("b")
    (root / "a-link").symlink_to("b.py")
    (root / ("long" * 40)).write_text("name longer than a tar header's field")
    return root


def layer(root: Path) -> bytes:
    out = io.BytesIO()
    folders.write_layer(root, "opt/firsttoken/site", out)
    return out.getvalue()


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    first, second = make(tmp_path / "1"), make(tmp_path / "2")
    os.utime(second / "b.py", (1, 1))
    (second / "b.py").chmod(0o600)
    assert layer(first) == layer(second)


def test_members_are_readable_by_everybody_and_belong_to_root(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(layer(make(tmp_path)))) as tar:
        members = {member.name: member for member in tar.getmembers()}
    site = "opt/firsttoken/site"
    assert list(members)[:3] == ["opt", "opt/firsttoken", site]
    assert {(member.uid, member.gid, member.mtime) for member in members.values()} == {(0, 0, 0)}
    assert members[f"{site}/torch/run"].mode == 0o755
    assert members[f"{site}/b.py"].mode == 0o644
    assert members[f"{site}/a-link"].linkname == "b.py"
    assert members[f"{site}/torch/lib/big.so"].size == folders.COPY_BYTES + 7


def test_the_hasher_sees_what_a_reader_gets(tmp_path: Path) -> None:
    from images import layout

    hasher = folders.Hasher()
    folders.write_layer(make(tmp_path), "opt/firsttoken/site", hasher)
    data = layer(tmp_path)
    assert (hasher.digest, hasher.size) == (layout.digest_of(data), len(data))
