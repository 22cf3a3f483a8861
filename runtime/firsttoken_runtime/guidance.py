"""The grammar library as both processes use it: limits, the tokenizer's view, a compiled grammar. No torch.

The server compiles a grammar in a child process first (`server/grammar_check.py`), the engine then does
the same with the same limits. The library reports what it cannot honour; a mere warning of it is an error
here, because the alternative is an answer that the caller believes to be constrained and that is not.
"""

import json
from collections.abc import Sequence
from typing import Any

import llguidance
import tokenizers

MAX_GRAMMAR_BYTES = 64 * 2**10
LIMITS = llguidance.LLParserLimits(
    max_items_in_row=2_000,
    initial_lexer_fuel=500_000,
    step_lexer_fuel=100_000,  # about 7 ms of one step of the engine
    step_max_items=25_000,  # the same
    max_lexer_states=10_000,  # of 1 to 2 kB each, for each running grammar
    max_grammar_size=100_000,
    precompute_large_lexemes=False,  # seconds at once, for milliseconds later
    verbose_errors=False,
)
STACK_BYTES = 64 * 2**20
"""Of a thread that compiles: the library recurses along chains of references."""
_SHOWN_CHARS = 300


class GrammarError(ValueError):
    """The grammar, or this model's tokenizer, cannot be used; the message says why, on one line."""


def tokenizer_json(tokenizer: tokenizers.Tokenizer) -> str:
    """The tokenizer as the library reads it: padding and truncation would change what it sees."""
    document: dict[str, Any] = json.loads(tokenizer.to_str())
    return json.dumps(document | {"padding": None, "truncation": None})


def load_tokenizer(
    document: str, vocabulary_size: int, eos_token_ids: Sequence[int]
) -> llguidance.LLTokenizer:
    """Takes 0.2 s for 49,152 tokens. Ids that the model has and the tokenizer has not are never allowed."""
    eos = [token_id for token_id in eos_token_ids if 0 <= token_id < vocabulary_size]
    if not eos:
        raise GrammarError("this model names no token that ends an answer, so none could follow a grammar")
    size = max(vocabulary_size, _num_tokens(json.loads(document)))
    try:
        return llguidance.LLTokenizer(document, n_vocab=size, eos_token=eos)
    except ValueError as error:
        raise GrammarError(f"grammars cannot be used with this model's tokenizer: {_line(error)}") from error


def _num_tokens(document: dict[str, Any]) -> int:
    """Without building the tokenizer: that would hold the interpreter for a second."""
    added: list[int] = [token["id"] + 1 for token in document.get("added_tokens", [])]
    return max([len(document["model"]["vocab"]), *added])


def compile_grammar(tokenizer: llguidance.LLTokenizer, grammar: str) -> llguidance.LLMatcher:
    """A matcher at the start of its text, with its first mask computed once."""
    if len(grammar.encode()) > MAX_GRAMMAR_BYTES:
        raise GrammarError(f"it is larger than {MAX_GRAMMAR_BYTES // 2**10} KiB")
    matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS)
    raise_if_failed(matcher)
    if warnings := matcher.get_grammar_warnings():
        raise GrammarError(_line(warnings[0]))
    matcher.compute_bitmask()
    raise_if_failed(matcher)
    return matcher


def raise_if_failed(matcher: llguidance.LLMatcher) -> None:
    """A failed matcher allows the end of the text only, which would look like a finished answer."""
    if matcher.is_error():
        raise GrammarError(_line(matcher.get_error()))


def _line(error: object) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    text = " ".join(line for line in lines if line and not line.startswith("<"))
    text = text.split("<state>")[0]
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
