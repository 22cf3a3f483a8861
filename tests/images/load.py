"""Loads built images into the local cluster's containerd: only what its store does not hold yet."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO

from cluster import images as cluster_images
from cluster import layout as cluster_layout
from images import archive, build, layout, sweep
from local import steps

IMPORT_TIMEOUT_S = 900.0


def load(built: build.Built, log: Path, report: steps.Report, processes: steps.Processes) -> None:
    """Makes the three images usable by pods of the running cluster. Raises StepError."""
    socket = cluster_layout.of_checkout().containerd_socket
    ctr = ["ctr", "--address", str(socket), "--namespace", cluster_images.NAMESPACE]
    present = set(_ask(*ctr, "images", "list", "--quiet"))
    wanted = {built.reference(role): manifest for role, manifest in built.manifests.items()}
    if wanted.keys() <= present:
        return
    used = _used(ctr)
    old = sweep.old_references(present, built.store.folder.parent / "code", used)
    stored = set(_ask(*ctr, "content", "list", "--quiet"))
    blobs = [blob for blob in _blobs(built) if blob.digest not in stored]
    megabytes = sum(blob.size for blob in blobs) / 1e6
    with report.step(f"images into the cluster ({megabytes:.0f} MB new)"):
        processes.run(
            [*ctr, "images", "import", "-"], log, IMPORT_TIMEOUT_S, feed=_feed(built.store, wanted, blobs)
        )
    if old:
        report.say(f"forgetting {len(old)} images of earlier code")
        processes.run([*ctr, "images", "remove", *old], log, timeout_s=120)


def _used(ctr: list[str]) -> set[str]:
    """References of the images that containers were made from."""
    done = subprocess.run(
        [*ctr, "containers", "list"], capture_output=True, text=True, check=False, timeout=60
    )
    return {row.split()[1] for row in done.stdout.splitlines()[1:] if len(row.split()) > 1}


def _blobs(built: build.Built) -> list[layout.Blob]:
    found: list[layout.Blob] = []
    for role, manifest in built.manifests.items():
        config = built.store.read(manifest.digest)["config"]
        layers = [layer.blob for layer in built.images[role].layers]
        found += [*layers, layout.Blob(config["digest"], config["size"]), manifest]
    return found


def _feed(
    store: layout.Layout, wanted: dict[str, layout.Blob], blobs: list[layout.Blob]
) -> Callable[[IO[bytes]], None]:
    return lambda stream: archive.write(stream, store, wanted, blobs)


def _ask(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise steps.StepError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout.split()
