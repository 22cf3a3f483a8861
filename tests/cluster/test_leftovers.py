from pathlib import Path

import pytest

from cluster import layout, leftovers, record
from cluster.errors import ClusterError


def test_shims_sockets_are_learned_from_their_bundles(tmp_path: Path) -> None:
    bundles = tmp_path / "containerd" / "io.containerd.runtime.v2.task" / "k8s.io"
    for name, address in {"a": "unix:///run/containerd/s/0a", "b": "unix:///etc/passwd"}.items():
        (bundles / name).mkdir(parents=True)
        (bundles / name / "address").write_text(address)
    assert leftovers._shim_sockets(tmp_path) == [Path("/run/containerd/s/0a")]


def test_the_recorded_checkout_is_cleared_too(tmp_path: Path) -> None:
    where = layout.Layout(checkout=tmp_path / "one", cache=tmp_path, run=tmp_path / "run")
    other = record.Record(str(tmp_path / "two" / ".cluster"), "", {})
    assert leftovers._states(where, other) == [where.state, tmp_path / "two" / ".cluster" / "state"]
    assert leftovers._states(where, record.Record(str(where.cluster), "", {})) == [where.state]
    assert leftovers._states(where, record.Record("", "", {})) == [where.state]


def test_a_mounted_folder_is_never_emptied() -> None:
    with pytest.raises(ClusterError, match="still mounted"):
        leftovers._remove(Path("/proc"))
