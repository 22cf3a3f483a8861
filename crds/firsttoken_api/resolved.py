"""What the resolver job says about a model: its termination message, at most 2 KiB of JSON.

The operator pins the digest and sizes the replicas from it before any pod exists.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

LARGEST_BYTES = 2048
RUNTIME_BYTES = 600 * 2**20
"""What an engine needs beside weights and KV cache."""
VLLM_RUNTIME_BYTES = 3072 * 2**20
"""The same of vLLM: three processes with torch. On a CPU 3.3 GB were seen, shared pages counted each time."""


class ModelFormat(StrEnum):
    """How the weights are stored."""

    GGUF = "gguf"
    SAFETENSORS = "safetensors"


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ResolvedModel(_Message):
    """A model that was found and read. Sizes in bytes and elements."""

    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    """GGUF: of the file. Folder: of its sorted `<name> <sha256>` lines."""
    bytes: Annotated[int, Field(ge=0)]
    """Size of the content on disk."""
    format: ModelFormat
    architecture: Annotated[str, Field(max_length=256)]
    parameters: Annotated[int, Field(ge=0)]
    layers: Annotated[int, Field(ge=1)]
    heads: Annotated[int, Field(ge=1)]
    kv_heads: Annotated[int, Field(ge=1)]
    head_dim: Annotated[int, Field(ge=1)]
    hidden: Annotated[int, Field(ge=1)]
    vocabulary: Annotated[int, Field(ge=1)]
    trained_length: Annotated[int, Field(ge=1)]
    """Longest context the model was trained for, in tokens."""
    weight_bytes_16bit: Annotated[int, Field(ge=0)]
    """Weights in 16 bit, tied embeddings counted once."""

    def kv_bytes_per_token(self, element_bytes: int = 2) -> int:
        """Bytes that one token holds in the KV cache."""
        return 2 * self.layers * self.kv_heads * self.head_dim * element_bytes

    def least_memory_bytes(self, max_model_len: int, runtime_bytes: int = RUNTIME_BYTES) -> int:
        """Lower bound of an engine's memory: weights and one longest sequence in 16 bit, and the runtime."""
        return self.weight_bytes_16bit + self.kv_bytes_per_token() * max_model_len + runtime_bytes


class ResolveFailure(_Message):
    """Why a model cannot be served."""

    reason: Annotated[str, Field(max_length=64)]
    """One of `reasons.Reason`, such as ModelNotFound or UnsupportedArchitecture."""
    message: Annotated[str, Field(max_length=1024)]


ResolveResult = ResolvedModel | ResolveFailure
_ADAPTER: TypeAdapter[ResolvedModel | ResolveFailure] = TypeAdapter(ResolvedModel | ResolveFailure)


def parse(text: str | bytes) -> ResolvedModel | ResolveFailure:
    """Reads a termination message. pydantic.ValidationError (a ValueError) if it is neither."""
    return _ADAPTER.validate_json(text)


def render(result: ResolvedModel | ResolveFailure) -> str:
    """The termination message. A failure's message is cut where it would make the whole too long."""
    text = result.model_dump_json()
    if isinstance(result, ResolveFailure) and len(text.encode()) > LARGEST_BYTES:
        text = result.model_copy(update={"message": result.message[:400] + "…"}).model_dump_json()
    assert len(text.encode()) <= LARGEST_BYTES, len(text)
    return text
