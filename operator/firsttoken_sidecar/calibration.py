"""How many bytes of prompt make a token, learned from what the engine counted. Pure.

Admission and routing need a prompt's length before anybody has tokenized it. Sums are decayed request by
request and start with a prior, so one odd prompt moves little; long prompts weigh as much as they are long.
"""

from dataclasses import dataclass

PRIOR_BYTES_PER_TOKEN = 4.0
PRIOR_TOKENS = 200.0
DECAY = 0.98
"""Of what was learned before, at each request: half of it is gone after 34."""
MOST_MODELS = 32
LEAST, MOST = 0.25, 32.0
"""No tokenizer is outside; what a client's odd text makes of it stays within."""


@dataclass(slots=True)
class _Sums:
    prompt_bytes: float = PRIOR_BYTES_PER_TOKEN * PRIOR_TOKENS
    tokens: float = PRIOR_TOKENS

    def add(self, prompt_bytes: int, tokens: int) -> None:
        self.prompt_bytes = self.prompt_bytes * DECAY + prompt_bytes
        self.tokens = self.tokens * DECAY + tokens


class Calibration:
    """One ratio for each model, and one for all together under the name ""."""

    def __init__(self) -> None:
        self._sums: dict[str, _Sums] = {"": _Sums()}

    def learn(self, model: str, prompt_bytes: int, prompt_tokens: int) -> None:
        """A prompt of so many bytes had so many tokens. Without both it tells nothing."""
        if prompt_bytes <= 0 or prompt_tokens <= 0:
            return
        self._sums[""].add(prompt_bytes, prompt_tokens)
        if not model:
            return
        if model not in self._sums:
            if len(self._sums) > MOST_MODELS:
                return
            self._sums[model] = _Sums()
        self._sums[model].add(prompt_bytes, prompt_tokens)

    def bytes_per_token(self, model: str = "") -> float:
        """Of a model; of all together where that one is not known."""
        sums = self._sums.get(model) or self._sums[""]
        return min(max(sums.prompt_bytes / sums.tokens, LEAST), MOST)
