"""Loads against a double of the client: what is sent when, and what becomes of a load that is cut off."""

import asyncio
import time

import pytest

from firsttoken_runtime.bench import load, summary, workload


class FakeClient:
    """Answers after `answer_s`, and remembers how many were open at once."""

    def __init__(self, answer_s: float = 0.01) -> None:
        self.started_at_s = time.perf_counter()
        self.answer_s = answer_s
        self.open: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.asked: list[workload.Request] = []

    def now_s(self) -> float:
        return time.perf_counter() - self.started_at_s

    async def ask(self, request: workload.Request, start_s: float) -> summary.Record:
        group = request.group
        self.asked.append(request)
        self.open[group] = self.open.get(group, 0) + 1
        self.most[group] = max(self.most.get(group, 0), self.open[group])
        await asyncio.sleep(self.answer_s)
        self.open[group] -= 1
        return summary.Record(group, 1, 1, start_s, self.now_s(), self.now_s() - start_s)


def requests(count: int, group: str = "") -> list[workload.Request]:
    return [workload.Request((index,), 1, group) for index in range(count)]


async def test_a_closed_loop_keeps_its_clients_busy_and_sends_each_request_once():
    client = FakeClient()
    done = 0

    def count() -> None:
        nonlocal done
        done += 1

    outcome = await load.run(client, [workload.closed(requests(11), 3)], 10, count)
    assert client.most == {"": 3}
    assert client.asked == requests(11)
    assert (len(outcome.records), done, outcome.is_complete) == (11, 11, True)
    assert 0.04 <= outcome.duration_s < 1


async def test_a_background_lane_repeats_until_the_others_are_done():
    client = FakeClient()
    lanes = [
        workload.closed(requests(8, "steady"), 2),
        workload.Lane(tuple(requests(2, "pour")), 1, is_background=True),
    ]
    outcome = await load.run(client, lanes, 10)
    groups = [one.group for one in outcome.records]
    assert groups.count("steady") == 8
    assert 2 < groups.count("pour") < 8
    assert outcome.is_complete


async def test_an_open_loop_sends_when_it_is_due_however_many_are_open():
    client = FakeClient(answer_s=0.3)
    lane = workload.opened(requests(5), [0.0, 0.02, 0.04, 0.06, 0.08])
    outcome = await load.run(client, [lane], 10)
    assert client.most == {"": 5}
    assert sorted(one.start_s for one in outcome.records) == [0.0, 0.02, 0.04, 0.06, 0.08]
    assert outcome.send_delay_s < 0.1
    assert outcome.duration_s == pytest.approx(0.38, abs=0.15)


async def test_what_is_open_when_the_time_is_up_is_an_error():
    client = FakeClient(answer_s=5)
    outcome = await load.run(client, [workload.closed(requests(9), 4)], 0.05)
    assert not outcome.is_complete
    assert [one.error for one in outcome.records] == [load.NOT_IN_TIME] * 4
    assert outcome.duration_s < 1
