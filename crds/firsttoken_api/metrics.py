"""Every metric that a Firsttoken process exports: name, kind, labels, unit, meaning, and who exports it.

Names under `firsttoken_` are ours. The engine also uses vLLM's names for what vLLM measures too, so that
dashboards work with both; the definitions are vLLM's. `exposition` turns rows into Prometheus objects.
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Prometheus metric types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Owner(StrEnum):
    """The process that exports a metric."""

    ENGINE = "engine"
    SIDECAR = "sidecar"
    OPERATOR = "operator"


@dataclass(frozen=True)
class Metric:
    """One metric family."""

    name: str
    """As a client library wants it: counters without `_total`, which the exposition adds."""
    kind: Kind
    owner: Owner
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    buckets: tuple[float, ...] = ()

    @property
    def exposed_name(self) -> str:
        """The name in the text format and in queries."""
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


TTFT_BUCKETS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
ITL_BUCKETS_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST_BUCKETS_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
)  # fmt: skip
STEP_TOKEN_BUCKETS = (
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
)  # fmt: skip
CHOICE_BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0)
TOKEN_BUCKETS = (
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 50000.0,
    100000.0,
)  # fmt: skip
RECONCILE_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_VLLM_LABELS = ("model_name", "engine")


def _engine(
    name: str,
    kind: Kind,
    help: str,
    labels: tuple[str, ...] = (),
    unit: str = "",
    buckets: tuple[float, ...] = (),
) -> Metric:
    return Metric(name, kind, Owner.ENGINE, help, (*_VLLM_LABELS, *labels), unit, buckets)


# The engine: vLLM's names.
VLLM_TTFT = _engine(
    "vllm:time_to_first_token_seconds",
    Kind.HISTOGRAM,
    "From arrival to the first token",
    unit="seconds",
    buckets=TTFT_BUCKETS_S,
)
VLLM_ITL = _engine(
    "vllm:inter_token_latency_seconds",
    Kind.HISTOGRAM,
    "Between two tokens of a request",
    unit="seconds",
    buckets=ITL_BUCKETS_S,
)
VLLM_TPOT = _engine(
    "vllm:request_time_per_output_token_seconds",
    Kind.HISTOGRAM,
    "Mean time per output token of a request, the first one left out",
    unit="seconds",
    buckets=ITL_BUCKETS_S,
)
VLLM_E2E = _engine(
    "vllm:e2e_request_latency_seconds",
    Kind.HISTOGRAM,
    "From arrival to the last token",
    unit="seconds",
    buckets=REQUEST_BUCKETS_S,
)
VLLM_QUEUE_TIME = _engine(
    "vllm:request_queue_time_seconds",
    Kind.HISTOGRAM,
    "From being queued to being scheduled",
    unit="seconds",
    buckets=REQUEST_BUCKETS_S,
)
VLLM_PREFILL_TIME = _engine(
    "vllm:request_prefill_time_seconds",
    Kind.HISTOGRAM,
    "From being scheduled to the first token",
    unit="seconds",
    buckets=REQUEST_BUCKETS_S,
)
VLLM_DECODE_TIME = _engine(
    "vllm:request_decode_time_seconds",
    Kind.HISTOGRAM,
    "From the first token to the last",
    unit="seconds",
    buckets=REQUEST_BUCKETS_S,
)
VLLM_INFERENCE_TIME = _engine(
    "vllm:request_inference_time_seconds",
    Kind.HISTOGRAM,
    "From being scheduled to the last token",
    unit="seconds",
    buckets=REQUEST_BUCKETS_S,
)
VLLM_RUNNING = _engine("vllm:num_requests_running", Kind.GAUGE, "Sequences in the running batch")
VLLM_WAITING = _engine("vllm:num_requests_waiting", Kind.GAUGE, "Sequences that wait to be scheduled")
VLLM_KV_USAGE = _engine(
    "vllm:kv_cache_usage_perc", Kind.GAUGE, "Share of KV blocks in use, 0 to 1", unit="ratio"
)
VLLM_PREFIX_QUERIES = _engine(
    "vllm:prefix_cache_queries",
    Kind.COUNTER,
    "Prompt tokens that were looked up in the prefix cache",
    unit="tokens",
)
VLLM_PREFIX_HITS = _engine(
    "vllm:prefix_cache_hits",
    Kind.COUNTER,
    "Of those, tokens that were found, in any tier",
    unit="tokens",
)
VLLM_PROMPT_TOKENS = _engine(
    "vllm:prompt_tokens", Kind.COUNTER, "Prompt tokens of accepted requests", unit="tokens"
)
VLLM_GENERATION_TOKENS = _engine("vllm:generation_tokens", Kind.COUNTER, "Tokens generated", unit="tokens")
VLLM_PREEMPTIONS = _engine(
    "vllm:num_preemptions", Kind.COUNTER, "Sequences put back to the queue to be recomputed"
)
VLLM_REQUEST_SUCCESS = _engine(
    "vllm:request_success", Kind.COUNTER, "Requests that ended, by how", labels=("finished_reason",)
)
VLLM_PROMPT_LENGTH = _engine(
    "vllm:request_prompt_tokens",
    Kind.HISTOGRAM,
    "Prompt tokens of a request",
    unit="tokens",
    buckets=TOKEN_BUCKETS,
)
VLLM_GENERATION_LENGTH = _engine(
    "vllm:request_generation_tokens",
    Kind.HISTOGRAM,
    "Tokens generated for a request",
    unit="tokens",
    buckets=TOKEN_BUCKETS,
)

VLLM_PARAMS_N = _engine(
    "vllm:request_params_n", Kind.HISTOGRAM, "The parameter n of a request", buckets=CHOICE_BUCKETS
)
VLLM_PARAMS_MAX_TOKENS = _engine(
    "vllm:request_params_max_tokens",
    Kind.HISTOGRAM,
    "The parameter max_tokens of a request that gives one",
    unit="tokens",
    buckets=TOKEN_BUCKETS,
)
VLLM_ITERATION_TOKENS = _engine(
    "vllm:iteration_tokens_total",
    Kind.HISTOGRAM,
    "Tokens computed in a step, prompts and decodes together",
    unit="tokens",
    buckets=STEP_TOKEN_BUCKETS,
)
VLLM_CORRUPTED = _engine(
    "vllm:corrupted_requests", Kind.COUNTER, "Requests that ended because their logits held a NaN"
)
VLLM_ADMISSION_REJECTIONS = _engine(
    "vllm:admission_rejections", Kind.COUNTER, "Requests that were not admitted, whatever the reason"
)

# The engine: ours.
ENGINE_TTFT_STAGE = _engine(
    "firsttoken_engine_ttft_stage_seconds",
    Kind.HISTOGRAM,
    "Parts of the time to the first token; the stages of a request add up to it",
    labels=("stage",),
    unit="seconds",
    buckets=TTFT_BUCKETS_S,
)
ENGINE_WAITING = _engine(
    "firsttoken_engine_waiting",
    Kind.GAUGE,
    "Sequences that wait to be scheduled, by request class; the class is empty where none is declared",
    labels=("class",),
)
ENGINE_PREFILL_RATE = _engine(
    "firsttoken_engine_prefill_tokens_per_second",
    Kind.GAUGE,
    "Prompt tokens computed per second, as measured; 0 before the first",
    unit="tokens per second",
)
ENGINE_FAILURES = _engine(
    "firsttoken_engine_failures",
    Kind.COUNTER,
    "Sequences that the engine ended by an error, by its code",
    labels=("code",),
)
ENGINE_ADMISSION_REFUSED = _engine(
    "firsttoken_engine_admission_refused",
    Kind.COUNTER,
    "Requests that were not admitted, by reason",
    labels=("reason",),
)
ENGINE_KV_MEMORY_USE = _engine(
    "firsttoken_engine_kv_memory_use_ratio",
    Kind.GAUGE,
    "Live / allocated slot seconds since start, over the time in which a request waited",
    unit="ratio",
)
ENGINE_KV_INTERNAL_WASTE = _engine(
    "firsttoken_engine_kv_internal_waste_ratio",
    Kind.GAUGE,
    "1 - needed / allocated slot seconds since start, over the time in which a request waited",
    unit="ratio",
)
ENGINE_KV_LIVE_SLOT_SECONDS = _engine(
    "firsttoken_engine_kv_live_slot_seconds",
    Kind.COUNTER,
    "Slots with the KV of a token, integrated over the time in which a request waited",
    unit="slot seconds",
)
ENGINE_KV_ALLOCATED_SLOT_SECONDS = _engine(
    "firsttoken_engine_kv_allocated_slot_seconds",
    Kind.COUNTER,
    "Slots of all blocks that sequences hold, integrated likewise",
    unit="slot seconds",
)
ENGINE_KV_NEEDED_SLOT_SECONDS = _engine(
    "firsttoken_engine_kv_needed_slot_seconds",
    Kind.COUNTER,
    "Of those, slots that a known token has or will have, integrated likewise",
    unit="slot seconds",
)
ENGINE_BACKLOG = _engine(
    "firsttoken_engine_backlog_tokens",
    Kind.GAUGE,
    "Prompt tokens of queued and running requests that are not computed yet",
    unit="tokens",
)
ENGINE_KV_BLOCKS = _engine("firsttoken_engine_kv_blocks", Kind.GAUGE, "KV blocks of the pool", unit="blocks")
ENGINE_KV_BLOCKS_USED = _engine(
    "firsttoken_engine_kv_blocks_used", Kind.GAUGE, "KV blocks in use", unit="blocks"
)
ENGINE_PREFIX_HITS = _engine(
    "firsttoken_engine_prefix_hit_tokens",
    Kind.COUNTER,
    "Prompt tokens that were found in the prefix cache, by tier: device or host",
    labels=("tier",),
    unit="tokens",
)
ENGINE_CACHED_BLOCKS = _engine(
    "firsttoken_engine_cached_blocks",
    Kind.GAUGE,
    "Blocks that can be found and that no sequence holds; they make way when room is needed",
    unit="blocks",
)
ENGINE_EVICTIONS = _engine(
    "firsttoken_engine_evictions", Kind.COUNTER, "Cached blocks that made way", unit="blocks"
)
ENGINE_RULE_DECISIONS = _engine(
    "firsttoken_engine_rule_decisions",
    Kind.COUNTER,
    "Decisions about how a request's KV is stored and reused, by reason",
    labels=("reason",),
)
ENGINE_KV_TYPE = _engine(
    "firsttoken_engine_kv_type",
    Kind.GAUGE,
    "1 for the format in which KV outside of declared shared prefixes is kept, else 0",
    labels=("type",),
)
ENGINE_KV_DEVIATION = _engine(
    "firsttoken_engine_kv_deviation",
    Kind.GAUGE,
    "How far quantized keys move attention, as sampled: the largest change of a probability over the keys of "
    "a query and head, as its mean in the worst layer (mean), its 99.9th percentile (p999) and its largest "
    "(max); and the relative L2 error of the attention output (output)",
    labels=("measure",),
)
ENGINE_KV_DEVIATION_SAMPLES = _engine(
    "firsttoken_engine_kv_deviation_samples", Kind.COUNTER, "Queries and heads that were compared for it"
)
ENGINE_LINEAGE_CHANGES = _engine(
    "firsttoken_engine_lineage_changes",
    Kind.COUNTER,
    "Switches after which no earlier KV is read again",
)
ENGINE_RECOMPUTE_DEBT = _engine(
    "firsttoken_engine_recompute_debt_tokens",
    Kind.GAUGE,
    "Known tokens of running sequences that are to be computed again",
    unit="tokens",
)
ENGINE_SWITCH_PAUSE = _engine(
    "firsttoken_engine_switch_pause_seconds",
    Kind.GAUGE,
    "Last switch of the KV layout: from its request to the first step under it",
    unit="seconds",
)
ENGINE_SWITCH_GAP = _engine(
    "firsttoken_engine_switch_gap_seconds",
    Kind.GAUGE,
    "The largest gap in a stream that the last such switch made",
    unit="seconds",
)
ENGINE_HOST_BLOCKS = _engine(
    "firsttoken_engine_host_blocks", Kind.GAUGE, "KV blocks in the host tier", unit="blocks"
)
ENGINE_HOST_BYTES = _engine(
    "firsttoken_engine_host_bytes", Kind.GAUGE, "Bytes of the KV blocks in the host tier", unit="bytes"
)
ENGINE_HOST_SAVES = _engine(
    "firsttoken_engine_host_saves", Kind.COUNTER, "Blocks copied to the host tier", unit="blocks"
)
ENGINE_HOST_LOADS = _engine(
    "firsttoken_engine_host_loads", Kind.COUNTER, "Blocks copied back from the host tier", unit="blocks"
)
ENGINE_HOST_PROBLEMS = _engine(
    "firsttoken_engine_host_problems",
    Kind.COUNTER,
    "What went wrong in the host tier and its folder, by reason; each was a miss",
    labels=("reason",),
)
ENGINE_LOAD_PROGRESS = _engine(
    "firsttoken_engine_load_progress", Kind.GAUGE, "How much of the model is loaded, 0 to 1", unit="ratio"
)
ENGINE_FLAG_ENABLED = _engine(
    "firsttoken_engine_flag_enabled", Kind.GAUGE, "1 if the flag is in force, else 0", labels=("flag",)
)
ENGINE_FLAGS_GENERATION = _engine(
    "firsttoken_engine_flags_generation", Kind.GAUGE, "Generation of the hot settings in force"
)
ENGINE_REQUESTS_REJECTED = _engine(
    "firsttoken_engine_requests_rejected",
    Kind.COUNTER,
    "Requests answered with an error, by status",
    labels=("status",),
)

# The sidecar.
SIDECAR_TTFT = Metric(
    "firsttoken_ttft_seconds",
    Kind.HISTOGRAM,
    Owner.SIDECAR,
    "From the arrival of a request to the first byte written of its answer's content; one more bucket "
    "lies exactly at the limit of each class, and a change of a limit starts the counts anew",
    labels=("class", "tenant", "streamed"),
    unit="seconds",
    buckets=TTFT_BUCKETS_S,
)
SIDECAR_TTFT_STAGE = Metric(
    "firsttoken_ttft_stage_seconds",
    Kind.HISTOGRAM,
    Owner.SIDECAR,
    "Parts of it: in the sidecar, on the way to the engine and back, and in the engine as it says itself; "
    "the stages of a request add up to its time to the first token",
    labels=("stage", "class"),
    unit="seconds",
    buckets=TTFT_BUCKETS_S,
)
SIDECAR_TPOT = Metric(
    "firsttoken_time_per_output_token_seconds",
    Kind.HISTOGRAM,
    Owner.SIDECAR,
    "Mean time per output token of a streamed answer as its client got it, the first one left out; one more "
    "bucket lies exactly at the objective",
    labels=("class", "tenant"),
    unit="seconds",
    buckets=ITL_BUCKETS_S,
)
SIDECAR_ITL = Metric(
    "firsttoken_inter_token_latency_seconds",
    Kind.HISTOGRAM,
    Owner.SIDECAR,
    "Between two pieces of a streamed answer as its client got them; one more bucket lies exactly at the "
    "objective",
    labels=("class", "tenant"),
    unit="seconds",
    buckets=ITL_BUCKETS_S,
)
SIDECAR_ARRIVALS = Metric(
    "firsttoken_arrivals",
    Kind.COUNTER,
    Owner.SIDECAR,
    "Requests for tokens that arrived, before admission; each where its client arrived",
    labels=("class",),
)
SIDECAR_REJECTED = Metric(
    "firsttoken_rejected",
    Kind.COUNTER,
    Owner.SIDECAR,
    "Requests that could not be served within the limit of their class and were told to come back",
    labels=("class",),
)
SIDECAR_DEMAND = Metric(
    "firsttoken_demand_tokens",
    Kind.COUNTER,
    Owner.SIDECAR,
    "Prompt tokens not found in the cache, of served and refused requests; a refused one counts once for "
    "each client and body in 60 s",
    unit="tokens",
)
SIDECAR_ANSWERS = Metric(
    "firsttoken_answers", Kind.COUNTER, Owner.SIDECAR, "Answers by HTTP status", labels=("status",)
)
SIDECAR_IN_FLIGHT = Metric(
    "firsttoken_in_flight", Kind.GAUGE, Owner.SIDECAR, "Requests that are being answered"
)
SIDECAR_OVERDUE = Metric(
    "firsttoken_overdue",
    Kind.GAUGE,
    Owner.SIDECAR,
    "Requests that have waited longer than the limit of their class without a first token",
    labels=("class",),
)
SIDECAR_BREACHES = Metric(
    "firsttoken_breaches",
    Kind.COUNTER,
    Owner.SIDECAR,
    "Requests without a first token when the limit of their class had passed, and refused ones, once for "
    "each client and body in 60 s",
    labels=("class",),
)
SIDECAR_UNDECIDED = Metric(
    "firsttoken_undecided",
    Kind.COUNTER,
    Owner.SIDECAR,
    "Requests that ended without a first token before the limit of their class had passed",
    labels=("class",),
)
SIDECAR_REFUSALS = Metric(
    "firsttoken_refusals",
    Kind.COUNTER,
    Owner.SIDECAR,
    "Requests that the sidecar refused itself, by reason",
    labels=("reason",),
)
SIDECAR_DISCONNECTS = Metric(
    "firsttoken_client_disconnects", Kind.COUNTER, Owner.SIDECAR, "Requests whose client went away"
)
SIDECAR_JOINED = Metric(
    "firsttoken_joined",
    Kind.COUNTER,
    Owner.SIDECAR,
    "Requests that joined an equal one under way, and cost the engine nothing",
)
SIDECAR_CONNECTIONS = Metric(
    "firsttoken_client_connections", Kind.GAUGE, Owner.SIDECAR, "Open client connections, idle ones too"
)
SIDECAR_ENGINE_ERRORS = Metric(
    "firsttoken_engine_errors",
    Kind.COUNTER,
    Owner.SIDECAR,
    "Requests that the engine did not answer, by reason",
    labels=("reason",),
)
SIDECAR_ENGINE_UP = Metric(
    "firsttoken_engine_up", Kind.GAUGE, Owner.SIDECAR, "1 if the engine answers and serves, else 0"
)
SIDECAR_READY = Metric(
    "firsttoken_ready", Kind.GAUGE, Owner.SIDECAR, "1 if the replica takes requests, else 0"
)
SIDECAR_DRAINING = Metric(
    "firsttoken_draining", Kind.GAUGE, Owner.SIDECAR, "1 if the replica is ending, else 0"
)
SIDECAR_OBJECTIVE = Metric(
    "firsttoken_objective_seconds",
    Kind.GAUGE,
    Owner.SIDECAR,
    "The limit of the time to the first token that is in force",
    labels=("class",),
    unit="seconds",
)
SIDECAR_FLAGS_GENERATION = Metric(
    "firsttoken_flags_generation", Kind.GAUGE, Owner.SIDECAR, "Generation of the hot settings in force"
)
SIDECAR_FLAGS_APPLIED = Metric(
    "firsttoken_flags_applied", Kind.COUNTER, Owner.SIDECAR, "Hot settings put in force by the sidecar"
)
SIDECAR_FLAGS_ERRORS = Metric(
    "firsttoken_flags_errors",
    Kind.COUNTER,
    Owner.SIDECAR,
    "Attempts to apply hot settings that failed, by reason",
    labels=("reason",),
)
SIDECAR_ADMISSION_REFUSED = Metric(
    "firsttoken_admission_refused",
    Kind.COUNTER,
    Owner.SIDECAR,
    "Requests that admission refused at this engine, by reason; one that a peer sent may find room elsewhere",
    labels=("reason",),
)
SIDECAR_ADMISSION_ASKED = Metric(
    "firsttoken_admission_asked",
    Kind.COUNTER,
    Owner.SIDECAR,
    "Requests close to the limit, of which the engine was asked what it has cached",
)
SIDECAR_ADMISSION_UNANSWERED = Metric(
    "firsttoken_admission_unanswered",
    Kind.COUNTER,
    Owner.SIDECAR,
    "Of those, decided without an answer",
)
SIDECAR_ROUTED = Metric(
    "firsttoken_routed",
    Kind.COUNTER,
    Owner.SIDECAR,
    "Requests for tokens by why they went where they went: `home`, `overflow` and `balanced` are choices; "
    "`forwarded` ones came from a peer",
    labels=("reason",),
)
SIDECAR_PEERS = Metric(
    "firsttoken_peers", Kind.GAUGE, Owner.SIDECAR, "Other replicas that requests may be sent to now"
)
SIDECAR_PEER_FAILURES = Metric(
    "firsttoken_peer_failures",
    Kind.COUNTER,
    Owner.SIDECAR,
    "Failures of peers by reason; a request that met one was tried elsewhere",
    labels=("reason",),
)
SIDECAR_KEYS_LOADED = Metric(
    "firsttoken_keys_loaded", Kind.COUNTER, Owner.SIDECAR, "Times a new file of API keys came into force"
)
SIDECAR_KEYS_ERRORS = Metric(
    "firsttoken_keys_errors", Kind.COUNTER, Owner.SIDECAR, "Files of API keys that were kept out"
)

# The operator.
OPERATOR_RECONCILE = Metric(
    "firsttoken_operator_reconcile_duration_seconds",
    Kind.HISTOGRAM,
    Owner.OPERATOR,
    "Time of one reconcile",
    unit="seconds",
    buckets=RECONCILE_BUCKETS_S,
)
OPERATOR_ERRORS = Metric(
    "firsttoken_operator_reconcile_errors",
    Kind.COUNTER,
    Owner.OPERATOR,
    "Reconciles that failed and are retried, by reason",
    labels=("reason",),
)
OPERATOR_QUEUE_DEPTH = Metric(
    "firsttoken_operator_queue_depth", Kind.GAUGE, Owner.OPERATOR, "Services that wait to be reconciled"
)
OPERATOR_QUEUE_AGE = Metric(
    "firsttoken_operator_queue_age_seconds",
    Kind.GAUGE,
    Owner.OPERATOR,
    "Wait of the service that waits longest",
    unit="seconds",
)
OPERATOR_LEADER = Metric(
    "firsttoken_operator_leader", Kind.GAUGE, Owner.OPERATOR, "1 if this replica leads, else 0"
)
OPERATOR_WATCH_STALENESS = Metric(
    "firsttoken_operator_watch_staleness_seconds",
    Kind.GAUGE,
    Owner.OPERATOR,
    "Time since the watched objects were last known to equal a list",
    unit="seconds",
)
OPERATOR_THROTTLED = Metric(
    "firsttoken_operator_api_throttled", Kind.COUNTER, Owner.OPERATOR, "Answers 429 of the API server"
)
OPERATOR_WRITES = Metric(
    "firsttoken_operator_writes",
    Kind.COUNTER,
    Owner.OPERATOR,
    "Writes to the API server by kind and verb",
    labels=("kind", "verb"),
)
OPERATOR_SCRAPE_FAILURES = Metric(
    "firsttoken_operator_scrape_failures",
    Kind.COUNTER,
    Owner.OPERATOR,
    "Reads of a replica's /state that failed, by reason",
    labels=("reason",),
)
OPERATOR_SERVICES = Metric(
    "firsttoken_operator_services", Kind.GAUGE, Owner.OPERATOR, "InferenceServices that are watched"
)

METRICS: tuple[Metric, ...] = tuple(value for value in globals().values() if isinstance(value, Metric))
BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}


def of(owner: Owner) -> tuple[Metric, ...]:
    """The metrics of one process."""
    return tuple(metric for metric in METRICS if metric.owner is owner)
