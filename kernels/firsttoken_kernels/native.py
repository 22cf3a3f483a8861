"""The compiled kernels of a CPU: plain C without dependencies, called through ctypes.

`kernels/native/build.py` compiles them when the package is installed, once for each instruction set below;
which one this machine has is torch's to say. Where none was built or none fits (another processor, or no
compiler at hand when it was installed), callers take their PyTorch ways: slower, never wrong.
"""

import ctypes
import functools
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

FOLDER = Path(__file__).parent / "_native"
DISABLE_VARIABLE = "FIRSTTOKEN_DISABLE_NATIVE"
"""Set to anything: the PyTorch ways are taken, to compare or to rule the kernels out."""
LANES = {"avx512": 16, "avx2": 8}
"""Instruction sets and their floats in a vector."""
COMPUTED = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}
"""Types that rows are computed in, in the order of `enum type` in `kernels/native/vectors.h`."""
TYPES = COMPUTED | {torch.int8: 3, torch.float8_e4m3fn: 4}
"""All of it: those of stored codes too."""

_logger = logging.getLogger(__name__)


def instruction_set() -> str:
    """The best one of this machine that kernels are built for; "" if there is none."""
    capability = torch.backends.cpu.get_cpu_capability()
    if capability.startswith("AVX512"):
        return "avx512"
    return "avx2" if capability == "AVX2" else ""


@functools.cache
def library() -> ctypes.CDLL | None:
    """None: there is none for this machine. Says so once in the log."""
    name = instruction_set()
    path = FOLDER / f"{name}.so"
    if os.environ.get(DISABLE_VARIABLE):
        _logger.warning("compiled kernels are switched off by %s", DISABLE_VARIABLE)
        return None
    if not name or not path.exists():
        why = f"{path} was not built" if name else "this processor has neither AVX2 nor AVX-512"
        _logger.warning("no compiled kernels (%s): decoding takes PyTorch's ways and is slower", why)
        return None
    return ctypes.CDLL(str(path))


def loaded_from() -> Path | None:
    """The file that `library` is, None where there is none."""
    return None if library() is None else FOLDER / f"{instruction_set()}.so"


@functools.cache
def workers(count: int) -> ThreadPoolExecutor:
    """Threads beside the calling one, one pool for each number; a kernel holds no lock of Python's."""
    return ThreadPoolExecutor(count, thread_name_prefix="kernel")
