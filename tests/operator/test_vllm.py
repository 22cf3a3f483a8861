"""Pods that serve with vLLM: what is rendered, what a change of a flag means, what the resolver is asked."""

import math
from typing import Any

import pytest

from builders import model_pod
from builders import observed as build
from builders.observed import NOW
from firsttoken_api import names, quantity, resolved
from firsttoken_api.inference_service import InferenceService
from firsttoken_api.reasons import Reason
from firsttoken_operator import flags, plan, resolution, resolver_job, revisions, vllm
from firsttoken_operator.observed import Observed

Object = dict[str, Any]
IMAGE = "example/vllm@sha256:" + "0" * 64


def spec(**changes: Any) -> Object:
    runtime = {"engine": "vllm", "image": IMAGE, "device": "cpu"} | changes.pop("runtime", {})
    base: Object = {
        "model": {"source": "pvc://models/folder"},
        "resources": {"cpu": "2", "memory": "6Gi"},
    }
    return base | changes | {"runtime": runtime}


def service(**changes: Any) -> InferenceService:
    return build.service(**spec(**changes))


def engine(**changes: Any) -> Object:
    return model_pod.engine(model_pod.template(**spec(**changes)))


def forced(name: str, **params: str) -> Object:
    return {"name": name, "mode": "Forced", "params": params}


def test_the_users_image_runs_behind_our_sidecar() -> None:
    pod = model_pod.template(**spec())
    container = model_pod.engine(pod)
    assert container["image"] == IMAGE
    assert container["command"] == ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    arguments = container["args"]
    assert arguments[:3] == ["--model=/models/folder", "--served-model-name=chat", "--host=127.0.0.1"]
    assert f"--port={names.ENGINE_HTTP_PORT}" in arguments
    assert "ports" not in container
    assert container["startupProbe"]["httpGet"]["path"] == "/engine/startupz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/engine/livez"
    assert container["securityContext"]["readOnlyRootFilesystem"]
    sidecar = model_pod.sidecar(pod)
    assert sidecar["image"] == build.IMAGES.sidecar
    environment = {each["name"]: each.get("value") for each in sidecar["env"]}
    assert environment["FIRSTTOKEN_ENGINE"] == "vllm"
    started = "chunked-prefill,continuous-batching,paged-kv,prefix-cache,priority"
    assert environment["FIRSTTOKEN_STARTED_FLAGS"] == started
    assert environment["FIRSTTOKEN_MAX_NUM_SEQS"] == "64"
    assert environment["FIRSTTOKEN_CHUNK_TOKENS"] == "2048"


def test_the_drain_needs_nothing_of_ours_in_the_image() -> None:
    command = engine()["lifecycle"]["preStop"]["exec"]["command"]
    assert command[:2] == ["python3", "-c"]
    assert "firsttoken_runtime" not in command[2]
    compile(command[2], "preStop", "exec")
    assert names.DRAIN_SOCKET in command[2]


def test_a_pod_of_our_own_engine_is_rendered_as_before() -> None:
    pod = model_pod.template()
    assert "command" not in model_pod.engine(pod)
    assert not [each for each in model_pod.sidecar(pod)["env"] if each["name"] == "FIRSTTOKEN_ENGINE"]


def test_cold_settings_are_arguments_and_auto_is_left_to_vllm() -> None:
    given = {"maxModelLen": 1024, "maxNumSeqs": 4, "maxNumBatchedTokens": 512, "dtype": "bfloat16"}
    arguments = engine(runtime=given | {"extraArgs": ["--seed=1"]})["args"]
    assert {"--max-model-len=1024", "--max-num-seqs=4", "--max-num-batched-tokens=512"} <= set(arguments)
    assert "--dtype=bfloat16" in arguments
    assert arguments[-1] == "--seed=1"
    auto = engine(runtime={"maxNumSeqs": "auto"})["args"]
    assert not [each for each in auto if each.startswith(("--max-model-len", "--max-num-seqs"))]


def test_where_prompts_are_not_split_vllm_chooses_the_size_of_a_step() -> None:
    off = {"name": "chunked-prefill", "mode": "Disabled"}
    arguments = engine(optimizations=[off])["args"]
    assert "--no-enable-chunked-prefill" in arguments
    assert not [each for each in arguments if each.startswith("--max-num-batched-tokens")]


def test_kv_gets_what_the_memory_has_left_on_a_cpu() -> None:
    model = build.model()
    (argument,) = [each for each in engine()["args"] if each.startswith("--kv-cache-memory-bytes=")]
    expected = (
        math.floor(0.9 * quantity.to_bytes("6Gi")) - model.weight_bytes_16bit - resolved.VLLM_RUNTIME_BYTES
    )
    assert int(argument.partition("=")[2]) == expected
    environment = {each["name"]: each["value"] for each in engine()["env"]}
    assert (environment["OMP_NUM_THREADS"], environment["VLLM_CPU_OMP_THREADS_BIND"]) == ("2", "nobind")


def test_its_processes_have_shared_memory() -> None:
    pod = model_pod.template(**spec())
    assert "/dev/shm" in [each["mountPath"] for each in model_pod.engine(pod)["volumeMounts"]]
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == vllm.SHARED_MEMORY_VOLUME]
    assert volume["emptyDir"]["medium"] == "Memory"
    ours = model_pod.engine(model_pod.template())["volumeMounts"]
    assert "/dev/shm" not in [each["mountPath"] for each in ours]


def test_a_share_of_the_gpu_on_a_gpu() -> None:
    container = engine(runtime={"device": "cuda", "memoryFraction": "0.8"})
    assert "--gpu-memory-utilization=0.8" in container["args"]
    assert not [each for each in container["args"] if each.startswith("--kv-cache-memory-bytes")]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "OMP_NUM_THREADS" not in {each["name"] for each in container["env"]}


