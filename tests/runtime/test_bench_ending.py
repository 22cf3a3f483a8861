import asyncio
import os
import signal

import pytest
import typer

from firsttoken_runtime.bench import ending


async def collect(into: list[int], count: int, pause_s: float = 0.01) -> None:
    for number in range(count):
        await asyncio.sleep(pause_s)
        into.append(number)


async def test_to_its_end():
    found: list[int] = []
    assert await ending.until_ended(collect(found, 3)) == ""
    assert found == [0, 1, 2]


async def test_what_there_was_when_the_time_was_up_stays():
    found: list[int] = []
    assert await ending.until_ended(collect(found, 1000), 0.1) == ending.TIME_UP
    assert 0 < len(found) < 1000


async def test_a_timeout_of_the_work_itself_is_not_ours():
    async def failing() -> None:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        await ending.until_ended(failing(), 30.0)


@pytest.fixture
def heard_interrupts():
    """A shell starts its background jobs with Ctrl-C ignored, and a test run may be one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard_interrupts")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_measuring_and_not_the_program(number):
    found: list[int] = []

    async def work() -> str:
        asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), number)
        ended = await ending.until_ended(collect(found, 1000), 30.0)
        await asyncio.sleep(0.01)  # the report is still written
        return ended

    assert ending.run(work()) == ending.STOPPED
    assert found


def test_a_signal_outside_of_the_measuring_ends_the_program():
    async def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(30)

    with pytest.raises(typer.Exit) as error:
        ending.run(work())
    assert error.value.exit_code == 128 + signal.SIGTERM


def test_reasons():
    assert ending.reasons(0, True, "") == []
    assert ending.reasons(2, True, "") == ["2 requests failed"]
    assert ending.reasons(0, False, "") == [ending.TIME_UP]
    assert ending.reasons(1, False, ending.STOPPED) == ["1 requests failed", ending.STOPPED]
