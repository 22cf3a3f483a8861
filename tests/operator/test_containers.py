"""The engine's and the sidecar's containers: the parts that others rely on."""

import pytest

from builders.model_pod import engine, sidecar, template
from firsttoken_api import flags, names, runtime_spec
from firsttoken_operator import containers


def test_the_sidecar_is_native_and_the_only_way_in() -> None:
    pod = template()
    assert sidecar(pod)["restartPolicy"] == "Always"
    assert [port["name"] for port in sidecar(pod)["ports"]] == [names.HTTP_PORT_NAME, names.OPS_PORT_NAME]
    assert "ports" not in engine(pod)
    assert "--host=127.0.0.1" in engine(pod)["args"]
    assert "readinessProbe" in sidecar(pod)
    assert "startupProbe" not in sidecar(pod)


def test_a_variable_is_named_once_and_the_users_value_wins() -> None:
    pod = template(runtime={"device": "cpu", "env": [{"name": "HOME", "value": "/scratch"}]})
    assert engine(pod)["env"] == [{"name": "HOME", "value": "/scratch"}]
    assert engine(template())["env"] == [{"name": "HOME", "value": "/tmp"}]


def test_the_cold_settings_are_the_engine_s_arguments() -> None:
    pod = template(
        runtime={
            "device": "cpu",
            "dtype": "float32",
            "maxModelLen": 1024,
            "maxNumSeqs": 4,
            "extraArgs": ["--threads=2"],
            "env": [{"name": "OMP_NUM_THREADS", "value": "2"}],
        }
    )
    arguments = engine(pod)["args"]
    assert arguments[:2] == ["serve", "/models/smollm2.gguf"]
    assert {"--dtype=float32", "--max-model-len=1024", "--max-num-seqs=4", "--served-name=chat"} <= set(
        arguments
    )
    assert arguments[-1] == "--threads=2"
    assert {"name": "OMP_NUM_THREADS", "value": "2"} in engine(pod)["env"]


def test_newer_options_are_given_only_where_they_are_asked_for() -> None:
    """An image of an earlier version does not know them."""
    newer = ("--prefill-priority", "--block-size", "--kv-blocks")
    defaults = [{"name": "paged-kv", "mode": "Forced", "params": {"blockSize": "16", "maxBlocks": "auto"}}]
    for pod in (template(), template(optimizations=defaults)):
        assert not [each for each in engine(pod)["args"] if each.startswith(newer)]
    pod = template(
        runtime={"device": "cpu", "prefillPriority": "low"},
        optimizations=[
            {"name": "paged-kv", "mode": "Forced", "params": {"blockSize": "32", "maxBlocks": "500"}}
        ],
    )
    assert {"--prefill-priority=low", "--block-size=32", "--kv-blocks=500"} <= set(engine(pod)["args"])


def test_every_cold_parameter_has_an_option_that_users_cannot_set_twice() -> None:
    cold = {(flag.name, each.name) for flag in flags.FLAGS for each in flag.parameters if each.cold}
    assert cold == containers.COLD_OPTIONS.keys()
    options = {each.partition("=")[0] for each in containers.COLD_OPTIONS.values()}
    assert options <= set(runtime_spec.RENDERED_ARGUMENTS)


def test_a_container_that_is_only_slow_is_not_restarted() -> None:
    """The kubelet of a busy node waits at least half a minute, and ten seconds for each answer."""
    pod = template()
    for container in (engine(pod), sidecar(pod)):
        probe = container["livenessProbe"]
        assert probe["failureThreshold"] * probe["periodSeconds"] >= 30
        assert probe["timeoutSeconds"] >= 10


@pytest.mark.parametrize(("cpu", "threads"), [("400m", 1), ("1", 1), ("1500m", 2), ("2.5", 3), ("8", 8)])
def test_the_engine_computes_on_as_many_threads_as_it_asks_cpus(cpu: str, threads: int) -> None:
    pod = template(resources={"cpu": cpu, "memory": "2Gi"})
    assert f"--threads={threads}" in engine(pod)["args"]


def test_gpus_are_asked_for_by_the_resource_s_name() -> None:
    pod = template(
        runtime={"device": "auto"},
        resources={"gpuResource": "firsttoken.test/gpu", "gpus": 1, "cpu": "2", "memory": "8Gi"},
    )
    resources = engine(pod)["resources"]
    assert resources["limits"] == {"memory": "8Gi", "firsttoken.test/gpu": "1"}
    assert resources["requests"]["cpu"] == "2"
    assert "cpu" not in resources["limits"]
    assert set(engine(template())["resources"]["limits"]) == {"memory"}
