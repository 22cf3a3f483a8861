"""Manifests with one thing right or wrong each; unit tests and the real API server judge the same table."""

import copy
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]


def service(spec: Object | None = None, name: str = "chat") -> Object:
    """A minimal InferenceService with `spec` merged over it. A value of None removes the key."""
    minimal: Object = {
        "apiVersion": "firsttoken.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": {"model": {"source": "pvc://models/smollm2.gguf"}},
    }
    _merge(minimal["spec"], copy.deepcopy(spec or {}))
    return minimal


def _merge(into: Object, patch: Object) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


@dataclass(frozen=True)
class Case:
    """One manifest by what is changed, and the words that its refusal must hold."""

    title: str
    spec: Object = field(default_factory=dict)
    says: tuple[str, ...] = ()
    name: str = "chat"

    def manifest(self) -> Object:
        return service(self.spec, self.name)


def flags(*entries: Object) -> Object:
    return {"optimizations": list(entries)}


def forced(name: str, **params: str) -> Object:
    """A spec that asks for one flag."""
    return flags({"name": name, "mode": "Forced", "params": params})


ON_VLLM = ("where spec.runtime.engine is vllm",)


def on_vllm(patch: Object | None = None) -> Object:
    """A spec of the engine vLLM, with `patch` merged over it."""
    spec: Object = {
        "model": {"source": "pvc://models/folder"},
        "runtime": {"engine": "vllm", "image": "example/vllm@sha256:" + "0" * 64},
    }
    _merge(spec, copy.deepcopy(patch or {}))
    return spec


BUILT = (
    "paged-kv",
    "continuous-batching",
    "chunked-prefill",
    "prefix-cache",
    "priority",
    "prefix-affinity",
    "kv-tiering",
    "kv-int8",
    "kv-fp8",
    "length-control",
)

CLASSES: list[Object] = [
    {"name": "interactive", "ttftP99": "1s", "priority": 10, "maxTokens": 1024},
    {"name": "batch", "ttftP99": "8s"},
]

