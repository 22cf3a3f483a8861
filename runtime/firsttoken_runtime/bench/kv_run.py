"""Runs `bench kv`: one engine in this process, its KV type switched from batch to batch."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from firsttoken_runtime.bench import (
    beginning,
    conduct,
    ending,
    kv,
    kv_engine,
    kv_report,
    machine,
    passages,
    rounds,
    show,
)
from firsttoken_runtime.model import checkpoint
from firsttoken_runtime.server import tokenizer


@dataclass(frozen=True)
class Wish:
    """What the command line asked for, beside what every command takes."""

    shared: conduct.Wish
    file: Path | None
    count: int
    tokens: int
    full_precision_layers: int
    deviation_count: int


@dataclass(frozen=True)
class Seen:
    """What has been measured so far."""

    passages: list[kv.Passage]
    bytes: dict[str, kv.Bytes]
    layers: dict[str, list[kv.Layer]]


async def run(wish: Wish) -> kv_report.Measured:
    """Raises UserError for a model, a text or a type that cannot be measured."""
    shared = wish.shared
    folder, console = show.folder(shared.out, "kv"), show.console()
    began = beginning.Beginning.now()
    texts = await asyncio.to_thread(_passages, wish)
    console.print("Loading the model")
    threads = None if shared.threads == "auto" else int(shared.threads)
    scorer = await asyncio.to_thread(
        kv_engine.Scorer.load,
        shared.source,
        wish.tokens,
        wish.full_precision_layers,
        threads=threads,
        dtype=shared.dtype,
        device_option=shared.device,
    )
    sha256 = await asyncio.to_thread(machine.digest, shared.source)
    seen = Seen([], {}, {})
    with show.progress(console, 2) as report:
        measuring = measure(wish, scorer, texts, seen, report)
        ended = await ending.until_ended(measuring, shared.time_limit_s)
    source = passages.BUILT_IN if wish.file is None else str(wish.file)
    done = kv_report.Measured(
        passages=tuple(seen.passages),
        bytes_of=seen.bytes,
        layers=seen.layers,
        passage_tokens=wish.tokens,
        source=source,
        context=began.context(
            model=shared.source.name,
            sha256=sha256,
            device=scorer.device,
            dtype=scorer.dtype,
            seed=shared.seed,
            repeats=1,
        ),
        ended=ended,
    )
    document, text = kv_report.document(done), kv_report.markdown(done)
    show.leave(folder, console, document, text, lambda file: kv_report.draw(done, file))
    return done


def _passages(wish: Wish) -> list[list[int]]:
    text = tokenizer.load(checkpoint.open_checkpoint(wish.shared.source))

    def encode(passage: str) -> list[int]:
        return text.encode(passage, add_special_tokens=False)

    return passages.cut(passages.texts(wish.file), encode, wish.tokens, wish.count)


async def measure(
    wish: Wish, scorer: kv_engine.Scorer, texts: list[list[int]], seen: Seen, report: rounds.Report
) -> None:
    """Bytes and layers first, since they are quick; then the likelihoods, batch by batch. Every piece of
    work is a few seconds in a thread: a run that is stopped waits for no more than that."""
    chosen = texts[:: max(1, len(texts) // wish.deviation_count)][: wish.deviation_count]
    for done, kv_type in enumerate(kv.TYPES):
        report(rounds.Progress("layers", 0, done, len(kv.TYPES)))
        await asyncio.to_thread(scorer.use, kv_type)
        seen.bytes[kv_type] = scorer.bytes(kv_type)
        if kv_type != kv.FULL:
            seen.layers[kv_type] = await asyncio.to_thread(scorer.layers, chosen)
    for batch in _batches(texts):
        losses = {}
        for kv_type in kv.TYPES:
            await asyncio.to_thread(scorer.use, kv_type)
            losses[kv_type] = await asyncio.to_thread(scorer.losses, batch)
        seen.passages.extend(
            kv.Passage(len(passage) - 1, {kv_type: losses[kv_type][index] for kv_type in kv.TYPES})
            for index, passage in enumerate(batch)
        )
        report(rounds.Progress("passages", 0, len(seen.passages), len(texts)))


def _batches(texts: list[list[int]]) -> Iterator[list[list[int]]]:
    for start in range(0, len(texts), kv_engine.AT_ONCE):
        yield texts[start : start + kv_engine.AT_ONCE]
