"""What all our objects have in common."""

from firsttoken_operator import objects


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert objects.digest({"a": 1, "b": [2]}) == objects.digest({"b": [2], "a": 1})
    assert objects.digest({"a": 1}) != objects.digest({"a": "1"})
