"""Keeps a label's values few, whatever clients send. Pure."""

MOST_TENANTS = 32
OTHER = "other"


class Bounded:
    """The first so many values keep their names; those that come later share one."""

    def __init__(self, most: int = MOST_TENANTS) -> None:
        self._most = most
        self._known = {""}  # where there are no keys: it takes no place

    def of(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) > self._most:
            return OTHER
        self._known.add(value)
        return value
