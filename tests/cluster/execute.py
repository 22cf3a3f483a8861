"""Runs other people's programs, always with a time limit and with their output in the error."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.errors import ClusterError


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    input_text: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = True,
) -> str:
    """Standard output of `argv`. With `check`, a non-zero exit raises; a timeout always does."""
    program = Path(argv[0]).name
    try:
        done = subprocess.run(
            argv, input=input_text, env=env, cwd=cwd, timeout=timeout_s, capture_output=True, text=True
        )
    except FileNotFoundError as error:
        raise ClusterError(program, f"the program {argv[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(program, f"`{' '.join(argv)}` took more than {timeout_s:g} s") from error
    if check and done.returncode != 0:
        output = (done.stderr or done.stdout).strip()[-2000:]
        raise ClusterError(program, f"`{' '.join(argv)}` exited {done.returncode}: {output}")
    return done.stdout


def run_logged(
    argv: Sequence[str],
    *,
    log: Path,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """Runs a long program with its output appended to `log`; a failure or a timeout names the log."""
    program = Path(argv[0]).name
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                timeout=timeout_s,
            )
        except FileNotFoundError as error:
            raise ClusterError(program, f"the program {argv[0]} is not installed") from error
        except subprocess.TimeoutExpired as error:
            raise ClusterError(program, f"took more than {timeout_s:g} s", log) from error
    if done.returncode != 0:
        raise ClusterError(program, f"`{' '.join(argv)}` exited {done.returncode}", log)
