"""`firsttoken validate` says what the API server and the operator would refuse."""

from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from builders import observed as build
from firsttoken_api import names
from firsttoken_api.errors import UserError
from firsttoken_operator import commands

EXAMPLES = sorted(Path(__file__).parents[2].joinpath("examples").glob("*.yaml"))


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.SERVICE_KIND,
        "metadata": {"name": "chat"},
        "spec": {"model": {"source": "pvc://models/m.gguf"}, **spec},
    }


def problems(*documents: Any) -> list[str]:
    return list(commands.find_problems(list(documents)))


def test_a_good_manifest_has_none() -> None:
    assert problems(manifest()) == []
    assert problems({"kind": "ConfigMap", "apiVersion": "v1"}, manifest()) == []


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"runtim": {}}, ["runtim"]),
        ({"runtime": {"device": "tpu"}}, ["spec.runtime.device", "cuda"]),
        ({"scaling": {"min": 5, "max": 2}}, ["spec.scaling.min"]),
        ({"optimizations": [{"name": "page_size", "mode": "Forced"}]}, ["paged-kv"]),
        ({"rollout": {"soak": "5m"}}, ["spec.rollout.soak", "not built yet"]),
        ({"model": {"source": "hf://org/name"}}, ["spec.model.source", "pvc://"]),
    ],
)
def test_each_problem_names_the_field(spec: dict[str, Any], words: list[str]) -> None:
    (line,) = problems(manifest(**spec))
    assert line.startswith("InferenceService chat: ")
    assert all(word in line for word in words), line


def test_other_kinds_and_other_files() -> None:
    (line,) = problems({"apiVersion": names.API_VERSION, "kind": "RegressionEval", "metadata": {"name": "e"}})
    assert "not part of this version" in line
    (line,) = problems({"apiVersion": names.API_VERSION, "kind": "Inference", "metadata": {"name": "e"}})
    assert names.SERVICE_KIND in line
    (line,) = problems({"apiVersion": "v1", "kind": "Pod"})
    assert names.API_VERSION in line
    assert any("not a Kubernetes object" in line for line in problems("text", manifest()))


def test_the_command_prints_and_exits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = tmp_path / "good.yaml"
    good.write_text(yaml.safe_dump_all([manifest()]))
    commands.validate(good)
    assert capsys.readouterr().out == f"{good}: valid\n"
    bad = tmp_path / "bad.yaml"
    bad.write_text(yaml.safe_dump(manifest(suspend="maybe")))
    with pytest.raises(typer.Exit) as ended:
        commands.validate(bad)
    assert ended.value.exit_code == 1
    assert "spec.suspend" in capsys.readouterr().out


def test_files_that_cannot_be_read_are_the_user_s_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        commands.validate(tmp_path / "absent.yaml")
    odd = tmp_path / "odd.yaml"
    odd.write_text("a: [")
    with pytest.raises(UserError, match="not YAML"):
        commands.validate(odd)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_valid(example: Path) -> None:
    documents = [each for each in yaml.safe_load_all(example.read_text()) if each]
    ours = [each for each in documents if each["apiVersion"] == names.API_VERSION]
    if ours:
        assert problems(*documents) == []


def test_the_tables_show_what_is_wrong() -> None:
    condition = {
        "type": "ModelResolved",
        "status": "False",
        "reason": "ModelNotFound",
        "message": "no nothing.gguf",
        "lastTransitionTime": "2027-01-15T08:00:00Z",
    }
    body = build.service().model_dump(mode="json", by_alias=True, exclude_none=True)
    body["status"] = {"conditions": [condition], "replicas": {"ready": 1, "desired": 2}, "flags": "3/3"}
    overview = commands._overview([body])
    (cells,) = zip(*(column.cells for column in overview.columns), strict=True)
    assert cells == ("default", "chat", "", "1/2", "", "500ms", "3/3", "ModelResolved: ModelNotFound")
    assert len(list(commands._detail(body))) == 4
