"""The command line of what is generated into the repository: write the files, or check them.

`crd` and `docs` say which files and what is in them; both are commands of their own with this behaviour.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path


def main(
    program: str,
    description: str | None,
    targets: Callable[[Path], dict[Path, str]],
    arguments: list[str] | None,
) -> int:
    """`targets`: the text of every file below a repository root.

    0: written, or nothing to write. 1: with `--check`, a file differs.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    parser.add_argument("--root", type=Path, default=Path(), help="the repository (default: here)")
    options = parser.parse_args(arguments)
    wanted = targets(options.root)
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path])
        sys.stderr.write(f"{path}: {'differs' if options.check else 'written'}\n")
    return 1 if stale and options.check else 0
