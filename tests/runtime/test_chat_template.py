"""Chat templates: the dialect of transformers, in a sandbox."""

import jinja2
import pytest

from firsttoken_api.errors import BadRequestError
from firsttoken_runtime.server import chat_template
from firsttoken_runtime.server.chat_template import ChatTemplate

MESSAGES = [{"role": "user", "content": "hé"}]


def _render(source: str, **arguments: object) -> str:
    template = ChatTemplate(source, {"bos_token": "<s>"})
    return template.render(MESSAGES, add_generation_prompt=True, arguments=arguments)


def test_what_templates_use():
    source = (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'none' %}{% continue %}{% endif %}"
        "{{ m | tojson }}{% endfor %}{% if add_generation_prompt %}>{% endif %}{{ thinking }}"
        "{{ strftime_now('%Y') | length }}"
    )
    assert _render(source, thinking="no") == '<s>{"role": "user", "content": "hé"}>no4'


def test_blocks_leave_no_blank_lines():
    assert _render("{% for m in messages %}\n  {% if true %}\nx\n  {% endif %}\n{% endfor %}\n") == "x\n"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[7].content }}",
        "{{ 1 / 'x' }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% for i in range(10000000000) %}{% endfor %}",
    ],
)
def test_a_template_that_fails_or_reaches_out_is_a_bad_request(source):
    with pytest.raises(BadRequestError) as caught:
        _render(source)
    assert caught.value.param == "messages"


def test_arguments_cannot_replace_what_is_ours():
    with pytest.raises(BadRequestError) as caught:
        _render("x", messages=[])
    assert caught.value.param == "chat_template_kwargs"


def test_a_broken_template_is_found_at_load():
    with pytest.raises(jinja2.TemplateError):
        ChatTemplate("{% for %}", {})


def test_tools_reach_the_template_and_it_is_known_whether_it_looks_at_them():
    template = ChatTemplate("{% if tools %}{{ tools | tojson }}{% endif %}", {})
    assert template.knows_tools
    tools = [{"type": "function", "function": {"name": "f"}}]
    text = template.render(MESSAGES, add_generation_prompt=True, arguments={}, tools=tools)
    assert text == '[{"type": "function", "function": {"name": "f"}}]'
    assert template.render(MESSAGES, add_generation_prompt=True, arguments={}) == ""
    assert not ChatTemplate("{{ messages }} tools {% set tools = 1 %}{{ tools }}", {}).knows_tools


def test_a_template_without_an_end_is_stopped(monkeypatch):
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}x{{ b }}{% endfor %}{% endfor %}"
    monkeypatch.setattr(chat_template, "MAX_CHARS", 1000)
    with pytest.raises(BadRequestError, match="more than 1000 characters"):
        _render(loop)
    times = iter(range(10**6))
    template = ChatTemplate(loop, {}, clock=lambda: next(times))
    with pytest.raises(BadRequestError, match="more than 5 s"):
        template.render(MESSAGES, add_generation_prompt=True, arguments={})


def test_arguments_are_data_and_never_a_template():
    assert (
        _render("{{ x }}", x="{{ messages }}{% for i in range(9) %}")
        == "{{ messages }}{% for i in range(9) %}"
    )
