"""A server under attack: what honest clients get beside every attack at once, and beside as much plain work.

`python -m benchmarks.attacks RECORD` makes a small model with a chat template that never ends, serves it with
helm-serve as is best on that machine (this one, as helm-profile measured it), and streams from it again and again. In
turns, attackers of every kind join (benchmarks.crowd), or plain loops that use as much of the processor as the attack
did: that of the attackers' process, of the server's own processes for templates and for large requests, and what its
event loop took more.
Printed are the seconds between two tokens of a stream, and of `/health`, which is asked a hundred times a second; last,
in how many seconds the server ends when it is told to while it is attacked."""

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.crowd import Crowd, Kinds
from benchmarks.held_load import quantile
from benchmarks.machine import print_machine

ATTACK = Kinds(streaming=0, whole=0, stalling=16, leaving=16, large=8, garbage=16, silent=16,
               slow=64, doubled=4, deep=4, tokens=4, texts=4, talking=4, crossing=8)  # fmt: skip
ENDLESS = "{% for a in range(9999) %}" * 4 + "{% endfor %}" * 4
"""A chat template."""
CONFIG = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 256, "num_hidden_layers": 4,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 768,
          "vocab_size": 2048, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 1e4,
          "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16"}  # fmt: skip
"""Of a model small enough that the event loop is as busy as the engine."""
PROMPT, ANSWER = 16, 64
"""Tokens of an honest request."""
_PERIOD_S = 0.01
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Round:
    """Of one stretch of time: seconds between tokens and of `/health`, ascending; seconds of processor time that the
    event loop, and those who are no honest clients, took; how many tokens came; what attackers met."""

    gaps: list[float]
    health: list[float]
    loop_s: float
    others_s: float
    met: dict[str, int]

    def __str__(self) -> str:
        gaps = ", ".join(f"p{100 * share:g} {1e3 * quantile(self.gaps, share):.1f}" for share in (0.5, 0.99))
        health = ", ".join(f"p{100 * share:g} {1e3 * quantile(self.health, share):.1f}" for share in (0.5, 0.99, 1.0))
        return f"{len(self.gaps)} tokens, ms between two: {gaps}; /health ms: {health}"


