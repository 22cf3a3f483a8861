"""What is said at start, in a terminal and in a log."""

import io

from firsttoken_runtime import console, core

READY = core.Ready(
    architecture="llama",
    device="cpu",
    dtype="bfloat16",
    dtype_reason="measured 2x faster",
    max_model_len=2048,
    kv_blocks=100,
    block_size_tokens=16,
    vocabulary_size=10,
    flags_enabled=("paged-kv",),
)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _said(file: io.StringIO, has_chat_template: bool = True) -> str:
    started = console.Started(
        url="http://127.0.0.1:8000",
        ops_url="http://127.0.0.1:9000",
        served_name="smol",
        source="/models/[x].gguf",
        has_chat_template=has_chat_template,
        ready=READY,
        load_s=1.25,
    )
    console.print_started(started, file)
    return file.getvalue()


def test_everything_is_said_plainly_without_a_terminal():
    text = _said(io.StringIO())
    assert "\x1b" not in text
    for part in (
        "URL: http://127.0.0.1:8000\n",
        "http://127.0.0.1:9000/readyz",
        "smol (llama) from /models/[x].gguf",
        "bfloat16: measured 2x faster",
        "100 blocks of 16 tokens = 1600 tokens",
        "Longest context: 2048 tokens",
        "Flags in force: paged-kv",
        "curl http://127.0.0.1:8000/v1/chat/completions",
    ):
        assert part in text


def test_a_terminal_gets_a_table_and_a_line_to_copy(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    text = _said(_Terminal())
    assert "\x1b[" in text
    assert "is serving" in text
    assert '"content": "What is the capital of France?"' in text


def test_a_model_without_a_chat_template_gets_a_completion_to_try():
    assert "/v1/completions " in _said(io.StringIO(), has_chat_template=False)
