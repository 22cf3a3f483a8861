import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import daemons, layout
from cluster.errors import ClusterError


def _where(tmp_path: Path) -> layout.Layout:
    return layout.Layout(checkout=tmp_path, cache=tmp_path / "cache", run=tmp_path / "run")


def _record(where: layout.Layout, name: str, pid: int, start_ticks: int) -> daemons.Running:
    folder = where.run / "daemons"
    folder.mkdir(parents=True, exist_ok=True)
    record = {"name": name, "pid": pid, "start_ticks": start_ticks, "log": str(where.log(name))}
    (folder / f"{name}.json").write_text(json.dumps(record))
    return daemons.Running(name, pid, start_ticks, where.log(name))


def test_a_reused_process_id_is_not_taken_for_the_daemon(tmp_path: Path) -> None:
    ticks = daemons.start_ticks(os.getpid())
    assert ticks is not None
    assert daemons.Running("me", os.getpid(), ticks, tmp_path).is_alive()
    assert not daemons.Running("other", os.getpid(), ticks - 1, tmp_path).is_alive()


def test_an_ended_process_has_no_start_time() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert daemons.start_ticks(process.pid) is None


def test_records_come_back(tmp_path: Path) -> None:
    where = _where(tmp_path)
    assert daemons.recorded(where) == []
    running = _record(where, "etcd", 17, 4711)
    assert daemons.recorded(where) == [running]


def test_waiting_names_the_daemon_that_ended_not_the_one_awaited(tmp_path: Path) -> None:
    where = _where(tmp_path)
    ticks = daemons.start_ticks(os.getpid())
    assert ticks is not None
    awaited = _record(where, "kube-apiserver", os.getpid(), ticks)
    _record(where, "etcd", os.getpid(), ticks - 1)
    with pytest.raises(ClusterError, match="etcd: ended"):
        daemons.wait_until(where, awaited, lambda: False, timeout_s=5)


def test_waiting_is_bounded(tmp_path: Path) -> None:
    where = _where(tmp_path)
    ticks = daemons.start_ticks(os.getpid())
    assert ticks is not None
    awaited = _record(where, "kubelet", os.getpid(), ticks)
    with pytest.raises(ClusterError, match=r"kubelet: not ready after 0\.1 s"):
        daemons.wait_until(where, awaited, lambda: False, timeout_s=0.1)


def test_stop_ends_and_forgets(tmp_path: Path) -> None:
    where = _where(tmp_path)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        ticks = daemons.start_ticks(process.pid)
        assert ticks is not None
        running = _record(where, "containerd", process.pid, ticks)
        daemons.stop(where, running)
        assert not running.is_alive()
    assert daemons.recorded(where) == []
