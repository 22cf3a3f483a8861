from pathlib import Path

import pytest

from cluster import addresses, gobinaries

GO = "go version go1.26.8 linux/amd64"


@pytest.mark.parametrize(
    ("text", "version"),
    [(GO, (1, 26)), ("go version go1.9 linux/arm64", (1, 9)), ("gccgo something", (0, 0)), ("", (0, 0))],
)
def test_version_of(text: str, version: tuple[int, int]) -> None:
    assert gobinaries.version_of(text) == version


@pytest.mark.parametrize("program", [*gobinaries.NEEDED_TO_START, gobinaries.PROBE], ids=lambda p: p.name)
def test_every_program_has_sources_and_no_missing_sums(program: gobinaries.Program) -> None:
    assert (program.folder / "main.go").exists()
    module = (program.folder / "go.mod").read_text()
    assert f"module firsttoken.dev/tests/cluster/{program.name}\n" in module
    assert ("require" not in module) or (program.folder / "go.sum").exists()


def test_cache_entry_depends_on_the_compiler_and_the_flags() -> None:
    cache = Path("/cache")
    one = gobinaries.cached(gobinaries.PAUSE, cache, GO)
    assert one == gobinaries.cached(gobinaries.PAUSE, cache, GO)
    assert one != gobinaries.cached(gobinaries.PAUSE, cache, GO.replace("26.8", "26.9"))
    assert one != gobinaries.cached(gobinaries.Program("pause", "-X main.x=1"), cache, GO)


def test_the_version_built_is_the_version_required() -> None:
    module = (gobinaries.KUBERNETES.folder / "go.mod").read_text()
    assert f"k8s.io/kubernetes v{addresses.KUBERNETES_VERSION}\n" in module
