"""helm-serve in a process of its own, and requests replayed against it."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT

from helmsman.schemas.requests import Requests
from helmsman.service.inference.load.prompts import id_prompts
from helmsman.service.inference.load.replay import ReplayResult, replay
from helmsman.service.inference.load.request_form import RequestForm
from helmsman.service.inference.load.server_counters import notes_between, read_counters


@dataclass(frozen=True, slots=True)
class Load:
    """What was observed; `server_s`, `client_s`: seconds of CPU of both processes meanwhile, `seconds` of the clock;
    `notes`: what others took of the processors, and what passes took beside their price."""

    replayed: ReplayResult
    seconds: float
    server_s: float
    client_s: float
    notes: dict[str, float]


@dataclass(frozen=True, slots=True)
class Server:
    """A helm-serve that listens."""

    url: str
    pid: int

    def load(self, requests: Requests, seed: int) -> Load:
        """Replay `requests`."""
        before = asyncio.run(read_counters(self.url))
        begin, mine, theirs = time.monotonic(), time.process_time(), _cpu_s(self.pid)
        replayed = asyncio.run(replay(self.url, RequestForm(requests, id_prompts(requests, seed))))
        used = time.monotonic() - begin, _cpu_s(self.pid) - theirs, time.process_time() - mine
        return Load(replayed, *used, notes_between(before, asyncio.run(read_counters(self.url))))


@contextmanager
def serving(plan: Path, checkpoint: Path, options: Sequence[str]) -> Iterator[Server]:
    """The plan served with options of helm-serve, until the block ends."""
    program = [sys.executable, "-c", "import sys; from helmsman.cli.serve import main; sys.exit(main())"]
    words = [str(plan), "--checkpoint", str(checkpoint), "--port", "0", "--json", *options]
    process = subprocess.Popen([*program, *words], stdout=subprocess.PIPE, text=True)
    try:
        yield Server(json.loads(_document(process))["url"], process.pid)
    finally:
        process.send_signal(SIGINT)
        process.wait(timeout=60)


def _document(process: "subprocess.Popen[str]") -> str:
    """What it says when it listens."""
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line.rstrip() == "}":
            return text
    raise SystemExit("helm-serve ended before it listened")


def _cpu_s(pid: int) -> float:
    """Seconds of CPU of a process so far, all threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
