"""What single tokens are made of, whichever way a vocabulary writes bytes."""

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models

from firsttoken_runtime.server.token_text import TokenText
from runtime import byte_text


def test_the_bytes_of_neighbours_join_to_the_text():
    model = byte_text.text_model()
    token_text = TokenText(model.tokenizer)
    text = "hé€🙂 \n\t~\x00"
    ids = model.encode(text, add_special_tokens=False)
    assert b"".join(token_text.to_bytes(token_id) for token_id in ids) == text.encode()
    assert {token_text.to_bytes(token_id) for token_id in range(256)} == {bytes([b]) for b in range(256)}
    assert token_text.to_text(256) == "<|end|>"
    assert token_text.to_bytes(999) == b""


def _sentencepiece(*parts: decoders.Decoder) -> TokenText:
    vocabulary = {"<unk>": 0, "▁the": 1, "<0xE2>": 2, "é": 3, "<0x0A>": 4}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(list(parts))
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    return TokenText(tokenizer)


@pytest.mark.parametrize("spaces", [decoders.Replace("▁", " "), decoders.Metaspace()])
def test_sentencepiece_marks_spaces_and_spells_bytes(spaces):
    token_text = _sentencepiece(spaces, decoders.ByteFallback(), decoders.Fuse())
    assert [token_text.to_bytes(one) for one in (1, 2, 3, 4, 5)] == [
        b" the",
        b"\xe2",
        "é".encode(),
        b"\n",
        b"<s>",
    ]
    assert token_text.to_text(2) == "\ufffd"


def test_without_a_decoder_a_token_is_its_text():
    token_text = TokenText(Tokenizer(models.WordLevel({"▁x": 0, "<0x0A>": 1}, unk_token="▁x")))
    assert [token_text.to_text(one) for one in (0, 1)] == ["▁x", "<0x0A>"]
