"""The pod of a service as this operator renders it, and its two containers."""

from typing import Any

from builders import observed as build
from firsttoken_api import names
from firsttoken_operator import pods

Object = dict[str, Any]

REVISION = "abc"


def template(**spec: Any) -> Object:
    """Of a service on the CPU; keywords (in the API's spelling) replace parts of its spec."""
    return pods.template(build.service(**spec), build.IMAGES, REVISION, build.model())


def engine(pod: Object) -> Object:
    (container,) = pod["spec"]["containers"]
    assert container["name"] == names.ENGINE_CONTAINER
    return dict(container)


def sidecar(pod: Object) -> Object:
    (container,) = pod["spec"]["initContainers"]
    assert container["name"] == names.SIDECAR_CONTAINER
    return dict(container)
