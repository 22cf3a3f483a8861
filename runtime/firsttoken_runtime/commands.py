"""`firsttoken serve`, `chat` and `resolve`: their options; the work is elsewhere.

A wrong value is a UserError, which the root command prints as one line with exit status 2. This module
imports what a command needs when it runs, so that `firsttoken --help` stays quick.
"""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from firsttoken_api import resolved
from firsttoken_api.errors import UserError
from firsttoken_api.runtime_spec import Device, DType, PrefillPriority
from firsttoken_runtime import console, core, initial_flags, settings, termination
from firsttoken_runtime.settings import AUTO, OptionError

SourceArgument = Annotated[str, typer.Argument(help="A folder of safetensors, or a .gguf file.")]
TerminationLog = Annotated[
    Path, typer.Option(help="File that gets reason and message of a failure as JSON, if it exists.")
]


def serve(
    source: SourceArgument,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the API; 0 takes a free one.")] = settings.DEFAULT_PORT,
    ops_port: Annotated[
        int | None,
        typer.Option(
            help="Port of health, metrics, state and flags; without it they are read-only on --port."
        ),
    ] = None,
    served_name: Annotated[
        str, typer.Option(help="Name of the model for clients; the file's by default.")
    ] = "",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = AUTO,
    dtype: Annotated[str, typer.Option(help="auto, bfloat16, float16 or float32.")] = AUTO,
    max_model_len: Annotated[str, typer.Option(metavar="N|auto", help="Longest context in tokens.")] = AUTO,
    memory_fraction: Annotated[
        str, typer.Option(help="Share of the memory for weights and KV cache.")
    ] = "0.90",
    max_num_seqs: Annotated[
        str, typer.Option(metavar="N|auto", help="Most sequences that run at once.")
    ] = AUTO,
    max_num_batched_tokens: Annotated[
        str, typer.Option(metavar="N|auto", help="Most tokens of one step.")
    ] = AUTO,
    max_prefill_batch: Annotated[int, typer.Option(min=1, help="Most prompts of one step.")] = 8,
    prefill_priority: Annotated[
        str, typer.Option(help="normal, or low: prompts only in steps without decodes.")
    ] = PrefillPriority.NORMAL.value,
    block_size: Annotated[int, typer.Option(help="Tokens of a KV block.")] = 16,
    kv_blocks: Annotated[
        str, typer.Option(metavar="N|auto", help="KV blocks; from the memory by default.")
    ] = AUTO,
    batch_invariant: Annotated[
        bool,
        typer.Option(
            "--batch-invariant", help="Numbers that do not depend on what else is in the batch; slower."
        ),
    ] = False,
    host_memory: Annotated[
        str, typer.Option(metavar="AMOUNT|auto", help="Memory of the cache's host tier, as 4Gi.")
    ] = AUTO,
    host_folder: Annotated[str, typer.Option(help="Folder that keeps the host tier over restarts.")] = "",
    cache_pins: Annotated[
        Path | None, typer.Option(help="JSON list of prompts or messages that stay in the prefix cache.")
    ] = None,
    behind_sidecar: Annotated[
        bool,
        typer.Option(
            "--behind-sidecar",
            help="Believe a sidecar on this machine who the tenant is; so with --flags-file anyway.",
        ),
    ] = False,
    threads: Annotated[str, typer.Option(metavar="N|auto", help="CPU threads of the engine.")] = AUTO,
    flags_file: Annotated[Path | None, typer.Option(help="Flags document to start with (in pods).")] = None,
    disable: Annotated[
        list[str] | None, typer.Option(help="Optimization flag to switch off; repeatable.")
    ] = None,
    enable: Annotated[
        list[str] | None,
        typer.Option(metavar="FLAG[:PARAMETER=VALUE,…]", help="Optimization flag to switch on; repeatable."),
    ] = None,
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
    termination_log: TerminationLog = termination.TERMINATION_LOG,
) -> None:
    """Serve a model on an OpenAI-compatible API, without Kubernetes."""
    try:
        if log_format not in console.LOG_FORMATS:
            raise OptionError(
                "--log-format", f"{log_format!r} is not one of {', '.join(console.LOG_FORMATS)}"
            )
        console.configure_logging(log_format)
        settings.ports(port, ops_port)
        path = settings.model_path(source)
        engine = core.EngineSettings(
            model_path=str(path),
            device=settings.choice("--device", device, Device),
            dtype=settings.choice("--dtype", dtype, DType),
            max_model_len=settings.auto_or_count("--max-model-len", max_model_len, least=16),
            memory_fraction=settings.memory_fraction(memory_fraction),
            max_num_seqs=settings.auto_or_count("--max-num-seqs", max_num_seqs) or settings.START_NUM_SEQS,
            max_num_batched_tokens=settings.auto_or_count("--max-num-batched-tokens", max_num_batched_tokens),
            max_prefill_batch=max_prefill_batch,
            prefill_priority=settings.choice("--prefill-priority", prefill_priority, PrefillPriority),
            block_size_tokens=settings.block_size(block_size),
            kv_blocks=settings.auto_or_count("--kv-blocks", kv_blocks),
            batch_invariant=batch_invariant,
            threads=settings.auto_or_count("--threads", threads),
            host_memory_bytes=settings.host_memory(host_memory),
            host_folder=settings.host_folder(host_folder),
        )
        initial = initial_flags.initial_settings(flags_file, disable or [], enable or [])
        settings.check_host_tier(engine, initial, is_hot=ops_port is not None)
        wanted = settings.ServeSettings(
            engine=engine,
            served_name=settings.served_name(served_name, path),
            host=host,
            port=port,
            ops_port=ops_port,
            initial=initial,
            log_format=log_format,
            pins_file=cache_pins,
            is_behind_sidecar=behind_sidecar or flags_file is not None,
        )
        # Here, not at the top: aiohttp and the tokenizers are not needed for --help.
        from firsttoken_runtime.server import process

        asyncio.run(process.serve(wanted))
    except OptionError as error:
        termination.write(termination_log, termination.failure(error.reason, str(error)))
        raise


def chat(
    url: Annotated[
        str, typer.Argument(help="Where a server answers.")
    ] = f"http://127.0.0.1:{settings.DEFAULT_PORT}",
    model: Annotated[str, typer.Option(help="Model name; the server's first one by default.")] = "",
    system: Annotated[str, typer.Option(help="System message.")] = "",
    temperature: Annotated[float | None, typer.Option(min=0.0, max=2.0, help="0 = greedy.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Most tokens of an answer.")] = None,
) -> None:
    """Talk to a server in the terminal."""
    from firsttoken_runtime import chat as terminal

    wish = terminal.Wish(
        url=url.rstrip("/"), model=model, system=system, temperature=temperature, max_tokens=max_tokens
    )
    asyncio.run(terminal.talk(wish))


def resolve(
    path: Annotated[Path, typer.Argument(help="A folder of safetensors, or a .gguf file.")],
    sha256: Annotated[str, typer.Option(help="Digest that the content must have.")] = "",
    any_architecture: Annotated[
        bool, typer.Option("--any-architecture", help="Another engine serves it: read sizes of any model.")
    ] = False,
    termination_log: TerminationLog = termination.TERMINATION_LOG,
) -> None:
    """Read what a model is, hash its content, and print it as JSON."""
    from firsttoken_runtime import resolve as resolver

    result = resolver.resolve(path, sha256, any_architecture)
    termination.write(termination_log, result)
    typer.echo(resolved.render(result))
    if isinstance(result, resolved.ResolveFailure):
        raise typer.Exit(UserError.exit_status)