class Server:
    """helm-serve in a process of its own."""

    def __init__(self, plan: Path, checkpoint: Path, streams: int, log: Path) -> None:
        serve = Path(sys.executable).with_name("helm-serve")
        command = [serve, str(plan), "--checkpoint", str(checkpoint), "--port", "0", "--sequences", str(streams + 32)]
        command += ["--grace", "5s"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log.open("w"), text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "http://" in line:
                self.port = int(line.partition("http://127.0.0.1:")[2].partition(",")[0])
                return
        raise SystemExit(f"helm-serve ended: {log.read_text()}")

    def loop_s(self) -> float:
        """Processor time of the thread of its event loop."""
        return _seconds(Path(f"/proc/{self._process.pid}/task/{self._process.pid}/stat"))

    def apart_s(self) -> float:
        """Processor time of its children, those that ended included."""
        place, now = Path(f"/proc/{self._process.pid}"), 0.0
        for thread in (place / "task").iterdir():
            with suppress(OSError):  # of threads and children that end meanwhile
                now += sum(_seconds(Path(f"/proc/{child}/stat")) for child in (thread / "children").read_text().split())
        return _seconds(place / "stat", first=13) + now

    def stop(self) -> tuple[float, int]:
        """(seconds until it ended, exit status) after SIGTERM."""
        begin = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        return time.monotonic() - begin, status


def _seconds(stat: Path, first: int = 11) -> float:
    """Of a process or thread, user and system time: fields `first` and the next after its name."""
    fields = stat.read_text().rpartition(")")[2].split()
    return sum(map(int, fields[first : first + 2])) / _TICK


class Streams:
    """Honest clients, each of which asks again when it has all."""

    def __init__(self, port: int, count: int) -> None:
        self._port, self._random = port, random.Random(0)
        self.gaps: list[float] = []
        self.failed = 0
        self._clients = [asyncio.create_task(self._again()) for _ in range(count)]

    async def end(self) -> None:
        """Leave."""
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _again(self) -> None:
        await asyncio.sleep(self._random.random())
        while True:
            try:
                await self._stream()
            except (OSError, asyncio.IncompleteReadError):
                self.failed += 1
                await asyncio.sleep(0.1)

    async def _stream(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            prompt = [self._random.randrange(200) for _ in range(PROMPT)]
            request = {"prompt": prompt, "max_tokens": ANSWER, "stream": True, "ignore_eos": True}
            body = json.dumps(request).encode()
            head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            if b" 200 " not in await reader.readline():
                self.failed += 1
                await asyncio.sleep(0.1)
                return
            last = None
            while line := await reader.readline():
                if line.startswith(b"data: {"):
                    now = time.monotonic()
                    if last is not None:
                        self.gaps.append(now - last)
                    last = now
        finally:
            writer.close()


def _burn(share: float, seconds: float) -> None:
    """Use `share` of a core."""
    end = time.monotonic() + seconds
    while (begin := time.monotonic()) < end:
        while time.monotonic() - begin < share * _PERIOD_S:
            pass
        time.sleep((1 - share) * _PERIOD_S)


def _attack(port: int, seconds: float, seed: int) -> None:
    async def hold() -> dict[str, int]:
        tally = await Crowd(port, asyncio.get_running_loop().time() + seconds, seed, ATTACK).hold()
        return dict(sorted(tally.met.items()))

    print(json.dumps(asyncio.run(hold())))


async def _measured(server: Server, streams: Streams, seconds: float, beside: Sequence[str]) -> Round:
    """A round with processes `beside` (their arguments), which end by themselves."""
    this = [sys.executable, "-m"]
    probe = await asyncio.create_subprocess_exec(
        *this, "benchmarks.held_load", "--probe", f"{server.port},{seconds}", stdout=subprocess.PIPE
    )
    loop_s, apart_s, begin = server.loop_s(), server.apart_s(), len(streams.gaps)
    others = [
        await asyncio.create_subprocess_exec(*this, "benchmarks.attacks", *each.split(), stdout=subprocess.PIPE)
        for each in beside
    ]
    await asyncio.sleep(seconds)
    gaps, loop_s = sorted(streams.gaps[begin:]), server.loop_s() - loop_s
    others_s = server.apart_s() - apart_s
    others_s += sum(_seconds(Path(f"/proc/{each.pid}/stat")) for each in others if each.returncode is None)
    answers = [(await each.communicate())[0] for each in others]
    health = sorted(json.loads((await probe.communicate())[0]))
    met = json.loads(answers[0]) if answers and answers[0] else {}
    return Round(gaps, health, loop_s, others_s, met)


async def measure(server: Server, streams_count: int, seconds: float, rounds: int) -> tuple[list[Round], list[Round]]:
    """(rounds beside plain work, rounds beside attacks). Of a pair the attack comes first: it says how much work."""
    streams = Streams(server.port, streams_count)
    await asyncio.sleep(5)
    calm = await _measured(server, streams, seconds, [])
    print(f"nothing beside: {calm}", flush=True)
    plain, attacked = list[Round](), list[Round]()
    for seed in range(rounds):
        attack = await _measured(server, streams, seconds, [f"--attack {server.port},{seconds + 1},{seed}"])
        attacked.append(attack)
        cores = (attack.others_s + max(0.0, attack.loop_s - calm.loop_s)) / seconds
        print(f"attacked, by {cores:.2f} cores of work: {attack}\n  {attack.met}", flush=True)
        await asyncio.sleep(3)
        burning = [f"--burn {min(1.0, cores - first)},{seconds + 1}" for first in range(int(cores) + 1)]
        plain.append(await _measured(server, streams, seconds, burning))
        print(f"beside as much plain work: {plain[-1]}", flush=True)
    print(f"{streams.failed} honest requests failed")
    await streams.end()
    return plain, attacked


async def stopped(server: Server, streams_count: int) -> tuple[float, int]:
    """As `Server.stop`, while it is attacked."""
    streams = Streams(server.port, streams_count)
    attack = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.attacks", "--attack", f"{server.port},15,99", stdout=subprocess.DEVNULL
    )
    await asyncio.sleep(5)
    ended = await asyncio.to_thread(server.stop)
    await streams.end()
    with suppress(ProcessLookupError):
        attack.terminate()
    await attack.wait()
    return ended


def made(folder: Path, record: Path) -> tuple[Path, Path]:
    """Make a checkpoint of the small model in `folder`, and a plan of it for the machine of `record`: (plan,
    checkpoint)."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    plan, checkpoint = folder / "plan.json", folder / "small"
    options = "--format bf16 --strategy vllm --prompt-tokens 32 --output-tokens 64 --context 256 -q"
    for command in (
        ["helm-make-checkpoint", "--model", folder / "config.json", "-q", "-o", checkpoint],
        ["helm-plan", "--model", checkpoint, "--hw", record, *options.split(), "-o", plan],
    ):
        subprocess.run([Path(sys.executable).with_name(str(command[0])), *command[1:]], check=True)
    (checkpoint / "chat_template.jinja").write_text(ENDLESS)
    return plan, checkpoint


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path, nargs="?", metavar="RECORD")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--attack", metavar="PORT,SECONDS,SEED", help=argparse.SUPPRESS)
    parser.add_argument("--burn", metavar="SHARE,SECONDS", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.attack:
        port, seconds, seed = args.attack.split(",")
        _attack(int(port), float(seconds), int(seed))
    elif args.burn:
        _burn(*map(float, args.burn.split(",")))
    elif args.record is None:
        parser.error("RECORD is needed")
    else:
        print_machine()
        with tempfile.TemporaryDirectory(prefix="helm-attacks-") as folder:
            server = Server(*made(Path(folder), args.record), args.streams, Path(folder) / "log")
            try:
                _print_sums(*asyncio.run(measure(server, args.streams, args.seconds, args.rounds)))
                seconds, status = asyncio.run(stopped(server, args.streams))
            except BaseException:
                server.stop()
                raise
            print(f"SIGTERM while attacked: ended after {seconds:.1f} s with exit status {status}")


def _print_sums(plain: Sequence[Round], attacked: Sequence[Round]) -> None:
    ratios = [quantile(a.gaps, 0.99) / quantile(b.gaps, 0.99) for a, b in zip(attacked, plain, strict=True)]
    health = statistics.median(quantile(each.health, 0.99) for each in attacked)
    print(f"p99 between tokens, attacked by plain work: {', '.join(f'{ratio:.2f}' for ratio in ratios)}; "
          f"median {statistics.median(ratios):.2f} (at most 1.5)")  # fmt: skip
    print(f"/health while attacked: p99 {1e3 * health:.0f} ms, median of the rounds (less than 200)")


if __name__ == "__main__":
    main()
