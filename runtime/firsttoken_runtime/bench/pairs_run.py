"""Runs `bench pairs`: all variants on one server, then each rule on one in batch-invariant mode, where an
answer can only change because something else was read from the cache."""

import dataclasses
from collections.abc import Sequence

from firsttoken_runtime.bench import (
    client,
    conduct,
    ending,
    experiment,
    pairs,
    pairs_report,
    result,
    rounds,
    server,
    show,
    workload,
)

QUESTIONS = 8
ANSWER_TOKENS = 32
Changed = dict[str, tuple[int, int]]


async def run(wanted: experiment.Experiment, wish: conduct.Wish) -> pairs_report.Measured:
    """Raises UserError where a server does not start or refuses what is asked of it."""
    # Both servers' logs lie in one folder.
    here = dataclasses.replace(wish, out=show.folder(wish.out, "pairs"))

    async def main(conductor: conduct.Conductor) -> result.Result:
        state = await conductor.state()
        done = await conductor.rounds(wanted, wish.repeats, wish.time_limit_s)
        return result.Result(wanted, tuple(done.rounds), conductor.context(state), done.ended)

    changed: Changed = {}

    async def compare(conductor: conduct.Conductor) -> str:
        measuring = ask_twice(wanted, conductor, changed)
        return await ending.until_ended(measuring, max(rounds.LEAST_ROUND_S, wish.time_limit_s / 4))

    done = await conduct.with_server("pairs", wanted.server, here, main)
    if not done.ended:
        needs = dataclasses.replace(wanted.server, batch_invariant=True)
        ended = await conduct.with_server("pairs", needs, here, compare, log_name="server-invariant.log")
        done = dataclasses.replace(done, ended=ended)
    return _write(pairs_report.Measured(done, tuple(pairs.pairs()), changed), here)


async def ask_twice(wanted: experiment.Experiment, conductor: conduct.Conductor, changed: Changed) -> None:
    """Each question while nothing is cached, and again when its prefix is: are the answers the same?"""
    ops = server.Ops(conductor.http, conductor.target.ops_url)
    await ops.state()
    name = await client.model_name(conductor.http, conductor.target.url)
    asking = client.Client(conductor.http, conductor.target.url, name)
    for variant in wanted.variants:
        if variant.name not in pairs.RULES:
            continue
        await ops.put(variant.settings(ops.generation + 1))
        different = 0
        for number, question in enumerate(questions(wanted.lanes[0].requests)):
            asking.salt = f"{variant.name}/{number}"
            first, later = pairs.asked(variant.name, question)
            answers = [await asking.ask(one) for one in (first, later, later)]
            different += answers[0].text_digest != answers[-1].text_digest
            if not any(one.error for one in answers):
                changed[variant.name] = (different, number + 1)


def questions(requests: Sequence[workload.Request]) -> list[workload.Request]:
    shared = [one for one in requests if one.shared_prefix_tokens][:QUESTIONS]
    return [dataclasses.replace(one, output_tokens=ANSWER_TOKENS) for one in shared]


def _write(done: pairs_report.Measured, wish: conduct.Wish) -> pairs_report.Measured:
    assert wish.out is not None
    document, text = pairs_report.document(done), pairs_report.markdown(done)
    show.leave(wish.out, show.console(), document, text, lambda file: pairs_report.draw(done, file))
    return done
