import hashlib
import os

import pytest

from firsttoken_runtime.bench import machine

CPUINFO = """processor\t: 0
cpu family\t: 6
model\t\t: 143
model name\t: A CPU @ 2.00GHz
stepping\t: 8
flags\t\t: fpu avx2 fma avx512f

processor\t: 1
model name\t: Another
"""


def test_cpuinfo_is_read(tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text(CPUINFO)
    assert machine._processor(file) == "A CPU @ 2.00GHz (cpu family 6, model 143, stepping 8)"
    assert machine._features(file) == ("avx2", "fma", "avx512f")
    file.write_text("Features\t: fp asimd sve\n")
    assert machine._features(file) == ("neon", "sve")
    assert machine._processor(tmp_path / "missing") != ""


def test_a_core_is_busy_but_for_idling_and_waiting_for_disks(tmp_path):
    stat = tmp_path / "stat"
    stat.write_text("cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 100 20 30 5000 700 4 5 6 7 8\nintr 1\n")
    ticks = os.sysconf("SC_CLK_TCK")
    assert machine.busy_seconds(1, stat) == pytest.approx((100 + 20 + 30 + 4 + 5 + 6) / ticks)
    with pytest.raises(ValueError, match="no core 0"):
        machine.busy_seconds(0, stat)


def test_this_machine_says_what_it_is():
    here = machine.look()
    assert here.cores >= 1
    assert here.memory_bytes > 2**28
    assert "torch" in here.versions
    assert len(machine.load_average()) == 3


def test_a_digest_is_the_files_or_that_of_all_files(tmp_path):
    file = tmp_path / "a.gguf"
    file.write_bytes(b"abc")
    assert machine.digest(file) == hashlib.sha256(b"abc").hexdigest()
    first = machine.digest(tmp_path)
    file.rename(tmp_path / "b.gguf")
    assert machine.digest(tmp_path) != first
