"""Keys and links of the Python environment."""

from pathlib import Path

import pytest

from local import environment, paths, steps


def checkout(root: Path, name: str = "a") -> paths.Paths:
    where = paths.Paths(root / name, root / "cache")
    (where.checkout / "requirements").mkdir(parents=True)
    for lock in environment.LOCKS:
        (where.checkout / "requirements" / lock).write_text("x==1")
    return where


def test_the_key_follows_locks_and_interpreter(tmp_path: Path) -> None:
    folder = checkout(tmp_path).checkout / "requirements"
    keys = {environment.key(folder, "cpython-311")}
    keys.add(environment.key(folder, "cpython-312"))
    (folder / "model.lock").write_text("x==2")
    keys.add(environment.key(folder, "cpython-311"))
    assert len(keys) == 3


def test_checkouts_share_packages_and_nothing_else(tmp_path: Path) -> None:
    one, two = checkout(tmp_path, "one"), checkout(tmp_path, "two")
    assert environment.shared_folder(one) == environment.shared_folder(two)
    assert environment.thin_folder(one) != environment.thin_folder(two)


def test_a_real_folder_in_the_place_of_the_link_is_kept(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    with pytest.raises(steps.StepError, match="is a folder"):
        environment._link(tmp_path / ".venv", tmp_path / "target")


def test_an_old_link_is_replaced(tmp_path: Path) -> None:
    link, target = tmp_path / ".venv", tmp_path / "new"
    target.mkdir()
    link.symlink_to(tmp_path / "gone")
    environment._link(link, target)
    assert link.resolve() == target


def test_scripts_start_the_thin_environments_interpreter(tmp_path: Path) -> None:
    shared, thin = tmp_path / "shared", tmp_path / "thin"
    (shared / "bin").mkdir(parents=True)
    (thin / "bin").mkdir(parents=True)
    (shared / "bin/pytest").write_text(f"#!{shared}/bin/python\nimport pytest\n")
    (shared / "bin/ruff").write_bytes(b"\x7fELF")
    (shared / "bin/python").write_bytes(b"\x7fELF")
    (thin / "bin/python").write_bytes(b"\x7fELF thin")
    environment._copy_scripts(shared, thin)
    assert (thin / "bin/pytest").read_text().startswith(f"#!{thin}/bin/python\n")
    assert (thin / "bin/ruff").readlink() == shared / "bin/ruff"
    assert (thin / "bin/python").read_bytes() == b"\x7fELF thin"


def test_a_model_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(steps.StepError, match="make setup"):
        environment.model_file(checkout(tmp_path))
