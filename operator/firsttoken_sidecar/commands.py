"""`firsttoken keygen`: a new API key, and the entry by which sidecars know it. Needs no cluster."""

import secrets
from typing import Annotated

import typer

from firsttoken_api.errors import UserError
from firsttoken_sidecar import keys

PREFIX = "ftk-"
"""By it, people and secret scanners tell what a leaked key opens."""
_RANDOM_BYTES = 32


def keygen(
    name: Annotated[str | None, typer.Argument(help="Name of the key; one is made up otherwise.")] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Who shares cached KV with it; the name by default.")
    ] = None,
    max_class: Annotated[str | None, typer.Option(help="The most urgent class that it may use.")] = None,
    weight: Annotated[int | None, typer.Option(help="Share of the tenant where tenants compete.")] = None,
    requests_per_minute: Annotated[int | None, typer.Option(help="Most requests a minute.")] = None,
    tokens_per_minute: Annotated[int | None, typer.Option(help="Most tokens a minute.")] = None,
) -> None:
    """Print a new API key and its entry for keys.yaml."""
    key = PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    fields = {
        "name": name or f"key-{secrets.token_hex(4)}",
        "sha256": keys.hashed(key).hex(),
        "tenant": tenant,
        "maxClass": max_class,
        "weight": weight,
        "requestsPerMinute": requests_per_minute,
        "tokensPerMinute": tokens_per_minute,
    }
    entry = keys.rendered(fields)
    try:
        keys.parse(entry.encode())
    except keys.BadKeysError as error:
        raise UserError(str(error)) from error
    typer.echo("Key for the client; it is kept nowhere and not shown again:\n")
    typer.echo(f"{key}\n")
    typer.echo("Entry for keys.yaml:\n")
    typer.echo(entry, nl=False)
