"""Requests through real sidecars that are each other's peers, on loopback addresses of their own."""

import asyncio
import contextlib
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import aiohttp
import pytest

from firsttoken_api import names
from firsttoken_api import state as api_state
from firsttoken_sidecar import peer
from sidecar import fakes, ports

HOSTS = ("127.0.0.21", "127.0.0.22", "127.0.0.23")


@dataclass
class Replica:
    """One sidecar, its engine, and the way to end either."""

    host: str
    engine: fakes.FakeEngine
    beside: fakes.Beside
    stack: contextlib.AsyncExitStack

    async def peers(self) -> int:
        async with self.beside.client.get(self.beside.ops("/metrics")) as response:
            for line in (await response.text()).splitlines():
                if line.startswith("firsttoken_peers "):
                    return int(float(line.split()[1]))
        raise AssertionError("no such metric")

    async def ask(self, prompt: str, **headers: str) -> aiohttp.ClientResponse:
        body = {"stream": True, "messages": [{"role": "user", "content": prompt}]}
        return await self.beside.client.post(
            self.beside.url("/v1/chat/completions"),
            json=body,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )

    async def answer(self, prompt: str, **headers: str) -> bytes:
        """All of it, which must be whole."""
        async with await self.ask(prompt, **headers) as response:
            content = await response.read()
            assert response.status == 200, content
            assert content.endswith(b"data: [DONE]\n\n"), content
            return content

    def prompts(self) -> list[str]:
        """What its engine was asked."""
        return [json.loads(seen.body)["messages"][0]["content"] for seen in self.engine.seen]


@contextlib.asynccontextmanager
async def replicas(count: int, **changes: str) -> AsyncIterator[list[Replica]]:
    """So many replicas that know each other."""
    http_port, ops_port = ports.free(HOSTS, 2)
    made: list[Replica] = []
    async with contextlib.AsyncExitStack() as stack:
        for i, host in enumerate(HOSTS[:count]):
            own = await stack.enter_async_context(contextlib.AsyncExitStack())
            engine = await stack.enter_async_context(fakes.engine(prefill_tokens_per_s=500.0))
            environment = {
                "POD_NAME": f"chat-{i}",
                "HOST": host,
                "HTTP_PORT": str(http_port),
                "OPS_PORT": str(ops_port),
                "PEERS_HOST": ",".join(HOSTS[:count]),
            } | changes
            beside = await own.enter_async_context(
                fakes.beside(engine, flags=fakes.document(slo_s=60.0), **environment)  # type: ignore[arg-type]
            )
            made.append(Replica(host, engine, beside, own))
        for each in made:
            await fakes.until_async(each.peers, count - 1, timeout_s=30.0)
        yield made


def prompts(count: int) -> Iterator[str]:
    """Long enough to have a home, and each another."""
    for i in range(count):
        yield f"{i} is the number of this prompt. " * 40


async def home_of(those: list[Replica], prompt: str) -> Replica:
    """The replica whose engine answers the prompt."""
    await those[0].answer(prompt)
    (home,) = [each for each in those if prompt in each.prompts()]
    return home


async def prompt_at(those: list[Replica], wanted: Replica) -> str:
    """A prompt whose home is there."""
    for prompt in prompts(60):
        if await home_of(those, prompt) is wanted:
            return prompt
    raise AssertionError("sixty prompts, and none is at home there")


async def test_a_prompt_is_answered_by_one_engine_whoever_is_asked() -> None:
    async with replicas(3) as those:
        asked = list(prompts(16))
        for prompt in asked:
            for each in those:
                await each.answer(prompt)
            # A look that fell into a request says for a while that somebody waits there.
            await asyncio.sleep(2 * peer.FRESH_S)
        answered = Counter((prompt, each.host) for each in those for prompt in each.prompts())
        at_home = [max(answered[prompt, host] for host in HOSTS) for prompt in asked]
        # By chance it would be thirty of 48.
        assert sum(at_home) >= 3 * len(asked) - 12
        assert len({host for _, host in answered}) > 1
        for each in those:
            for seen in each.engine.seen:
                sent = {name.lower() for name, _ in seen.headers}
                assert names.HEADER_HOP.lower() not in sent


async def test_one_hop_at_most_also_when_nobody_can_answer() -> None:
    async with replicas(3) as those:
        for each in those:
            each.engine.status = 503
        async with await those[0].ask("who answers? " * 60) as response:
            assert response.status == 503
        # At most once by each, and nobody sends on what was sent on.
        assert all(len(each.engine.seen) <= 1 for each in those)


