"""A test double of the engine process: speaks `core`'s messages, computes nothing.

A sequence answers with the tokens of its own prompt, again and again, until max_tokens, a stop id or END;
its second choice starts at the second token. Likelihoods are made up from token ids (`scores`).
Whole blocks of a prompt that were in an earlier one of the same salt count as cached.
Control tokens in the prompt make it misbehave; `byte_text` has a tokenizer for it.
"""

import json
import os
import time

import msgspec
import zmq

from firsttoken_runtime import core

END, DIE, HANG, FAIL, WAIT, CONSTRAINED = range(256, 262)
CONTROL = {
    END: "<|end|>",
    DIE: "<|die|>",
    HANG: "<|hang|>",
    FAIL: "<|fail|>",
    WAIT: "<|wait|>",
    CONSTRAINED: "<|constrained|>",
}
VOCABULARY_SIZE = 262
BLOCK_SIZE = 16
LINEAGE = "00ff00ff00ff00ff"


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """How a fake engine behaves, passed as its model path."""

    token_s: float = 0.0
    wait_s: float = 0.3
    load_s: float = 0.0
    load_failure: str = ""
    exit_code: int | None = None
    max_model_len: int = 200
    kv_blocks: int = 16
    flags_error: str = ""
    flags_s: float = 0.0

    def settings(self) -> core.EngineSettings:
        return core.EngineSettings(model_path=msgspec.json.encode(self).decode())


def scores(token_id: int, top: int) -> core.TokenLogprobs:
    """The token itself is the third likeliest; the others follow it in the vocabulary."""
    top_ids = [(token_id + step) % VOCABULARY_SIZE for step in (1, 2, 0, *range(3, 21))]
    likelihoods = [-0.25 * (place + 1) for place in range(top)]
    return core.TokenLogprobs(logprob=-0.75, rank=3, top_ids=top_ids[:top], top_logprobs=likelihoods)


class _Running:
    def __init__(self, submit: core.Submit) -> None:
        self.submit = submit
        self.script = [token for token in submit.prompt_token_ids if token != WAIT]
        self.produced = 0
        self.cached_tokens = 0
        now = time.monotonic()
        self.times = core.FirstTokenTimes(queued_s=now, scheduled_s=now, prefilled_s=now, sampled_s=now)

    def next_token(self) -> core.Token:
        sampling = self.submit.sampling
        token_id = self.script[(self.produced + sampling.choice) % len(self.script)]
        self.produced += 1
        reason = ""
        if (token_id == END and not sampling.ignore_eos) or token_id in sampling.stop_token_ids:
            reason = "stop"
        elif self.produced >= sampling.max_tokens:
            reason = "length"
        return core.Token(
            sequence_id=self.submit.sequence_id,
            token_id=token_id,
            finish_reason=reason,
            cached_tokens=self.cached_tokens if self.produced == 1 else 0,
            times=self.times if self.produced == 1 else None,
            logprobs=None if sampling.logprobs is None else scores(token_id, sampling.logprobs),
        )

    def prompt_scores(self) -> core.PromptScores | None:
        """Once, before the first token."""
        sampling = self.submit.sampling
        if sampling.prompt_logprobs is None or self.produced:
            return None
        _, *rest = self.submit.prompt_token_ids
        return core.PromptScores(
            sequence_id=self.submit.sequence_id,
            scores=[None, *(scores(token_id, sampling.prompt_logprobs) for token_id in rest)],
            finish_reason="" if sampling.max_tokens else "length",
        )


