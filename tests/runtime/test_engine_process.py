"""The engine behind its sockets: the order of messages, and every way a load can fail."""

import contextlib
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from firsttoken_api import reasons
from firsttoken_runtime import core
from firsttoken_runtime.cache import storage
from firsttoken_runtime.engine import loop, process
from runtime import tiny_model

TIMEOUT_MS = 30_000


class Server:
    """The other end: binds both addresses, as the real server does. The engine runs in a thread here."""

    def __init__(self, folder: Path, settings: core.EngineSettings, initial: bytes | None = None) -> None:
        to_engine, from_engine = f"ipc://{folder}/in", f"ipc://{folder}/out"
        self.context = zmq.Context()
        self.outbound = self.context.socket(zmq.PUSH)
        self.outbound.bind(to_engine)
        self.inbound = self.context.socket(zmq.PULL)
        self.inbound.bind(from_engine)
        self.engine = threading.Thread(
            target=process.run, args=(settings, initial, to_engine, from_engine), daemon=True
        )
        self.engine.start()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(zmq.Again):  # nobody to send to: the engine has ended by itself
            self.outbound.send(msgspec.msgpack.encode(core.Shutdown()), zmq.NOBLOCK)
        self.engine.join(timeout=TIMEOUT_MS / 1000)
        assert not self.engine.is_alive(), "the engine does not end"
        self.context.destroy(linger=0)

    def send(self, message: core.ToEngine) -> None:
        self.outbound.send(msgspec.msgpack.encode(message))

    def receive(self) -> core.FromEngine:
        assert self.inbound.poll(TIMEOUT_MS), "the engine says nothing"
        message: core.FromEngine = msgspec.msgpack.decode(self.inbound.recv(), type=core.FromEngine)
        return message

    def until(self, kind: type[Any]) -> Any:
        while not isinstance(message := self.receive(), kind):
            pass
        return message


def test_load_serve_switch_beat_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "HEARTBEAT_S", 0.05)
    settings = tiny_model.settings(tiny_model.write(tmp_path))
    with Server(tmp_path, settings) as server:
        assert server.receive() == core.Loading(progress=0.0)
        assert server.until(core.Ready).vocabulary_size == 131
        server.send(
            core.Submit(
                sequence_id=5, prompt_token_ids=[4, 5, 6], sampling=tiny_model.greedy(3), arrival_s=0.0
            )
        )
        tokens: list[core.Token] = []
        while not (tokens and tokens[-1].finish_reason):
            tokens += server.until(core.StepOutput).tokens
        assert [(token.sequence_id, token.finish_reason) for token in tokens] == [
            (5, ""),
            (5, ""),
            (5, "length"),
        ]
        server.send(core.SetFlags(settings_json=b"{}"))
        assert "not hot settings" in server.until(core.FlagsApplied).error
        first, second = server.until(core.StepOutput), server.until(core.StepOutput)
        assert second.step == first.step + 1, "an idle engine still shows life"


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"kv_blocks": 10**9}, reasons.Reason.NOT_ENOUGH_MEMORY, "--kv-blocks"),
        ({"max_model_len": 513}, reasons.Reason.ENGINE_FAILED, "--max-model-len 513"),
        ({"dtype": "int3"}, reasons.Reason.ENGINE_FAILED, "--dtype int3"),
        ({"max_num_batched_tokens": 2}, reasons.Reason.ENGINE_FAILED, "--max-num-batched-tokens 2"),
        ({"model_path": "/nowhere.gguf"}, reasons.Reason.MODEL_NOT_FOUND, "/nowhere.gguf"),
    ],
)
def test_a_load_that_fails_says_why_and_ends(
    tmp_path: Path, changes: dict[str, Any], reason: str, words: str
) -> None:
    settings = msgspec.structs.replace(tiny_model.settings(tiny_model.write(tmp_path)), **changes)
    with Server(tmp_path, settings) as server:
        failed = server.until(core.LoadFailed)
        assert failed.reason == reason
        assert words in failed.message


def test_an_unsupported_architecture(tmp_path: Path) -> None:
    folder = tiny_model.write(tmp_path)
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"llama"', '"mamba"'))
    with Server(tmp_path, tiny_model.settings(folder)) as server:
        failed = server.until(core.LoadFailed)
        assert failed.reason == reasons.Reason.UNSUPPORTED_ARCHITECTURE
        assert "supported: llama" in failed.message


def test_a_failed_allocation_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(storage, "allocate", no_memory)
    with Server(tmp_path, tiny_model.settings(tiny_model.write(tmp_path))) as server:
        assert "can't allocate memory" in server.until(core.LoadFailed).message


def test_initial_flags_that_cannot_be(tmp_path: Path) -> None:
    settings = tiny_model.settings(tiny_model.write(tmp_path))
    with Server(tmp_path, settings, initial=b"{}") as server:
        assert server.until(core.LoadFailed).reason == reasons.Reason.ENGINE_FAILED
