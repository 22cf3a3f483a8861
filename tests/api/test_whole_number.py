from firsttoken_api import whole_number


def test_values_and_bounds() -> None:
    numbers = whole_number.Range("8", "128")
    assert all(numbers.holds(text) for text in ("8", "33", "128", "0128"))
    assert not any(numbers.holds(text) for text in ("7", "129", "-8", "8.0", "", "8\n", "1" * 10, "٨"))
    assert numbers.expression("x") == "x.matches('^[0-9]{1,9}$') && int(x) >= 8 && int(x) <= 128"


def test_another_spelling_is_the_same_value() -> None:
    assert whole_number.Range("0").canonical("0032") == "32"
