"""From nothing to an answering model: what `make up` does, and what `make test` does before its tests."""

import sys
from collections.abc import Callable

from images import build, load
from local import answer, environment, release, steps, volume
from local.paths import Paths

CLUSTER_TIMEOUT_S = 3000.0  # the first time it is compiled from source
ANSWER_TIMEOUT_S = 240.0


def cluster(where: Paths, *arguments: str) -> steps.Command:
    return [sys.executable, where.checkout / "tests" / "cluster", *arguments]


def up(
    where: Paths,
    report: steps.Report,
    processes: steps.Processes,
    then: Callable[[], None] | None = None,
) -> str:
    """Everything up and answering; the answer. `then` runs beside the cluster's start, once there is Python.

    The Kubernetes programs are compiled while the Python packages are installed and the images built.
    """
    shop = build.Workshop(where, report, processes)
    built: list[build.Built] = []

    def start_cluster() -> None:
        log = where.steps / "cluster.log"
        log.unlink(missing_ok=True)
        with report.step("cluster", log):
            processes.run(cluster(where, "up"), log, CLUSTER_TIMEOUT_S)

    def prepare_code() -> None:
        environment.ensure(where, report, processes)
        if then is not None:
            then()
        built.append(build.build(shop))

    steps.side_by_side(processes, start_cluster, prepare_code)
    load.load(built[0], shop.builder.log, report, processes)
    with report.step("chart (helm upgrade --install)"):
        release.install(where, build.REGISTRY, built[0].tag)
    with report.step("model and example (kubectl apply)"):
        volume.provide(where)
        release.apply_example(where, built[0].tag)
    with report.step(f"answer to {answer.QUESTION!r}"):
        try:
            return answer.wait(ANSWER_TIMEOUT_S)
        except steps.StepError as error:
            raise steps.StepError(f"{error}\n{release.explain(where)}") from error


def down(where: Paths, report: steps.Report, processes: steps.Processes) -> None:
    with report.step("cluster down"):
        processes.run(cluster(where, "down"), where.steps / "down.log", timeout_s=180)


def is_running(where: Paths, processes: steps.Processes) -> bool:
    """Whether this checkout's cluster is up and healthy."""
    try:
        processes.run(cluster(where, "status"), where.steps / "status.log", timeout_s=60)
    except steps.StepError:
        return False
    return True
