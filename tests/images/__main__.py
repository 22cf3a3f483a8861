"""`python3 -m images COMMAND` (with PYTHONPATH=tests): images for the local cluster and for people's own."""

import argparse
import os
import sys

from cluster.errors import ClusterError
from cluster.prerequisites import SYSTEM_PATH
from images import build, load, publish
from local import paths, steps


def main() -> int:
    given = _parser().parse_args()
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"
    processes, report = steps.Processes(), steps.Report(sys.stderr)
    try:
        with report.heartbeat():
            return _run(given, build.Workshop(paths.here(), report, processes))
    except (steps.StepError, ClusterError) as failure:
        print(f"\n{given.command} failed: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    finally:
        processes.stop()


def _run(given: argparse.Namespace, shop: build.Workshop) -> int:
    if given.command == "publish":
        order = publish.Order(
            tool=given.tool,
            registry=given.registry,
            tag=given.tag,
            device=given.device,
            base=given.base,
            torch_index_url=given.torch_index_url,
            push=given.push,
        )
        log = shop.where.steps / "publish.log"
        for line in publish.run(order, shop.where.checkout, log, shop.report, shop.processes):
            print(line)
        return 0
    built = build.build(shop)
    if given.command == "load":
        load.load(built, shop.builder.log, shop.report, shop.processes)
    print(built.tag)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m images", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the images for the local cluster; prints their tag")
    commands.add_parser("load", help="build, then load into the running cluster; prints their tag")
    publishing = commands.add_parser("publish", help="build with your tool for your registry (`make images`)")
    publishing.add_argument("--tool", default="docker")
    publishing.add_argument("--registry", default="")
    publishing.add_argument("--tag", default="")
    publishing.add_argument("--device", default="cpu")
    publishing.add_argument("--base", default="")
    publishing.add_argument("--torch-index-url", default="")
    publishing.add_argument("--push", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
