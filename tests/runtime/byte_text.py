"""The text side of the fake model: one token a byte, and the fake engine's control tokens."""

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from firsttoken_runtime.server.tokenizer import TextModel
from runtime.fake_engine import CONTROL, END

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'broken' %}{{ raise_exception('no') }}{% endif %}"
    "{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|end|>{% endif %}"
)


def text_model(chat_template: str | None = TEMPLATE) -> TextModel:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in CONTROL.values()])
    return TextModel(tokenizer, chat_template, {"eos_token": CONTROL[END]}, eos_token_ids=(END,))
