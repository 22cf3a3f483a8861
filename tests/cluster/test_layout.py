from pathlib import Path

from cluster import layout


def test_the_checkout_is_the_one_this_file_is_in() -> None:
    where = layout.of_checkout({})
    assert (where.checkout / "tests" / "cluster" / "layout.py").exists()
    assert where.state == where.checkout / ".cluster" / "state"


def test_the_cache_can_be_moved_and_is_outside_the_checkout(tmp_path: Path) -> None:
    assert layout.of_checkout({"FIRSTTOKEN_CACHE": str(tmp_path)}).cache == tmp_path
    usual = layout.of_checkout({"FIRSTTOKEN_CACHE": ""})
    assert usual.cache == Path("~/.cache/firsttoken").expanduser().resolve()
    assert not usual.image_store.is_relative_to(usual.checkout)
