import os
from pathlib import Path

import pytest

from cluster import addresses, cgroups
from cluster.errors import ClusterError


def _v1(mount: Path, *controllers: str) -> Path:
    for controller in controllers:
        (mount / controller).mkdir()
        (mount / controller / "cgroup.procs").write_text("1\n")
    return mount


def test_v1_is_one_hierarchy_per_controller(tmp_path: Path) -> None:
    mount = _v1(tmp_path, "pids", "memory")
    (mount / "not-a-hierarchy").mkdir()
    assert [path.name for path in cgroups.hierarchies(mount)] == ["memory", "pids"]
    assert cgroups.tracking(mount) == mount / "pids"


def test_v2_is_the_mount_itself(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    assert cgroups.hierarchies(tmp_path) == [tmp_path]
    assert cgroups.tracking(tmp_path) == tmp_path


def test_a_machine_without_the_pids_controller_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="pids"):
        cgroups.tracking(_v1(tmp_path, "memory"))


def test_make_find_and_clear(tmp_path: Path) -> None:
    mount = _v1(tmp_path, "pids", "memory")
    cgroups.make(mount)
    assert (mount / "pids" / addresses.CGROUP / "system").is_dir()
    assert len(cgroups.find(mount)) == 2
    cgroups.clear(mount)
    assert cgroups.find(mount) == []
    cgroups.clear(mount)  # nothing left to do is fine


def test_members_are_all_processes_below_but_ourselves(tmp_path: Path) -> None:
    mount = _v1(tmp_path, "pids")
    assert cgroups.members(mount) == []
    cgroups.make(mount)
    pod = mount / "pids" / addresses.CGROUP / "kubepods" / "pod1"
    pod.mkdir(parents=True)
    (pod / "cgroup.procs").write_text("41\n42\n")
    (mount / "pids" / addresses.CGROUP / "system" / "cgroup.procs").write_text(f"{os.getpid()}\n43\n")
    assert sorted(cgroups.members(mount)) == [41, 42, 43]
