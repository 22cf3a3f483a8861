from pathlib import Path

from cluster import mounts

MOUNTINFO = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
31 27 0:40 / /run/firsttoken-cluster/a/rootfs rw shared:1 - overlay overlay rw
32 27 0:41 / /run/firsttoken-cluster-other/x rw - tmpfs tmpfs rw
33 31 0:42 / /run/firsttoken-cluster/a/rootfs/dev/shm rw - tmpfs shm rw
34 27 0:43 / /home/my\\040code/.cluster/state/kubelet/pods/1/v rw - tmpfs tmpfs rw
"""


def test_parse_undoes_the_kernels_escapes() -> None:
    points = mounts.parse(MOUNTINFO)
    assert points[0] == Path("/proc")
    assert points[-1] == Path("/home/my code/.cluster/state/kubelet/pods/1/v")


def test_below_is_deepest_first_and_does_not_match_longer_names() -> None:
    found = mounts.below(mounts.parse(MOUNTINFO), [Path("/run/firsttoken-cluster")])
    assert found == [
        Path("/run/firsttoken-cluster/a/rootfs/dev/shm"),
        Path("/run/firsttoken-cluster/a/rootfs"),
    ]


def test_find_reads_this_machine() -> None:
    assert Path("/proc") in mounts.find([Path("/")])
    assert mounts.find([Path("/no/such/folder")]) == []
