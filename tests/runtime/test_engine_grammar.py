"""Grammars in the engine: masks, their end, and a compiler that costs only the request that needs it."""

import math
import threading
import time

import pytest
import torch

from firsttoken_runtime import guidance
from firsttoken_runtime.engine import grammar
from runtime.byte_text import text_model

TOKENIZER = text_model().tokenizer
PADDED = TOKENIZER.get_vocab_size() + 45
END, TURN = 256, 257
"""Two ids that end an answer; both are special tokens of the fake model."""
INTEGERS = "start: /[0-9]{2,3}/"


def _folder(path):
    TOKENIZER.save(str(path / "tokenizer.json"))
    (path / "config.json").write_text("{}")
    return path


class _Quick(grammar.Grammars):
    """Without the process that reads the tokenizer."""

    def _build_tokenizer(self):
        document = guidance.tokenizer_json(TOKENIZER)
        return guidance.load_tokenizer(document, self._vocabulary_size, sorted(self._eos_token_ids))


def _grammars(**changes: object) -> grammar.Grammars:
    return _Quick("unread", PADDED, (END, TURN), **changes)


def _matcher(text: str = INTEGERS) -> grammar.Matcher:
    grammars = _grammars()
    try:
        return grammars.compile(text).result(10)
    finally:
        grammars.close()


def _allowed(mask: torch.Tensor) -> set[int]:
    return set(mask.nonzero().flatten().tolist())


def _ids(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False).ids


DIGITS = set(_ids("0123456789"))


def test_masks_from_the_first_token_to_the_end():
    matcher = _matcher()
    mask = matcher.mask()
    assert (mask.shape, mask.dtype) == ((PADDED,), torch.bool)
    assert _allowed(mask) == DIGITS
    matcher.accept(_ids("4")[0])
    assert _allowed(matcher.mask()) == DIGITS
    matcher.accept(_ids("2")[0])
    assert _allowed(matcher.mask()) == DIGITS | {END, TURN}, "complete, or one digit more"
    assert not matcher.is_finished
    matcher.accept(_ids("0")[0])
    assert matcher.is_finished
    assert _allowed(matcher.mask()) == {END, TURN}


@pytest.mark.parametrize("end", [END, TURN])
def test_either_end_is_taken_and_stays_the_end(end):
    matcher = _matcher()
    for token_id in [*_ids("42"), end, end]:
        matcher.accept(token_id)
    assert matcher.is_finished


def test_the_end_waits_while_more_may_follow_and_no_longer():
    matcher = _matcher()
    for token_id in _ids("42"):
        matcher.accept(token_id)
    assert _allowed(matcher.mask(unwanted={END, TURN})) == DIGITS
    matcher.accept(_ids("7")[0])
    assert _allowed(matcher.mask(unwanted={END, TURN})) == {END, TURN}


def test_a_token_that_does_not_fit_is_an_error_and_stays_one():
    matcher = _matcher()
    with pytest.raises(guidance.GrammarError):
        matcher.accept(_ids("x")[0])
    with pytest.raises(guidance.GrammarError):
        matcher.mask()


def test_a_slow_mask_ends_its_sequence():
    times = iter([0.0, 5.0])
    slow = grammar.Matcher(_matcher()._matcher, PADDED, frozenset({END}), lambda: next(times))
    with pytest.raises(guidance.GrammarError, match="more than 1 s"):
        slow.mask()


def test_a_model_smaller_than_its_tokenizer_is_never_given_an_id_it_has_not(tmp_path):
    grammars = grammar.Grammars(str(_folder(tmp_path)), 60, (3,))
    matcher = grammars.compile(r"start: /(.|\n)/").result(10)
    assert matcher.mask().shape == (60,)
    grammars.close()


def test_matchers_of_one_grammar_do_not_share_their_place():
    grammars = _grammars()
    first, second = grammars.compile(INTEGERS).result(10), grammars.compile(INTEGERS).result(10)
    for token_id in _ids("123"):
        first.accept(token_id)
    assert first.is_finished
    assert _allowed(second.mask()) == DIGITS
    grammars.close()


def test_what_does_not_compile_is_said_and_the_next_one_does():
    grammars = _grammars()
    with pytest.raises(guidance.GrammarError, match="nowhere"):
        grammars.compile("start: nowhere").result(10)
    assert grammars.compile(INTEGERS).result(10).mask().any()
    grammars.close()


