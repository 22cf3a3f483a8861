"""From a request to the token ids of its prompt. Slow for long texts, so it runs in a thread."""

from firsttoken_api import errors
from firsttoken_runtime.server.chat_template import ChatTemplate
from firsttoken_runtime.server.openai_models import ChatRequest, CompletionRequest
from firsttoken_runtime.server.tokenizer import TextModel


def chat(request: ChatRequest, text_model: TextModel, template: ChatTemplate | None) -> list[int]:
    """The template writes the special tokens itself; adding them again would double BOS."""
    if template is None:
        raise errors.BadRequestError("this model has no chat template; use /v1/completions", param="messages")
    text = template.render(
        [message.for_template() for message in request.messages],
        add_generation_prompt=request.add_generation_prompt,
        arguments=request.chat_template_kwargs,
    )
    return text_model.encode(text, add_special_tokens=False)


def completion(request: CompletionRequest, text_model: TextModel) -> list[int]:
    """One prompt: a text, its token ids, or a list that holds one text."""
    prompt = request.prompt
    if isinstance(prompt, str):
        return text_model.encode(prompt, add_special_tokens=True)
    texts = [part for part in prompt if isinstance(part, str)]
    if not texts:
        return [part for part in prompt if isinstance(part, int)]
    if len(texts) > 1:
        raise errors.BadRequestError(
            f"prompt holds {len(texts)} texts; this version answers one prompt a request", param="prompt"
        )
    return text_model.encode(texts[0], add_special_tokens=True)
