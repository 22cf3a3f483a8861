from firsttoken_api.reference import markdown


def test_a_cell_ends_where_it_should() -> None:
    table = markdown.table(("a", "b"), [("x | y", "two\nlines"), ("<claim>", "`<kept>`")])
    assert table.splitlines() == [
        "| a | b |",
        "|---|---|",
        "| x \\| y | two lines |",
        "| &lt;claim> | `<kept>` |",
    ]
