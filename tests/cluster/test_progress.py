from cluster import progress


def test_a_line_has_whole_seconds_in_a_column() -> None:
    assert progress.line(12.4, "api server", "ready") == "[  12 s] api server: ready"
    assert progress.line(1234.5, "go", "done") == "[1234 s] go: done"
