"""Keys: what must change them, and what must not."""

from pathlib import Path

from images import inputs

ROOT = Path(__file__).resolve().parents[2]


def tree(root: Path) -> Path:
    for name in [*inputs.CODE, *inputs.RUNTIME_PACKAGES, *set(inputs.DOCKERFILES.values())]:
        path = root / name
        if "." in path.name or path.name == "Dockerfile":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        else:
            path.mkdir(parents=True)
            (path / "module.py").write_text("x = 1\n")
    (root / "requirements/operator.lock").write_text("a==1")
    (root / "requirements/sidecar.lock").write_text("b==1")
    return root


def test_a_change_of_code_changes_the_tag_and_no_heavy_layer(tmp_path: Path) -> None:
    root = tree(tmp_path)
    tag = inputs.tag(root, ["k"])
    keys = [inputs.packages_key(root, role, "base") for role in inputs.ROLES]
    (root / "runtime/firsttoken_runtime/module.py").write_text("x = 2\n")
    assert inputs.tag(root, ["k"]) != tag
    assert [inputs.packages_key(root, role, "base") for role in inputs.ROLES] == keys


def test_a_lock_changes_only_its_own_layer(tmp_path: Path) -> None:
    root = tree(tmp_path)
    before = {role: inputs.packages_key(root, role, "base") for role in inputs.ROLES}
    (root / "requirements/sidecar.lock").write_text("b==2")
    after = {role: inputs.packages_key(root, role, "base") for role in inputs.ROLES}
    assert [role for role in inputs.ROLES if before[role] != after[role]] == ["sidecar"]


def test_bytecode_and_times_do_not_count(tmp_path: Path) -> None:
    root = tree(tmp_path)
    tag = inputs.tag(root, [])
    cache = root / "crds/firsttoken_api/__pycache__"
    cache.mkdir()
    (cache / "module.pyc").write_bytes(b"x")
    (root / "pyproject.toml").touch()
    assert inputs.tag(root, []) == tag


def test_a_new_name_and_an_executable_bit_count(tmp_path: Path) -> None:
    root = tree(tmp_path)
    tags = {inputs.tag(root, [])}
    module = root / "crds/firsttoken_api/module.py"
    module.chmod(0o755)
    tags.add(inputs.tag(root, []))
    module.rename(module.with_name("other.py"))
    tags.add(inputs.tag(root, []))
    assert len(tags) == 3


def test_parts_keep_their_borders() -> None:
    assert inputs.key(["ab", "c"]) != inputs.key(["a", "bc"])


def test_the_key_covers_all_that_the_dockerfiles_copy() -> None:
    known = {
        *inputs.CODE,
        *inputs.RUNTIME_PACKAGES,
        "requirements/operator.lock",
        "requirements/sidecar.lock",
    }
    copied = set()
    for name in set(inputs.DOCKERFILES.values()):
        for line in (ROOT / name).read_text().splitlines():
            if line.startswith("COPY ") and "--from" not in line:
                copied |= set(line.split()[1:-1])
    assert copied == known


def test_both_dockerfiles_build_the_code_in_the_same_way() -> None:
    stages = []
    for name in sorted(set(inputs.DOCKERFILES.values())):
        text = (ROOT / name).read_text()
        start = text.index("FROM ${BASE} AS code")
        stages.append(text[start : text.index("\nFROM ", start)])
    assert stages[0] == stages[1]


def test_what_the_dockerfiles_copy_is_not_ignored() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for name in [*inputs.CODE, *inputs.RUNTIME_PACKAGES]:
        assert name in allowed or (name.endswith(".lock") and "requirements/*.lock" in allowed), name


def test_every_package_of_the_distribution_is_copied() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(packages) <= set(inputs.CODE)
