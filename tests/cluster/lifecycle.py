"""Up, down and status: the order in which the parts are made, and what is waited for.

Every `up` starts from an empty etcd. A cluster that runs, is healthy and was started from the same inputs is
left alone; anything else of it, or of another checkout, is cleared first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster import (
    addresses,
    archive,
    cachekey,
    cgroups,
    clients,
    components,
    configs,
    daemons,
    dns,
    firewall,
    gobinaries,
    images,
    kubeconfigs,
    layout,
    leftovers,
    network,
    pki,
    prerequisites,
    record,
    sysctls,
)
from cluster.api import Api
from cluster.errors import ClusterError
from cluster.progress import Progress

START_TIMEOUT_S = 60
API_TIMEOUT_S = 120
NODE_PATH = f"/api/v1/nodes/{addresses.NODE_NAME}"
ACCOUNT_PATH = "/api/v1/namespaces/default/serviceaccounts/default"


@dataclass(frozen=True)
class Binaries:
    """The programs built from source."""

    kubernetes: Path
    coredns: Path
    pause: Path


def build(where: layout.Layout, progress: Progress) -> Binaries:
    """Fills the cache with all that is not the cluster itself: packages, Go programs, kubectl and helm."""
    prerequisites.install_packages(where, progress)
    clients.ensure(where, progress)
    return Binaries(*(gobinaries.ensure(program, where, progress) for program in gobinaries.NEEDED_TO_START))


def up(where: layout.Layout, progress: Progress) -> None:
    """Starts the cluster, or returns at once when it runs as wanted."""
    prerequisites.require_root()
    prerequisites.require_cgroups()
    prerequisites.require_short_paths(where)
    with record.lock(progress):
        binaries = build(where, progress)
        fingerprint = _fingerprint(where, binaries)
        if _is_as_wanted(where, fingerprint):
            progress.say("cluster", f"already running; KUBECONFIG={where.kubeconfig}")
            return
        _clear(where, progress)
        prerequisites.require_free_ports()
        _start(where, binaries, fingerprint, progress)
    progress.say("cluster", f"ready; KUBECONFIG={where.kubeconfig}")


def down(where: layout.Layout, progress: Progress) -> None:
    """Ends the cluster of this machine, whichever checkout started it, and checks that nothing is left."""
    prerequisites.require_root()
    with record.lock(progress):
        _clear(where, progress)
        left = leftovers.find(where)
    if left:
        raise ClusterError("down", "left behind:\n  " + "\n  ".join(left))
    layout.LOCK.unlink(missing_ok=True)
    progress.say("cluster", "down, nothing left")


def problems(where: layout.Layout) -> list[str]:
    """Why the cluster of this checkout is not healthy, one line each; [] when it is."""
    active = record.read(where.run)
    if active is None:
        return ["not running"]
    if active.cluster != str(where.cluster):
        return [f"another checkout's cluster is running: {active.cluster}"]
    found = daemons.recorded(where)
    missing = {name for name in DAEMONS if name not in {running.name for running in found}}
    lines = [f"{name} was not started" for name in sorted(missing)]
    lines += [
        f"{running.name} has ended; its log is {running.log}" for running in found if not running.is_alive()
    ]
    if lines:
        return lines
    api = Api(where.pki)
    if not api.is_ready():
        return [f"kube-apiserver does not answer; its log is {where.log('kube-apiserver')}"]
    if not _is_node_ready(api):
        return [f"node {addresses.NODE_NAME} is not Ready; see {where.log('kubelet')}"]
    if not dns.is_answering():
        return [f"the cluster's DNS does not answer; see {where.log('coredns')}"]
    return []


DAEMONS = (
    "containerd",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "coredns",
)


def _fingerprint(where: layout.Layout, binaries: Binaries) -> str:
    """Changes when a binary, command line or configuration does: `up` never keeps an outdated run."""
    words = [str(binaries), configs.containerd(where), configs.cni(where), configs.kubelet(where)]
    words += [configs.audit_policy(), configs.corefile(where), str(dns.objects())]
    return cachekey.of([], [*words, *(str(daemon) for daemon in _daemons(where, binaries).values())])


def _daemons(where: layout.Layout, binaries: Binaries) -> dict[str, daemons.Daemon]:
    kubernetes = binaries.kubernetes
    all_of_them = (
        components.containerd(where),
        components.etcd(where, kubernetes),
        components.api_server(where, kubernetes),
        components.controller_manager(where, kubernetes),
        components.scheduler(where, kubernetes),
        components.kubelet(where, kubernetes),
        components.proxy(where, kubernetes),
        components.coredns(where, binaries.coredns),
    )
    return {daemon.name: daemon for daemon in all_of_them}


def _is_as_wanted(where: layout.Layout, fingerprint: str) -> bool:
    active = record.read(where.run)
    return active is not None and active.fingerprint == fingerprint and not problems(where)


def _clear(where: layout.Layout, progress: Progress) -> None:
    active = record.read(where.run)
    if active is not None:
        progress.say(
            "clear", f"clearing the run of {active.cluster or 'an unknown checkout'}{_why(where, active)}"
        )
    ended = leftovers.clear(where)
    if ended:
        progress.say("clear", f"ended {ended} processes and removed what they used")


def _why(where: layout.Layout, active: record.Record) -> str:
    found = problems(where) if active.cluster == str(where.cluster) else []
    return f": {found[0]}" if found else ""


def _start(where: layout.Layout, binaries: Binaries, fingerprint: str, progress: Progress) -> None:
    record.write(record.Record(str(where.cluster), fingerprint, sysctls.read()), where.run)
    for folder in (where.logs, where.state, where.image_store):
        folder.mkdir(parents=True, exist_ok=True)
    for log in [*map(where.log, DAEMONS), *where.logs.glob("audit*.log")]:
        log.unlink(missing_ok=True)
    sysctls.raise_to_needed()
    cgroups.make()
    network.make_bridge()
    firewall.allow_pods()
    pki.make(where.pki)
    configs.write(where)
    progress.say("prepared", "network, certificates, configuration")

    planned = _daemons(where, binaries)

    def start(name: str) -> daemons.Running:
        return daemons.start(planned[name], where)

    start("etcd")
    api_server = start("kube-apiserver")  # it waits for etcd itself
    _start_containerd(where, binaries, start, progress)
    api = Api(where.pki)
    daemons.wait_until(where, api_server, api.is_ready, API_TIMEOUT_S)
    progress.say("api server", "ready")
    kubeconfigs.write(where.kubeconfig, where.pki, pki.ADMIN)

    kubelet = start("kubelet")
    manager = start("kube-controller-manager")
    start("kube-scheduler")
    start("kube-proxy")
    dns.apply(api)
    coredns = start("coredns")
    daemons.wait_until(where, kubelet, lambda: _is_node_ready(api), START_TIMEOUT_S)
    progress.say("node", "Ready")
    daemons.wait_until(where, coredns, dns.is_answering, START_TIMEOUT_S)
    progress.say("dns", "answers")
    daemons.wait_until(where, manager, lambda: api.get(ACCOUNT_PATH) is not None, START_TIMEOUT_S)
    daemons.require_alive(where)


def _start_containerd(
    where: layout.Layout, binaries: Binaries, start: Callable[[str], daemons.Running], progress: Progress
) -> None:
    """containerd remembers containers across runs and shows them to the kubelet: they are forgotten first."""
    running = start("containerd")
    daemons.wait_until(where, running, lambda: images.is_serving(where), START_TIMEOUT_S)
    purged = images.purge_containers(where)
    if purged:
        daemons.stop(where, running)
        running = start("containerd")
        daemons.wait_until(where, running, lambda: images.is_serving(where), START_TIMEOUT_S)
    if not images.is_loaded(where, addresses.PAUSE_IMAGE):
        packed = where.state / "pause.tar"
        archive.write(packed, addresses.PAUSE_IMAGE, binaries.pause)
        images.load(where, packed)
    progress.say("containerd", f"ready, forgot {purged} containers of earlier runs" if purged else "ready")


def _is_node_ready(api: Api) -> bool:
    node = api.get(NODE_PATH)
    conditions = node["status"].get("conditions", []) if node else []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
