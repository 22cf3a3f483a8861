"""Pieces of text join to the decoded whole, whatever bytes the tokens hold."""

import random

from tokenizers import Tokenizer, decoders, models

from firsttoken_runtime.server.detokenizer import MOST_HELD, Detokenizer
from runtime.byte_text import text_model
from runtime.fake_engine import END, VOCABULARY_SIZE


def _pieces(ids: list[int], context: tuple[int, ...] = ()) -> list[str]:
    detokenizer = Detokenizer(text_model().tokenizer, context)
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.flush()]


def test_a_character_appears_when_its_last_byte_does():
    ids = text_model().encode("é€🙂", add_special_tokens=False)
    assert _pieces(ids) == ["", "é", "", "", "€", "", "", "", "🙂", ""]


def test_an_incomplete_character_is_one_replacement_at_the_end():
    ids = text_model().encode("a🙂", add_special_tokens=False)[:-1]
    assert _pieces(ids) == ["a", "", "", "", "\ufffd"]


def test_special_tokens_have_no_text():
    ids = text_model().encode("a", add_special_tokens=False)
    assert "".join(_pieces([*ids, END, *ids])) == "aa"


def test_broken_bytes_do_not_hold_up_the_stream():
    tokenizer = text_model().tokenizer
    broken = text_model().encode("🙂", add_special_tokens=False)[1]
    for ids in ([broken] * 9, [END] * 9):
        detokenizer = Detokenizer(tokenizer)
        pieces = [detokenizer.push(token_id) for token_id in ids]
        assert len(detokenizer.flush()) <= MOST_HELD
        assert "".join(pieces) == tokenizer.decode(ids, skip_special_tokens=True)[:-MOST_HELD]


def test_random_broken_bytes_join_to_the_decoded_whole():
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    tokenizer = text_model().tokenizer
    alphabet = text_model().encode("é€🙂a", add_special_tokens=False)
    for _ in range(1000):
        ids = rng.choices(alphabet, k=rng.randrange(1, 24))
        assert "".join(_pieces(ids)) == tokenizer.decode(ids, skip_special_tokens=True), f"seed {seed}: {ids}"


def test_random_bytes_join_to_the_decoded_whole():
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    tokenizer = text_model().tokenizer
    for _ in range(500):
        ids = [rng.randrange(VOCABULARY_SIZE) for _ in range(rng.randrange(1, 24))]
        assert "".join(_pieces(ids)) == tokenizer.decode(ids, skip_special_tokens=True), f"seed {seed}: {ids}"


def test_a_continuation_keeps_its_leading_space():
    tokenizer = Tokenizer(models.BPE({"▁a": 0, "▁b": 1}, []))
    tokenizer.decoder = decoders.Metaspace()
    assert Detokenizer(tokenizer, (0,)).push(1) == " b"
    assert Detokenizer(tokenizer).push(1) == "b"
