"""`python -m firsttoken_runtime.bench.paced_engine`: an engine of our protocol that computes nothing.

It takes the time that a real one would, as its options say. Where it listens is said on standard output, in
the words of `firsttoken serve`. Ends with SIGTERM.
"""

import asyncio
import dataclasses
import signal
import sys

import typer

from firsttoken_runtime.bench import paced_server, pacing

DEFAULT = pacing.Pace()


def main(
    host: str = "127.0.0.1",
    port: int = 0,
    ops_port: int = 0,
    prefill_tokens_per_s: float = 1 / DEFAULT.per_prefill_token_s,
    fixed_ms: float = DEFAULT.fixed_s * 1e3,
    decode_ms: float = DEFAULT.per_decode_s * 1e3,
    chunk_tokens: int = DEFAULT.chunk_tokens,
    max_num_seqs: int = DEFAULT.max_num_seqs,
    blocks: int = DEFAULT.blocks,
) -> None:
    """Answers like an engine, at a pace that is given."""
    pace = dataclasses.replace(
        DEFAULT,
        fixed_s=fixed_ms / 1e3,
        per_prefill_token_s=1 / prefill_tokens_per_s,
        per_decode_s=decode_ms / 1e3,
        chunk_tokens=chunk_tokens,
        max_num_seqs=max_num_seqs,
        blocks=blocks,
    )
    asyncio.run(serve(pace, host, port, ops_port))


async def serve(pace: pacing.Pace, host: str, port: int, ops_port: int) -> None:
    """Until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with paced_server.listening(pace, host, port, ops_port) as (api, ops):
        sys.stdout.write(f"URL: http://{host}:{api}\nOperations: http://{host}:{ops}/readyz\nTry: \n")
        sys.stdout.flush()
        await ended.wait()


if __name__ == "__main__":
    typer.run(main)
