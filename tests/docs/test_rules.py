"""docs/rules.md explains every reason that the scheduler counts, and invents none."""

import re
from pathlib import Path

from firsttoken_api import flags
from firsttoken_runtime.scheduler import rules

DOCS = Path(__file__).parents[2] / "docs"
_CODE = re.compile(r"`((?:precision|reuse|sharing|victim)_[a-z_]+)`")


def test_every_reason_is_explained_once() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \|", (DOCS / "rules.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(reason.value for reason in rules.Reason)


def test_no_page_names_another_reason() -> None:
    for page in (DOCS / "rules.md", DOCS / "kv-cache.md"):
        assert set(_CODE.findall(page.read_text())) <= {reason.value for reason in rules.Reason}, page.name


def test_the_rules_that_are_quoted_exist() -> None:
    quoted = re.findall(r"'([a-z0-9-]+) (needs|excludes) ([a-z0-9-]+)'", (DOCS / "rules.md").read_text())
    assert quoted
    for flag, relation, other in quoted:
        name = flags.excludes_rule if relation == "excludes" else flags.needs_rule
        assert other in getattr(flags.BY_NAME[flag], relation)
        assert name(flag, other) == f"{flag} {relation} {other}"
