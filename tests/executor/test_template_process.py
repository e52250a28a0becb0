"""Chat templates: what transformers makes of them, and what one may not take."""

import pytest
from daily import one_in
from transformers.utils.chat_template_utils import render_jinja_template

from helmsman.executor.text.chat_template import ChatTemplate
from helmsman.executor.text.template_process import Renderer, RenderLimits
from helmsman.schemas.errors import BadInputError

CHATML = """{%- for message in messages %}
    {%- if loop.first and message.role != 'system' %}
        {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
ODD = """{{ bos_token }}{% for message in messages if message.role == 'user' %}
  {% if loop.index0 > 1 %}{% break %}{% endif %}
  [{{ message | tojson }}] {{ message | tojson(sort_keys=true, separators=(',', ':')) }}
{% endfor %}{% set ns = namespace(n=0) %}{% set ns.n = 3 %}{{ ns.n }}{{ dict(a=1).a }}
{% generation %}{{ messages[0].content }}
 said{% endgeneration %}"""
TALK = [{"role": "user", "content": " H\N{LATIN SMALL LETTER E WITH DIAERESIS}y\n"},
        {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "<b>"}]  # fmt: skip
SMALL = RenderLimits(seconds=1.0, memory=2**27, characters=5000)


def own(source: str, **tokens: str) -> ChatTemplate:
    return ChatTemplate(source, tokens, "file", own=True)


@pytest.mark.parametrize("source", [CHATML, ODD])
@pytest.mark.parametrize("count", [1, 3])
def test_prompts_are_those_of_transformers(source: str, count: int) -> None:
    expected, _ = render_jinja_template(
        [TALK[:count]], chat_template=source, add_generation_prompt=True, bos_token="<s>"
    )
    with Renderer(own(source, bos_token="<s>")) as renderer:
        assert renderer.render(TALK[:count]) == expected[0]


ENDLESS = "{% for a in range(9999) %}" * 4 + "{% endfor %}" * 4
TAKES_TOO_MUCH = [
    pytest.param(ENDLESS, "takes more than 1 s", marks=pytest.mark.nightly),
    ("{{ 10 ** (messages | length * 10 ** 9) }}", "takes more than 1 s"),
    ("{{ 'a' * 10 ** 10 }}", "too much memory"),
    ("{{ 'a'.center(10 ** 9) }}", "too much memory"),
    ("{{ [0] * 10 ** 9 }}", "too much memory"),
    ("{{ 'a' * 5001 }}", "more than 5000 characters"),
    ("{% for a in range(9999) %}ab{% endfor %}", "more than 5000 characters"),
]
FAILS = [
    ("{{ raise_exception('no system') }}", "no system"),
    ("{{ messages.__class__.__mro__ }}", "unsafe|access"),
    ("{{ namespace(__class__=1) }}", "underscore"),
    ("{{ messages.append(1) }}", "safely callable|not safely|access"),
    ("{{ messages[0].content + 1 }}", "concatenate"),
    ("{{ range(10**9) }}", "Range too big"),
    ("{{ 1 // 0 }}", "zero"),
    ("{{ messages[0].missing.more }}", "no attribute"),
    ("{{ messages[0].content.missing() }}", "no attribute"),
    ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "recursion"),
    ("{% include 'other' %}", "loader"),
    ("{{ '%c' % -1 }}", "range"),
    ("{{ raise_exception('x' * 4000) }}", "xxx"),
]


def fails(renderer: Renderer, says: str, messages: int = 1) -> None:
    with pytest.raises(BadInputError, match=says) as error:
        renderer.render(TALK[:1] * messages)
    assert (error.value.file, error.value.field) == ("file", "chat_template")
    assert len(error.value.message) < 500


def test_a_template_that_cannot_be_read_is_bad_input() -> None:
    with Renderer(own("{% for %}"), SMALL) as renderer:
        fails(renderer, "Expected|unexpected")
        fails(renderer, "Expected|unexpected")


def test_a_template_that_fails_is_bad_input() -> None:
    """One that fails another way each time, as the number of messages says: no failure is the last."""
    ways = (
        f"{{% if messages | length == {count} %}}{source}{{% endif %}}" for count, (source, _) in enumerate(FAILS, 1)
    )
    with Renderer(own("".join(ways)), SMALL) as renderer:
        for _ in range(2):
            for count, (_, says) in enumerate(FAILS, 1):
                fails(renderer, says, count)


@pytest.mark.parametrize(("source", "says"), one_in(2, TAKES_TOO_MUCH))
def test_what_takes_too_much_is_refused_and_the_next_conversation_is_rendered(source: str, says: str) -> None:
    with Renderer(own("{% if messages | length == 1 %}" + source + "{% endif %}fine"), SMALL) as renderer:
        fails(renderer, says)
        assert renderer.render(TALK) == "fine"


def test_who_gives_up_waiting_says_so_and_closing_ends_what_is_rendered() -> None:
    with Renderer(own(ENDLESS), RenderLimits(seconds=60.0, patience_s=0.2)) as renderer:
        fails(renderer, "no answer within 0.2 s")
    renderer = Renderer(own(ENDLESS), RenderLimits(seconds=3600.0, patience_s=3600.0))
    first, second = renderer.submit(TALK), renderer.submit(TALK)
    while not first.running():
        pass
    renderer.close()
    assert second.cancelled()
    with pytest.raises(BadInputError, match="the process that renders it"):
        first.result()


def test_texts_of_every_kind_go_through() -> None:
    said = "\x00\n\u2028\ud800\U0001f680" + "x" * 300_000
    with Renderer(own("{{ messages[0].content }}")) as renderer:
        assert renderer.render([{"role": "user", "content": said}]) == said