VALID = (
    Case("minimal"),
    Case("longest name", name="a" * 40),
    Case("checksum", {"model": {"revision": "sha256:" + "0123456789abcdef" * 4}}),
    Case("folder", {"model": {"source": "pvc://models/folder/of/a.model"}}),
    Case("numbers in quotes", {"runtime": {"maxModelLen": "2048", "maxNumSeqs": "auto"}}),
    Case("numbers", {"runtime": {"maxModelLen": 2048, "maxNumBatchedTokens": 512, "memoryFraction": "0.5"}}),
    Case("cpu with no GPUs", {"runtime": {"device": "cpu"}, "resources": {"gpus": 0, "cpu": "1.5"}}),
    Case("cuda", {"runtime": {"device": "cuda"}, "resources": {"gpus": 1, "gpuResource": "amd.com/gpu"}}),
    Case("compound duration", {"slo": {"ttftP95": "1m30s"}, "drain": {"timeout": "0s"}}),
    Case("node port", {"service": {"type": "NodePort", "nodePort": 8080}}),
    Case(
        "every built flag",
        flags(
            {"name": "paged-kv", "mode": "Disabled"},
            {"name": "continuous-batching", "mode": "Gated"},
            {"name": "chunked-prefill", "mode": "Forced", "params": {"chunkTokens": "64"}},
            {"name": "prefix-cache", "mode": "Gated"},
            {"name": "priority", "mode": "Forced"},
            {"name": "prefix-affinity", "mode": "Disabled"},
            {"name": "kv-tiering", "mode": "Gated"},
            {"name": "kv-int8", "mode": "Forced"},
            {"name": "kv-fp8", "mode": "Disabled"},
            {"name": "length-control", "mode": "Gated"},
        ),
    ),
    Case("least of the cache", forced("prefix-cache", maxFraction="0.01", protectedFraction="0")),
    Case("most of the cache", forced("prefix-cache", maxFraction="1", protectedFraction="0.8")),
    Case("nobody is passed over", forced("prefix-affinity", maxWait="0s")),
    Case("passed over for a minute", forced("prefix-affinity", maxWait="1m")),
    Case("int8 in every layer", forced("kv-int8", fullPrecisionLayers="0")),
    Case("fp8", forced("kv-fp8", fullPrecisionLayers="256")),
    Case("host tier as large as it happens to be", forced("kv-tiering", hostMemory="auto", claimName="")),
    Case("host tier on a claim", forced("kv-tiering", hostMemory="1.5Gi", claimName="warm.blocks-1")),
    Case("least host tier", forced("kv-tiering", hostMemory="16384Ki")),
    Case(
        "one of two that exclude each other is off",
        flags({"name": "kv-fp8", "mode": "Disabled"}, {"name": "kv-int8", "mode": "Gated"}),
    ),
    *(
        Case(
            f"blocks of {tokens}, {count} of them",
            flags(
                {
                    "name": "paged-kv",
                    "mode": "Forced",
                    "params": {"blockSize": str(tokens), "maxBlocks": count},
                }
            ),
        )
        for tokens, count in ((8, "auto"), (128, "1"), (33, "999999999"))
    ),
    Case("vLLM", on_vllm()),
    Case(
        "vLLM with all that it has",
        on_vllm(
            flags(
                {"name": "paged-kv", "mode": "Forced", "params": {"blockSize": "32", "maxBlocks": "900"}},
                {"name": "continuous-batching", "mode": "Forced"},
                {"name": "chunked-prefill", "mode": "Forced", "params": {"chunkTokens": "1024"}},
                {"name": "prefix-cache", "mode": "Disabled"},
                {"name": "priority", "mode": "Gated"},
                {"name": "kv-fp8", "mode": "Forced", "params": {"fullPrecisionLayers": "4"}},
                {"name": "length-control", "mode": "Disabled"},
            )
        ),
    ),
    Case("prompts give way", {"runtime": {"prefillPriority": "low"}, "slo": {"tpotP95": "50ms"}}),
    Case(
        "classes and routes",
        {
            "slo": {"defaultClass": "batch", "classes": CLASSES},
            "routes": [
                {"name": "intent", "class": "interactive", "maxTokens": 64},
                {"name": "summary", "class": "batch"},
                {"name": "other"},
            ],
        },
    ),
    Case("classes without a default", {"slo": {"classes": CLASSES}}),
    Case("equal priorities", {"slo": {"classes": [{**each, "priority": -1000} for each in CLASSES]}}),
    Case("routes without classes", {"routes": [{"name": "intent", "maxTokens": 1}]}),
    Case(
        "largest chunk",
        flags({"name": "chunked-prefill", "mode": "Forced", "params": {"chunkTokens": "4096"}}),
    ),
    Case("pinned prompts", {"cachePins": {"configMapRef": {"name": "pins"}}}),
    Case("scale to none", {"scaling": {"mode": "Fixed", "replicas": 0}}),
    Case("equal bounds", {"scaling": {"mode": "External", "min": 3, "max": 3}}),
    Case("routing without a strategy", {"routing": {"strategy": "None"}}),
    # Accepted by the API server, reported as NotBuilt by the operator.
    Case("field of a later version", {"model": {"source": "hf://org/name"}, "autopilot": "Enabled"}),
    Case(
        "volumes",
        {
            "podTemplate": {
                "volumes": [
                    {"name": "certs", "secret": {"secretName": "ca"}},
                    {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi", "medium": "Memory"}},
                    {"name": "more", "persistentVolumeClaim": {"claimName": "more", "readOnly": True}},
                ],
                "volumeMounts": [{"name": "certs", "mountPath": "/etc/certs", "readOnly": True}],
                "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
                "affinity": {
                    "podAntiAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "weight": 10,
                                "podAffinityTerm": {
                                    "topologyKey": "kubernetes.io/hostname",
                                    "labelSelector": {"matchLabels": {"app": "x"}},
                                },
                            }
                        ]
                    }
                },
            }
        },
    ),
)

