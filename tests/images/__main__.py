"""`python3 -m images COMMAND` (with PYTHONPATH=tests): the images of the local cluster."""

import argparse
import sys

from cluster.errors import ClusterError
from images import build, load
from local import paths, steps


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m images", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the images for the local cluster; prints their tag")
    commands.add_parser("load", help="build, then load into the running cluster; prints their tag")
    command = parser.parse_args().command
    processes, report = steps.Processes(), steps.Report(sys.stderr)
    shop = build.Workshop(paths.here(), report, processes)
    try:
        with report.heartbeat():
            built = build.build(shop)
            if command == "load":
                load.load(built, shop.builder.log, report, processes)
    except (steps.StepFailed, ClusterError) as failure:
        print(f"{command} failed: {failure}", file=sys.stderr)
        return 1
    finally:
        processes.stop()
    print(built.tag)
    return 0


if __name__ == "__main__":
    sys.exit(main())
