"""The Job that resolves a model: the parts that others rely on."""

from builders import observed as build
from firsttoken_operator import resolver_job


def test_the_resolver_gets_the_digest_and_no_gpu() -> None:
    service = build.service(model={"source": "pvc://models/a/b", "revision": "sha256:" + "0" * 64})
    job = resolver_job.render(service, "j", build.IMAGES)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["resolve", "/models/a/b"]
    assert f"--sha256={'0' * 64}" in container["args"]
    assert job["spec"]["backoffLimit"] == 0
