"""Keys: what must change them, and what must not."""

from pathlib import Path

from images import inputs

ROOT = Path(__file__).resolve().parents[2]


DOCKERFILE = """FROM base AS operator-dependencies
RUN pip install operator
FROM base AS sidecar-dependencies
RUN pip install sidecar
FROM sidecar-dependencies AS sidecar
USER 1
"""


def tree(root: Path) -> Path:
    for name in [*inputs.CODE, *inputs.RUNTIME_PACKAGES, *set(inputs.DOCKERFILES.values())]:
        path = root / name
        if "." in path.name or path.name == "Dockerfile":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(DOCKERFILE if path.name == "Dockerfile" else name)
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


def test_the_keys_cover_all_that_a_build_can_see() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    visible = {line[1:] for line in lines if line.startswith("!")}
    locks = {name for name in (*inputs.CODE, *inputs.RUNTIME_PACKAGES) if name.endswith(".lock")}
    assert lines[1] == "*"
    assert visible == {"requirements/*.lock", *inputs.CODE, *inputs.RUNTIME_PACKAGES} - locks


def test_both_dockerfiles_build_the_code_in_the_same_way() -> None:
    texts = [(ROOT / name).read_text() for name in sorted(set(inputs.DOCKERFILES.values()))]
    assert len({inputs.stage(text, "code").rstrip() for text in texts}) == 1


def test_how_packages_are_installed_counts_only_for_their_own_layer(tmp_path: Path) -> None:
    root = tree(tmp_path)
    before = {role: inputs.packages_key(root, role, "base") for role in inputs.ROLES}
    dockerfile = root / "operator/Dockerfile"
    dockerfile.write_text(
        DOCKERFILE.replace("install sidecar", "install --pre sidecar").replace("USER 1", "USER 2")
    )
    after = {role: inputs.packages_key(root, role, "base") for role in inputs.ROLES}
    assert [role for role in inputs.ROLES if before[role] != after[role]] == ["sidecar"]


def test_every_package_of_the_distribution_is_copied() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(packages) <= set(inputs.CODE)
