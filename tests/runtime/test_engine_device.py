"""Device and type: `auto` says why, what is not there is refused by name."""

from pathlib import Path

import pytest
import torch

from firsttoken_runtime.engine import device


def test_explicit_type_on_the_cpu() -> None:
    choice = device.choose("cpu", "fp32")
    assert (choice.device.type, choice.dtype, choice.dtype_name) == ("cpu", torch.float32, "float32")
    assert choice.reason == "as asked by --dtype"


def test_automatic_type_gives_a_reason() -> None:
    choice = device.choose("cpu", "auto")
    assert choice.dtype_name in ("float32", "bfloat16")
    assert "bf16" in choice.reason


def test_no_native_bf16_means_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "cpu_features", lambda: {"avx2", "fma"})
    choice = device.choose("cpu", "auto")
    assert (choice.dtype_name, choice.reason) == ("float32", "the CPU has no native bf16")


def test_the_measurement_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "cpu_features", lambda: {"avx512_bf16"})
    monkeypatch.setattr(device, "_bf16_speedup", lambda: 0.6)
    choice = device.choose("cpu", "auto")
    assert choice.dtype_name == "float32"
    assert "measured 0.6x" in choice.reason
    monkeypatch.setattr(device, "_bf16_speedup", lambda: 1.5)
    assert device.choose("cpu", "auto").dtype_name == "bfloat16"


@pytest.mark.parametrize(
    ("device_option", "dtype_option", "words"),
    [
        ("tpu", "auto", "--device tpu is not known"),
        ("cpu", "int3", "--dtype int3 is not known"),
        ("cpu", "float16", "--dtype float16 is not built for CPUs"),
    ],
)
def test_bad_options_are_named(device_option: str, dtype_option: str, words: str) -> None:
    with pytest.raises(device.BadOption, match=words):
        device.choose(device_option, dtype_option)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the machine has CUDA")
def test_cuda_without_a_gpu() -> None:
    with pytest.raises(device.BadOption, match="--device cuda: PyTorch finds no CUDA device"):
        device.choose("cuda", "auto")


def test_cpu_features(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor : 0\nflags\t\t: fpu avx512_bf16 amx_bf16\n\nprocessor : 1\nflags : other\n")
    assert device.cpu_features(file) == {"fpu", "avx512_bf16", "amx_bf16"}
    assert device.cpu_features(tmp_path / "none") == set()
