"""SentencePiece's byte-pair tokenizer (Llama 2, Mistral), built from the pieces and scores of a .gguf file.

SentencePiece joins the neighbours whose union has the best score, the leftmost first. The tokenizers
library joins by a list of merges; ordered by the score of their union, merges do the same as long as no
two pieces share a score. What that list cannot express is refused: serve the folder with
`tokenizer.json`, which has the authors' own.
"""

import tokenizers
from tokenizers import decoders, models, normalizers

from firsttoken_runtime.model import errors

SPACE = "▁"
NORMAL, UNKNOWN, USER_DEFINED, BYTE = 1, 2, 4, 6
"""Token types of GGUF."""
_INSTEAD = "in a .gguf file is not built; serve the folder with tokenizer.json"


def build(
    pieces: list[str], scores: list[float], types: list[int], *, adds_space_prefix: bool
) -> tokenizers.Tokenizer:
    """Without special tokens.  Raises `errors.ModelError`."""
    if not len(pieces) == len(scores) == len(types):
        raise errors.ModelUnreadable("the tokenizer is damaged: pieces, scores and types differ in number")
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    kinds = dict(zip(pieces, types, strict=True))
    if any(kinds.get(f"<0x{byte:02X}>") != BYTE for byte in range(256)):
        raise errors.Unsupported(f"a SentencePiece tokenizer without all 256 byte pieces {_INSTEAD}")
    if any(kind == USER_DEFINED and SPACE in piece for piece, kind in kinds.items()):
        raise errors.Unsupported(f"a SentencePiece tokenizer with spaces in user-defined pieces {_INSTEAD}")
    unknown = next((piece for piece, kind in kinds.items() if kind == UNKNOWN), None)
    bpe = models.BPE(
        vocabulary, _merges(pieces, scores, kinds), unk_token=unknown, fuse_unk=True, byte_fallback=True
    )
    tokenizer = tokenizers.Tokenizer(bpe)
    spaces = normalizers.Replace(" ", SPACE)
    tokenizer.normalizer = (
        normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if adds_space_prefix else spaces
    )
    parts = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if adds_space_prefix:
        parts.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(parts)
    return tokenizer


def _merges(pieces: list[str], scores: list[float], kinds: dict[str, int]) -> list[tuple[str, str]]:
    """Every way to make a piece of two others, best piece first."""
    ways = []
    seen: dict[float, str] = {}
    for piece, score in zip(pieces, scores, strict=True):
        if kinds[piece] != NORMAL:
            continue
        cuts = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        own = [cut for cut in cuts if all(kinds.get(part) == NORMAL for part in cut)]
        if own and seen.setdefault(score, piece) != piece:
            raise errors.Unsupported(f"a SentencePiece tokenizer with equal scores {_INSTEAD}")
        ways += [(-score, cut) for cut in own]
    return [cut for _, cut in sorted(ways, key=lambda way: way[0])]
