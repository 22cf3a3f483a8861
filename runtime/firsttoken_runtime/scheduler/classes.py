"""Classes of requests: which come first, and how much output each is meant to have.

They arrive with the hot settings and may change between two steps; a request only carries a name.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class RequestClass:
    """Larger priority = more urgent."""

    name: str = ""
    priority: int = 0
    max_tokens: int | None = None
    """Output budget: what the server gives a request that asks for nothing, and with length-control the
    output after which a request that asked for more is lowered."""


@dataclass(frozen=True)
class ClassTable:
    """The classes in force. Empty: one class without a name."""

    classes: tuple[RequestClass, ...] = ()
    default: str = ""

    def find(self, name: str) -> RequestClass:
        """The class of that name; the default class for "" and for a name that is not there (any more)."""
        for wanted in (name, self.default):
            for one in self.classes:
                if one.name == wanted:
                    return one
        return self.classes[0] if self.classes else RequestClass()

    def below(self, one: RequestClass) -> RequestClass:
        """The next less urgent class; the least urgent one stays where it is."""
        lower = [other for other in self.classes if other.priority < one.priority]
        return max(lower, key=lambda other: other.priority, default=one)


ONE_CLASS = ClassTable()
"""Nobody named classes."""
