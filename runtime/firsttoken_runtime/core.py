"""What server and engine say to each other, and the settings both start from.

Pure data, no torch: both processes and every scheduler test import it. Messages are msgspec structs
that travel as msgpack over one local ZeroMQ socket pair; a message's tag names its type.
"""

import msgspec

from firsttoken_api.step_time import StepTime


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How the tokens of one sequence are chosen. Validated by the server, trusted by the engine."""

    max_tokens: int
    """0 only with `prompt_logprobs`: the prompt is scored and nothing is generated."""
    temperature: float = 1.0
    """0 = greedy."""
    top_k: int = 0
    """0 = off."""
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    """Key of the Philox stream; the server draws one when the client names none."""
    choice: int = 0
    """Which of the n answers to one prompt this is: part of the Philox counter."""
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    """Both count tokens of the output only."""
    repetition_penalty: float = 1.0
    """Counts prompt and output."""
    logit_bias: dict[int, float] = {}
    logprobs: int | None = None
    """None = off; else so many likeliest alternatives beside the chosen token."""
    prompt_logprobs: int | None = None
    """The same for every prompt token; such a request never reads cached KV."""
    grammar: str = ""
    """A grammar that the output must follow, checked by the server; "" = free text."""
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
    sent_s: float = 0.0
    """When the server sent this: from then on the request waits for the engine. 0 = at arrival."""
    request_class: str = ""
    """A class of the hot settings in force; "" = the default class."""
    priority: int = 0
    """Orders inside the class, lower first (vLLM's parameter)."""
    expected_output_tokens: int | None = None
    """What the client asked for as `max_tokens`; None = it did not say."""
    cache_salt: str = ""
    """Cached KV is found only under the same salt; "" is shared by all. The server makes it of the tenant
    and the client's `cache_salt`."""
    shared_prefix_tokens: int = 0
    """Declared shared prefix: so many leading tokens are kept in 16 bit under every KV type."""


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Server to engine: nobody listens any more. Unknown or finished ids are ignored."""

    sequence_id: int


class SetFlags(msgspec.Struct, frozen=True, kw_only=True, tag="set_flags"):
    """Server to engine: switch at the next step boundary. `settings_json` is a `HotSettings` document."""

    settings_json: bytes


class Pin(msgspec.Struct, frozen=True, kw_only=True, tag="pin"):
    """Server to engine: these prompts' blocks are kept once they are computed. Replaces earlier pins."""

    prompts: list[list[int]]
    """Token ids. They are computed under salt "", and then found under every one."""


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
    batch_invariant: bool = False
    kv_type: str = "full"
    """`full`, `int8` or `fp8`."""
    kv_bytes_per_token: int = 0
    """Of a token outside of declared shared prefixes, all layers together."""
    kv_sentence: str = ""
    """How the bytes and the capacity follow from the model, for people."""


class TokenLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """Natural logarithms of the probabilities of one token and of the likeliest ones at its place."""

    logprob: float
    rank: int
    """1 = the likeliest."""
    top_ids: list[int] = []
    top_logprobs: list[float] = []
    """Falling, ties by lower id."""


class FirstTokenTimes(msgspec.Struct, frozen=True, kw_only=True):
    """When a sequence passed each stage before its first token, on the monotonic clock."""

    queued_s: float
    """The server sent it to the engine."""
    scheduled_s: float
    """It was first given tokens."""
    prefilled_s: float
    """The forward pass of its last prompt token ended."""
    sampled_s: float
    """Its first token was chosen."""
    loaded_s: float = 0.0
    """Its blocks from the host tier were in place; 0 = it had none."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """One new token of one sequence."""

    sequence_id: int
    token_id: int
    finish_reason: str = ""
    """"" while it goes on; `stop` (EOS or stop id, which is then this token) or `length`."""
    cached_tokens: int = 0
    """Prompt tokens that were found in the cache at its first admission; with the first token only."""
    times: FirstTokenTimes | None = None
    """With the first token only."""
    logprobs: TokenLogprobs | None = None
    """When the request asked for them."""
    ends_after: bool = False
    """With `stop` only: this token is text and nothing may follow it (its grammar is complete)."""


class PromptScores(msgspec.Struct, frozen=True, kw_only=True):
    """Logprobs of a whole prompt, before or with its first token; the first token has none."""

    sequence_id: int
    scores: list[TokenLogprobs | None]
    finish_reason: str = ""
    """`length` when nothing is generated after it (max_tokens 0), else ""."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence ended by an error; the others go on."""

    sequence_id: int
    message: str
    code: str = ""
    """What kind, to count by: one of `FAILURE_CODES`, or "" where nobody says."""


FAILURE_CODES = ("refused", "not_finite", "no_token", "grammar", "out_of_memory", "step_failed")
"""Never fits or out of range; NaN or infinity in the logits; masks leave no token; the grammar does not
compile or does not hold; an allocation failed; the step could not be computed for another reason."""


class KvDeviation(msgspec.Struct, frozen=True, kw_only=True):
    """How far quantized keys move attention, as sampled in production: largest |dp| over the keys of each
    (query, head)."""

    worst_layer_mean: float = 0.0
    """Of the layer with the largest mean."""
    p999: float = 0.0
    """99.9th percentile over all samples."""
    largest: float = 0.0
    relative_l2: float = 0.0
    """Of the attention output, worst layer."""
    num_samples: int = 0
    """(query, head) pairs that were compared."""


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """A look at scheduler and pool after a step."""

    running: int
    waiting: int
    backlog_tokens: int
    blocks_used: int
    blocks_total: int
    block_size_tokens: int
    preemptions_total: int
    waiting_by_class: dict[str, int] = {}
    backlog_by_class: dict[str, int] = {}
    """`backlog_tokens` by request class."""
    live_slots: int = 0
    """Slots that hold the KV of a token."""
    allocated_slots: int = 0
    """Slots of all blocks that sequences hold."""
    needed_slots: int = 0
    """Of those, slots that a known token (prompt and output so far) has or will have."""
    kv_live_slot_seconds_total: float = 0.0
    kv_needed_slot_seconds_total: float = 0.0
    kv_allocated_slot_seconds_total: float = 0.0
    """The three above, integrated over the time in which at least one request waited: KV memory use is
    live / allocated, internal waste is 1 - needed / allocated."""
    prefill_tokens_per_s: float = 0.0
    """Measured; 0 = not known yet."""
    tpot_p95_s: float = 0.0
    """Of the last 30 s; 0 = nothing was generated."""
    tpot_mean_s: float = 0.0
    """Decaying mean of the gaps between tokens; 0 = not known yet."""
    step_time: StepTime | None = None
    """Fitted to the steps so far, from what was measured at the start; None = neither."""
    chunk_tokens: int = 0
    """Prompt tokens that the next step may take, as things are."""
    max_prefill_batch: int = 0
    max_num_seqs: int = 0
    decoding: int = 0
    """Of `running`, those whose prompt is computed."""
    context_tokens: int = 0
    """Tokens of running sequences whose KV is in the cache; what is shared counts for each."""
    lengths_by_class: dict[str, float] = {}
    """Median output length of each class, where one is known."""
    reference_blocks: int = 0
    """What the published formula asks for: peak concurrency x mean length / block size, both as seen."""
    prefix_query_tokens_total: int = 0
    """Prompt tokens that were looked up in the cache, each sequence once, at its first admission."""
    prefix_hit_tokens_total: dict[str, int] = {}
    """Of those, found; by tier: `device`, `host`."""
    cached_blocks: int = 0
    """Findable blocks that no sequence holds: they make way when room is needed."""
    evictions_total: int = 0
    host_blocks: int = 0
    """Blocks in the host tier."""
    host_bytes: int = 0
    host_problems: dict[str, int] = {}
    """What went wrong in the host tier and its folder, by reason; each was a miss."""
    saves_total: int = 0
    """Blocks copied to the host tier."""
    loads_total: int = 0
    """Blocks copied back from it."""
    lineage: str = ""
    """The first 16 hex digits: what all KV in the cache was computed under."""
    lineage_changes_total: int = 0
    recompute_debt_tokens: int = 0
    """Known tokens of running sequences whose KV a switch or a preemption took, not yet computed again."""
    flag_generation: int = 0
    """Of the hot settings in force; 0 = those the engine started with."""
    rule_decisions: dict[str, int] = {}
    """Decisions about a sequence's precision and reuse, by reason code."""
    kv_type: str = "full"
    """`full`, `int8` or `fp8`."""
    kv_deviation: KvDeviation | None = None
    """None: nothing was sampled."""
    switch_pause_s: float = 0.0
    """Last switch that changed the layout: accepted until the first step under it."""
    switch_gap_s: float = 0.0
    """Largest gap in a stream that the last such switch made, so far."""


class StepOutput(msgspec.Struct, frozen=True, kw_only=True, tag="step"):
    """Engine to server after each step, and as a heartbeat at least every second when idle."""

    step: int
    tokens: list[Token]
    failures: list[Failure]
    stats: Stats
    prompts: list[PromptScores] = []
    computed_tokens: int = 0
    """Tokens of the forward pass, prompts and decodes together; 0 for a heartbeat."""


class FlagsApplied(msgspec.Struct, frozen=True, kw_only=True, tag="flags_applied"):
    """Engine to server: the answer to `SetFlags`. `error` names the flag or parameter, else empty."""

    generation: int
    hash: str
    enabled: tuple[str, ...]
    error: str = ""
    lineage: str = ""
    """In force after the switch; the first 16 hex digits."""
    kv_type: str = "full"
    kv_bytes_per_token: int = 0
    """As `Ready` says it, of what is in force after the switch."""
    recompute_tokens: int = 0
    """Known tokens of running sequences that the switch made to be computed again."""


class LoadFailed(msgspec.Struct, frozen=True, kw_only=True, tag="load_failed"):
    """Engine to server, then it exits: why the model cannot be served, and which option to change."""

    reason: str
    """One of `firsttoken_api.reasons`: ModelNotFound, UnsupportedArchitecture, NotEnoughMemory, …"""
    message: str


ToEngine = Submit | Abort | SetFlags | Pin | Shutdown
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
    prefill_priority: str = "normal"
    """`low`: prompts are computed only in steps without decodes."""
    batch_invariant: bool = False
    """The numbers of a row do not depend on which other rows share its step."""
    host_memory_bytes: int | None = None
    """Host tier of the cache, where `kv-tiering` is on; None = as much as the device pool has, from what is
    left of the memory."""
    host_folder: str = ""
    """Keeps the host tier over restarts; "" = it ends with the process."""
