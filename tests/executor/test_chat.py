"""Conversations: where templates are found, and turns that continue what is cached."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_bytes import array, gguf, string, text, u32
from op_plans import make_op_split_plan
from paged import make_paged_plan
from plans import make_plan
from shapes import small_model
from two_cpus import TWO_CPUS

from helmsman.executor.chat import Chat, ChatReply, ReplyOptions
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.executor.text.chat_template import ChatTemplate, open_template
from helmsman.executor.text.sampling import Sampler, Sampling
from helmsman.executor.text.template_process import Renderer
from helmsman.executor.text.tokenizer import Text, open_text
from helmsman.planner.strategies.streaming.division import pieces
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload

TALK = [{"role": "user", "content": " H\N{LATIN SMALL LETTER E WITH DIAERESIS}y\n"},
        {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "<b>"}]  # fmt: skip

MODEL = small_model("llama")
WORK = Workload(prompt_tokens=16, output_tokens=8, context=160)


def own(source: str) -> Renderer:
    return Renderer(ChatTemplate(source, {}, "file", own=True))


def test_where_templates_are_found(tmp_path: Path) -> None:
    assert not open_template(tmp_path).own
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"bos_token": {"content": "<s>"}, "eos_token": None, "chat_template": "a"}))
    found = open_template(tmp_path)
    assert (found.source, dict(found.tokens), found.file, found.own) == ("a", {"bos_token": "<s>"}, str(config), True)
    several = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    config.write_text(json.dumps({"chat_template": several}))
    assert open_template(tmp_path).source == "d"
    (tmp_path / "chat_template.jinja").write_text("alone")
    assert open_template(tmp_path).source == "alone"
    config.write_text("[]")
    with pytest.raises(BadInputError, match="a JSON object is expected"):
        open_template(tmp_path)


def test_a_gguf_file_has_its_template(tmp_path: Path) -> None:
    place = tmp_path / "m.gguf"
    pairs = {"tokenizer.ggml.tokens": array(8, 2, text("<s>") + text("</s>")), "tokenizer.ggml.bos_token_id": u32(0)}
    place.write_bytes(gguf({**pairs, "tokenizer.chat_template": string("{{ messages }}")}))
    found = open_template(place)
    assert found.source == "{{ messages }}" and dict(found.tokens) == {"bos_token": "<s>"} and found.own
    place.write_bytes(gguf(pairs))
    assert not open_template(place).own


def test_the_plain_template_reads_like_a_dialogue(tmp_path: Path) -> None:
    talk = [{"role": "system", "content": "Be brief."}, *TALK[1:]]
    with Renderer(open_template(tmp_path)) as plain:
        assert plain.render(talk) == "Be brief.\n\nAssistant: Yes?\nUser: <b>\nAssistant:"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("chat") / "model"
    write_checkpoint(MODEL, place, seed=1, fmt="f32")
    return place


@pytest.fixture
def letters(checkpoint: Path) -> Text:
    found = open_text(checkpoint, MODEL.vocab)
    assert found is not None
    return found


def kept() -> Plan:
    return make_plan(MODEL, 2, workload=WORK)


def moved() -> Plan:
    return make_op_split_plan(MODEL, 4, len(pieces(MODEL, {})), workload=WORK)


def windowed() -> Plan:
    return make_paged_plan(MODEL, 2, workload=WORK)


def conversation(engine: Engine, letters: Text, lines: list[str], **how: Any) -> Iterator[tuple[str, ChatReply | None]]:
    """What each reply told as it grew, and the reply."""
    speaking = {"sampling": Sampling(0.5), "seed": 3, "output_tokens": 9, "stops": (), "ends": (), **how}
    source = "{% for m in messages %}{{ '<' + m.content + '>' if m.role == 'user' else m.content }}{% endfor %}"
    with own(source) as template:
        chat = Chat(engine, letters, template, ReplyOptions(**speaking), None)
        for line in lines:
            shown: list[str] = []
            reply = chat.reply(line, shown.append)
            yield "".join(shown), reply


@TWO_CPUS
@pytest.mark.parametrize("plan", [kept, windowed, moved])
def test_later_turns_are_what_the_whole_conversation_gives(
    plan: Callable[[], Plan], checkpoint: Path, letters: Text
) -> None:
    """Plans whose caches stay, or have windows, compute only what is new; one whose caches move computes all again."""
    lines = ["hello, this is a first line", "and a second", "third"]
    with Engine.load(plan(), checkpoint, Machine.this(), prompt_tokens=WORK.context) as engine:
        assert engine.rewinds == (plan is kept)
        said, again = "", []
        for turn, (shown, reply) in enumerate(conversation(engine, letters, lines)):
            assert reply is not None and shown == reply.text
            assert len(reply.tokens) == 9 and reply.ending == "length"
            assert letters.encode(reply.text) == list(reply.tokens)  # as it happens: no broken characters
            new = len(lines[turn]) + 2
            said += f"<{lines[turn]}>"
            # The last token of a reply was never computed with.
            assert reply.computed == (len(said) if plan is moved else new + (turn > 0))
            again.append((turn, letters.encode(said), reply.tokens))
            said += reply.text
        for turn, prompt, made in again:
            after = engine.logits(np.array([[*prompt, *made]], np.int32), len(prompt))[0]
            sampler = Sampler(Sampling(0.5), (3, 2 * turn, 0), prompt)
            assert tuple(sampler.choose(row) for row in after[:-1]) == made


@TWO_CPUS
def test_replies_end_by_tokens_stops_and_the_context(checkpoint: Path, letters: Text) -> None:
    with Engine.load(kept(), checkpoint, Machine.this()) as engine:
        [(_, free)] = conversation(engine, letters, ["hey"], output_tokens=12)
        assert free is not None
        [(_, ended)] = conversation(engine, letters, ["hey"], ends=(free.tokens[4],))
        first = free.tokens.index(free.tokens[4])
        assert ended is not None and ended.tokens == free.tokens[: first + 1] and ended.ending == "done"
        stop = free.text[2:4]
        [(shown, stopped)] = conversation(engine, letters, ["hey"], stops=(stop,), output_tokens=12)
        assert (
            stopped is not None
            and stopped.text == shown == free.text[: free.text.index(stop)]
            and stopped.ending == "done"
        )
        [(_, full)] = conversation(engine, letters, ["x" * 150], output_tokens=99)
        assert full is not None and full.ending == "context" and len(full.tokens) == 160 - 152
        assert [reply for _, reply in conversation(engine, letters, ["x" * 158])] == [None]
