"""What the loop asks of grammars: the side of `grammar` that the sampler and the intake see.

Both may raise, or fail with, `guidance.GrammarError`; it ends its own request, never unconstrained.
"""

from collections.abc import Collection
from concurrent.futures import Future
from typing import Any, Protocol

import torch


class Matcher(Protocol):
    """Where one sequence stands in its grammar."""

    def mask(self, unwanted: Collection[int] = ()) -> torch.Tensor:
        """Which tokens may come next, [V] bool on the CPU; EOS where the grammar may end. `unwanted` ids
        are left out unless nothing else would be left."""

    def accept(self, token_id: int) -> None:
        """Take the chosen token."""

    @property
    def is_finished(self) -> bool:
        """True when nothing may follow any more."""


class Grammars(Protocol):
    """Compiles outside of the loop's thread."""

    def compile(self, grammar: str) -> Future[Any]:
        """Of a `Matcher` (a future's type cannot be widened, so it is not said). Returns at once."""

    def poll(self) -> None:
        """To be called now and then while something compiles: what takes too long fails."""
