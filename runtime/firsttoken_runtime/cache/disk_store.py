"""Keeps the host tier over a restart of the engine: two threads and a folder; the loop never waits for them.

One thread writes what the tier stored. Its queue is short: when the disk is slower than the tier, records
are left out. Another reads back what an earlier process left, after a start and after each switch to
another lineage, checks it, and offers it to the loop, which takes as much as it has time for.
"""

import logging
import queue
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from firsttoken_runtime.cache import disk_folder
from firsttoken_runtime.cache.disk_record import Record
from firsttoken_runtime.cache.formats import Format
from firsttoken_runtime.cache.host_problems import Problems

PAUSED = "paused"
QUEUE_FULL = "queue_full"
QUEUE_BYTES = 64 * 1024**2
"""Of records that wait to be written."""
_RESTORED_QUEUE_RECORDS = 16
_PAUSE_S = 10.0
"""After a record could not be written, so that a full disk is not tried again for each."""
_WAKE_S = 0.2
_log = logging.getLogger(__name__)


class DiskStore:
    """One folder. All methods are for the loop's thread; those without a timeout return at once."""

    def __init__(
        self, path: Path, capacity_bytes: int, problems: Problems, *, pause_s: float = _PAUSE_S
    ) -> None:
        self._folder = disk_folder.Folder(path, capacity_bytes, problems)
        self._problems = problems
        self._pause_s = pause_s
        self._to_write: queue.SimpleQueue[Record | None] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._written = threading.Condition()
        self._restore: _Restore | None = None
        self._writer = threading.Thread(target=self._write_all, name="disk-store-writer", daemon=True)
        self._writer.start()

    def write(self, record: Record, timeout_s: float = 0.0) -> None:
        """Soon; or never, when too many are still waiting after so long."""
        size = len(record.payload)
        with self._written:
            if not self._written.wait_for(
                lambda: self._waiting_bytes == 0 or self._waiting_bytes + size <= QUEUE_BYTES, timeout_s
            ):
                self._problems.note(QUEUE_FULL, "the disk is slower than the host tier; records are left out")
                return
            self._waiting_bytes += size
        self._to_write.put(record)

    def start_restoring(self, lineage: bytes, bytes_of: Mapping[Format, int]) -> None:
        """Read back the records of this lineage, used last first; an earlier call's are forgotten."""
        self.stop_restoring()
        self._restore = _Restore(self._folder, lineage, bytes_of)

    def stop_restoring(self) -> None:
        """There is no more room."""
        if self._restore is not None:
            self._restore.stop.set()
        self._restore = None

    @property
    def is_restoring(self) -> bool:
        """More may come."""
        return self._restore is not None and not self._restore.is_done

    def poll_restored(self) -> Record | None:
        """The next checked record, None when there is none right now."""
        return self._restore.poll() if self._restore is not None else None

    def close(self, timeout_s: float) -> None:
        """Write what waits, for at most so long."""
        self.stop_restoring()
        self._to_write.put(None)
        self._writer.join(timeout_s)
        if self._writer.is_alive():
            _log.warning("the disk was too slow: %d records were not written", self._to_write.qsize())

    def _write_all(self) -> None:
        resume_at = float("-inf")
        while (record := self._to_write.get()) is not None:
            if time.monotonic() < resume_at:
                self._problems.note(PAUSED, "records are left out for a while after one could not be written")
            elif not self._folder.write(record):
                resume_at = time.monotonic() + self._pause_s
            with self._written:
                self._waiting_bytes -= len(record.payload)
                self._written.notify()


class _Restore:
    """One reading of the folder."""

    def __init__(self, folder: disk_folder.Folder, lineage: bytes, bytes_of: Mapping[Format, int]) -> None:
        self.stop = threading.Event()
        self._records: queue.Queue[Record] = queue.Queue(_RESTORED_QUEUE_RECORDS)
        self._thread = threading.Thread(
            target=self._read_all,
            args=(folder, lineage, dict(bytes_of)),
            name="disk-store-reader",
            daemon=True,
        )
        self._thread.start()

    @property
    def is_done(self) -> bool:
        # The thread first: what it put before it ended is in the queue.
        return not self._thread.is_alive() and self._records.empty()

    def poll(self) -> Record | None:
        try:
            return self._records.get_nowait()
        except queue.Empty:
            return None

    def _read_all(self, folder: disk_folder.Folder, lineage: bytes, bytes_of: Mapping[Format, int]) -> None:
        num_records = 0
        for record in folder.records(lineage, bytes_of):
            if not self._offer(record):
                return
            num_records += 1
        _log.info("%d blocks were read back from %s", num_records, folder.path)

    def _offer(self, record: Record) -> bool:
        """False when nobody wants it any more."""
        while not self.stop.is_set():
            try:
                self._records.put(record, timeout=_WAKE_S)
                return True
            except queue.Full:
                continue
        return False
