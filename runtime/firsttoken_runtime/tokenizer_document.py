"""Prints a model's tokenizer as JSON: `python -m firsttoken_runtime.tokenizer_document PATH`.

The engine runs this as a process when the first grammar comes. Read inside the engine, a large tokenizer
would hold the interpreter, and with it the tokens of all sequences, for a second or more.
"""

import sys
from pathlib import Path

from firsttoken_runtime import guidance
from firsttoken_runtime.model import checkpoint, errors
from firsttoken_runtime.server import tokenizer


def main() -> int:
    try:
        model = tokenizer.load(checkpoint.open_checkpoint(Path(sys.argv[1])))
    except (errors.ModelError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(guidance.tokenizer_json(model.tokenizer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
