import pytest

from firsttoken_sidecar import cadence
from firsttoken_sidecar.stages import Stamps

PIECE = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n'
SPACED = b'data: {"choices": [{"text": "a", "finish_reason": null}]}\n\n'
LAST = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
QUOTED = (
    rb'data: {"choices":[{"delta":{"content":"\"finish_reason\":null"},"finish_reason":"stop"}]}' + b"\n\n"
)


def test_what_comes_together_is_spread_over_the_gap() -> None:
    made = cadence.Cadence(10.0)
    assert made.wrote(PIECE, 10.5) == (0.5, 1)
    assert made.wrote(SPACED + PIECE, 11.5) == (0.5, 2)


def test_only_pieces_of_text_count() -> None:
    made = cadence.Cadence(0.0)
    assert made.wrote(b": keep-alive\n\n", 1.0) is None
    assert made.wrote(QUOTED, 1.5) is None
    assert made.wrote(PIECE, 2.0) == (2.0, 1)
    assert made.wrote(LAST, 9.0) is None
    assert made.tpot_s(None) == 2.0


def test_the_engine_knows_how_many_tokens_there_were() -> None:
    made = cadence.Cadence(0.0)
    made.wrote(PIECE, 1.0)
    assert made.tpot_s(None) == 1.0
    assert made.tpot_s(Stamps(completion_tokens=5)) == 0.25
    assert made.tpot_s(Stamps(completion_tokens=6, choices=2)) == 0.5


@pytest.mark.parametrize("stamps", [None, Stamps(completion_tokens=1), Stamps(completion_tokens=0)])
def test_one_token_has_no_time_per_further_one(stamps: Stamps | None) -> None:
    assert cadence.Cadence(0.0).tpot_s(stamps) is None
