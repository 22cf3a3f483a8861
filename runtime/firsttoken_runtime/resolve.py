"""What a model is, before any pod serves it: sizes from its metadata, and a digest of its content. No torch.

The operator runs this in a job and reads the answer as the job's termination message: it pins the digest,
sizes the replicas, and tells the user what is wrong while nothing has started yet.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from firsttoken_api.reasons import Reason
from firsttoken_api.resolved import ModelFormat, ResolvedModel, ResolveResult
from firsttoken_runtime import foreign_model
from firsttoken_runtime.model import checkpoint, config, errors
from firsttoken_runtime.server import tokenizer
from firsttoken_runtime.termination import failure

CHUNK_BYTES = 2**22
# What decides a folder's answers: configuration, tokenizer and weights; never a README or another format.
CONTENT_PATTERNS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "*.safetensors",
)


def resolve(path: Path, wanted_digest: str = "", any_architecture: bool = False) -> ResolveResult:
    """Read and hash the model at `path`; `wanted_digest` (`sha256:<hex>`), if given, must be its digest.

    any_architecture: another engine serves it, so it need not be one that ours could.
    """
    found: config.ModelConfig | foreign_model.Sizes
    try:
        if any_architecture:
            found = foreign_model.read(path)
        else:
            source = checkpoint.open_checkpoint(path)
            found = config.read(source)
            tokenizer.load(source)
        files = content_files(path)
        digest = content_digest(path, files)
    except errors.ModelError as error:
        return failure(error.reason, str(error))
    except OSError as error:
        return failure(Reason.MODEL_UNREADABLE, f"{error.filename or path}: {error.strerror or error}")
    wanted_hex = wanted_digest.removeprefix("sha256:").lower()
    if wanted_hex and digest != f"sha256:{wanted_hex}":
        return failure(
            Reason.CHECKSUM_MISMATCH, f"the content of {path} is {digest}, not sha256:{wanted_hex}"
        )
    weight_bytes = found.weight_bytes if isinstance(found, foreign_model.Sizes) else 2 * found.num_parameters
    return ResolvedModel(
        digest=digest,
        bytes=sum(file.stat().st_size for file in files),
        format=ModelFormat.GGUF if path.is_file() else ModelFormat.SAFETENSORS,
        architecture=found.architecture,
        parameters=found.num_parameters,
        layers=found.num_layers,
        heads=found.num_heads,
        kv_heads=found.num_kv_heads,
        head_dim=found.head_dim,
        hidden=found.hidden_size,
        vocabulary=found.vocabulary_size,
        trained_length=found.trained_length,
        weight_bytes_16bit=weight_bytes,
    )


def content_files(path: Path) -> list[Path]:
    """The files that make up the model, sorted by name. Raises `errors.ModelNotFound` if one is missing."""
    if path.is_file():
        return [path]
    found = sorted({file for pattern in CONTENT_PATTERNS for file in path.glob(pattern)})
    if not any(file.suffix == ".safetensors" for file in found):
        raise errors.ModelNotFound(f"{path} holds no .safetensors file")
    if not any(file.name == "tokenizer.json" for file in found):
        raise errors.ModelNotFound(f"{path} holds no tokenizer.json")
    return found


def content_digest(path: Path, files: Iterable[Path]) -> str:
    """`sha256:<hex>`: of the file itself, or of a folder's sorted lines `<name> <sha256>`."""
    if path.is_file():
        return f"sha256:{_sha256(path)}"
    lines = "".join(f"{file.name} {_sha256(file)}\n" for file in files)
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
