"""Which device and which number format to compute with, and why.

On a CPU bf16 halves the bytes of every weight, but only pays where the processor multiplies it
natively; elsewhere it is several times slower than fp32. So the instruction set decides first, and a
short measurement has the last word.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_ALIASES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_NATIVE_BF16 = {"amx_bf16", "avx512_bf16", "bf16"}
"""Names in /proc/cpuinfo: x86 `flags`, ARM `Features`."""
_SLOWER = 0.8
"""Below this bf16 is slower than fp32 whatever the noise of so short a measurement."""
_PROBE_MATRICES = 16
_PROBE_ROUNDS = 3


@dataclass(frozen=True)
class Choice:
    """Where and in what to compute."""

    device: torch.device
    dtype: torch.dtype
    dtype_name: str
    reason: str


class BadOption(ValueError):  # noqa: N818
    """An option asks for what is not there; the message names it."""


def choose(device_option: str, dtype_option: str) -> Choice:
    """Resolve `auto`. Raises BadOption."""
    device = _device(device_option)
    name = _ALIASES.get(dtype_option, dtype_option)
    if name == "auto":
        name, reason = _automatic_dtype(device)
    elif name in DTYPES:
        reason = "as asked by --dtype"
    else:
        raise BadOption(f"--dtype {dtype_option} is not known; use auto, {', '.join(DTYPES)}")
    if device.type == "cpu" and name == "float16":
        raise BadOption("--dtype float16 is not built for CPUs; use auto, bfloat16 or float32")
    return Choice(device, DTYPES[name], name, reason)


def _device(option: str) -> torch.device:
    if option == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if option not in ("cpu", "cuda"):
        raise BadOption(f"--device {option} is not known; use auto, cpu or cuda")
    if option == "cuda" and not torch.cuda.is_available():
        raise BadOption("--device cuda: PyTorch finds no CUDA device; use --device cpu")
    return torch.device(option)


def _automatic_dtype(device: torch.device) -> tuple[str, str]:
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return "bfloat16", "the GPU computes bf16 natively"
        return "float16", "the GPU has no native bf16"
    native = sorted(_NATIVE_BF16 & cpu_features())
    if not native:
        return "float32", "the CPU has no native bf16"
    ratio = _bf16_speedup()
    instructions = ", ".join(native)
    if ratio < _SLOWER:
        return "float32", f"the CPU has {instructions}, but bf16 measured {ratio:.1f}x the speed of fp32"
    return "bfloat16", f"the CPU has {instructions}; bf16 measured {ratio:.1f}x the speed of fp32"


def cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str]:
    """Instruction-set names of the first processor; empty where the system does not say."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return set()
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return set(value.split())
    return set()


def _bf16_speedup() -> float:
    """Time of fp32 linears over that of bf16 ones, summed over one row and several; about 0.3 s.

    The weights are more than a processor caches, as a model's are: out of a cache fp32 looks as good as
    bf16, out of memory it is twice the bytes. The types take turns and the best round of each counts, so
    that a neighbour's load does not decide.
    """
    types = (torch.float32, torch.bfloat16)
    weights = {
        dtype: [torch.ones(1024, 1024, dtype=dtype) for _ in range(_PROBE_MATRICES)] for dtype in types
    }
    inputs = {dtype: [torch.ones(rows, 1024, dtype=dtype) for rows in (1, 16)] for dtype in types}
    best = dict.fromkeys(types, float("inf"))
    for _ in range(_PROBE_ROUNDS):
        for dtype in types:
            start = time.perf_counter()
            for x in inputs[dtype]:
                for weight in weights[dtype]:
                    functional.linear(x, weight)
            best[dtype] = min(best[dtype], time.perf_counter() - start)
    return best[torch.float32] / best[torch.bfloat16]
