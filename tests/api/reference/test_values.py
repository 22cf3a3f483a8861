from pathlib import Path

import pytest

from firsttoken_api.reference import values

TEXT = """# Where images come from.
image:
  # Registry,
  # with a path.
  registry: ""

  # Tags that are pulled.
  tags: [a, b]
# Nothing in it.
extra: {}
"""


def test_names_defaults_and_comments(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(TEXT)
    lines = values.page(tmp_path / "values.yaml").splitlines()
    assert lines[-4:] == [
        "| `image` |  | Where images come from. |",
        '| `image.registry` | `""` | Registry, with a path. |',
        '| `image.tags` | `["a", "b"]` | Tags that are pulled. |',
        "| `extra` | `{}` | Nothing in it. |",
    ]


def test_a_value_without_a_comment_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("# About a.\na: 1\nb: 2\n")
    with pytest.raises(ValueError, match=r"line 3: b needs a comment"):
        values.page(tmp_path / "values.yaml")
