"""What runs on this machine now, and whose it is: at most one cluster, of any checkout.

The record is written before anything else is made and removed after all else is gone. A run that was killed
therefore always leaves one, and the next start, from whatever checkout, learns from it what to clear.
"""

import contextlib
import fcntl
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster import layout
from cluster.errors import ClusterError
from cluster.progress import Progress

LOCK_TIMEOUT_S = 600


@dataclass(frozen=True)
class Record:
    """The active run: its checkout's `.cluster`, what it was started from, kernel settings before it."""

    cluster: str
    fingerprint: str
    sysctls: Mapping[str, str]


def read(run: Path = layout.RUN) -> Record | None:
    try:
        document = json.loads(_file(run).read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        return Record("", "", {})  # killed while writing: something ran, nothing is known of it
    return Record(document["cluster"], document["fingerprint"], document["sysctls"])


def write(record: Record, run: Path = layout.RUN) -> None:
    run.mkdir(parents=True, exist_ok=True, mode=0o711)
    _file(run).write_text(json.dumps(asdict(record), indent=1))


@contextlib.contextmanager
def lock(progress: Progress, path: Path = layout.LOCK) -> Iterator[None]:
    """Only one `up` or `down` at a time on this machine; the kernel frees it when its holder dies."""
    with path.open("w") as file:
        deadline_s = time.monotonic() + LOCK_TIMEOUT_S
        told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline_s:
                    raise ClusterError(
                        "lock", f"another up or down holds {path} for {LOCK_TIMEOUT_S} s"
                    ) from error
                if not told:
                    progress.say("lock", "waiting for another up or down on this machine")
                    told = True
                time.sleep(0.2)
        yield


def _file(run: Path) -> Path:
    return run / "active.json"
