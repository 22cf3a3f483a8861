"""Which TCP ports something listens on, from /proc/net: no tool, no guess by connecting."""

from pathlib import Path

LISTEN = "0A"


def parse(table: str) -> dict[int, str]:
    """Listening ports of one /proc/net/tcp table, each with its socket inode."""
    found = {}
    for row in table.splitlines()[1:]:
        fields = row.split()
        if len(fields) > 9 and fields[3] == LISTEN:
            found[int(fields[1].rpartition(":")[2], 16)] = fields[9]
    return found


def listening() -> dict[int, str]:
    """Listening TCP ports of this network namespace, IPv4 and IPv6, each with its socket inode."""
    found: dict[int, str] = {}
    for name in ("tcp6", "tcp"):
        table = Path("/proc/net") / name
        if table.exists():
            found.update(parse(table.read_text()))
    return found


def owner(port: int) -> str:
    """`process 42 (name)` that listens on `port`, for an error message."""
    inode = listening().get(port)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(fd.readlink()) == f"socket:[{inode}]" for fd in (process / "fd").iterdir()):
                return f"process {process.name} ({(process / 'comm').read_text().strip()})"
        except OSError:
            continue  # it ended, or is not ours to look at
    return "an unknown process"
