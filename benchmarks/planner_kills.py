"""`kill -9` at random moments under a load of jobs: none may be lost or completed twice, and no file torn.

Most servers are copies of a process that has the service loaded, which are there at once; the others are new processes,
so that moments of their longer start are among those of the kills. The life of most counts from when they listen."""

import asyncio
import contextlib
import hashlib
import json
import os
import random
import sqlite3
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.planner_clients import Client, WebServer
from benchmarks.planner_copies import CopiedServer, load
from helmsman.service.planner.computing.answer import JSON

_QUESTION = {"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "layer-split"}
_CLIENTS = 6
_STUDIES = 0.9
"""The share of studies among jobs: each takes a tenth of a second, a simulation one, more than most servers live."""
_NEW, _EARLY = 0.05, 0.25
"""The shares of servers that are new processes, and of those whose life counts from their start on."""


@dataclass
class Ledger:
    """Holds what the service said: jobs that were taken in, by place, and jobs that are done, with the
    digests of their results."""

    taken: list[str] = field(default_factory=list)
    done: dict[str, str] = field(default_factory=dict)
    met: Counter[str] = field(default_factory=Counter)


def _job(number: int, chance: random.Random) -> tuple[str, dict[str, Any]]:
    """Return a job that no other number has, of a random kind."""
    if chance.random() < _STUDIES:
        study = {"models": ["Qwen3-0.6B"], "machines": ["rtx4060-laptop"], "strategies": ["layer-split"]}
        return "/v1/studies", {**study, "sensitivity": 0, "prompt_tokens": [16 + number, 17 + number], "name": "study"}
    serving = {"requests": f"synthetic:n={chance.choice((20, 500))},input=64,output=16,rate=2", "seed": number}
    return "/v1/simulations", {"question": _QUESTION, "serving": serving}


async def _load(port: int, ledger: Ledger, chance: random.Random) -> None:
    """Take in jobs and look at some, until the server is gone."""
    client = Client(port)
    try:
        while True:
            path, content = _job(len(ledger.taken) + chance.randrange(10**6), chance)
            reply = await client.ask("POST", path, content)
            ledger.met[f"{path} {reply.status}"] += 1
            if reply.status == 202:
                ledger.taken.append(reply.headers["location"])
            if ledger.taken:
                await _look(client, chance.choice(ledger.taken), ledger)
            await asyncio.sleep(chance.random() * 0.2)
    except (OSError, EOFError, asyncio.IncompleteReadError):
        client.close()


async def _look(client: Client, place: str, ledger: Ledger) -> None:
    reply = await client.ask("GET", f"{place}/result")
    if reply.status == 200:
        digest = hashlib.sha256(reply.body).hexdigest()
        assert ledger.done.setdefault(place, digest) == digest, f"{place} has another result"
    else:
        assert place not in ledger.done, f"{place} was done, and is not any more: {reply}"


def _killed(server: WebServer, ledger: Ledger, chance: random.Random, after: float) -> tuple[str, list[int]]:
    """Let a server live for some seconds more; returns when it was killed, and its processes."""

    async def live() -> str:
        begin = time.monotonic()
        try:
            async with asyncio.timeout(after):
                if not server.port:
                    await asyncio.to_thread(_waited, server, begin + after)
                if server.port:
                    await asyncio.gather(*(_load(server.port, ledger, chance) for _ in range(_CLIENTS)))
        except TimeoutError:
            pass
        return "serving" if server.port else "starting"

    try:
        when = asyncio.run(live())
    finally:
        tree = server.tree()
        server.kill()
    return when, tree


def _waited(server: WebServer, until: float) -> None:
    """Wait until a server listens, or a moment."""
    import selectors

    with selectors.DefaultSelector() as selector:
        selector.register(server.process.stdout, selectors.EVENT_READ)
        if selector.select(max(0.0, until - time.monotonic())):
            server.wait()


def _outlived(tree: list[int]) -> list[int]:
    """Return processes of a killed server that are still there long after."""
    end = time.monotonic() + 20.0
    while left := [pid for pid in tree if _runs(pid)]:
        if time.monotonic() > end:
            return left
        time.sleep(0.01)
    return []


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _server(store: Path, chance: random.Random, longest_s: float) -> tuple[str, WebServer, float]:
    """Start a server; returns what kind it is, and the seconds that it is to live: a copy mostly few of `longest_s`, a
    new process, which takes seconds to start, up to twice as many."""
    words = ("-q", "--client-jobs", "200")
    if chance.random() < _NEW:
        return "new", WebServer(store, *words), 2 * longest_s * chance.random()
    server = CopiedServer(store, *words)
    return "copied", server if chance.random() < _EARLY else server.wait(), longest_s * chance.random() ** 3


def kill(kills: int, seed: int, longest_s: float) -> None:
    """Kill servers that live for up to `longest_s` seconds, then see what is left. Raises SystemExit where something is
    wrong."""
    load()
    chance, ledger, whens = random.Random(seed), Ledger(), Counter[str]()
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="helm-kills-") as folder:
        store = Path(folder) / "store"
        os.environ["TMPDIR"] = tempfile.tempdir = folder  # killed servers leave their sockets there
        for number in range(kills):
            kind, server, life = _server(store, chance, longest_s)
            when, tree = _killed(server, ledger, chance, life)
            whens[f"{kind}, {when}"] += 1
            if left := _outlived(tree):
                faults.append(f"kill {number}: processes {left} outlive the server")
            if number % 50 == 49:
                print(f"{number + 1} kills {dict(whens)}, {len(ledger.taken)} jobs, {dict(ledger.met)}", flush=True)
        begin = time.monotonic()
        server = WebServer(store, "-q").wait()
        try:
            asyncio.run(_finished(server.port, ledger, faults))
            print(f"{len(ledger.taken)} jobs taken in, done {time.monotonic() - begin:.0f} s after the last start")
        finally:
            server.stop()
        faults += _wrong(store, ledger)
    print(f"kills: {dict(whens)}; answers: {dict(ledger.met)}")
    if faults:
        raise SystemExit("\n".join(faults))
    print("no job was lost or completed twice, no file was torn, no process outlived its server")


