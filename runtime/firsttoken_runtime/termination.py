"""The file where a container leaves its last words for the kubelet, and the operator reads them."""

from pathlib import Path

from firsttoken_api.resolved import ResolveFailure, ResolveResult, render

TERMINATION_LOG = Path("/dev/termination-log")


def write(path: Path, result: ResolveResult) -> None:
    """Outside a pod the file does not exist, and nothing is written."""
    if path.exists():
        path.write_text(render(result))


def failure(reason: str, message: str) -> ResolveFailure:
    """`message` is cut to what the document allows."""
    return ResolveFailure(reason=reason, message=message[:1000])
