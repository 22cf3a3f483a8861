"""`firsttoken status` and `firsttoken validate`: what a service is doing, and whether a manifest would do.

`validate` needs no cluster: it applies the same rules as the API server, from the types the CRDs are written
from, and adds what the operator would refuse.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pydantic
import typer
import yaml
from rich.console import Console
from rich.table import Table

from firsttoken_api import built, inference_service, names, regression_eval
from firsttoken_api.errors import UserError
from firsttoken_api.reasons import ConditionType
from firsttoken_api.status import InferenceServiceStatus

# Conditions whose good state is False.
_BAD_IF_TRUE = frozenset(
    {
        ConditionType.AUTH_CONFIG_INVALID,
        ConditionType.NAME_CONFLICT,
        ConditionType.SCALING_LIMITED,
        ConditionType.UPDATE_AVAILABLE,
    }
)
_NEUTRAL = frozenset({ConditionType.PROGRESSING, ConditionType.IMAGE_PINNED})


def status(
    name: Annotated[str | None, typer.Argument(help="One service; without it, a line for each.")] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="The kubeconfig's namespace by default.")
    ] = None,
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A")] = False,
) -> None:
    """Show services: readiness, replicas, TTFT, flags and what is wrong."""
    console = Console()
    bodies = asyncio.run(_read(name, namespace, all_namespaces))
    if name is not None:
        (body,) = bodies
        for table in _detail(body):
            console.print(table)
    elif bodies:
        console.print(_overview(bodies))
    else:
        console.print(f"no {names.SERVICE_PLURAL} found")


def validate(
    file: Annotated[Path, typer.Argument(help="A manifest; several documents are allowed.")],
) -> None:
    """Check a manifest without a cluster: fields, values, and what this version does not have."""
    problems = [f"{file}: {problem}" for problem in find_problems(_documents(file))]
    for problem in problems:
        typer.echo(problem)
    if problems:
        raise typer.Exit(1)
    typer.echo(f"{file}: valid")


def find_problems(documents: list[Any]) -> Iterator[str]:
    """One line for everything the API server or the operator would refuse."""
    known = 0
    for number, document in enumerate(documents, start=1):
        if not isinstance(document, dict):
            yield f"document {number}: not a Kubernetes object"
            continue
        if not str(document.get("apiVersion", "")).startswith(f"{names.GROUP}/"):
            continue  # something beside our kinds, for kubectl to judge
        known += 1
        where = (
            f"{document.get('kind')} {(document.get('metadata') or {}).get('name', f'in document {number}')}"
        )
        for problem in _problems(document):
            yield f"{where}: {problem}"
    if not known:
        yield f"no document of {names.API_VERSION} in it"


def _problems(document: dict[str, Any]) -> Iterator[str]:
    if document.get("kind") == names.EVALUATION_KIND:
        yield regression_eval.NOT_IN_THIS_VERSION.message
        return
    if document.get("kind") != names.SERVICE_KIND:
        yield f"{names.GROUP} has the kinds {names.SERVICE_KIND} and {names.EVALUATION_KIND}"
        return
    try:
        service = inference_service.parse(document)
    except pydantic.ValidationError as error:
        for each in error.errors():
            where = ".".join(str(part) for part in each["loc"])
            message = each["msg"].removeprefix("Value error, ")
            # Our own rules name the field themselves.
            yield message if message.startswith(("spec.", "metadata.")) else f"{where}: {message}"
        return
    for _, message in built.not_built(service.spec):
        yield message


def _documents(file: Path) -> list[Any]:
    try:
        text = file.read_text(encoding="utf-8")
        return [document for document in yaml.safe_load_all(text) if document is not None]
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{file} is not YAML: {' '.join(str(error).split())}") from error


async def _read(name: str | None, namespace: str | None, all_namespaces: bool) -> list[dict[str, Any]]:
    # Here, not above: the client library takes a second to import, and `validate` needs no cluster.
    from firsttoken_operator import client, kinds

    where = None if all_namespaces else namespace or client.current_namespace()
    try:
        async with client.connect() as api:
            if name is not None:
                return [await api.get(kinds.INFERENCE_SERVICE, where or "default", name)]
            return await api.list(kinds.INFERENCE_SERVICE, where)
    except client.NotFoundError as error:
        what = f"{names.SERVICE_KIND} {name} in {where}" if name else f"{names.API_VERSION} in this cluster"
        raise UserError(f"there is no {what}") from error
    except client.ApiError as error:
        raise UserError(str(error)) from error


def _overview(bodies: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("NAMESPACE", "NAME", "READY", "REPLICAS", "TTFT-P95", "SLO", "FLAGS", "WHAT IS WRONG"):
        table.add_column(column)
    for body in bodies:
        known = _status(body)
        ready = next((each for each in known.conditions if each.type == ConditionType.READY), None)
        wrong = [each for each in known.conditions if _is_bad(each.type, each.status)]
        table.add_row(
            body["metadata"]["namespace"],
            body["metadata"]["name"],
            ready.status.value if ready else "",
            f"{known.replicas.ready}/{known.replicas.desired}",
            (known.slo.ttft_p95 or "") if known.slo else "",
            str(((body.get("spec") or {}).get("slo") or {}).get("ttftP95", "")),
            known.flags,
            ", ".join(f"{each.type}: {each.reason}" for each in wrong),
        )
    return table


def _detail(body: dict[str, Any]) -> Iterator[Table]:
    yield _overview([body])
    known = _status(body)
    conditions = Table("CONDITION", "STATUS", "REASON", "MESSAGE", box=None, pad_edge=False)
    for each in known.conditions:
        style = "red" if _is_bad(each.type, each.status) else None
        conditions.add_row(each.type, each.status.value, each.reason, each.message, style=style)
    yield conditions
    flags = Table("FLAG", "REQUESTED", "IN FORCE", "REASON", "MESSAGE", box=None, pad_edge=False)
    for flag in known.optimizations:
        flags.add_row(flag.name, flag.requested, "yes" if flag.effective else "no", flag.reason, flag.message)
    yield flags
    facts = Table("FACT", "VALUE", box=None, pad_edge=False)
    if known.resolved:
        facts.add_row("model", f"{known.resolved.architecture} {known.resolved.model_revision}")
        facts.add_row("image", known.resolved.image)
        facts.add_row("longest context", str(known.resolved.max_model_len or ""))
    if known.revisions:
        facts.add_row("stable revision", known.revisions.stable)
        facts.add_row("candidate", known.revisions.candidate)
        facts.add_row("rejected", ", ".join(known.revisions.rejected))
    if known.flag_generation:
        facts.add_row(
            "flag generation", f"{known.flag_generation.applied} of {known.flag_generation.desired}"
        )
    yield facts


def _status(body: dict[str, Any]) -> InferenceServiceStatus:
    return InferenceServiceStatus.model_validate(body.get("status") or {})


def _is_bad(condition: str, state: str) -> bool:
    if condition in _NEUTRAL:
        return False
    return state == ("True" if condition in _BAD_IF_TRUE else "False")