async def _finished(port: int, ledger: Ledger, faults: list[str]) -> None:
    """See every job done."""
    client = Client(port)
    for place in ledger.taken:
        while True:
            job = await client.ask("GET", place)
            if job.status != 200 or job.json()["state"] in ("failed", "cancelled"):
                faults.append(f"{place}: {job.status} {job.body[:300]!r}")
                break
            if job.json()["state"] == "done":
                await _look(client, place, ledger)
                break
            await asyncio.sleep(0.05)
    client.close()


def _wrong(store: Path, ledger: Ledger) -> list[str]:
    """Return what is wrong with a store at rest."""
    faults = []
    with contextlib.closing(sqlite3.connect(store / "jobs.sqlite")) as connection:
        if (told := connection.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
            faults.append(f"jobs.sqlite: {told}")
        rows = connection.execute("SELECT id, state, completions, attempts, results FROM jobs").fetchall()
    known = {f"/v1/jobs/{row[0]}" for row in rows}
    faults += [f"{place} is not in the store" for place in ledger.taken if place not in known]
    faults += [f"{row[0]}: {row[1]}, completed {row[2]} times" for row in rows if row[2] != 1 or row[1] != "done"]
    needed = {digest: media for row in rows for media, digest in json.loads(row[4]).items()}
    faults += _wrong_files(store, needed)
    attempts = Counter(row[3] for row in rows)
    print(f"attempts of jobs: {dict(sorted(attempts.items()))}; {len(rows)} in the store, {len(needed)} results")
    return faults


def _wrong_files(store: Path, needed: dict[str, str]) -> list[str]:
    """Return what is wrong with the files of a store at rest. `needed`: media types of results by digest."""
    files = {path.name: path for path in (store / "results").iterdir()}
    faults = [f"{name} is the result of a job, and not there" for name in needed.keys() - files.keys()]
    for name, path in files.items():
        if name not in needed:
            faults.append(f"{name} belongs to no job")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != name or not _reads(path, needed[name]):
            faults.append(f"{name} is torn")
    faults += [f"{path.name} is left of a job" for path in (store / "work").iterdir()]
    known = {"lock", "jobs.sqlite", "answers.sqlite", "results", "work"}
    faults += [f"{path.name} is left of a server" for path in store.iterdir() if path.name not in known]
    with contextlib.closing(sqlite3.connect(store / "answers.sqlite")) as connection:
        if (told := connection.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
            faults.append(f"answers.sqlite: {told}")
    return faults


def _reads(path: Path, media: str) -> bool:
    """Return whether a result is a whole document, or a whole table."""
    import pyarrow.parquet as pq  # after the last copy of this process: it has threads

    try:
        if media == JSON:
            json.loads(path.read_bytes())
        else:
            pq.read_table(path)
    except (ValueError, OSError):
        return False
    return True
