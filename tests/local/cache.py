"""`make clean-cache`: forgets what is dear to make. Only what this project put into the cache folder."""

import shutil

from cluster import layout
from local import steps
from local.paths import Paths

OURS = ("venv-*", "checkouts", "tools", "images", "locks", "containerd", "go", "clients-*")


def clean(where: Paths, report: steps.Report) -> None:
    """Removes our folders from the cache. Raises StepError while a cluster runs, whose images lie there."""
    if layout.of_checkout().containerd_socket.exists():
        raise steps.StepError("a local cluster is running and uses the cache: run `make down` first")
    for pattern in OURS:
        for folder in sorted(where.cache.glob(pattern)):
            with report.step(f"removing {folder}"):
                shutil.rmtree(folder)
