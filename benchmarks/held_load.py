"""A thousand connections held at once: what the service answers, how fast `/health` is, and what is left behind.

`python -m benchmarks.held_load` serves a virtual engine from a process of its own, on loopback, while a crowd of
clients asks it over and over and `/health` is asked a hundred times a second. It prints what came of all, and what the
server had of memory, files and tasks when it was quiet before and afterwards."""

import argparse
import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.crowd import Crowd, Kinds, Tally
from benchmarks.machine import print_machine
from benchmarks.virtual_engine import VirtualEngine
from helmsman.service.http.bodies import BodyLimits
from helmsman.service.http.listening import listen
from helmsman.service.inference.admission import Bounds
from helmsman.service.inference.generation import EngineCapacity
from helmsman.service.inference.jobs import ServedModel
from helmsman.service.inference.server import serve
from helmsman.service.inference.service import Options

OPTIONS = Options(Bounds(requests=2000, tokens=10**7), BodyLimits(seconds=2.0), stall_s=2.0, idle_s=2.0, grace_s=5.0)
_QUIET_S = 5.0
"""After so long nothing of a crowd is left: longer than any limit above."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Of a process: seconds of CPU so far, resident bytes, open files, tasks of its loop, objects of Python."""

    cpu_s: float
    rss: int
    files: int
    tasks: int
    objects: int


def _serve(sequences: int, step_s: float) -> None:
    """In the server's process: prints its address, and at every SIGUSR1 its tasks and objects."""
    capacity = EngineCapacity(context=8192, homes={"gpu": 10**7}, block=16, sequences=sequences)
    engine, listener = VirtualEngine(capacity, step_s), listen("127.0.0.1", 0)

    def ready(url: str) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _tell)
        print(url, flush=True)

    asyncio.run(serve(listener, engine, ServedModel("virtual", 256), OPTIONS, ready))
    engine.close()


def _tell() -> None:
    gc.collect()
    print(json.dumps([len(asyncio.all_tasks()), len(gc.get_objects())]), flush=True)


def _probe(port: int, seconds: float) -> None:
    """In a process of its own, that no client delays: prints how many seconds each `/health` took."""
    found, end = [], time.monotonic() + seconds
    while (begin := time.monotonic()) < end:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b" 200 " in connection.recv(4096)
        found.append(time.monotonic() - begin)
        time.sleep(max(0.0, 0.01 - found[-1]))
    print(json.dumps(found))


class Server:
    """The server's process."""

    def __init__(self, sequences: int, step_s: float) -> None:
        command = [sys.executable, "-m", "benchmarks.held_load", "--serve", f"{sequences},{step_s}"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(self._line().rpartition(":")[2])

    def footprint(self) -> Footprint:
        """What it has now."""
        self._process.send_signal(signal.SIGUSR1)
        tasks, objects = json.loads(self._line())
        place = Path(f"/proc/{self._process.pid}")
        pages = int((place / "statm").read_text().split()[1])
        ticks = (place / "stat").read_text().rpartition(")")[2].split()[11:13]
        cpu_s = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        return Footprint(cpu_s, pages * os.sysconf("SC_PAGE_SIZE"), len(list((place / "fd").iterdir())), tasks, objects)

    def stop(self) -> int:
        """Its exit status after SIGTERM."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=60)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


async def held(port: int, seconds: float, kinds: Kinds, seed: int) -> tuple[Tally, list[float]]:
    """What clients met, and the seconds that `/health` took, in order."""
    command = [sys.executable, "-m", "benchmarks.held_load", "--probe", f"{port},{seconds}"]
    probe = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    tally = await Crowd(port, asyncio.get_running_loop().time() + seconds, seed, kinds).hold()
    answer, _ = await probe.communicate()
    await asyncio.sleep(_QUIET_S)
    return tally, sorted(json.loads(answer))


def quantile(ascending: list[float], share: float) -> float:
    """The value that `share` of them do not exceed."""
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--engine", default="64,0.02", metavar="SEQUENCES,STEP", help="that run, seconds of an iteration"
    )
    parser.add_argument("--serve", metavar="SEQUENCES,STEP", help=argparse.SUPPRESS)
    parser.add_argument("--probe", metavar="PORT,SECONDS", help=argparse.SUPPRESS)
    args = parser.parse_args()
    one, other = (args.serve or args.probe or args.engine).split(",")
    if args.serve:
        _serve(int(one), float(other))
    elif args.probe:
        _probe(int(one), float(other))
    else:
        print_machine()
        server = Server(int(one), float(other))
        try:
            _measure(server, args.rounds, args.seconds)
        finally:
            print("exit status", server.stop())


def _measure(server: Server, rounds: int, seconds: float) -> None:
    print(server.footprint())
    for seed in range(rounds):
        tally, health = asyncio.run(held(server.port, seconds, Kinds(), seed))
        p50, p99, most = (1e3 * quantile(health, share) for share in (0.5, 0.99, 1.0))
        print(
            f"{tally.open_most} connections at once; /health {len(health)} times, "
            f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {most:.1f} ms"
        )
        print(dict(sorted(tally.met.items())))
        print(server.footprint())


if __name__ == "__main__":
    main()