class _FakeEngine:
    def __init__(self, script: Script, initial: bytes | None, to_engine: str, from_engine: str) -> None:
        self.script = script
        self.context = zmq.Context()
        self.inbox = self.context.socket(zmq.PULL)
        self.inbox.connect(to_engine)
        self.outbox = self.context.socket(zmq.PUSH)
        self.outbox.connect(from_engine)
        self.decoder = msgspec.msgpack.Decoder(core.ToEngine)
        self.running: dict[int, _Running] = {}
        self.steps = 0
        self.prompts: dict[str, list[list[int]]] = {}
        """By salt."""
        self.query_tokens = 0
        self.hit_tokens = 0
        self.shared_tokens = 0
        self.pinned = 0
        self.lineage_changes = 0
        document = json.loads(initial) if initial else {"flags": []}
        off = {flag["name"] for flag in document["flags"] if not flag["enabled"]}
        built = ("paged-kv", "continuous-batching", "chunked-prefill")
        self.enabled = tuple(name for name in built if name not in off)

    def run(self) -> None:
        for step in range(3):
            self.send(core.Loading(progress=step / 3))
            time.sleep(self.script.load_s / 3)
        if self.script.load_failure:
            self.send(core.LoadFailed(reason=self.script.load_failure, message="no, because"))
            self.context.destroy(linger=1000)
            return
        if self.script.exit_code is not None:
            os._exit(self.script.exit_code)
        self.send(
            core.Ready(
                architecture="fake",
                device="cpu",
                dtype="float32",
                dtype_reason="nothing is computed",
                max_model_len=self.script.max_model_len,
                kv_blocks=self.script.kv_blocks,
                block_size_tokens=BLOCK_SIZE,
                vocabulary_size=VOCABULARY_SIZE,
                flags_enabled=self.enabled,
                kv_bytes_per_token=self.kv_bytes_per_token,
            )
        )
        while self.serve_one_step():
            pass
        self.context.destroy(linger=1000)

    def serve_one_step(self) -> bool:
        timeout_ms = 0 if self.running else 100
        while self.inbox.poll(timeout_ms):
            timeout_ms = 0
            if not self.take(self.decoder.decode(self.inbox.recv())):
                return False
        prompts = [found for one in self.running.values() if (found := one.prompt_scores())]
        for found in prompts:
            if found.finish_reason:
                del self.running[found.sequence_id]
        tokens = [one.next_token() for one in self.running.values()]
        for token in tokens:
            if token.finish_reason:
                del self.running[token.sequence_id]
        self.step(tokens, [], prompts)
        if tokens and self.script.token_s:
            time.sleep(self.script.token_s)
        return True

    def take(self, message: core.ToEngine) -> bool:
        match message:
            case core.Submit():
                self.submit(message)
            case core.Abort():
                self.running.pop(message.sequence_id, None)
            case core.Pin():
                self.pinned = len(message.prompts)
            case core.SetFlags():
                self.set_flags(json.loads(message.settings_json))
            case core.Shutdown():
                return False
        return True

    def submit(self, message: core.Submit) -> None:
        ids = message.prompt_token_ids
        if DIE in ids:
            time.sleep(self.script.wait_s)
            os._exit(7)
        if HANG in ids:
            time.sleep(3600)
        if WAIT in ids:
            time.sleep(self.script.wait_s)
        if CONSTRAINED in ids and message.sampling.grammar:
            asked = f"a grammar: {message.sampling.grammar}"
            self.step([], [core.Failure(sequence_id=message.sequence_id, message=asked)])
        elif FAIL in ids:
            self.step([], [core.Failure(sequence_id=message.sequence_id, message="NaN in the logits")])
        else:
            self.running[message.sequence_id] = _Running(message)
            self.running[message.sequence_id].cached_tokens = self.look_up(message)

    def look_up(self, message: core.Submit) -> int:
        ids = message.prompt_token_ids
        known = self.prompts.setdefault(message.cache_salt, [])
        most = (len(ids) - 1) // BLOCK_SIZE
        found = 0
        if message.sampling.prompt_logprobs is None:
            found = BLOCK_SIZE * max(
                (
                    blocks
                    for blocks in range(most + 1)
                    if any(one[: blocks * BLOCK_SIZE] == ids[: blocks * BLOCK_SIZE] for one in known)
                ),
                default=0,
            )
            self.query_tokens += len(ids)
            self.hit_tokens += found
        self.shared_tokens += message.shared_prefix_tokens
        known.append(ids)
        return found

    def set_flags(self, document: dict) -> None:
        time.sleep(self.script.flags_s)
        if not self.script.flags_error:
            self.enabled = tuple(flag["name"] for flag in document["flags"] if flag["enabled"])
            self.lineage_changes += 1
            self.prompts.clear()
        self.send(
            core.FlagsApplied(
                generation=document["generation"],
                hash=document["hash"],
                enabled=self.enabled,
                error=self.script.flags_error,
                lineage=self.lineage,
                kv_type=self.kv_type,
                kv_bytes_per_token=self.kv_bytes_per_token,
                recompute_tokens=7 * len(self.running),
            )
        )

    @property
    def lineage(self) -> str:
        return f"{LINEAGE[:-2]}{self.lineage_changes:02x}"

    @property
    def kv_type(self) -> str:
        return "int8" if "kv-int8" in self.enabled else "full"

    @property
    def kv_bytes_per_token(self) -> int:
        return 100 if self.kv_type == "int8" else 200

    def step(
        self,
        tokens: list[core.Token],
        failures: list[core.Failure],
        prompts: list[core.PromptScores] | None = None,
    ) -> None:
        self.steps += 1
        stats = core.Stats(
            running=len(self.running),
            waiting=0,
            backlog_tokens=0,
            blocks_used=len(self.running),
            blocks_total=self.script.kv_blocks,
            block_size_tokens=BLOCK_SIZE,
            preemptions_total=0,
            prefix_query_tokens_total=self.query_tokens,
            prefix_hit_tokens_total={"device": self.hit_tokens},
            rule_decisions={"shared": self.shared_tokens, "pinned": self.pinned},
            lineage=self.lineage,
            kv_type=self.kv_type,
            lineage_changes_total=self.lineage_changes,
        )
        self.send(
            core.StepOutput(
                step=self.steps, tokens=tokens, failures=failures, stats=stats, prompts=prompts or []
            )
        )

    def send(self, message: core.FromEngine) -> None:
        self.outbox.send(msgspec.msgpack.encode(message))


def run(settings: core.EngineSettings, initial: bytes | None, to_engine: str, from_engine: str) -> None:
    """The entry that `engine_entry` calls."""
    _FakeEngine(msgspec.json.decode(settings.model_path, type=Script), initial, to_engine, from_engine).run()
