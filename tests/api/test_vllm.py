"""What vLLM has of our flags, as its start arguments."""

import re
from pathlib import Path

import pytest

from api import manifests
from firsttoken_api import flags, inference_service, vllm


def test_what_it_has_are_flags_of_ours_in_their_order() -> None:
    assert set(vllm.HAS) <= set(flags.BUILT)
    for flag, parameter in vllm.PARAMETERS:
        assert flag in vllm.HAS
        assert parameter in {each.name for each in flags.BY_NAME[flag].parameters}


def test_parameters_of_what_it_has_are_rendered_or_refused() -> None:
    """One that is neither would be a silent no-op."""
    refused = {("prefix-cache", "maxFraction"), ("prefix-cache", "protectedFraction")}
    layers = {("kv-int8", vllm.LAYERS_PARAMETER), ("kv-fp8", vllm.LAYERS_PARAMETER)}
    ours = {(name, each.name) for name in vllm.HAS for each in flags.BY_NAME[name].parameters if each.built}
    assert ours == vllm.PARAMETERS.keys() | refused | layers


def test_each_switch_is_said_on_or_off() -> None:
    on = vllm.arguments({"chunked-prefill": True, "prefix-cache": True, "priority": True}, {}, 30)
    assert on == ["--enable-chunked-prefill", "--enable-prefix-caching", "--scheduling-policy=priority"]
    off = vllm.arguments({}, {}, 30)
    assert off == ["--no-enable-chunked-prefill", "--no-enable-prefix-caching", "--scheduling-policy=fcfs"]


@pytest.mark.parametrize(
    ("kept", "layers", "expected"),
    [("2", 30, ["28", "29"]), ("1", 1, ["0"]), ("7", 3, ["0", "1", "2"])],
)
def test_the_last_layers_stay_in_16_bit(kept: str, layers: int, expected: list[str]) -> None:
    given = {} if kept == flags.FULL_PRECISION_LAYERS.default else {"kv-fp8": {"fullPrecisionLayers": kept}}
    found = vllm.arguments({"kv-fp8": True}, given, layers)
    place = found.index("--kv-cache-dtype=fp8_per_token_head")
    assert found[place + 1 : place + 2 + len(expected)] == ["--kv-cache-dtype-skip-layers", *expected]


def test_no_layer_is_named_where_none_stays() -> None:
    found = vllm.arguments({"kv-int8": True}, {"kv-int8": {"fullPrecisionLayers": "0"}}, 30)
    assert found[-1] == "--kv-cache-dtype=int8_per_token_head"


def test_a_parameter_of_a_flag_that_is_off_is_not_given() -> None:
    given = {"chunked-prefill": {"chunkTokens": "64"}, "paged-kv": {"blockSize": "32", "maxBlocks": "9"}}
    off = vllm.arguments({"chunked-prefill": False}, given, 30)
    assert not any("threshold" in each for each in off)
    assert {"--block-size=32", "--num-gpu-blocks-override=9"} <= set(off)
    assert "--long-prefill-token-threshold=64" in vllm.arguments({"chunked-prefill": True}, given, 30)


def test_our_own_engine_is_not_asked_any_of_it() -> None:
    spec = manifests.service(
        {
            "runtime": {"prefillPriority": "low"},
            **manifests.flags({"name": "length-control", "mode": "Forced"}),
        }
    )
    assert inference_service.parse(spec).spec.runtime.image == ""


def test_the_document_names_every_flag_argument_and_rule() -> None:
    page = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text()
    section = page.partition("\n## vLLM\n")[2].partition("\n## ")[0]
    rows = {row.split("|")[1]: row for row in section.splitlines() if row.startswith("| `")}
    named = {flag: row for flags_of, row in rows.items() for flag in re.findall(r"`([a-z0-9-]+)`", flags_of)}
    assert set(named) == set(vllm.HAS)
    for flag, switch in vllm.SWITCHES.items():
        first = switch.on[0].partition("=")[0]
        assert first in named[flag]
        assert switch.on[0].partition("=")[2] in named[flag]
    for (flag, parameter), form in vllm.PARAMETERS.items():
        assert f"`{parameter}` → `{form.removesuffix('={}')}`" in named[flag]
    for field in ("prefillPriority", "maxPrefillBatch", "cachePins", "runtime.image", "model.source"):
        assert field in section
