"""The container's last words."""

from firsttoken_api.resolved import parse
from firsttoken_runtime import termination


def test_written_only_where_the_kubelet_made_the_file(tmp_path):
    failure = termination.failure("NotEnoughMemory", "x" * 5000)
    termination.write(tmp_path / "none", failure)
    assert not (tmp_path / "none").exists()
    (tmp_path / "log").touch()
    termination.write(tmp_path / "log", failure)
    assert parse((tmp_path / "log").read_text()) == failure
    assert len(failure.message) == 1000
