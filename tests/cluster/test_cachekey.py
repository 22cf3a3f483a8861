from pathlib import Path

from cluster import cachekey


def test_depends_on_content_and_words_but_not_on_folder(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "go.mod", tmp_path / "b" / "go.mod"
    for path in (first, second):
        path.parent.mkdir()
        path.write_text("module x\n")
    key = cachekey.of([first], ["-trimpath"])
    assert cachekey.of([second], ["-trimpath"]) == key
    second.write_text("module y\n")
    assert cachekey.of([second], ["-trimpath"]) != key
    assert cachekey.of([first], ["-trimpath", ""]) != key
    assert cachekey.of([first], ["-trim", "path"]) != key


def test_file_order_does_not_matter(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("x", "y")]
    for path in files:
        path.write_text(path.name)
    assert cachekey.of(files, []) == cachekey.of(reversed(files), [])
