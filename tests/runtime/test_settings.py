"""Options of `firsttoken serve`: each wrong value is one line that names its option."""

from pathlib import Path

import pytest

from firsttoken_api import flags
from firsttoken_api.hot_settings import HotSettings
from firsttoken_api.runtime_spec import DType, PrefillPriority
from firsttoken_runtime import core, initial_flags, settings
from firsttoken_runtime.settings import OptionError


def _tier(**options: object) -> None:
    settings.check_host_tier(core.EngineSettings(model_path="m", **options), None, is_hot=False)


@pytest.mark.parametrize(
    ("call", "option"),
    [
        (lambda: settings.model_path("hf://org/name"), "SOURCE"),
        (lambda: settings.model_path("/nowhere"), "SOURCE"),
        (lambda: settings.model_path(__file__), "SOURCE"),
        (lambda: settings.auto_or_count("--kv-blocks", "0"), "--kv-blocks"),
        (lambda: settings.auto_or_count("--kv-blocks", "many"), "--kv-blocks"),
        (lambda: settings.choice("--dtype", "int4", DType), "--dtype"),
        (lambda: settings.memory_fraction("0"), "--memory-fraction"),
        (lambda: settings.memory_fraction("nan"), "--memory-fraction"),
        (lambda: settings.memory_fraction("lots"), "--memory-fraction"),
        (lambda: settings.choice("--prefill-priority", "high", PrefillPriority), "--prefill-priority"),
        (lambda: settings.block_size(7), "--block-size"),
        (lambda: settings.block_size(129), "--block-size"),
        (lambda: settings.ports(70000, None), "--port"),
        (lambda: settings.ports(8000, 8000), "--ops-port"),
        (lambda: initial_flags.initial_settings(None, ["fp8-linear"]), "--disable"),
        (lambda: initial_flags.initial_settings(None, ["continuous-batching"]), "--disable"),
        (lambda: initial_flags.initial_settings(Path("/nowhere"), []), "--flags-file"),
        (lambda: initial_flags.initial_settings(Path(__file__), []), "--flags-file"),
        (lambda: initial_flags.initial_settings(Path("x"), ["paged-kv"]), "--disable"),
        (lambda: initial_flags.initial_settings(Path("x"), [], ["paged-kv"]), "--enable"),
        (lambda: initial_flags.initial_settings(None, [], ["nothing"]), "--enable"),
        (lambda: initial_flags.initial_settings(None, ["paged-kv"], ["paged-kv"]), "--enable"),
        (lambda: initial_flags.initial_settings(None, ["prefix-cache"], ["kv-tiering"]), "--enable"),
        (lambda: initial_flags.initial_settings(None, ["paged-kv"], []), "--disable"),
        (lambda: initial_flags.initial_settings(None, [], ["kv-tiering:hostMemory=1Gi"]), "--enable"),
        (lambda: initial_flags.initial_settings(None, [], ["chunked-prefill:tokens=64"]), "--enable"),
        (lambda: initial_flags.initial_settings(None, [], ["chunked-prefill:chunkTokens"]), "--enable"),
        (lambda: initial_flags.initial_settings(None, [], ["paged-kv:blockSize=32"]), "--enable"),
        (lambda: settings.host_memory("much"), "--host-memory"),
        (lambda: settings.host_memory("-1Gi"), "--host-memory"),
        (lambda: settings.host_folder("/nowhere"), "--host-folder"),
        (lambda: _tier(host_memory_bytes=1), "--host-memory"),
        (lambda: _tier(host_folder="/tmp"), "--host-folder"),
    ],
)
def test_wrong_values_name_their_option(call, option):
    with pytest.raises(OptionError) as caught:
        call()
    assert caught.value.option == option
    assert str(caught.value).startswith(f"{option}: ")
    assert "\n" not in str(caught.value)


def test_right_values():
    assert settings.auto_or_count("--threads", "auto") is None
    assert settings.auto_or_count("--threads", "2") == 2
    assert settings.memory_fraction("1") == 1.0
    settings.ports(0, 0)
    settings.ports(8000, 9000)


def test_the_host_tier_s_options():
    assert settings.host_memory("auto") is None
    assert settings.host_memory("1.5Gi") == 3 * 2**29
    assert settings.host_folder("") == ""
    assert settings.host_folder("/tmp") == "/tmp"
    _tier()
    asked = core.EngineSettings(model_path="m", host_memory_bytes=1)
    settings.check_host_tier(asked, None, is_hot=True)


def test_enabled_flags_carry_their_parameters():
    wanted = initial_flags.initial_settings(
        None, ["priority"], ["length-control", "chunked-prefill:chunkTokens=128"]
    )
    assert wanted is not None
    by_name = {flag.name: flag for flag in wanted.flags}
    assert by_name.keys() == set(flags.BUILT)
    assert by_name["chunked-prefill"].params == {"chunkTokens": "128"}
    assert by_name["length-control"].enabled
    assert not by_name["priority"].enabled
    assert by_name["length-control"].params == {}


def test_flags_that_exclude_each_other_are_refused_by_name():
    with pytest.raises(OptionError, match="kv-int8 and kv-fp8 exclude each other"):
        initial_flags.initial_settings(None, [], ["kv-int8", "kv-fp8"])
    alone = initial_flags.initial_settings(None, [], ["kv-fp8:fullPrecisionLayers=4"])
    assert alone is not None
    by_name = {flag.name: flag for flag in alone.flags}
    assert (by_name["kv-fp8"].enabled, by_name["kv-int8"].enabled) == (True, False)
    assert by_name["kv-fp8"].params == {"fullPrecisionLayers": "4"}


def test_sources_and_names(tmp_path):
    file = tmp_path / "model.v1.gguf"
    file.touch()
    assert settings.model_path(str(file)) == file
    assert settings.model_path(f"file://{file}") == file
    assert settings.served_name("", file) == "model.v1"
    assert settings.served_name("", tmp_path) == tmp_path.name
    assert settings.served_name("mine", file) == "mine"


def test_a_missing_model_has_a_reason_for_the_operator():
    with pytest.raises(OptionError) as caught:
        settings.model_path("/nowhere")
    assert caught.value.reason == "ModelNotFound"
    with pytest.raises(OptionError, match="SOURCE: ~no-such-user/model"):
        settings.model_path("~no-such-user/model")


def test_disabled_flags_decide_every_built_one():
    wanted = initial_flags.initial_settings(None, ["continuous-batching", "chunked-prefill", "priority"])
    assert wanted is not None
    off = {"continuous-batching", "chunked-prefill", "priority"}
    assert {flag.name: flag.enabled for flag in wanted.flags} == {
        name: flags.BY_NAME[name].on_by_default and name not in off for name in flags.BUILT
    }
    assert initial_flags.initial_settings(None, []) is None


def test_a_flags_document_is_taken_as_it_is(tmp_path):
    document = initial_flags.initial_settings(None, ["chunked-prefill"])
    assert document is not None
    file = tmp_path / "flags.json"
    file.write_text(document.model_copy(update={"generation": 9}).model_dump_json())
    read = initial_flags.initial_settings(file, [])
    assert isinstance(read, HotSettings)
    assert (read.generation, read.hash) == (9, document.hash)
