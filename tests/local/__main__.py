"""`python3 -m local COMMAND` (with PYTHONPATH=tests): what the Makefile's targets call.

Standard library only, so that it runs on a machine that has nothing but Python.
"""

import os
import sys
from collections.abc import Callable

from cluster import layout, prerequisites
from cluster.errors import ClusterError
from cluster.progress import Progress
from local import answer, cache, check, environment, paths, requirements, steps, tools, up

Command = Callable[[paths.Paths, steps.Report, steps.Processes], int]


def setup(where: paths.Paths, report: steps.Report, processes: steps.Processes) -> int:
    prerequisites.install_packages(layout.of_checkout(), Progress())
    environment.ensure(where, report, processes)
    return 0


def lock(where: paths.Paths, report: steps.Report, processes: steps.Processes) -> int:
    requirements.write(where, environment.ensure_uv(where, report, processes), report, processes)
    return 0


def start(where: paths.Paths, report: steps.Report, processes: steps.Processes) -> int:
    prerequisites.install_packages(layout.of_checkout(), Progress())
    text = up.up(where, report, processes)
    print(NEXT.format(question=answer.QUESTION, answer=text, url=answer.URL, body=answer.body().decode()))
    report.say("everything is up")
    return 0


def stop(where: paths.Paths, report: steps.Report, processes: steps.Processes) -> int:
    up.down(where, report, processes)
    return 0


def status(where: paths.Paths, report: steps.Report, processes: steps.Processes) -> int:
    if not up.is_running(where, processes):
        print("the cluster of this checkout is not running; `make up` starts it")
        return 3
    print(tools.run(where, "kubectl", "get", "infsvc,pods", "--all-namespaces"))
    return 0


def lint(where: paths.Paths, report: steps.Report, processes: steps.Processes) -> int:
    environment.ensure(where, report, processes)
    check.lint(where, report, processes)
    return 0


def test(where: paths.Paths, report: steps.Report, processes: steps.Processes) -> int:
    prerequisites.install_packages(layout.of_checkout(), Progress())
    return check.on_cluster(where, report, processes, check.folders(where), with_lint=True)


def e2e(where: paths.Paths, report: steps.Report, processes: steps.Processes) -> int:
    prerequisites.install_packages(layout.of_checkout(), Progress())
    return check.on_cluster(
        where, report, processes, [check.area(where, os.environ.get("AREA", ""))], with_lint=False
    )


def soak(where: paths.Paths, report: steps.Report, processes: steps.Processes) -> int:
    environment.ensure(where, report, processes)
    return check.soak(where, os.environ.get("MINUTES", ""))


def clean_cache(where: paths.Paths, report: steps.Report, processes: steps.Processes) -> int:
    cache.clean(where, report)
    return 0


COMMANDS: dict[str, Command] = {
    "setup": setup,
    "lock": lock,
    "up": start,
    "down": stop,
    "status": status,
    "lint": lint,
    "unit": check.unit,
    "test": test,
    "e2e": e2e,
    "soak": soak,
    "clean-cache": clean_cache,
}

NEXT = """
{question}
    {answer}

Go on with:
    export KUBECONFIG=$PWD/.cluster/kubeconfig PATH=$PWD/.cluster/bin:$PATH
    kubectl get infsvc
    kubectl describe infsvc chat
    kubectl scale infsvc chat --replicas=2
    curl {url} -H 'Content-Type: application/json' -d '{body}'
    make down
"""


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
    except steps.StepError as failure:
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
