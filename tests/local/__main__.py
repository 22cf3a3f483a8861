"""`python3 -m local COMMAND` (with PYTHONPATH=tests): what the Makefile's targets call.

Standard library only, so that it runs on a machine that has nothing but Python.
"""

import os
import sys
from collections.abc import Callable

from cluster import layout, prerequisites
from cluster.errors import ClusterError
from cluster.progress import Progress
from local import environment, paths, requirements, steps

Command = Callable[[paths.Paths, steps.Report, steps.Processes], int]


def setup(where: paths.Paths, report: steps.Report, processes: steps.Processes) -> int:
    prerequisites.install_packages(layout.of_checkout(), Progress())
    environment.ensure(where, report, processes)
    return 0


def lock(where: paths.Paths, report: steps.Report, processes: steps.Processes) -> int:
    requirements.write(where, environment.ensure_uv(where, report, processes), report, processes)
    return 0


COMMANDS: dict[str, Command] = {"setup": setup, "lock": lock}


def main(arguments: list[str]) -> int:
    """Runs one command. 1 and a reason on standard error when a step failed, 2 for an unknown command."""
    if len(arguments) != 1 or arguments[0] not in COMMANDS:
        print(f"usage: python3 -m local {{{','.join(COMMANDS)}}}", file=sys.stderr)
        return 2
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{prerequisites.SYSTEM_PATH}"
    processes = steps.Processes()
    report = steps.Report()
    try:
        with report.heartbeat():
            return COMMANDS[arguments[0]](paths.here(), report, processes)
    except steps.StepFailed as failure:
        print(f"\n{arguments[0]} failed: {failure}", file=sys.stderr)
        return 1
    except ClusterError as failure:
        print(f"\n{arguments[0]} failed: {failure.report()}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    finally:
        processes.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
