"""From a request to the token ids of its prompts. Slow for long texts, so it runs in a thread."""

from dataclasses import dataclass, field
from itertools import accumulate

from firsttoken_api import errors
from firsttoken_runtime.server import reasoning, shared_prefix
from firsttoken_runtime.server.chat_template import ChatTemplate
from firsttoken_runtime.server.detokenizer import Detokenizer
from firsttoken_runtime.server.openai_models import ChatRequest, CompletionRequest, TokenizeChatRequest
from firsttoken_runtime.server.openai_models.messages import as_text
from firsttoken_runtime.server.tokenizer import TextModel

# Normalization may shorten a text before it is split into tokens, composed characters above all.
NORMALIZATION_FACTOR = 4


@dataclass(frozen=True)
class Prompt:
    """One prompt; `param` is the parameter of the request that it stands in."""

    ids: list[int]
    param: str
    text: str = ""
    """What an echo repeats: the text as it was given, or that of given ids."""
    offsets: list[int] = field(default_factory=list)
    """Where in it each token starts."""
    opens_reasoning: bool = False
    """The template has begun the model's thoughts at its end."""
    system_tokens: int = 0
    """Of a chat: so many tokens at its start are system messages and tools."""


def chat(
    request: ChatRequest | TokenizeChatRequest,
    text_model: TextModel,
    template: ChatTemplate | None,
    capacity: int,
) -> Prompt:
    if template is None:
        raise errors.BadRequestError("this model has no chat template; use /v1/completions", param="messages")
    messages = [message.for_template() for message in request.messages]
    tools = None
    if request.tools and not _has_no_choice(request):
        tools = [tool.model_dump(exclude_unset=True) for tool in request.tools]
    arguments = request.chat_template_kwargs
    text = template.render(
        messages, add_generation_prompt=request.opens_an_answer, arguments=arguments, tools=tools
    )
    if request.continue_final_message:
        text = _open_at_the_end(text, request)
    check_length(text, text_model, capacity, "messages")
    encoding = text_model.encoding(text, add_special_tokens=request.add_special_tokens)
    return Prompt(
        encoding.ids,
        "messages",
        opens_reasoning=reasoning.starts_inside(text),
        system_tokens=shared_prefix.system_tokens(template, messages, tools, arguments, text, encoding),
    )


def completion(request: CompletionRequest, text_model: TextModel, capacity: int) -> list[Prompt]:
    prompts = request.prompts
    return [
        encode(
            one,
            text_model,
            capacity,
            param="prompt" if len(prompts) == 1 else f"prompt[{index}]",
            add_special_tokens=request.add_special_tokens,
            with_text=request.echo,
        )
        for index, one in enumerate(prompts)
    ]


def encode(
    prompt: str | list[int],
    text_model: TextModel,
    capacity: int,
    *,
    param: str,
    add_special_tokens: bool,
    with_text: bool = False,
) -> Prompt:
    if isinstance(prompt, list):
        return _with_text_of_ids(prompt, text_model, param) if with_text else Prompt(prompt, param)
    check_length(prompt, text_model, capacity, param)
    if not with_text:
        return Prompt(text_model.encode(prompt, add_special_tokens=add_special_tokens), param)
    encoding = text_model.encoding(prompt, add_special_tokens=add_special_tokens)
    return Prompt(encoding.ids, param, prompt, [start for start, _ in encoding.offsets])


def check_length(text: str, text_model: TextModel, capacity: int, param: str) -> None:
    """Refuse, without the time to tokenize it, a text that cannot fit even as the longest tokens."""
    if len(text) > capacity * text_model.longest_token_chars * NORMALIZATION_FACTOR:
        raise errors.BadRequestError(
            f"{param}: a text of {len(text)} characters does not fit this server's context "
            f"of {capacity} tokens",
            param=param,
            code="context_length_exceeded",
        )


def _has_no_choice(request: ChatRequest | TokenizeChatRequest) -> bool:
    """With `tool_choice: none` the model is not told of tools it may not call."""
    return isinstance(request, ChatRequest) and not request.may_call_tools


def _open_at_the_end(text: str, request: ChatRequest | TokenizeChatRequest) -> str:
    """Cut what the template writes after the final message, which the model then goes on with."""
    content = request.messages[-1].content
    final = "" if content is None else as_text(content)
    place = text.rfind(final.strip()) if final.strip() else -1
    if place < 0:
        raise errors.BadRequestError(
            "continue_final_message: the final message has no text to go on with"
            if not final.strip()
            else "continue_final_message: the chat template does not write the final message as it is",
            param="continue_final_message",
        )
    # A template may strip white space: then there is none to keep.
    end = place + len(final.strip())
    kept = final[len(final.rstrip()) :]
    return text[:end] + (kept if kept and text[end:].startswith(kept) else "")


def _with_text_of_ids(ids: list[int], text_model: TextModel, param: str) -> Prompt:
    """Ids that are not in the vocabulary are refused later and have no text."""
    detokenizer = Detokenizer(text_model.tokenizer)
    known = text_model.tokenizer.get_vocab_size(with_added_tokens=True)
    pieces = [detokenizer.push(token_id) if token_id < known else "" for token_id in ids]
    lengths = [len(piece) for piece in pieces]
    return Prompt(
        ids,
        param,
        "".join(pieces) + detokenizer.flush(),
        list(accumulate(lengths[:-1], initial=0))[: len(ids)],
    )