INVALID = (
    Case("long name", name="a" * 41, says=("metadata.name", "at most 40 characters")),
    Case("dotted name", name="a.b", says=("metadata.name", "DNS label")),
    Case("name begins with a digit", name="1a", says=("metadata.name", "starts with a letter")),
    Case("no model", {"model": None}, says=("spec.model", "Required")),
    Case("no source", {"model": {"source": None}}, says=("spec.model.source", "Required")),
    Case(
        "unknown scheme",
        {"model": {"source": "http://host/model"}},
        says=("spec.model.source", "pvc://<claim>/<path>", "hf://<org>/<name>"),
    ),
    Case("claim without a path", {"model": {"source": "pvc://models"}}, says=("pvc://<claim>/<path>",)),
    Case(
        "path that leaves the claim",
        {"model": {"source": "pvc://models/../secret"}},
        says=("spec.model.source", '".."'),
    ),
    Case(
        "wrong checksum form", {"model": {"revision": "main"}}, says=("spec.model.revision", "sha256:<64 hex")
    ),
    Case(
        "vLLM without an image", on_vllm({"runtime": {"image": None}}), says=(*ON_VLLM, "spec.runtime.image")
    ),
    Case(
        "vLLM with a GGUF file",
        on_vllm({"model": {"source": "pvc://models/small.gguf"}}),
        says=(*ON_VLLM, "spec.model.source", "safetensors"),
    ),
    *(
        Case(
            f"a flag that vLLM does not have, {mode}",
            on_vllm(flags({"name": "length-control", "mode": mode})),
            says=(*ON_VLLM, "that vLLM does not have; it has paged-kv"),
        )
        for mode in ("Gated", "Forced")
    ),
    *(
        Case(
            f"vLLM {mode} without {flag}",
            on_vllm(flags({"name": flag, "mode": mode})),
            says=(*ON_VLLM, "must leave paged-kv and continuous-batching on"),
        )
        for flag, mode in (("paged-kv", "Disabled"), ("continuous-batching", "Gated"))
    ),
    Case(
        "a share of vLLM's prefix cache",
        on_vllm(forced("prefix-cache", maxFraction="0.25")),
        says=(*ON_VLLM, "params of prefix-cache must be empty"),
    ),
    *(
        Case(f"vLLM with {field}", on_vllm(patch), says=(*ON_VLLM, field))
        for field, patch in (
            ("spec.runtime.prefillPriority", {"runtime": {"prefillPriority": "low"}}),
            ("spec.runtime.maxPrefillBatch", {"runtime": {"maxPrefillBatch": 4}}),
            ("spec.cachePins", {"cachePins": {"configMapRef": {"name": "pins"}}}),
        )
    ),
    Case(
        "an argument of vLLM that has a field",
        on_vllm({"runtime": {"extraArgs": ["--gpu-memory-utilization=0.5"]}}),
        says=("spec.runtime.extraArgs", "--gpu-memory-utilization"),
    ),
    Case(
        "unknown engine",
        {"runtime": {"engine": "sglang"}},
        says=("spec.runtime.engine", '"firsttoken"', '"vllm"'),
    ),
    Case(
        "unknown device",
        {"runtime": {"device": "tpu"}},
        says=("spec.runtime.device", '"auto"', '"cpu"', '"cuda"'),
    ),
    Case("unknown dtype", {"runtime": {"dtype": "int4"}}, says=("spec.runtime.dtype", '"bfloat16"')),
    Case(
        "length that is no number",
        {"runtime": {"maxModelLen": "long"}},
        says=("spec.runtime.maxModelLen", "auto or a whole number from 16 to 1048576"),
    ),
    Case(
        "length too small",
        {"runtime": {"maxModelLen": 8}},
        says=("spec.runtime.maxModelLen", "from 16 to 1048576"),
    ),
    Case(
        "fraction as a float",
        {"runtime": {"memoryFraction": 0.9}},
        says=("spec.runtime.memoryFraction", "string"),
    ),
    Case(
        "fraction too large",
        {"runtime": {"memoryFraction": "1.5"}},
        says=("spec.runtime.memoryFraction", "from 0.05 to 1"),
    ),
    Case(
        "fraction of nothing",
        {"runtime": {"memoryFraction": "0.0"}},
        says=("spec.runtime.memoryFraction", "from 0.05 to 1"),
    ),
    Case("no sequences", {"runtime": {"maxNumSeqs": 0}}, says=("spec.runtime.maxNumSeqs", "from 1 to 4096")),
    Case(
        "argument with a field of its own",
        {"runtime": {"extraArgs": ["--port=1"]}},
        says=("spec.runtime.extraArgs", "--port"),
    ),
    Case(
        "variable of ours",
        {"runtime": {"env": [{"name": "FIRSTTOKEN_X", "value": "1"}]}},
        says=("spec.runtime.env", "FIRSTTOKEN_"),
    ),
    Case(
        "GPUs on the CPU",
        {"runtime": {"device": "cpu"}, "resources": {"gpus": 1}},
        says=("spec.resources.gpus", "must be 0 or absent"),
    ),
    Case(
        "no GPU for cuda",
        {"runtime": {"device": "cuda"}, "resources": {"gpus": 0}},
        says=("spec.resources.gpus", "at least 1"),
    ),
    Case(
        "memory in words",
        {"resources": {"memory": "lots"}},
        says=("spec.resources.memory", "from 64Mi to 16Ti"),
    ),
    Case("no memory", {"resources": {"memory": "1Mi"}}, says=("spec.resources.memory", "from 64Mi to 16Ti")),
    Case("cpu in words", {"resources": {"cpu": "two"}}, says=("spec.resources.cpu", "from 10m to 1024")),
    *(
        Case(
            f"flag {name}",
            flags({"name": name, "mode": "Gated"}),
            says=("spec.optimizations[0].name", *BUILT),
        )
        for name in ("fused-kernels", "fp8-linear", "spec-decode", "page_size", "on")
    ),
    Case(
        "flag twice",
        flags({"name": "paged-kv", "mode": "Forced"}, {"name": "paged-kv", "mode": "Disabled"}),
        says=("spec.optimizations[1]", "Duplicate value"),
    ),
    Case(
        "unknown mode",
        flags({"name": "paged-kv", "mode": "Enabled"}),
        says=("spec.optimizations[0].mode", '"Disabled"', '"Gated"', '"Forced"'),
    ),
    Case("no mode", flags({"name": "paged-kv"}), says=("spec.optimizations[0].mode", "Required")),
    Case(
        "parameter of another flag",
        flags({"name": "continuous-batching", "mode": "Forced", "params": {"blockSize": "32"}}),
        says=("spec.optimizations[0].params", "continuous-batching", "none"),
    ),
    Case(
        "priority without what it needs",
        flags({"name": "priority", "mode": "Forced"}, {"name": "continuous-batching", "mode": "Disabled"}),
        says=("spec.optimizations", "breaks the rule 'priority needs continuous-batching'"),
    ),
    *(
        Case(
            f"{flag} without {needed}",
            flags({"name": flag, "mode": "Forced"}, {"name": needed, "mode": "Disabled"}),
            says=("spec.optimizations", f"breaks the rule '{flag} needs {needed}'"),
        )
        for flag, needed in (
            ("prefix-cache", "paged-kv"),
            ("prefix-affinity", "prefix-cache"),
            ("prefix-affinity", "paged-kv"),
            ("kv-tiering", "prefix-cache"),
            ("kv-tiering", "paged-kv"),
        )
    ),
    *(
        Case(
            f"kv-fp8 {one} with kv-int8 {other}",
            flags({"name": "kv-fp8", "mode": one}, {"name": "kv-int8", "mode": other}),
            says=("spec.optimizations", "breaks the rule 'kv-int8 excludes kv-fp8'"),
        )
        for one, other in (("Forced", "Forced"), ("Gated", "Forced"), ("Gated", "Gated"))
    ),
    *(
        Case(
            f"{name} {parameter} of {value!r}",
            forced(name, **{parameter: value}),
            says=(f"spec.optimizations[].params.{parameter} of {name}", allowed),
        )
        for name, parameter, allowed, values in (
            ("prefix-cache", "maxFraction", "a decimal from 0.01 to 1", ("0", "0.009", "1.1", "50%", "auto")),
            ("prefix-cache", "protectedFraction", "a decimal from 0 to 0.80", ("0.801", "1", "-0.1", "")),
            ("prefix-affinity", "maxWait", "a duration from 0s to 60s", ("60001ms", "2m", "20", "0.02s", "")),
            ("kv-int8", "fullPrecisionLayers", "a whole number from 0 to 256", ("-1", "257", "auto", "2.0")),
            ("kv-fp8", "fullPrecisionLayers", "a whole number from 0 to 256", ("all",)),
            ("kv-tiering", "hostMemory", "auto or a quantity from 16Mi to 16Ti", ("15Mi", "17Ti", "4GB", "")),
            ("kv-tiering", "claimName", "empty or the name of a claim", ("Warm", "a/b", "-a", "..")),
        )
        for value in values
    ),
    *(
        Case(
            f"blocks of {value}",
            flags({"name": "paged-kv", "mode": "Forced", "params": {"blockSize": value}}),
            says=("blockSize", "a whole number from 8 to 128"),
        )
        for value in ("7", "129", "auto", "")
    ),
    *(
        Case(
            f"{value} blocks",
            flags({"name": "paged-kv", "mode": "Forced", "params": {"maxBlocks": value}}),
            says=("maxBlocks", "auto or a whole number of at least 1"),
        )
        for value in ("0", "-1", "all", "1e3", "1000000000")
    ),
    Case(
        "unknown parameter",
        flags({"name": "chunked-prefill", "mode": "Forced", "params": {"chunk_size": "128"}}),
        says=("spec.optimizations[0].params", "chunkTokens"),
    ),
    *(
        Case(
            f"chunk of {value}",
            flags({"name": "chunked-prefill", "mode": "Forced", "params": {"chunkTokens": value}}),
            says=("chunkTokens", "from 64 to 4096"),
        )
        for value in ("63", "4097", "many", "-1", "1e3")
    ),
    Case(
        "flag without what it needs",
        flags(
            {"name": "chunked-prefill", "mode": "Forced"}, {"name": "continuous-batching", "mode": "Disabled"}
        ),
        says=("spec.optimizations", "breaks the rule 'chunked-prefill needs continuous-batching'"),
    ),
    *(
        Case(
            f"objective of {value}",
            {"slo": {"ttftP95": value}},
            says=("spec.slo.ttftP95", "from 1ms to 10m"),
        )
        for value in ("0s", "11m", "fast", "1.5s", "5d", "500")
    ),
    Case(
        "default class without classes",
        {"slo": {"defaultClass": "batch"}},
        says=("spec.slo.defaultClass", "must be the name of one of spec.slo.classes: none"),
    ),
    Case(
        "default class that is none of the classes",
        {"slo": {"defaultClass": "urgent", "classes": CLASSES}},
        says=("spec.slo.defaultClass", "one of spec.slo.classes: interactive, batch"),
    ),
    Case(
        "route of no class",
        {"routes": [{"name": "intent", "class": "batch"}]},
        says=("spec.routes", "must be the name of one of spec.slo.classes: none"),
    ),
    Case(
        "route of an unknown class",
        {
            "slo": {"classes": CLASSES},
            "routes": [{"name": "summary", "class": "batch"}, {"name": "intent", "class": "urgent"}],
        },
        says=("spec.routes[].class", "one of spec.slo.classes: interactive, batch"),
    ),
    Case(
        "class twice",
        {"slo": {"classes": [*CLASSES, {"name": "batch", "ttftP99": "1s"}]}},
        says=("spec.slo.classes[2]", "Duplicate value"),
    ),
    Case(
        "route twice",
        {"routes": [{"name": "intent"}, {"name": "intent", "maxTokens": 1}]},
        says=("spec.routes[1]", "Duplicate value"),
    ),
    *(
        Case(
            f"class with {field} {value}",
            {"slo": {"classes": [{"name": "batch", "ttftP99": "8s", field: value}]}},
            says=(f"spec.slo.classes[0].{field}", words),
        )
        for field, value, words in (
            ("priority", 1001, "less than or equal to 1000"),
            ("priority", -1001, "greater than or equal to -1000"),
            ("maxTokens", 0, "greater than or equal to 1"),
            ("ttftP99", "0s", "from 1ms to 10m"),
            ("name", "Batch!", "should match"),
        )
    ),
    Case(
        "class without an objective",
        {"slo": {"classes": [{"name": "batch"}]}},
        says=("spec.slo.classes[0].ttftP99", "Required"),
    ),
    Case("pace of an hour", {"slo": {"tpotP95": "1h"}}, says=("spec.slo.tpotP95", "from 1ms to 1m")),
    Case(
        "unknown prefill priority",
        {"runtime": {"prefillPriority": "high"}},
        says=("spec.runtime.prefillPriority", '"normal"', '"low"'),
    ),
    *(
        Case(
            f"argument {option} with a field of its own",
            {"runtime": {"extraArgs": [option]}},
            says=("spec.runtime.extraArgs", option.partition("=")[0]),
        )
        for option in (
            "--prefill-priority=low",
            "--block-size",
            "--kv-blocks=7",
            "--host-memory=1Gi",
            "--host-folder=/tmp",
            "--cache-pins=x",
            "--enable=kv-int8",
        )
    ),
    Case("window of a day", {"slo": {"window": "24h"}}, says=("spec.slo.window", "from 10s to 1h")),
    Case(
        "unknown scaling mode",
        {"scaling": {"mode": "Auto"}},
        says=("spec.scaling.mode", '"SLO"', '"External"', '"Fixed"'),
    ),
    Case(
        "min above max",
        {"scaling": {"min": 4, "max": 2}},
        says=("spec.scaling.min", "must not be larger than spec.scaling.max"),
    ),
    Case("no replica", {"scaling": {"min": 0}}, says=("spec.scaling.min", "greater than or equal to 1")),
    Case(
        "negative replicas",
        {"scaling": {"mode": "Fixed", "replicas": -1}},
        says=("spec.scaling.replicas", "greater than or equal to 0"),
    ),
    Case(
        "rollout that cannot move",
        {"rollout": {"maxSurge": 0, "maxUnavailable": 0}},
        says=("spec.rollout.maxSurge", "must not both be 0"),
    ),
    Case("drain of a day", {"drain": {"timeout": "24h"}}, says=("spec.drain.timeout", "from 0s to 1h")),
    Case(
        "node port without its type",
        {"service": {"nodePort": 8080}},
        says=("spec.service.nodePort", "NodePort or LoadBalancer"),
    ),
    Case("port out of range", {"service": {"port": 70000}}, says=("spec.service.port", "65535")),
    Case(
        "unknown strategy",
        {"routing": {"strategy": "Random"}},
        says=("spec.routing.strategy", '"PrefixAware"', '"LeastBacklog"', '"None"'),
    ),
    Case(
        "label of ours",
        {"podTemplate": {"labels": {"firsttoken.dev/service": "other"}}},
        says=("spec.podTemplate.labels", "firsttoken.dev/"),
    ),
    Case(
        "annotation of ours",
        {"podTemplate": {"annotations": {"firsttoken.dev/flags": "1.1"}}},
        says=("spec.podTemplate.annotations", "firsttoken.dev/"),
    ),
    Case(
        "volume of two kinds",
        {"podTemplate": {"volumes": [{"name": "a", "emptyDir": {}, "secret": {"secretName": "b"}}]}},
        says=("spec.podTemplate.volumes", "exactly one of"),
    ),
    Case(
        "volume of no kind", {"podTemplate": {"volumes": [{"name": "a"}]}}, says=("exactly one of emptyDir",)
    ),
    Case(
        "volume of ours",
        {"podTemplate": {"volumes": [{"name": "firsttoken-flags", "emptyDir": {}}]}},
        says=("spec.podTemplate.volumes[0].name", "firsttoken-"),
    ),
    Case(
        "mount without a volume",
        {"podTemplate": {"volumeMounts": [{"name": "a", "mountPath": "/a"}]}},
        says=("spec.podTemplate.volumeMounts", "one of spec.podTemplate.volumes"),
    ),
    Case(
        "mount over ours",
        {
            "podTemplate": {
                "volumes": [{"name": "a", "emptyDir": {}}],
                "volumeMounts": [{"name": "a", "mountPath": "/models/x"}],
            }
        },
        says=("mountPath", "/models"),
    ),
    Case(
        "mount over the host tier's folder",
        {
            "podTemplate": {
                "volumes": [{"name": "a", "emptyDir": {}}],
                "volumeMounts": [{"name": "a", "mountPath": "/var/lib/firsttoken/kv"}],
            }
        },
        says=("mountPath", "/var/lib/firsttoken"),
    ),
)

UNKNOWN_FIELDS = (
    Case("misspelt field", {"runtime": {"maxModelLength": 2048}}, says=("spec.runtime.maxModelLength",)),
    Case("whole pod spec", {"podTemplate": {"hostNetwork": True}}, says=("spec.podTemplate.hostNetwork",)),
    Case(
        "host path",
        {"podTemplate": {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}},
        says=("hostPath",),
    ),
)

EVALUATION: Object = {
    "apiVersion": "firsttoken.dev/v1alpha1",
    "kind": "RegressionEval",
    "metadata": {"name": "judge"},
    "spec": {
        "serviceRef": {"name": "chat"},
        "flags": ["kv-int8"],
        "suite": {"configMapRef": {"name": "evals"}},
    },
}

EXAMPLES = (
    "smollm2-cpu.yaml",
    "vllm.yaml",
    "api-keys.yaml",
    "llama-gpu.yaml",
    "external-autoscaler.yaml",
    "request-classes.yaml",
    "kv-cache.yaml",
)
