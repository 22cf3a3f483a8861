"""Where the local set-up keeps things.

The checkout holds only `.venv` (a link) and `.cluster/` (state of one cluster). All that is dear to make lies
in one cache folder outside of it, named after what it was made from: safe to delete, shared by checkouts.
"""

import os
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Paths:
    """Folders of one checkout."""

    checkout: Path
    cache: Path

    @property
    def venv(self) -> Path:
        return self.checkout / ".venv"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def state(self) -> Path:
        """What the local cluster writes while it runs."""
        return self.checkout / ".cluster"

    @property
    def steps(self) -> Path:
        """Logs of the set-up's steps. The cluster's own lie beside it, and are emptied when it starts."""
        return self.state / "steps"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def models(self) -> Path:
        """The folder behind the PersistentVolume `models`."""
        return self.state / "models"

    def tool(self, name: str) -> Path:
        """`kubectl` or `helm` as the local cluster provides them."""
        return self.state / "bin" / name


def here() -> Paths:
    """The folders of this checkout; `FIRSTTOKEN_CACHE` moves the cache."""
    cache = os.environ.get("FIRSTTOKEN_CACHE") or Path.home() / ".cache" / "firsttoken"
    return Paths(checkout=CHECKOUT, cache=Path(cache).expanduser().resolve())
