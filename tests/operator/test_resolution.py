"""The model: pinned by a revision, read by a Job, or missing for a reason."""

import dataclasses

import pytest

from builders import observed as build
from builders.observed import NOW
from firsttoken_api import names
from firsttoken_api.reasons import Reason
from firsttoken_api.resolved import ResolveFailure
from firsttoken_operator import resolution
from firsttoken_operator.observed import Cause

SERVICE = build.service()


def test_without_anything_the_job_is_created() -> None:
    found = resolution.resolve(build.observed(SERVICE), NOW)
    assert (found.create_job, found.model, found.reason) == (True, None, Reason.RESOLVING)
    assert found.job_name.startswith("chat-resolve-")


def test_a_running_job_is_waited_for_and_what_hinders_it_is_said() -> None:
    running = build.observed(SERVICE, resolvers=(build.resolver(SERVICE),))
    assert resolution.resolve(running, NOW).reason is Reason.RESOLVING
    hindered = build.resolver(SERVICE, cause=Cause(Reason.CLAIM_NOT_FOUND, 'claim "models" not found'))
    found = resolution.resolve(build.observed(SERVICE, resolvers=(hindered,)), NOW)
    assert (found.reason, found.create_job) == (Reason.CLAIM_NOT_FOUND, False)


def test_the_answer_of_the_job() -> None:
    job = build.resolver(SERVICE, answer=build.model(), finished_s=NOW)
    found = resolution.resolve(build.observed(SERVICE, resolvers=(job,)), NOW)
    assert found.model == build.model()
    assert found.reason is Reason.RESOLVED


def test_a_failure_keeps_its_reason_and_is_tried_again_later() -> None:
    failure = ResolveFailure(reason="ModelNotFound", message="no file nothing.gguf")
    job = build.resolver(SERVICE, answer=failure, finished_s=NOW - 10)
    found = resolution.resolve(build.observed(SERVICE, resolvers=(job,)), NOW)
    assert (found.reason, found.message) == (Reason.MODEL_NOT_FOUND, "no file nothing.gguf")
    assert found.retry_job is None
    assert found.again_after_s == resolution.RETRY_S - 10
    later = resolution.resolve(build.observed(SERVICE, resolvers=(job,)), NOW + resolution.RETRY_S)
    assert later.retry_job == job
    assert not later.create_job  # only once the old one is gone


def test_an_unknown_reason_or_no_answer_names_the_job() -> None:
    odd = build.resolver(SERVICE, ResolveFailure(reason="Strange", message="m"), finished_s=NOW)
    assert resolution.resolve(build.observed(SERVICE, resolvers=(odd,)), NOW).reason is Reason.RESOLVER_FAILED
    silent = build.resolver(SERVICE, finished_s=NOW)
    found = resolution.resolve(build.observed(SERVICE, resolvers=(silent,)), NOW)
    assert found.reason is Reason.RESOLVER_FAILED
    assert silent.name in found.message


def test_a_revision_pins_the_model_whatever_became_of_the_job() -> None:
    observed = build.observed(SERVICE, revisions=(build.revision(SERVICE),))
    found = resolution.resolve(observed, NOW)
    assert found.model == build.model()
    assert not found.create_job


def test_a_refresh_token_reads_the_model_again_once() -> None:
    asked = build.service({names.ANNOTATION_REFRESH: "tuesday"})
    observed = build.observed(asked, revisions=(build.revision(SERVICE),))
    found = resolution.resolve(observed, NOW)
    assert found.create_job
    assert found.job_name != resolution.job_name(SERVICE)
    refreshed = dataclasses.replace(build.revision(SERVICE, number=2), refresh="tuesday")
    observed = build.observed(asked, revisions=(build.revision(SERVICE), refreshed))
    assert resolution.resolve(observed, NOW).model is not None


def test_another_source_is_another_job() -> None:
    other = build.service(model={"source": "pvc://models/other.gguf"})
    observed = build.observed(other, revisions=(build.revision(SERVICE),))
    assert resolution.resolve(observed, NOW).create_job


@pytest.mark.parametrize(
    ("memory", "runtime", "fits"),
    [
        ("512Mi", {"device": "cpu"}, False),
        ("1Gi", {"device": "cpu"}, True),
        ("1200Mi", {"device": "cpu", "maxModelLen": 8192}, True),
        ("900Mi", {"device": "cpu", "maxModelLen": 8192}, False),
    ],
)
def test_what_cannot_fit_is_refused_before_a_pod_exists(
    memory: str, runtime: dict[str, object], fits: bool
) -> None:
    service = build.service(resources={"cpu": "1", "memory": memory}, runtime=runtime)
    job = build.resolver(service, answer=build.model(), finished_s=NOW)
    found = resolution.resolve(build.observed(service, resolvers=(job,)), NOW)
    assert (found.model is not None) == fits
    if not fits:
        assert found.reason is Reason.NOT_ENOUGH_MEMORY
        assert "spec.resources.memory" in found.message
        assert "Mi" in found.message


def test_memory_of_a_gpu_is_not_judged_by_the_host_s() -> None:
    service = build.service(runtime={"device": "auto"}, resources={"cpu": "1", "memory": "512Mi", "gpus": 1})
    job = build.resolver(service, answer=build.model(), finished_s=NOW)
    assert resolution.resolve(build.observed(service, resolvers=(job,)), NOW).model is not None
