"""From a request to the token ids of its prompt. Slow for long texts, so it runs in a thread."""

from firsttoken_api import errors
from firsttoken_runtime.server.chat_template import ChatTemplate
from firsttoken_runtime.server.openai_models import ChatRequest, CompletionRequest
from firsttoken_runtime.server.tokenizer import TextModel

# Normalization may shorten a text before it is split into tokens, composed characters above all.
NORMALIZATION_FACTOR = 4


def chat(
    request: ChatRequest, text_model: TextModel, template: ChatTemplate | None, capacity: int
) -> list[int]:
    """The template writes the special tokens itself; adding them again would double BOS."""
    if template is None:
        raise errors.BadRequestError("this model has no chat template; use /v1/completions", param="messages")
    text = template.render(
        [message.for_template() for message in request.messages],
        add_generation_prompt=request.add_generation_prompt,
        arguments=request.chat_template_kwargs,
    )
    check_length(text, text_model, capacity, "messages")
    return text_model.encode(text, add_special_tokens=False)


def completion(request: CompletionRequest, text_model: TextModel, capacity: int) -> list[int]:
    """One prompt: a text, its token ids, or a list that holds one text."""
    prompt = request.prompt
    texts = [prompt] if isinstance(prompt, str) else [part for part in prompt if isinstance(part, str)]
    if not texts:
        return [part for part in prompt if isinstance(part, int)]
    if len(texts) > 1:
        raise errors.BadRequestError(
            f"prompt holds {len(texts)} texts; this version answers one prompt a request", param="prompt"
        )
    check_length(texts[0], text_model, capacity, "prompt")
    return text_model.encode(texts[0], add_special_tokens=True)


def check_length(text: str, text_model: TextModel, capacity: int, param: str) -> None:
    """Refuse, without the time to tokenize it, a text that cannot fit even as the longest tokens."""
    if len(text) > capacity * text_model.longest_token_chars * NORMALIZATION_FACTOR:
        raise errors.BadRequestError(
            f"{param}: a text of {len(text)} characters does not fit this server's context "
            f"of {capacity} tokens",
            param=param,
            code="context_length_exceeded",
        )
