"""The loop over a tiny model: equal tokens however they are scheduled, failures that stay alone."""

import random
from pathlib import Path

import pytest
import torch

from firsttoken_api import hot_settings
from firsttoken_runtime import core
from firsttoken_runtime.engine import flags, sampler
from firsttoken_runtime.engine.local import LocalEngine
from runtime import tiny_model

PROMPTS = [
    random.Random(length).choices(range(3, 131), k=length) for length in (1, 15, 16, 17, 33, 64, 100, 130)
]


def settings_json(generation: int = 1, **enabled: bool) -> bytes:
    document = hot_settings.HotSettings(
        generation=generation,
        flags=tuple(
            hot_settings.EffectiveFlag(name=name.replace("_", "-"), enabled=value)
            for name, value in enabled.items()
        ),
        objective=hot_settings.Objective(ttft_p95_s=0.5),
    )
    return document.sealed().model_dump_json().encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[list[int]]:
    """Each prompt alone."""
    engine = tiny_model.engine(folder)
    return [engine.generate([prompt], tiny_model.greedy())[0] for prompt in PROMPTS]


BASELINE = flags.InForce(enabled=(), paged_kv=False, continuous_batching=False, chunk_tokens=None)


@pytest.mark.parametrize(
    ("in_force", "changes"),
    [
        (None, {}),
        (None, {"block_size_tokens": 7, "kv_blocks": 200}),
        (None, {"max_num_batched_tokens": 64, "max_num_seqs": 3}),
        (None, {"max_prefill_batch": 1}),
        (None, {"kv_blocks": 16, "max_model_len": 160}),  # preempts
        (BASELINE, {"max_model_len": 160}),
    ],
    ids=["all at once", "blocks of 7", "small steps", "one prefill", "tiny pool", "all flags off"],
)
def test_batching_does_not_change_greedy_tokens(
    folder: Path, expected: list[list[int]], in_force: flags.InForce | None, changes: dict[str, int]
) -> None:
    engine = tiny_model.engine(folder, in_force, **changes)
    assert engine.generate(PROMPTS, tiny_model.greedy()) == expected
    engine.loop.scheduler.check_integrity()


def test_a_tiny_pool_preempts_and_changes_nothing(folder: Path) -> None:
    wide = tiny_model.engine(folder)
    tight = tiny_model.engine(folder, kv_blocks=10, max_model_len=100)
    prompts = [prompt[:20] for prompt in PROMPTS[2:]]
    for temperature in (0.0, 1.0):
        sampling = tiny_model.greedy(60, temperature=temperature, seed=11)
        assert tight.generate(prompts, sampling) == wide.generate(prompts, sampling)
    assert tight.loop.scheduler.stats().preemptions_total > 0
    tight.loop.scheduler.check_integrity()


def test_flags_switch_in_mid_answer_without_changing_it(folder: Path, expected: list[list[int]]) -> None:
    engine = tiny_model.engine(folder, max_model_len=160)
    ids = [engine.submit(prompt, tiny_model.greedy()) for prompt in PROMPTS]
    switches = [
        {"paged_kv": False},
        {"continuous_batching": False, "chunked_prefill": False, "paged_kv": False},
        {"paged_kv": True, "chunked_prefill": False},
        {},
    ]
    applied = []
    for generation, switch in enumerate(switches, start=1):
        for _ in range(3):
            engine.step()
        answer = engine.loop.set_flags(settings_json(generation, **switch))
        applied.append((answer.generation, answer.enabled, answer.error))
        engine.loop.scheduler.check_integrity()
    engine.run()
    assert [engine.tokens[sequence_id] for sequence_id in ids] == expected
    assert applied == [
        (1, ("continuous-batching", "chunked-prefill", "priority"), ""),
        (2, (), ""),
        (3, ("paged-kv", "continuous-batching", "prefix-cache", "priority"), ""),
        (4, flags.defaults().enabled, ""),
    ]


