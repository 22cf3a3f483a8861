"""The topology zone of this replica: as set, else from the pod's labels, if the cluster puts it there."""

import re
from collections.abc import Callable
from pathlib import Path

from firsttoken_api import names
from firsttoken_sidecar import mounts

LABEL = "topology.kubernetes.io/zone"
READ_EVERY_S = 30.0
_LINE = re.compile(rf"^{re.escape(LABEL)}" r'="([^"\\]{1,63})"$', re.MULTILINE)


def parse_labels(content: bytes) -> str:
    """Reads the downward API's file, one `key="value"` a line. Empty without the label."""
    found = _LINE.search(content.decode(errors="replace"))
    return found[1] if found else ""


class Zone:
    """The zone, by name; empty where nobody says."""

    def __init__(self, configured: str, pod_info_folder: Path, clock: Callable[[], float]) -> None:
        self._configured = configured
        self._file = mounts.MountedFile(pod_info_folder, names.POD_LABELS_FILE)
        self._clock = clock
        self._read_again_s = clock()
        self._labelled = ""

    def name(self) -> str:
        if self._configured:
            return self._configured
        now = self._clock()
        if now >= self._read_again_s:
            self._read_again_s = now + READ_EVERY_S
            if self._file.changed():
                self._labelled = parse_labels(self._file.read() or b"")
        return self._labelled
