"""`helm-run --chat`: a conversation on standard input and output."""

import argparse
import sys
from typing import TYPE_CHECKING

from helmsman.cli.output import say
from helmsman.schemas.errors import BadInputError, UsageError

if TYPE_CHECKING:
    from helmsman.executor.chat import Chat, ChatReply, ReplyOptions
    from helmsman.executor.text.template_process import Renderer
    from helmsman.executor.text.tokenizer import Text
    from helmsman.schemas.plan import Plan


def check_chat(args: argparse.Namespace, plan: "Plan") -> None:
    """Refuse what makes no sense in a conversation. Raises UsageError."""
    if sys.stdin is None:
        raise UsageError("standard input is closed", field="--chat", remedy="leave it open, or give --text")
    for option, given in (
        ("--json", args.json),
        ("--out", args.out),
        ("--trace", args.trace),
        ("--runs", args.runs > 1),
    ):
        if given:
            raise UsageError("does not go with --chat", field=option, remedy="leave it out")
    sequences = plan.workload.batch * plan.workload.batches
    if sequences > 1:
        message = "a conversation is one sequence"
        raise UsageError(message, field="--chat", value=sequences, remedy="plan with --batch 1 --batches 1")


def speaking(args: argparse.Namespace, plan: "Plan") -> "ReplyOptions":
    """How replies are made. Raises UsageError for sampling that makes no sense."""
    from helmsman.cli.sampling import sampling_of
    from helmsman.executor.chat import ReplyOptions
    from helmsman.hwdb.load_model import load_model

    ends = {*plan.model.eos, *load_model(str(args.checkpoint)).eos}
    most = args.output_tokens or plan.workload.context
    return ReplyOptions(sampling_of(args), args.seed, most, tuple(args.stop), tuple(sorted(ends)))


def template_of(args: argparse.Namespace, text: "Text | None") -> "Renderer":
    """Return the checkpoint's chat template, to be closed. Raises BadInputError where there is no tokenizer."""
    from helmsman.executor.text.chat_template import open_template
    from helmsman.executor.text.template_process import Renderer

    if text is None:
        remedy = "use a checkpoint that has one"
        raise BadInputError("there is no tokenizer", file=str(args.checkpoint), remedy=remedy)
    template = open_template(args.checkpoint)
    if not template.own:
        print("helm-run: warning: the checkpoint has no chat template; a plain one is used", file=sys.stderr)
    return Renderer(template)


def converse(args: argparse.Namespace, chat: "Chat") -> None:
    """Read a line, answer it, until there are no more lines, the context is full or Ctrl-C."""
    try:
        while (line := _line()) is not None:
            if line and not _answer(args, chat.reply(line, lambda text: say(text, end="")), chat):
                return
    except KeyboardInterrupt:
        pass
    if sys.stdin.isatty():
        say("")


def _line() -> str | None:
    """Return the next line without what ends it; None at the end of the input."""
    if sys.stdin.isatty():
        say("> ", end="")
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError as error:
        raise BadInputError(f"not text: {error}", file="standard input", remedy="write UTF-8") from None
    return line.rstrip("\n") if line else None


def _answer(args: argparse.Namespace, reply: "ChatReply | None", chat: "Chat") -> bool:
    """Whether the conversation may go on after `reply`, which is on the screen already."""
    if reply is not None:
        say("")
        if args.verbose:
            computed = f"{reply.computed} prompt tokens computed, {len(reply.tokens)} made"
            print(f"helm-run: {computed}, {reply.ending}", file=sys.stderr)
    if reply is None or reply.ending == "context":
        remedy = "plan with a longer --context, or start again"
        print(f"helm-run: the context of {chat.context} tokens is full; {remedy}", file=sys.stderr)
        return False
    return True
