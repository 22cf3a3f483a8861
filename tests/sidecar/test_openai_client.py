"""The client our users have, through the sidecar, without a special case."""

import openai
import pytest

from sidecar import fakes


def client(sidecar: fakes.Beside) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=str(sidecar.url("/v1")), api_key="k", max_retries=0)


async def stream(asking: openai.AsyncOpenAI) -> str:
    text = ""
    chunks = await asking.chat.completions.create(
        model="fake", messages=[{"role": "user", "content": "Hi"}], stream=True
    )
    async for chunk in chunks:
        text += chunk.choices[0].delta.content or ""
    return text


async def test_streams_and_errors_as_the_client_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fakes.engine() as engine, fakes.beside(engine) as sidecar, client(sidecar) as asking:
        assert await stream(asking) == "töken0 töken1 töken2 "
        whole = await asking.chat.completions.create(
            model="fake", messages=[{"role": "user", "content": "Hi"}], stream=False
        )
        assert whole.choices[0].message.content == "Paris"
        engine.break_after = 2
        with pytest.raises(openai.APIError, match="middle of the answer"):
            await stream(asking)
        engine.status = 400
        with pytest.raises(openai.BadRequestError):
            await stream(asking)
        await fakes.ask_to_drain(sidecar.drain_socket)
        with pytest.raises(openai.InternalServerError, match="ending") as refused:
            await stream(asking)
        assert refused.value.status_code == 503
