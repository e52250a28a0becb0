"""The planner service under load: `python -m benchmarks.planner_service throughput | hostile | contract | kills`.

throughput: plans a second, cached and fresh, and what the service adds. hostile: every kind of bad client at once, what
`/health` takes meanwhile, and how much memory the service has. contract: schemathesis against its own description
(`pip install schemathesis`). kills: `kill -9` at random moments under a load of jobs; then every job that a client
heard of must be done, once, and every result be whole."""

import argparse
import sys
from pathlib import Path

from benchmarks.machine import print_machine
from helmsman.schemas.errors import HelmError


def main() -> int:
    """Entry point."""
    try:
        _run(_arguments())
    except HelmError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("throughput").add_argument("--seconds", type=float, default=10.0)
    hostile = commands.add_parser("hostile")
    hostile.add_argument("--seconds", type=float, default=60.0)
    hostile.add_argument("--connections", type=int, default=500)
    contract = commands.add_parser("contract")
    contract.add_argument("--cases", type=int, default=20_000)
    contract.add_argument("--seed", type=int, default=1)
    contract.add_argument("--phases", metavar="NAMES", help="of schemathesis (default: examples,coverage,fuzzing)")
    contract.add_argument("--paths", metavar="PATTERN", help="of the operations that are asked (default: all)")
    contract.add_argument("--schemathesis", type=Path, metavar="PROGRAM", help="if it is not installed here")
    kills = commands.add_parser("kills")
    kills.add_argument("--kills", type=int, default=1000)
    kills.add_argument("--seed", type=int, default=1)
    kills.add_argument("--longest", type=float, default=4.0, help="seconds that a server lives")
    return parser.parse_args()


def _run(args: argparse.Namespace) -> None:
    """Measure what is asked for. Raises HelmError."""
    if args.command == "contract":
        from benchmarks.planner_contract import PHASES, check, tool

        tool(args.schemathesis)  # before the machine is measured, which takes a while
        print_machine()
        check(args.cases, args.seed, args.schemathesis, args.phases or PHASES, args.paths)
        return
    print_machine()
    if args.command == "throughput":
        from benchmarks.planner_throughput import measure

        measure(args.seconds)
    elif args.command == "hostile":
        from benchmarks.planner_attacks import attack

        attack(args.seconds, args.connections)
    else:
        from benchmarks.planner_kills import kill

        kill(args.kills, args.seed, args.longest)


if __name__ == "__main__":
    raise SystemExit(main())
