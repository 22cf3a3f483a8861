"""`spec.runtime`: the engine's cold settings. A change makes a new revision."""

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from firsttoken_api import auto, cel, fraction, vllm
from firsttoken_api.base import SpecModel

# Options of `firsttoken serve` and of vLLM that the operator renders itself; each has its own field.
RENDERED_ARGUMENTS = (
    "--host",
    "--port",
    "--ops-port",
    "--served-name",
    "--device",
    "--dtype",
    "--max-model-len",
    "--memory-fraction",
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--max-prefill-batch",
    "--prefill-priority",
    "--block-size",
    "--kv-blocks",
    "--host-memory",
    "--host-folder",
    "--cache-pins",
    "--behind-sidecar",
    "--flags-file",
    "--enable",
    "--disable",
    *vllm.RENDERED_ARGUMENTS,
)
RESERVED_ENVIRONMENT = "FIRSTTOKEN_"

ARGUMENTS_ARE_OURS = cel.Rule(
    f"!self.exists(argument, argument in {cel.quoted_list(RENDERED_ARGUMENTS)}"
    f" || {cel.quoted_list(RENDERED_ARGUMENTS)}.exists(ours, argument.startsWith(ours + '=')))",
    "spec.runtime.extraArgs must not repeat an option that has its own field or parameter, or that the "
    "operator sets: " + ", ".join(RENDERED_ARGUMENTS),
)
ENVIRONMENT_IS_OURS = cel.Rule(
    f"!self.exists(variable, variable.name.startsWith('{RESERVED_ENVIRONMENT}'))",
    f"spec.runtime.env names must not start with {RESERVED_ENVIRONMENT}, which the operator sets",
)


class Engine(StrEnum):
    """The inference engine."""

    FIRSTTOKEN = "firsttoken"
    VLLM = "vllm"


class Device(StrEnum):
    """Where the model runs."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class DType(StrEnum):
    """Number format of weights and activations."""

    AUTO = "auto"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"


class PrefillPriority(StrEnum):
    """When prefill runs."""

    NORMAL = "normal"
    LOW = "low"


class EnvironmentVariable(SpecModel):
    """A variable of the engine container."""

    name: Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Its name."""
    value: Annotated[str, Field(max_length=4096)] = ""
    """Its value."""


def _check_arguments(arguments: tuple[str, ...]) -> tuple[str, ...]:
    ARGUMENTS_ARE_OURS.check(not any(a.partition("=")[0] in RENDERED_ARGUMENTS for a in arguments))
    return arguments


def _check_environment(variables: tuple[EnvironmentVariable, ...]) -> tuple[EnvironmentVariable, ...]:
    ENVIRONMENT_IS_OURS.check(not any(v.name.startswith(RESERVED_ENVIRONMENT) for v in variables))
    return variables


class RuntimeSpec(SpecModel):
    """The engine and its cold settings."""

    engine: Engine = Engine.FIRSTTOKEN
    """The inference engine."""
    image: Annotated[str, Field(max_length=512, pattern=r"^[^\s]*$")] = ""
    """Engine image. Empty: the image the operator was installed with, which has no vLLM."""
    device: Device = Device.AUTO
    """Where the model runs. `cpu` asks for no GPU; `auto` uses one where `spec.resources.gpus` grants it."""
    dtype: DType = DType.AUTO
    """Number format of weights and activations. `auto`: bfloat16 where the device has it natively."""
    max_model_len: Annotated[auto.IntOrAuto, auto.Within("spec.runtime.maxModelLen", 16, 1_048_576)] = (
        auto.AUTO
    )
    """Longest context in tokens, prompt and answer together. `auto`: what the model was trained for."""
    memory_fraction: Annotated[str, fraction.Within("spec.runtime.memoryFraction", "0.05", "1")] = "0.90"
    """Share of the memory limit (or of the GPU's memory) that weights and KV cache may fill."""
    max_num_seqs: Annotated[auto.IntOrAuto, auto.Within("spec.runtime.maxNumSeqs", 1, 4_096)] = 64
    """Most sequences that run at once."""
    max_num_batched_tokens: Annotated[
        auto.IntOrAuto, auto.Within("spec.runtime.maxNumBatchedTokens", 16, 1_048_576)
    ] = auto.AUTO
    """Most tokens computed in one step."""
    max_prefill_batch: Annotated[int, Field(ge=1, le=256)] = 8
    """Most prompts that are computed in one step."""
    prefill_priority: PrefillPriority = PrefillPriority.NORMAL
    """`low`: prompts are computed only in steps without decodes. None waits for ever."""
    extra_args: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=256)], ...],
        Field(max_length=32, json_schema_extra=cel.rules(ARGUMENTS_ARE_OURS)),
        AfterValidator(_check_arguments),
    ] = ()
    """More arguments of the engine."""
    env: Annotated[
        tuple[EnvironmentVariable, ...],
        Field(
            max_length=32,
            json_schema_extra=cel.merged(cel.list_map("name"), cel.rules(ENVIRONMENT_IS_OURS)),
        ),
        AfterValidator(_check_environment),
    ] = ()
    """More variables of the engine container."""
