"""What is forgotten, and what must not be."""

import os
from pathlib import Path

from images import sweep


def records(folder: Path, role: str, count: int) -> list[str]:
    """Records of `count` tags, oldest first."""
    folder.mkdir(exist_ok=True)
    tags = [f"tag{number:03}" for number in range(count)]
    for age, tag in enumerate(tags):
        path = folder / f"{role}-{tag}.json"
        path.write_text("{}")
        os.utime(path, (1000 + age, 1000 + age))
    return tags


def test_only_old_and_unused_images_of_ours_go(tmp_path: Path) -> None:
    tags = records(tmp_path / "code", "operator", sweep.KEPT_TAGS + 2)
    present = [f"localhost/firsttoken/runtime:{tag}" for tag in tags]
    other = ["localhost/firsttoken/pause:1", "sha256:ab", "registry.example.com/mine:1"]
    used = [f"localhost/firsttoken/runtime:{tags[0]}"]
    assert sweep.old_references(present + other, tmp_path / "code", used) == [
        f"localhost/firsttoken/runtime:{tags[1]}"
    ]


def test_packages_of_the_last_locks_stay(tmp_path: Path) -> None:
    keys = records(tmp_path, "runtime", sweep.KEPT_PACKAGES + 1)
    for key in [*keys, "killed"]:
        (tmp_path / f"runtime-{key}").mkdir()
    gone = sweep.old_packages(tmp_path)
    assert sorted(path.name for path in gone) == ["runtime-killed", f"runtime-{keys[0]}"]
    assert not (tmp_path / f"runtime-{keys[0]}.json").exists()
    assert all((tmp_path / f"runtime-{key}").is_dir() for key in keys[1:])
