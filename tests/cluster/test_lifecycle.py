from pathlib import Path

from cluster import layout, lifecycle, record


def test_problems_of_what_never_started_or_is_anothers(tmp_path: Path) -> None:
    where = layout.Layout(checkout=tmp_path, cache=tmp_path / "cache", run=tmp_path / "run")
    assert lifecycle.problems(where) == ["not running"]
    record.write(record.Record("/elsewhere/.cluster", "", {}), where.run)
    assert lifecycle.problems(where) == ["another checkout's cluster is running: /elsewhere/.cluster"]
    record.write(record.Record(str(where.cluster), "", {}), where.run)
    assert lifecycle.problems(where) == [f"{name} was not started" for name in sorted(lifecycle.DAEMONS)]


def test_every_planned_daemon_is_watched() -> None:
    where = layout.Layout(checkout=Path("/code"), cache=Path("/cache"))
    binaries = lifecycle.Binaries(Path("/k"), Path("/c"), Path("/p"))
    assert tuple(lifecycle._daemons(where, binaries)) == lifecycle.DAEMONS


def test_fingerprint_follows_the_binaries() -> None:
    where = layout.Layout(checkout=Path("/code"), cache=Path("/cache"))
    one, two = (lifecycle.Binaries(Path(name), Path("/c"), Path("/p")) for name in ("/k1", "/k2"))
    assert lifecycle._fingerprint(where, one) == lifecycle._fingerprint(where, one)
    assert lifecycle._fingerprint(where, one) != lifecycle._fingerprint(where, two)