def test_paged_kv_off_is_one_block_a_sequence(folder: Path) -> None:
    engine = tiny_model.engine(folder, max_model_len=160)
    engine.loop.set_flags(settings_json(paged_kv=False))
    stats = engine.loop.scheduler.stats()
    assert (stats.block_size_tokens, stats.blocks_total) == (160, 64 * 16 // 160)


def test_flags_that_cannot_be_are_refused_and_change_nothing(folder: Path) -> None:
    engine = tiny_model.engine(folder)
    engine.mailbox.inbox.append(core.SetFlags(settings_json=settings_json(4, fp8_linear=True)))
    engine.mailbox.inbox.append(core.SetFlags(settings_json=b"{"))
    engine.loop.turn()
    refused, garbage = (m for m in engine.mailbox.outbox if isinstance(m, core.FlagsApplied))
    assert "fp8-linear" in refused.error
    assert (refused.generation, refused.enabled) == (4, flags.defaults().enabled)
    assert "not hot settings" in garbage.error


def test_eos_and_stop_ids_end_an_answer(folder: Path) -> None:
    engine = tiny_model.engine(folder)
    free = engine.generate([PROMPTS[3]], tiny_model.greedy(30))[0]
    stop = next(token for token in free if token != free[0])
    sampling = tiny_model.greedy(30, stop_token_ids=(stop, 10**9))
    sequence_id = engine.submit(PROMPTS[3], sampling)
    engine.run()
    assert engine.tokens[sequence_id] == free[: free.index(stop) + 1]
    assert engine.finish_reasons[sequence_id] == "stop"
    assert engine.engine.eos_token_ids == (tiny_model.EOS,)


def test_an_eos_id_that_the_vocabulary_lacks_is_passed_over(tmp_path: Path) -> None:
    """Forbidding it until `min_tokens` would reach past the logits and end the engine."""
    engine = tiny_model.engine(tiny_model.write(tmp_path, eos_token_id=[tiny_model.EOS, 131, -1]))
    params = tiny_model.greedy(4, min_tokens=3, ignore_eos=False)
    assert len(engine.generate([PROMPTS[1]], params)[0]) >= 3


def test_what_cannot_be_served_fails_alone(folder: Path, expected: list[list[int]]) -> None:
    engine = tiny_model.engine(folder)
    empty = engine.submit([], tiny_model.greedy())
    unknown = engine.submit([131], tiny_model.greedy())
    negative = engine.submit([-1], tiny_model.greedy())
    long = engine.submit([5] * 600, tiny_model.greedy())
    good = engine.submit(PROMPTS[1], tiny_model.greedy())
    engine.run()
    assert engine.failure_codes == dict.fromkeys((empty, unknown, negative, long), "refused")
    assert engine.tokens[good] == expected[1]


def test_nan_in_the_logits_ends_one_sequence(folder: Path, expected: list[list[int]]) -> None:
    engine = tiny_model.engine(folder)
    with torch.inference_mode():
        engine.engine.runner.model.embedding[130] = float("nan")
    bad = engine.submit([130, 4], tiny_model.greedy(temperature=1.0))
    good = engine.submit([t for t in PROMPTS[1] if t != 130], tiny_model.greedy())
    engine.run()
    assert "not finite" in engine.failures[bad]
    assert engine.failure_codes[bad] == "not_finite"
    assert len(engine.tokens[good]) == 12
    engine.loop.scheduler.check_integrity()


@pytest.mark.parametrize("batch_invariant", [True, False])
def test_what_nan_spoils_before_it_is_found_by_nobody(folder: Path, batch_invariant: bool) -> None:
    """Attention gives what is masked a weight of zero, and NaN survives that: blocks before it have it too.
    The chunk with it ends before the prompt does, so no logits tell."""
    engine = tiny_model.engine(folder, batch_invariant=batch_invariant, max_num_batched_tokens=64)
    with torch.inference_mode():
        engine.engine.runner.model.embedding[130] = float("nan")
    common = [(7 * i) % 120 for i in range(48)]
    bad = engine.submit([*common, 130, *common], tiny_model.greedy())
    engine.run()
    assert engine.failure_codes[bad] == "not_finite"
    good = engine.submit([*common, 5], tiny_model.greedy())
    engine.run()
    assert len(engine.tokens[good]) == 12
    again = engine.submit([*common, 5], tiny_model.greedy())
    engine.run()
    assert engine.cached_tokens[again] == 48
    assert engine.tokens[again] == engine.tokens[good]


@pytest.mark.parametrize("part", ["execute", "sample"])
def test_a_step_that_runs_out_of_memory_ends_its_sequences_only(
    folder: Path,
    expected: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    part: str,
) -> None:
    engine = tiny_model.engine(folder)
    first = engine.submit(PROMPTS[0], tiny_model.greedy())

    def no_memory(*_: object) -> torch.Tensor:
        raise RuntimeError("DefaultCPUAllocator: not enough memory")

    with monkeypatch.context() as patch:
        patch.setattr(engine.engine.runner if part == "execute" else sampler.Sampler, part, no_memory)
        engine.run()
    assert "not enough memory" in engine.failures[first]
    assert engine.failure_codes[first] == "out_of_memory"
    assert "step 1 failed" in caplog.text
    assert engine.generate([PROMPTS[0]], tiny_model.greedy()) == [expected[0]]
    engine.loop.scheduler.check_integrity()


def test_abort_storm_leaves_every_block_free(folder: Path) -> None:
    engine = tiny_model.engine(folder, kv_blocks=14, max_model_len=160)
    draw = random.Random(9)
    ids: list[int] = []
    for _ in range(150):
        action = draw.random()
        if action < 0.3:
            prompt = draw.choices(range(131), k=draw.randint(1, 100))
            ids.append(engine.submit(prompt, tiny_model.greedy(draw.randint(1, 50))))
        elif action < 0.5 and ids:
            engine.abort(draw.choice(ids))
        engine.step()
        engine.loop.scheduler.check_integrity()
    for sequence_id in ids:
        engine.abort(sequence_id)
    engine.step()
    assert not engine.loop.scheduler.has_work
    engine.loop.scheduler.check_integrity()


def test_an_abort_frees_blocks_before_the_next_step(folder: Path) -> None:
    engine = tiny_model.engine(folder)
    sequence_id = engine.submit(PROMPTS[6], tiny_model.greedy(100))
    engine.step()
    assert engine.loop.scheduler.stats().blocks_used > 0
    engine.abort(sequence_id)
    engine.step()
    assert engine.loop.scheduler.stats().blocks_used == 0


def test_a_congested_mailbox_holds_the_loop_back(folder: Path) -> None:
    engine = tiny_model.engine(folder)
    engine.submit(PROMPTS[1], tiny_model.greedy())
    engine.mailbox.is_congested = True
    for _ in range(3):
        engine.loop.turn()
    assert engine.mailbox.outbox == [], "neither steps nor heartbeats pile up"
    engine.mailbox.is_congested = False
    engine.run()


def test_the_first_token_says_when_its_sequence_was_first_scheduled(folder: Path) -> None:
    engine = tiny_model.engine(folder, max_num_seqs=1)
    ids = [engine.submit(PROMPTS[0], tiny_model.greedy(2)) for _ in range(2)]
    tokens: list[core.Token] = []
    while engine.mailbox.inbox or engine.loop.scheduler.has_work:
        engine.loop.turn()
        for message in engine.mailbox.outbox:
            assert isinstance(message, core.StepOutput)
            tokens += message.tokens
        engine.mailbox.outbox.clear()
    times = {
        one: [token.times.scheduled_s if token.times else 0.0 for token in tokens if token.sequence_id == one]
        for one in ids
    }
    assert all(first > 0 and second == 0 for first, second in times.values())
    assert times[ids[0]][0] < times[ids[1]][0]


def test_a_first_token_comes_before_the_others_of_its_step(folder: Path) -> None:
    engine = tiny_model.engine(folder)
    decoding = [engine.submit(PROMPTS[0], tiny_model.greedy(9)) for _ in range(3)]
    for _ in range(2):
        engine.loop.turn()
    new = engine.submit(PROMPTS[1], tiny_model.greedy(9))
    engine.mailbox.outbox.clear()
    engine.loop.turn()
    step = engine.mailbox.outbox[0]
    assert isinstance(step, core.StepOutput)
    assert [token.sequence_id for token in step.tokens] == [new, *decoding]


def test_a_step_says_how_many_tokens_it_computed(folder: Path) -> None:
    engine = tiny_model.engine(folder)
    engine.submit(PROMPTS[1], tiny_model.greedy(2))
    engine.submit(PROMPTS[2], tiny_model.greedy(1))
    for _ in range(3):
        engine.loop.turn()
    steps = [message for message in engine.mailbox.outbox if isinstance(message, core.StepOutput)]
    assert [step.computed_tokens for step in steps] == [15 + 16, 1, 0], "none in a heartbeat"


def test_shutdown_ends_the_loop(folder: Path) -> None:
    engine = tiny_model.engine(folder)
    engine.mailbox.inbox.append(core.Shutdown())
    engine.loop.run()


def test_ready_says_what_is_in_force(folder: Path) -> None:
    ready = tiny_model.engine(folder).engine.ready()
    assert ready == core.Ready(
        architecture="llama",
        device="cpu",
        dtype="float32",
        dtype_reason="as asked by --dtype",
        max_model_len=512,
        kv_blocks=64,
        block_size_tokens=16,
        vocabulary_size=131,
        flags_enabled=flags.defaults().enabled,
        kv_type="full",
        kv_bytes_per_token=256,
        kv_sentence=ready.kv_sentence,
    )
    assert "2 x 2 layers x 2 KV heads x 8 x 4 = 256 bytes" in ready.kv_sentence


def test_idle_beats_the_heart(folder: Path) -> None:
    engine = LocalEngine(tiny_model.engine(folder).engine)
    engine.loop.turn()
    (beat,) = engine.mailbox.outbox
    assert isinstance(beat, core.StepOutput)
    assert beat.tokens == []
