"""The kernels in C, as `make setup` and a wheel have them: built once, or done without."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from firsttoken_kernels import native

SOURCE = Path(__file__).parents[2] / "kernels" / "native" / "build.py"


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, with a source of two lines that compiles at once."""
    spec = importlib.util.spec_from_file_location("native_build", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "small.c").write_text("int firsttoken_small(void) { return 1; }\n")
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.setattr(module, "SOURCES", [tmp_path / "small.c"])
    monkeypatch.setattr(module, "FOLDER", tmp_path / "_native")
    monkeypatch.setattr(module.platform, "machine", lambda: "x86_64")
    monkeypatch.delenv("FIRSTTOKEN_NATIVE", raising=False)
    monkeypatch.delenv("CC", raising=False)
    return module


def made(build: ModuleType) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in build.FOLDER.glob("*.so")}


def test_what_is_built_is_what_is_looked_for(build: ModuleType) -> None:
    assert set(build.TARGETS) == set(native.LANES)
    assert SOURCE.parent.parent / "firsttoken_kernels" / "_native" == native.FOLDER


def test_it_compiles_once_and_again_after_a_change(build: ModuleType) -> None:
    assert build.ensure()
    first = made(build)
    assert set(first) == {f"{name}.so" for name in build.TARGETS}
    assert build.ensure()
    assert made(build) == first
    (build.HERE / "small.c").write_text("int firsttoken_small(void) { return 2; }\n")
    assert build.ensure()
    assert all(made(build)[name] > time for name, time in first.items())


def test_what_does_not_compile_ends_the_build_and_is_not_taken_for_done(build: ModuleType) -> None:
    (build.HERE / "small.c").write_text("int firsttoken_small(void) { return missing; }\n")
    with pytest.raises(SystemExit, match="missing"):
        build.ensure()
    assert not (build.FOLDER / build.PROOF).exists()


def test_without_a_compiler_the_package_is_whole(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert not build.ensure()
    assert "no C compiler" in capsys.readouterr().err
    monkeypatch.setenv("FIRSTTOKEN_NATIVE", "required")
    with pytest.raises(SystemExit, match="required"):
        build.ensure()


def test_what_was_built_elsewhere_needs_no_compiler(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image is built from a checkout that has them."""
    build.ensure()
    monkeypatch.setenv("CC", "no-such-compiler")
    assert build.ensure()


def test_another_processor_has_none(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.platform, "machine", lambda: "aarch64")
    assert not build.ensure()


def test_an_engine_says_once_that_it_goes_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(native, "FOLDER", tmp_path)
    fresh = native.library.__wrapped__
    assert fresh() is None
    assert "slower" in caplog.text
    caplog.clear()
    monkeypatch.setenv(native.DISABLE_VARIABLE, "1")
    assert fresh() is None
    assert native.DISABLE_VARIABLE in caplog.text
