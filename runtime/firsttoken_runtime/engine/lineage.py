"""The lineage of cached KV: a hash of everything its numbers follow from besides the tokens.

Two blocks of equal tokens may stand for each other only under one lineage. It is part of every key, so
KV of other weights, another KV type or another version of the code is never found, in this process, in
its host tier or in a folder that outlives it. Hashing is a pure function of facts; the facts are read
from files here too, at the edge.
"""

import hashlib
import platform
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import torch

import firsttoken_kernels
import firsttoken_runtime.model
from firsttoken_kernels import native
from firsttoken_runtime.cache import layout, storage
from firsttoken_runtime.engine import block_bytes

_READ_BYTES = 1 << 20
_VECTOR_EXTENSIONS = ("amx", "asimd", "avx", "bf16", "f16c", "fma", "i8mm", "sve")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "merges.txt")


@dataclass(frozen=True)
class Facts:
    """What the KV of a token follows from. Every field is part of the hash."""

    weights: str
    """Digest of the checkpoint's files."""
    tokenizer: str
    compute_type: str
    kv_type: str
    full_precision_layers: int
    model: str
    """Shapes, RoPE, windows: the configuration as it was read."""
    numerics: str
    """Batch-invariant or not, with what was probed."""
    code: str
    """Digest of kernels and decoder, and of what says where the bytes of a block lie."""
    device: str
    """Class of the device, and the libraries that compute on it."""


def lineage(facts: Facts) -> bytes:
    """32 bytes. Names and values are delimited, so that no two sets of facts read alike."""
    digest = hashlib.sha256(b"firsttoken lineage 1")
    for name, value in zip(facts.__dataclass_fields__, astuple(facts), strict=True):
        for part in (name, str(value)):
            data = part.encode()
            digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()


def short(lineage_hash: bytes) -> str:
    """16 hex digits, for people and metrics."""
    return lineage_hash.hex()[:16]


def content_digest(files: Sequence[Path], tick: Callable[[], None] = lambda: None) -> str:
    """Of names and all bytes: the same in another process and on another machine. `tick`: called while it
    reads, which may take long."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.name.encode() + b"\0")
        with file.open("rb") as stream:
            while chunk := stream.read(_READ_BYTES):
                digest.update(chunk)
                tick()
        digest.update(b"\0")
    return digest.hexdigest()


def quick_digest(files: Sequence[Path]) -> str:
    """Of names, sizes and times: good for the life of a process that holds the weights already."""
    digest = hashlib.sha256()
    for file in sorted(files):
        status = file.stat()
        digest.update(f"{file.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def weight_files(model: Path) -> list[Path]:
    """Of a folder of safetensors or a .gguf file; its configuration counts too."""
    if model.is_file():
        return [model]
    return sorted(each for each in model.iterdir() if each.suffix in (".safetensors", ".json"))


def tokenizer_digest(model: Path) -> str:
    """ "" for a .gguf, whose one file holds both."""
    if model.is_file():
        return ""
    return content_digest([file for name in TOKENIZER_FILES if (file := model / name).exists()])


def code_digest() -> str:
    """Of what computes KV and lays out its bytes. A version number would be forgotten."""
    files = [
        file
        for package in (firsttoken_kernels, firsttoken_runtime.model)
        for folder in package.__path__
        for file in Path(folder).rglob("*.py")
    ]
    files += [Path(str(module.__file__)) for module in (layout, storage, block_bytes)]
    compiled = native.loaded_from()
    return content_digest(files if compiled is None else [*files, compiled])


def vector_extensions(cpuinfo: str) -> str:
    """Of a processor, from Linux's description: libraries choose their kernels by these, by more of them than
    torch tells (AMX, for one)."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return " ".join(sorted(one for one in value.split() if one.startswith(_VECTOR_EXTENSIONS)))
    return ""


def _vector_extensions() -> str:
    try:
        return vector_extensions(Path("/proc/cpuinfo").read_text())
    except OSError:
        return ""


def device_class(device: torch.device, threads: int) -> str:
    """Devices of one class give one result for the same call."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        kind = f"{properties.name} sm_{properties.major}{properties.minor}"
    else:
        cpu = torch.backends.cpu.get_cpu_capability()
        kind = f"{platform.machine()} {cpu} {_vector_extensions()} {threads} threads"
    return f"{device.type} {kind} torch {torch.__version__}"