async def test_a_client_cannot_forge_a_hop() -> None:
    async with replicas(2) as those:
        first, second = those
        prompt = await prompt_at(those, second)
        before = (await first.beside.state()).arrivals_total
        await first.answer(prompt, X_Firsttoken_Hop="1;age_ms=3000000")
        # Believed, it would have stayed here, and would be of somebody else's count.
        assert second.prompts().count(prompt) == 2
        state = await first.beside.state()
        assert state.arrivals_total == before + 1
        assert state.ttft is not None
        assert state.ttft.counts[-1] == 0


async def test_a_forwarded_request_counts_where_its_client_is() -> None:
    async with replicas(2) as those:
        first, second = those
        prompt = await prompt_at(those, second)

        async def counted() -> list[tuple[int, int]]:
            """Arrivals and demand at each; the fake engine counts 12 uncached tokens in any prompt."""
            states = [await each.beside.state() for each in those]
            return [(state.arrivals_total, state.demand_tokens_total) for state in states]

        before = await counted()
        assert await first.answer(prompt) == second.engine.sent_bytes()
        assert await counted() == [(before[0][0] + 1, before[0][1] + 12), before[1]]


@pytest.mark.parametrize("why", ["draining", "starting"])
async def test_who_drains_or_starts_gets_nothing(why: str) -> None:
    async with replicas(2, DEREGISTER_DELAY_S="60") as those:
        first, second = those
        prompt = await prompt_at(those, second)
        if why == "draining":
            task = asyncio.create_task(second.beside.running.drain.drained())
        else:
            second.engine.phase = api_state.Phase.LOADING
        await fakes.until_async(first.peers, 0, timeout_s=30.0)
        seen = len(second.engine.seen)
        for each in (prompt, *prompts(10)):
            await first.answer(each)
        assert len(second.engine.seen) == seen
        if why == "draining":
            # It still takes what comes to it, and a peer does the work.
            await second.answer(prompt)
            assert len(second.engine.seen) == seen
            task.cancel()
            await asyncio.wait([task])


async def test_a_sidecar_that_dies_loses_nothing() -> None:
    async with replicas(3) as those:
        asked = list(prompts(12))
        for prompt in asked:
            await those[0].answer(prompt)
        await those[2].stack.aclose()
        for prompt in asked:
            for each in those[:2]:
                await each.answer(prompt)


@pytest.mark.parametrize("victim", [0, 1])
async def test_an_engine_that_dies_loses_nothing_before_its_first_byte(victim: int) -> None:
    async with replicas(2) as those:
        prompt = await prompt_at(those, those[victim])
        those[victim].engine.first_token_s = 60.0
        those[victim].engine.starts_with_token = True
        waiting = [asyncio.create_task(each.answer(prompt + f"{i}")) for i in range(3) for each in those]
        await fakes.until(lambda: prompt + "0" in those[victim].prompts(), timeout_s=30.0)
        await those[victim].engine.stop()
        async with asyncio.timeout(60):
            await asyncio.gather(*waiting)
        for each in those:
            await each.answer(prompt)


async def test_after_the_first_byte_nothing_is_repeated() -> None:
    async with replicas(2) as those:
        first, second = those
        prompt = await prompt_at(those, second)
        seen = sum(len(each.engine.seen) for each in those)
        second.engine.break_after = 1
        async with await first.ask(prompt) as response:
            content = await response.read()
        assert "töken0".encode() in content
        assert b'"error"' in content
        assert b"[DONE]" not in content
        assert sum(len(each.engine.seen) for each in those) == seen + 1


async def test_names_that_do_not_resolve_leave_a_sidecar_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = socket.getaddrinfo

    def resolve(host: object, *rest: object, **more: object) -> object:
        if host == "chat-peers":
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return genuine(host, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    async with fakes.engine() as engine, fakes.beside(engine, PEERS_HOST="chat-peers") as alone:
        async with await alone.chat() as response:
            assert response.status == 200
            assert await response.read() == engine.sent_bytes()
        async with alone.client.get(alone.ops("/metrics")) as response:
            assert 'firsttoken_peer_failures_total{reason="lookup"} 1.0' in await response.text()


async def test_a_client_that_leaves_is_told_to_the_peers_engine() -> None:
    async with replicas(2) as those:
        first, second = those
        prompt = await prompt_at(those, second)
        second.engine.token_s = 30.0
        response = await first.ask(prompt)
        await response.content.readany()
        response.close()
        await asyncio.wait_for(second.engine.cancelled.wait(), 30.0)
