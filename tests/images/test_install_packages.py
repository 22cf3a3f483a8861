"""runtime/install_packages.py, which runs inside of an image build."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install_packages", ROOT / "runtime/install_packages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_comments_are_no_patterns(script: ModuleType) -> None:
    assert script.patterns("# why\ntriton\n\nnvidia/*/include  # headers\n") == ["triton", "nvidia/*/include"]


def test_prune_removes_files_and_folders(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "triton/backends").mkdir(parents=True)
    (tmp_path / "torch/lib").mkdir(parents=True)
    for name in ("libtorch_cpu.so", "libtorch_cuda_linalg.so"):
        (tmp_path / "torch/lib" / name).touch()
    assert script.prune(tmp_path, ["triton", "torch/lib/libtorch_cuda_l*"]) == 2
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["lib", "libtorch_cpu.so", "torch"]


def test_a_pattern_without_a_match_is_refused(script: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"cpu-image\.exclude"):
        script.prune(tmp_path, ["gone"])


def test_the_cpu_build_leaves_out_torch_and_what_only_cuda_needs(script: ModuleType) -> None:
    lock = (ROOT / "requirements/runtime.lock").read_text()
    version, rest = script.split_lock(lock)
    names = {line.partition("==")[0] for line in rest.splitlines() if "==" in line}
    assert f"torch=={version}" in lock
    assert {"numpy", "transformers", "sympy", "filelock"} <= names
    assert not [name for name in names if name.startswith(("torch", "triton", "nvidia", "cuda"))]
    assert rest.count("--hash=") > 100


def test_the_exclude_list_keeps_what_torch_is_linked_against(script: ModuleType) -> None:
    patterns = script.patterns((ROOT / "runtime/cpu-image.exclude").read_text())
    for needed in (
        "torch/lib/libtorch_cuda.so",
        "nvidia/cudnn/lib/libcudnn.so.9",
        "torch/bin/torch_shm_manager",
    ):
        assert not [pattern for pattern in patterns if Path(needed).match(pattern)]