def test_the_users_variables_win() -> None:
    given = [{"name": "OMP_NUM_THREADS", "value": "7"}, {"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]
    environment = {each["name"]: each["value"] for each in engine(runtime={"env": given})["env"]}
    assert environment["OMP_NUM_THREADS"] == "7"
    assert environment["VLLM_LOGGING_LEVEL"] == "DEBUG"


@pytest.mark.parametrize(
    "optimization",
    [
        {"name": "prefix-cache", "mode": "Disabled"},
        {"name": "priority", "mode": "Disabled"},
        forced("kv-fp8"),
        forced("chunked-prefill", chunkTokens="256"),
        forced("paged-kv", blockSize="32"),
    ],
)
def test_a_flag_is_a_start_argument_so_its_change_is_a_revision(optimization: Object) -> None:
    before, after = service(), service(optimizations=[optimization])
    assert build.rendering(before).name != build.rendering(after).name
    document = flags.document(
        flags.decide(after.spec.optimizations, frozenset(), after.spec.runtime.engine), after.spec, 1
    )
    assert document.flags == (), "pods of both revisions read it"


def test_what_says_the_default_aloud_is_no_revision() -> None:
    aloud = service(optimizations=[forced("prefix-cache"), forced("paged-kv", blockSize="16")])
    assert build.rendering(service()).name == build.rendering(aloud).name


def test_the_fleets_switch_starts_new_pods_without_the_flag() -> None:
    of = service()
    found = resolution.Resolution(build.model(), Reason.RESOLVED, "", "", "")
    before = revisions.render(of, found, build.IMAGES)
    after = revisions.render(of, found, build.IMAGES, frozenset({"prefix-cache"}))
    assert before.name != after.name
    (container,) = after.template["spec"]["containers"]
    assert "--no-enable-prefix-caching" in container["args"]
    ours = build.service()
    plain = revisions.render(ours, found, build.IMAGES)
    assert revisions.render(ours, found, build.IMAGES, frozenset({"prefix-cache"})).name == plain.name


def test_what_vllm_lacks_is_off_and_what_it_cannot_lack_is_on() -> None:
    of = service(optimizations=[{"name": "length-control", "mode": "Disabled"}])
    decided = {
        each.name: each
        for each in flags.decide(of.spec.optimizations, frozenset({"paged-kv"}), of.spec.runtime.engine)
    }
    assert (decided["paged-kv"].enabled, decided["paged-kv"].reason) == (True, Reason.NOT_IN_ENGINE)
    assert (decided["kv-tiering"].enabled, decided["kv-tiering"].reason) == (False, Reason.NOT_IN_ENGINE)
    assert decided["length-control"].reason is Reason.USER_DISABLED
    assert (decided["prefix-cache"].enabled, decided["prefix-cache"].reason) == (True, Reason.DEFAULT)


def test_the_resolver_is_ours_and_takes_any_architecture() -> None:
    job = resolver_job.render(service(), "j", build.IMAGES)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == build.IMAGES.runtime
    assert "--any-architecture" in container["args"]
    ours = resolver_job.render(build.service(), "j", build.IMAGES)
    assert "--any-architecture" not in ours["spec"]["template"]["spec"]["containers"][0]["args"]


def test_an_answer_for_our_engine_says_nothing_about_vllm() -> None:
    same: Object = {"model": {"source": "pvc://models/folder"}}
    ours, theirs = build.service(**same), service()
    assert resolution.source_hash(ours) != resolution.source_hash(theirs)
    assert resolution.job_name(ours) != resolution.job_name(theirs)


def test_memory_that_only_our_engine_could_do_with_is_refused_before_a_pod_is_made() -> None:
    small = {"cpu": "1", "memory": "2Gi"}
    folder = {"source": "pvc://models/folder"}
    ours = build.service(model=folder, resources=small)
    assert _resolved(ours).model is not None
    refused = _resolved(service(resources=small))
    assert refused.reason is Reason.NOT_ENOUGH_MEMORY
    assert "spec.resources.memory is 2Gi" in refused.message


@pytest.mark.parametrize("length", [256, 8_192, "auto"])
def test_memory_that_passes_has_room_for_one_longest_sequence(length: int | str) -> None:
    runtime = {"maxModelLen": length, "memoryFraction": "0.87"}
    model = build.model()
    tokens = model.trained_length if length == "auto" else int(length)
    least = vllm.least_memory_bytes(service(runtime=runtime), model, tokens)

    def with_memory(bytes_: int) -> Object:
        return {"runtime": runtime, "resources": {"cpu": "1", "memory": str(bytes_)}}

    assert _resolved(service(**with_memory(least - 1))).reason is Reason.NOT_ENOUGH_MEMORY
    enough = with_memory(least + 1)
    assert _resolved(service(**enough)).model == model
    (argument,) = [each for each in engine(**enough)["args"] if each.startswith("--kv-cache-memory-bytes=")]
    assert int(argument.partition("=")[2]) >= model.kv_bytes_per_token() * tokens


def _resolved(of: InferenceService) -> resolution.Resolution:
    job = build.resolver(of, answer=build.model(), finished_s=NOW)
    return resolution.resolve(build.observed(of, resolvers=(job,)), NOW)


def test_a_whole_plan() -> None:
    of = service()
    observed: Observed = build.observed(
        of, resolvers=(build.resolver(of, answer=build.model(), finished_s=NOW),)
    )
    made = plan.make(observed, build.IMAGES, frozenset(), NOW)
    bodies = {a.body["kind"]: a.body for a in made.actions if isinstance(a, plan.Create | plan.Ensure)}
    assert bodies["Deployment"]["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE
    assert made.not_built == ()
    assert vllm.is_engine(of)
