"""How often urgent requests are refused for less urgent ones that were let in. Pure.

Whoever was let in was promised its limit, and more urgent ones that come later go first: so some of those
have to be told to come again. But a flood of less urgent requests fills whatever room there is, and a class
that asks for little must not pay for it. Of a class that the engine could serve alone at most a few in a
hundred are refused so. Where a class is overloaded itself, some of it is refused in any case, and half of
what it loses may go to promises.
"""

EARNED_PER_REQUEST = 0.02
EARNED_PER_OWN_REFUSAL = 0.5
MOST = 12.0
"""That can be used at once: enough for the first second of a surge."""


class Yielding:
    """What each class may still lose to others."""

    def __init__(self) -> None:
        self._left: dict[str, float] = {}

    def may_yield(self, request_class: str) -> bool:
        return self._left.get(request_class, MOST) >= 1

    def asked(self, request_class: str) -> None:
        """Somebody came for the first time."""
        self._earn(request_class, EARNED_PER_REQUEST)

    def overloaded(self, request_class: str) -> None:
        """One was refused because of its own class or more urgent ones."""
        self._earn(request_class, EARNED_PER_OWN_REFUSAL)

    def yielded(self, request_class: str) -> None:
        """One was refused for a less urgent one."""
        self._left[request_class] = self._left.get(request_class, MOST) - 1

    def _earn(self, request_class: str, amount: float) -> None:
        self._left[request_class] = min(self._left.get(request_class, MOST) + amount, MOST)
