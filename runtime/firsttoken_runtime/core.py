"""What server and engine say to each other, and the settings both start from.

Pure data, no torch: both processes and every scheduler test import it. Messages are msgspec structs
that travel as msgpack over one local ZeroMQ socket pair; a message's tag names its type.
"""

import msgspec


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How the tokens of one sequence are chosen. Validated by the server, trusted by the engine."""

    max_tokens: int
    temperature: float = 1.0
    """0 = greedy."""
    top_k: int = 0
    """0 = off."""
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    """Key of the Philox stream; the server draws one when the client names none."""
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag="submit"):
    """Server to engine: a new sequence. Ids are internal, unique for the life of the server."""

    sequence_id: int
    prompt_token_ids: list[int]
    sampling: SamplingParams
    arrival_s: float
    """Monotonic clock of this machine, shared by both processes."""


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Server to engine: nobody listens any more. Unknown or finished ids are ignored."""

    sequence_id: int


class SetFlags(msgspec.Struct, frozen=True, kw_only=True, tag="set_flags"):
    """Server to engine: switch at the next step boundary. `settings_json` is a `HotSettings` document."""

    settings_json: bytes


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """Server to engine: end now."""


class Loading(msgspec.Struct, frozen=True, kw_only=True, tag="loading"):
    """Engine to server: weights are being loaded. `progress` in 0..1."""

    progress: float


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """Engine to server: sequences are welcome."""

    architecture: str
    device: str
    dtype: str
    dtype_reason: str
    max_model_len: int
    kv_blocks: int
    block_size_tokens: int
    vocabulary_size: int
    flags_enabled: tuple[str, ...]


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """One new token of one sequence."""

    sequence_id: int
    token_id: int
    finish_reason: str = ""
    """"" while it goes on; `stop` (EOS or stop id, which is then this token) or `length`."""
    cached_tokens: int = 0
    scheduled_at_s: float = 0.0
    """With the first token: when the sequence was first scheduled, on the monotonic clock; else 0."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence ended by an error; the others go on."""

    sequence_id: int
    message: str


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """A look at scheduler and pool after a step."""

    running: int
    waiting: int
    backlog_tokens: int
    blocks_used: int
    blocks_total: int
    block_size_tokens: int
    preemptions_total: int


class StepOutput(msgspec.Struct, frozen=True, kw_only=True, tag="step"):
    """Engine to server after each step, and as a heartbeat at least every second when idle."""

    step: int
    tokens: list[Token]
    failures: list[Failure]
    stats: Stats


class FlagsApplied(msgspec.Struct, frozen=True, kw_only=True, tag="flags_applied"):
    """Engine to server: the answer to `SetFlags`. `error` names the flag or parameter, else empty."""

    generation: int
    hash: str
    enabled: tuple[str, ...]
    error: str = ""


class LoadFailed(msgspec.Struct, frozen=True, kw_only=True, tag="load_failed"):
    """Engine to server, then it exits: why the model cannot be served, and which option to change."""

    reason: str
    """One of `firsttoken_api.reasons`: ModelNotFound, UnsupportedArchitecture, NotEnoughMemory, …"""
    message: str


ToEngine = Submit | Abort | SetFlags | Shutdown
FromEngine = Loading | Ready | StepOutput | FlagsApplied | LoadFailed


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Cold settings of one engine; options mirror `spec.runtime`. A pure function resolves `auto`."""

    model_path: str
    """A folder of safetensors or a .gguf file."""
    device: str = "auto"
    dtype: str = "auto"
    max_model_len: int | None = None
    memory_fraction: float = 0.90
    max_num_seqs: int = 64
    max_num_batched_tokens: int | None = None
    max_prefill_batch: int = 8
    block_size_tokens: int = 16
    kv_blocks: int | None = None
    threads: int | None = None