def test_a_model_without_a_readable_tokenizer(tmp_path):
    grammars = grammar.Grammars(str(tmp_path / "gone"), PADDED, (END,))
    with pytest.raises(guidance.GrammarError, match="tokenizer cannot be read"):
        grammars.compile(INTEGERS).result(10)
    grammars.close()


def test_a_stuck_compiler_is_left_behind_until_too_many_are(monkeypatch):
    now = 0.0
    release = threading.Event()
    compile_grammar = guidance.compile_grammar

    def sticky(tokenizer, text):
        if "stuck" in text:
            assert release.wait(20)
            raise guidance.GrammarError("released")
        return compile_grammar(tokenizer, text)

    monkeypatch.setattr(guidance, "compile_grammar", sticky)
    grammars = _grammars(compile_limit_s=5.0, clock=lambda: now)
    for turn in range(grammar.MAX_ABANDONED + 1):
        stuck = grammars.compile(f"stuck {turn}")
        waiting = grammars.compile(INTEGERS)
        _wait_until_busy(grammars)
        now += 4.9
        grammars.poll()
        assert not stuck.done()
        now += 0.2
        grammars.poll()
        with pytest.raises(guidance.GrammarError, match="takes more than 5 s"):
            stuck.result(0)
        if turn < grammar.MAX_ABANDONED:
            assert waiting.result(10).mask().any()
    for refused in (waiting, grammars.compile(INTEGERS)):
        with pytest.raises(guidance.GrammarError, match="stuck"):
            refused.result(0)
    release.set()
    for thread in grammars._abandoned:
        thread.join(10)
    assert grammars.compile(INTEGERS).result(10).mask().any(), "they were slow, not stuck for ever"
    grammars.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_compiler_that_dies_costs_one_request(monkeypatch):
    class PanicError(BaseException):
        """As the library raises them: no Exception."""

    def panic(tokenizer, text):
        raise PanicError

    grammars = _grammars()
    with monkeypatch.context() as patch:
        patch.setattr(guidance, "compile_grammar", panic)
        dead = grammars.compile(INTEGERS)
        grammars._worker.thread.join(10)
    waiting = grammars.compile(INTEGERS)
    grammars.poll()
    with pytest.raises(guidance.GrammarError, match="compiler failed"):
        dead.result(0)
    assert waiting.result(10).mask().any()
    grammars.close()


def test_what_nobody_waits_for_is_not_compiled(monkeypatch):
    compiled = []
    release = threading.Event()

    def slow(tokenizer, text):
        compiled.append(text)
        assert release.wait(20)
        raise guidance.GrammarError("released")

    monkeypatch.setattr(guidance, "compile_grammar", slow)
    grammars = _grammars()
    grammars.compile("first")
    _wait_until_busy(grammars)
    left, last = grammars.compile("left"), grammars.compile("last")
    assert left.cancel()
    release.set()
    with pytest.raises(guidance.GrammarError, match="released"):
        last.result(10)
    assert compiled == ["first", "last"]
    grammars.close()


def _wait_until_busy(grammars: grammar.Grammars) -> None:
    deadline_s = time.monotonic() + 10
    while (worker := grammars._worker) is None or worker.job is None or worker.started_s == math.inf:
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def test_a_full_queue_refuses(monkeypatch):
    monkeypatch.setattr(grammar, "MAX_QUEUED", 1)
    release = threading.Event()

    def wait(tokenizer, text):
        assert release.wait(20)
        raise guidance.GrammarError("released")

    monkeypatch.setattr(guidance, "compile_grammar", wait)
    grammars = _grammars()
    first = grammars.compile("a")
    _wait_until_busy(grammars)
    second, third = grammars.compile("b"), grammars.compile("c")
    with pytest.raises(guidance.GrammarError, match="wait already"):
        third.result(0)
    release.set()
    for future in (first, second):
        with pytest.raises(guidance.GrammarError, match="released"):
            future.result(10)
    grammars.close()


def test_the_tokenizer_is_read_by_a_process_of_its_own(tmp_path):
    grammars = grammar.Grammars(str(_folder(tmp_path)), PADDED, (END, TURN))
    matcher = grammars.compile(INTEGERS).result(30)
    assert _allowed(matcher.mask()) == DIGITS
    grammars.close()
