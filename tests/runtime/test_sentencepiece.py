"""SentencePiece from a .gguf file: equal to joining the best-scored neighbours, one pair at a time."""

import itertools
import random

import pytest

from firsttoken_runtime.model import errors
from firsttoken_runtime.server import tokenizer

SPACE = "▁"
LETTERS = [*"abcd", SPACE]


def vocabulary(seed: int) -> dict[str, float]:
    """Random pieces made of others, with random distinct scores: a piece may be better than its parts."""
    source = random.Random(seed)
    pieces = list(LETTERS)
    while len(pieces) < 60:
        union = source.choice(pieces) + source.choice(pieces)
        if len(union) <= 7 and union not in pieces:
            pieces.append(union)
    return dict(zip(pieces, source.sample(range(-1000, 0), len(pieces)), strict=True))


def metadata(scores: dict[str, float], **changes: object) -> dict[str, object]:
    special = ["<unk>", "<s>", "</s>"]
    byte_pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*special, *byte_pieces, *scores],
        "tokenizer.ggml.scores": [0.0] * 259 + [float(score) for score in scores.values()],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(scores),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    } | {f"tokenizer.ggml.{name}": value for name, value in changes.items()}


def joined(text: str, scores: dict[str, float]) -> list[str]:
    """The definition."""
    symbols = list((" " + text).replace(" ", SPACE)) if text else []
    while True:
        best = None
        for place, (left, right) in enumerate(itertools.pairwise(symbols)):
            score = scores.get(left + right)
            if score is not None and (best is None or score > best[0]):
                best = (score, place)
        if best is None:
            break
        place = best[1]
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
    pieces: list[str] = []
    for symbol in symbols:
        known = symbol in scores
        pieces += [symbol] if known else [f"<0x{byte:02X}>" for byte in symbol.encode()]
    return pieces


@pytest.mark.parametrize("seed", range(8))
def test_pieces_are_those_of_the_definition(seed: int) -> None:
    scores = vocabulary(seed)
    model = tokenizer.from_metadata(metadata(scores))
    source = random.Random(seed)
    for length in [0, 1, 2, *source.choices(range(3, 40), k=120)]:
        text = "".join(source.choices([*"abcd", " ", "é", "\n"], weights=[9, 9, 9, 9, 6, 1, 1], k=length))
        ids = model.encode(text, add_special_tokens=False)
        assert [model.tokenizer.id_to_token(one) for one in ids] == joined(text, scores), text
        assert model.tokenizer.decode(ids) == text


def test_bos_and_special_tokens() -> None:
    model = tokenizer.from_metadata(metadata({"a": -1.0, SPACE: -2.0, f"{SPACE}a": -3.0}))
    ids = model.encode("a</s>a", add_special_tokens=True)
    assert [model.tokenizer.id_to_token(one) for one in ids] == ["<s>", f"{SPACE}a", "</s>", f"{SPACE}a"]
    assert model.tokenizer.decode(ids) == "a a"
    assert model.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}


def test_no_space_is_added_where_the_file_says_so() -> None:
    model = tokenizer.from_metadata(metadata({"a": -1.0, SPACE: -2.0}, add_space_prefix=False))
    ids = model.encode("a a", add_special_tokens=False)
    assert [model.tokenizer.id_to_token(one) for one in ids] == ["a", SPACE, "a"]
    assert model.tokenizer.decode(ids) == "a a"


def test_what_merges_cannot_express_is_refused() -> None:
    scores = {"a": -1.0, "b": -2.0, "ab": -3.0, "ba": -3.0}
    with pytest.raises(errors.Unsupported, match=r"equal scores .* serve the folder"):
        tokenizer.from_metadata(metadata(scores))
    given = metadata({"a": -1.0})
    types = given["tokenizer.ggml.token_type"]
    assert isinstance(types, list)
    with pytest.raises(errors.Unsupported, match="256 byte pieces"):
        tokenizer.from_metadata(given | {"tokenizer.ggml.token_type": [2, 3, 3, 1, *types[4:]]})
    with pytest.raises(errors.Unsupported, match="spaces in user-defined"):
        tokenizer.from_metadata(
            given
            | {
                "tokenizer.ggml.tokens": [*metadata({"a": -1.0})["tokenizer.ggml.tokens"], SPACE * 2],  # type: ignore[misc]
                "tokenizer.ggml.token_type": [*types, 4],
                "tokenizer.ggml.scores": [0.0] * 261,
            }
        )
    with pytest.raises(errors.ModelUnreadable, match="differ in number"):
        tokenizer.from_metadata(given | {"tokenizer.ggml.scores": []})
