from pathlib import Path

from cluster import errors


def test_report_ends_with_the_last_lines_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    lines = errors.ClusterError("etcd", "ended", log).report().splitlines()
    assert lines[0] == "FAILED etcd: ended"
    assert lines[1] == f"last lines of {log}:"
    assert lines[-1] == "    line 999"
    assert len(lines) == 2 + errors.TAIL_LINES


def test_report_without_a_log_or_with_an_empty_one(tmp_path: Path) -> None:
    assert errors.ClusterError("go", "missing").report() == "FAILED go: missing"
    assert errors.ClusterError("x", "y", tmp_path / "none").report().endswith("is empty")
