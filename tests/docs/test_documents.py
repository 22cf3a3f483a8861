"""What the documents name exists: links, make targets, chart values, annotations, commands."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from firsttoken_api import names

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    """Anchors as GitHub makes them."""
    headings = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(page.read_text()))
    return {heading.strip().replace(" ", "-") for heading in headings}


def _ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=_ids)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target, anchor in _LINK.findall(re.sub(r"\n +", " ", page.read_text())):
        if target.startswith("http"):
            continue
        destination = (page.parent / target).resolve() if target else page
        if not destination.exists() or (anchor and anchor[1:] not in _anchors(destination)):
            broken.append(target + anchor)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=_ids)
def test_make_targets_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"(?:^|`)make ([a-z0-9-]+)", page.read_text(), re.MULTILINE))
    assert {target for target in named if not re.search(rf"^{target}:", makefile, re.MULTILINE)} == set()


@pytest.mark.parametrize("page", PAGES, ids=_ids)
def test_chart_values_exist(page: Path) -> None:
    values = yaml.safe_load((ROOT / "charts" / "firsttoken" / "values.yaml").read_text())
    for path in re.findall(r"--set '?([A-Za-z.]+)=", page.read_text()):
        inner = values
        for part in path.split("."):
            assert part in inner, f"{path} is no value of the chart"
            inner = inner[part]


@pytest.mark.parametrize("page", PAGES, ids=_ids)
def test_labels_and_annotations_exist(page: Path) -> None:
    known = {value for name, value in vars(names).items() if name.startswith(("LABEL_", "ANNOTATION_"))}
    named = set(re.findall(r"(firsttoken\.dev/[a-z][a-z-]*[a-z])", page.read_text()))
    assert named <= known | {names.API_VERSION}


@pytest.mark.parametrize("page", PAGES, ids=_ids)
def test_commands_exist(page: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    commands = set(project["entry-points"]["firsttoken.commands"])
    named = set(re.findall(r"(?:^|`)firsttoken ([a-z]+)", page.read_text(), re.MULTILINE))
    assert named <= commands
