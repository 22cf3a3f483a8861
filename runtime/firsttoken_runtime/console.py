"""What a person sees in the terminal, and what a log collector reads instead."""

import json
import logging
import sys
from dataclasses import dataclass
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from firsttoken_api import json_log
from firsttoken_runtime import core

LOG_FORMATS = ("text", "json")


def configure_logging(log_format: str) -> None:
    """Log to standard error. In a terminal only what is wrong; what went well is on standard output."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(json_log.JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(
        handlers=[handler], level=logging.INFO if log_format == "json" else logging.WARNING, force=True
    )


@dataclass(frozen=True)
class Started:
    """What `firsttoken serve` says once the model is there."""

    url: str
    ops_url: str
    served_name: str
    source: str
    has_chat_template: bool
    ready: core.Ready
    load_s: float

    def rows(self) -> list[tuple[str, str]]:
        ready = self.ready
        pool_tokens = ready.kv_blocks * ready.block_size_tokens
        model = f"{self.served_name} ({ready.architecture})"
        return [
            ("URL", self.url),
            ("Operations", f"{self.ops_url}/readyz, /livez, /metrics, /state"),
            ("Model", f"{model} from {self.source}, loaded in {self.load_s:.1f} s"),
            ("Device", ready.device),
            ("Number format", f"{ready.dtype}: {ready.dtype_reason}"),
            (
                "KV cache",
                f"{ready.kv_blocks} blocks of {ready.block_size_tokens} tokens = {pool_tokens} tokens",
            ),
            *([("KV format", ready.kv_sentence)] if ready.kv_sentence else []),
            ("Longest context", f"{ready.max_model_len} tokens"),
            ("Flags in force", ", ".join(ready.flags_enabled) or "none"),
        ]

    def curl(self) -> str:
        if self.has_chat_template:
            path = "chat/completions"
            body: dict[str, Any] = {
                "model": self.served_name,
                "messages": [{"role": "user", "content": "What is the capital of France?"}],
                "temperature": 0,  # a small model at temperature 1 may not come to an end
            }
        else:
            path = "completions"
            body = {"model": self.served_name, "prompt": "The capital of France is", "max_tokens": 16}
        return f"curl {self.url}/v1/{path} -H 'Content-Type: application/json' -d '{json.dumps(body)}'"


def print_started(started: Started, file: TextIO) -> None:
    """A table in a terminal; `name: value` lines anywhere else, so that a log stays readable."""
    if not file.isatty():
        for name, value in started.rows():
            print(f"{name}: {value}", file=file)
        print(f"Try: {started.curl()}", file=file, flush=True)
        return
    console = Console(file=file, highlight=False)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in started.rows():
        table.add_row(name, value)
    console.print("[bold green]firsttoken is serving[/] (Ctrl-C ends it)")
    console.print(table)
    # Outside the table and not wrapped, so that it can be copied.
    console.print(started.curl(), style="cyan", soft_wrap=True, markup=False)
