from pathlib import Path

import pytest

from firsttoken_api import docs

ROOT = Path(__file__).resolve().parents[2]


def test_the_documents_are_what_the_tables_say() -> None:
    assert docs.main(["--check", "--root", str(ROOT)]) == 0, "run: python -m firsttoken_api.docs"


def test_the_flag_table_goes_between_its_markers() -> None:
    text = docs.with_flag_table(f"before\n{docs.BEGIN}\nold\n{docs.END}\nafter\n")
    assert text.startswith(f"before\n{docs.BEGIN}\n| flag |")
    assert text.endswith(f"|\n{docs.END}\nafter\n")
    assert docs.with_flag_table(text) == text


def test_a_readme_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="flags:begin"):
        docs.with_flag_table("no markers")


def test_without_the_chart_the_error_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(f"{docs.BEGIN}\n{docs.END}")
    with pytest.raises(FileNotFoundError, match=r"values\.yaml"):
        docs.files(tmp_path)
