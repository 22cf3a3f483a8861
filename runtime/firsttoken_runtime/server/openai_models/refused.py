"""Parameters that others build and we do not: accepted at their default, else refused with the reason.

Names that nobody defines are ignored, with one warning each in the log.
"""

import json
import logging
from dataclasses import dataclass
from typing import Any

from firsttoken_api import errors

log = logging.getLogger(__name__)

MAX_NAMES_WARNED = 256


@dataclass(frozen=True)
class Refusal:
    """Why, and the values that mean "not asked for", compared by type and value: `true` is not 1."""

    reason: str
    defaults: tuple[Any, ...] = ()

    def check(self, name: str, value: Any) -> None:
        """Raises BadRequestError unless the value is a default."""
        if value is None or any(
            type(value) is type(default) and value == default for default in self.defaults
        ):
            return
        allowed = f" or set it to {json.dumps(self.defaults[0])}" if self.defaults else ""
        raise errors.BadRequestError(
            f"{name} is not supported: {self.reason}; leave it out{allowed}", param=name
        )


_TEXT_ONLY = "this server reads and writes text only"
_USE_FORMAT = "constrain answers with response_format"
_USE_TOOLS = "use tools and tool_choice"
_CHAT_ONLY = "it belongs to /v1/chat/completions"
_COMPLETION_ONLY = "it belongs to /v1/completions"
_NO_BEAMS = "answers are sampled, not searched for"
_NO_ADAPTERS = "LoRA adapters are not served, the model is served as it is"
_SCORE = "this endpoint scores how likely a text is and compares no pairs of texts"

# Looked up only for names that an endpoint's own model does not define.
REFUSED: dict[str, Refusal] = {
    "best_of": Refusal(_COMPLETION_ONLY, (1,)),
    "echo": Refusal(_COMPLETION_ONLY, (False,)),
    "suffix": Refusal("the model continues text and does not fill in", ("",)),
    "tools": Refusal(_CHAT_ONLY, ([],)),
    "tool_choice": Refusal(_CHAT_ONLY, ("none",)),
    "parallel_tool_calls": Refusal(_CHAT_ONLY, (True,)),
    "top_logprobs": Refusal("logprobs is the number of alternatives here", (0,)),
    "continue_final_message": Refusal(_CHAT_ONLY, (False,)),
    "functions": Refusal(_USE_TOOLS, ([],)),
    "function_call": Refusal(_USE_TOOLS, ("none", "auto")),
    "modalities": Refusal(_TEXT_ONLY, (["text"],)),
    "audio": Refusal(_TEXT_ONLY),
    "images": Refusal(_TEXT_ONLY, ([],)),
    "mm_processor_kwargs": Refusal(_TEXT_ONLY),
    "prediction": Refusal("predicted output is not used"),
    "reasoning_effort": Refusal("use chat_template_kwargs, as the model's chat template reads them"),
    "include_reasoning": Refusal("reasoning is part of every answer that has it", (True,)),
    "verbosity": Refusal("ask for it in a message"),
    "web_search_options": Refusal("this server reads no web pages"),
    "store": Refusal("nothing is stored", (False,)),
    "service_tier": Refusal("use the header X-Firsttoken-Class", ("auto", "default")),
    "chat_template": Refusal("the template comes with the model, never with a request"),
    "documents": Refusal("put them into a message", ([],)),
    "use_beam_search": Refusal(_NO_BEAMS, (False,)),
    "length_penalty": Refusal(_NO_BEAMS, (1, 1.0)),
    "early_stopping": Refusal(_NO_BEAMS, (False,)),
    "spaces_between_special_tokens": Refusal("no spaces are added", (True,)),
    "truncate_prompt_tokens": Refusal("a prompt that does not fit is refused, never cut"),
    "allowed_token_ids": Refusal("use logit_bias", ([],)),
    "bad_words": Refusal("use logit_bias", ([],)),
    "logits_processors": Refusal("requests bring no code", ([],)),
    "prompt_embeds": Refusal("prompts are texts or token ids"),
    "guided_json": Refusal(_USE_FORMAT),
    "guided_regex": Refusal(_USE_FORMAT),
    "guided_choice": Refusal(_USE_FORMAT),
    "guided_grammar": Refusal(_USE_FORMAT),
    "structured_outputs": Refusal(_USE_FORMAT),
    "return_token_ids": Refusal("use return_tokens_as_token_ids with logprobs", (False,)),
    "lora_request": Refusal(_NO_ADAPTERS),
    "lora": Refusal(_NO_ADAPTERS, ([],)),
    "adapter_id": Refusal(_NO_ADAPTERS),
    "text_1": Refusal(_SCORE),
    "text_2": Refusal(_SCORE),
    "queries": Refusal(_SCORE),
}

# In a message: what it would carry if other media were supported.
REFUSED_IN_MESSAGE: dict[str, Refusal] = {
    "function_call": Refusal(_USE_TOOLS),
    "tool_calls": Refusal("only an assistant's message has tool calls", ([],)),
    "audio": Refusal(_TEXT_ONLY),
    "images": Refusal(_TEXT_ONLY, ([],)),
    "refusal": Refusal("a refusal is text like any other"),
}


class UnknownNames:
    """Names of parameters that nobody defines, warned about once. Clients choose them, so there is an end."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def warn(self, name: str) -> None:
        name = name[:64]
        if name not in self._seen and len(self._seen) < MAX_NAMES_WARNED:
            self._seen.add(name)
            log.warning("a request has the unknown parameter %r; it is ignored", name)
