"""The one error of the local cluster: what failed, why, and where its log is.

Everything that can go wrong for a reason outside this code (a missing program, a port in use, a daemon that
ends) is raised as `ClusterError`; the command line prints it and exits 1. Our own mistakes stay assertions.
"""

from pathlib import Path

TAIL_LINES = 15


class ClusterError(Exception):
    """`component` failed with `message`; `log` is the file to read, when there is one."""

    def __init__(self, component: str, message: str, log: Path | None = None) -> None:
        super().__init__(f"{component}: {message}")
        self.component = component
        self.message = message
        self.log = log

    def report(self) -> str:
        """Several lines for a person: the failure, the end of the log, and the log's path."""
        lines = [f"FAILED {self.component}: {self.message}"]
        if self.log is not None:
            tail = last_lines(self.log, TAIL_LINES)
            if tail:
                lines.append(f"last lines of {self.log}:")
                lines.extend(f"    {line}" for line in tail)
            else:
                lines.append(f"its log {self.log} is empty")
        return "\n".join(lines)


def last_lines(path: Path, count: int) -> list[str]:
    """The last `count` lines of a text file, [] when it does not exist."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 400 * count))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-count:]
