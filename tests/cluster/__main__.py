"""`python3 tests/cluster COMMAND`: a real one-node Kubernetes on this machine, for tests and for trying out.

Standard library only, since it runs before any environment exists.
"""

import argparse
import sys
from pathlib import Path

# Run as a folder, Python puts the folder itself on the path; our modules are `cluster.*` one level up.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from cluster import clients, images, layout, lifecycle, selftest  # noqa: E402
from cluster.errors import ClusterError  # noqa: E402
from cluster.progress import Progress  # noqa: E402


def main() -> int:
    arguments = _parser().parse_args()
    try:
        return _run(arguments, layout.of_checkout(), Progress())
    except ClusterError as error:
        print(error.report(), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; `python3 tests/cluster down` clears what was started", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 tests/cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("up", help="start the cluster; harmless when it runs")
    commands.add_parser("down", help="end the cluster and remove all it left on the machine")
    commands.add_parser("status", help="say whether it is healthy; exit 3 when it is not")
    commands.add_parser("build", help="fill the cache (Go programs, kubectl, helm) and start nothing")
    commands.add_parser("clients", help="fetch kubectl and helm into .cluster/bin only")
    commands.add_parser("kubeconfig", help="print the path of the administrator's kubeconfig")
    proof = commands.add_parser(
        "selftest", help="prove on a running cluster that pods, names and node ports work"
    )
    proof.add_argument(
        "--crash", action="store_true", help="also kill all daemons, start again, and end the cluster"
    )
    load = commands.add_parser("load-image", help="import docker or OCI archives into the cluster")
    load.add_argument("archive", type=Path, nargs="+")
    has = commands.add_parser("has-image", help="exit 0 when the cluster holds the image, else 3")
    has.add_argument("reference")
    return parser


def _run(arguments: argparse.Namespace, where: layout.Layout, progress: Progress) -> int:
    match arguments.command:
        case "up":
            lifecycle.up(where, progress)
        case "down":
            lifecycle.down(where, progress)
        case "status":
            return _status(where)
        case "build":
            lifecycle.build(where, progress)
            progress.say("build", f"everything is in {where.cache}")
        case "clients":
            clients.ensure(where, progress)
        case "kubeconfig":
            print(where.kubeconfig)
        case "selftest":
            (selftest.run_crash if arguments.crash else selftest.run)(where, progress)
        case "load-image":
            for path in arguments.archive:
                loaded = images.load(where, path)
                progress.say("load-image", f"{path.name}: {', '.join(loaded)}")
        case "has-image":
            return 0 if images.is_loaded(where, arguments.reference) else 3
        case other:
            raise AssertionError(other)
    return 0


def _status(where: layout.Layout) -> int:
    problems = lifecycle.problems(where)
    for problem in problems:
        print(problem)
    if not problems:
        print(f"healthy; KUBECONFIG={where.kubeconfig}")
    return 3 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
