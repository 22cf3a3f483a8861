"""The process that tries a grammar before the engine gets it: `python -m …grammar_child`, JSON lines.

The first line is the tokenizer, every further one a grammar; each is answered by what is wrong with it. The
library may recurse too deep, take memory without end or not return: here that costs this process only.
"""

import json
import resource
import sys
import threading
from pathlib import Path

import llguidance

from firsttoken_runtime import guidance

MEMORY_BYTES = 2 * 2**30
OOM_SCORE = Path("/proc/self/oom_score_adj")


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if OOM_SCORE.exists():  # in a container short of memory this process goes, and not the engine
        OOM_SCORE.write_text("1000")
    threading.stack_size(guidance.STACK_BYTES)
    thread = threading.Thread(target=_serve)
    thread.start()
    thread.join()


def _serve() -> None:
    first = json.loads(sys.stdin.buffer.readline())
    try:
        tokenizer = guidance.load_tokenizer(first["tokenizer"], first["vocabulary_size"], first["eos"])
    except guidance.GrammarError as error:
        _answer(str(error))
        return
    _answer("")
    for line in sys.stdin.buffer:
        _answer(_problem(tokenizer, json.loads(line)))


def _problem(tokenizer: llguidance.LLTokenizer, grammar: str) -> str:
    try:
        guidance.compile_grammar(tokenizer, grammar)
    except guidance.GrammarError as error:
        return str(error)
    return ""


def _answer(problem: str) -> None:
    sys.stdout.write(json.dumps(problem) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
