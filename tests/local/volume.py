"""The claim `models` of the local cluster: a folder of this machine that holds the packaged SmolLM2."""

import os
import shutil
from pathlib import Path

from local import environment, tools
from local.paths import Paths

NAMESPACE = "default"
CLAIM = "models"
MODEL_FILE = "smollm2.gguf"


def provide(where: Paths) -> None:
    """Copies the model into the folder and applies volume and claim."""
    place(environment.model_file(where), where.models / MODEL_FILE)
    tools.apply(where, *objects(where.models))


def place(source: Path, target: Path) -> None:
    """Copies `source` to `target` unless a file of the same size and time is there. Readable for all."""
    there = target.stat() if target.exists() else None
    wanted = source.stat()
    if there and (there.st_size, int(there.st_mtime)) == (wanted.st_size, int(wanted.st_mtime)):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.parent.chmod(0o755)
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copy2(source, fresh)
    fresh.chmod(0o644)
    fresh.replace(target)


def objects(folder: Path) -> list[tools.Document]:
    """A volume on `folder` and the claim that is bound to it."""
    size = {"storage": "1Gi"}
    name = f"{CLAIM}-{NAMESPACE}"
    access = ["ReadOnlyMany"]
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": size,
                "accessModes": access,
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "",
                "claimRef": {"namespace": NAMESPACE, "name": CLAIM},
                "hostPath": {"path": str(folder), "type": "Directory"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM, "namespace": NAMESPACE},
            "spec": {
                "accessModes": access,
                "storageClassName": "",
                "volumeName": name,
                "resources": {"requests": size},
            },
        },
    ]
