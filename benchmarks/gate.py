"""Does the gate say what happened? `python -m benchmarks.gate`.

Loopback cases of this machine are accepted, and measured again unchanged: a dense model whose weights come over the
link, a mixture of experts, a model that keeps states. Then the first is measured with a link that makes real runs 15 %
slower, and with a wrong constant in the machine's record.

Every step is the command that a user would type. The slow link is throttled in the runs and unknown to the record that
prices them, as a card in a worse slot is. Exit code 4 when a verdict is not the one that was planted, 6 when the
machine was too busy for some of them."""

import argparse
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import print_machine
from helmsman import simulate
from helmsman.schemas.gate_report import GateReport
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest, read_document

FOLDER = Path("demo/gate")
LOOPBACK = "cores=1,vram=512MiB,link=2GB/s,latency=20us"
SLOWDOWN = 1.15
LINK = "h2d"
WRONG = 0.6
"""The share of the link's rate that a wrong record says."""
MISSED, DISTURBED = 4, 6
"""Exit codes of helm-check."""


@dataclass(frozen=True)
class Subject:
    """A case of the suite: a model of the catalogue, with so many of its layers, and the options of its plan."""

    name: str
    model: str
    layers: int
    plan: tuple[str, ...]


STREAMED = Subject("a-streamed", "opt-125m", 12, ("--format", "f16", "--strategy", "weights-on-host"))
"""First of the suite by its name: the case in which changes are planted."""
OTHERS = (
    Subject("b-experts", "OLMoE-1B-7B-0924", 2, ("--format", "q8_0", "--strategy", "expert-split")),
    Subject("c-states", "LFM2-1.2B", 4, ("--format", "q8_0", "--strategy", "layer-split")),
)


@dataclass(frozen=True)
class Planted:
    """A change that is planted (`what`), and the verdict that the gate must give it (`expected`)."""

    what: str
    expected: str


def main() -> int:
    """Run every step and say what each verdict was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--hw", type=Path, help="a record of this machine with a loopback accelerator (default: profile)"
    )
    parser.add_argument("--runs", type=int, default=15, help="processes that measure each time (default 15)")
    args = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    print_machine()
    record = record_of(args.hw)
    case, *_ = (make_case(subject, record, args.runs) for subject in (STREAMED, *OTHERS))
    suite = case.parent
    run("helm-check", "suite", suite, "-q", allowed=(6,))
    run("helm-check", "accept", suite)
    unchanged = measured(suite)
    for other in unchanged.cases[1:]:
        print(f"{other.case}, nothing planted: {other.verdict}: {other.reason}")
    said = [
        (Planted("nothing", "ok"), unchanged),
        (Planted(f"a link that makes runs {SLOWDOWN - 1:.0%} slower", "slower"), with_slow_link(case)),
        (Planted(f"{WRONG:g} of the link's rate in the record", "drift"), with_wrong_record(case)),
        (Planted("nothing, after all that", "ok"), measured(suite)),
    ]
    print("\n".join(line(planted, report) for planted, report in said))
    verdicts = [(planted.expected, report.cases[0].verdict) for planted, report in said]
    return exit_code([*verdicts, *(("ok", other.verdict) for other in unchanged.cases[1:])])


def exit_code(verdicts: list[tuple[str, str]]) -> int:
    """Return what (expected, given) verdicts mean: `undecided` is no answer, another one than planted a wrong one."""
    if any(given not in (expected, "undecided") for expected, given in verdicts):
        return MISSED
    return DISTURBED if any(given == "undecided" for _, given in verdicts) else 0


def record_of(given: Path | None) -> Path:
    """Return a record of this machine with a loopback accelerator."""
    if given is not None:
        return given
    record = FOLDER / "record.json"
    run("helm-profile", "--loopback", LOOPBACK, "-o", record, "-q")
    return record


def make_case(subject: Subject, record: Path, runs: int) -> Path:
    """Make a checkpoint, a plan and the case."""
    case = FOLDER / "suite" / subject.name
    case.mkdir(parents=True)
    shutil.copy(record, case / "record.json")
    checkpoint = (FOLDER / f"checkpoint-{subject.name}").absolute()
    run("helm-make-checkpoint", "--model", subject.model, "--layers", subject.layers, "--seed", 1, "-o", checkpoint)
    shape = ("--prompt-tokens", 16, "--output-tokens", 8, *subject.plan)
    run("helm-plan", "--model", checkpoint, "--hw", case / "record.json", *shape, "-o", case / "plan.json", "-q")
    measure = {"by": "run", "checkpoint": str(checkpoint), "repeats": 2}
    content = {"schema": "helm.gate-case/1", "plan": "plan.json", "hardware": "record.json", "measure": measure}
    (case / "case.json").write_text(json.dumps(content | {"runs": runs}, indent=1))
    return case


def with_slow_link(case: Path) -> GateReport:
    """Measure with a plan whose link is throttled until a replayed request takes `SLOWDOWN` times as long."""
    path = case / "plan.json"
    text, plan = path.read_text(), read_document(Plan, path)
    wanted = SLOWDOWN * simulate(plan).e2e_s
    low, high = 0.3, 1.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if simulate(with_link(plan, middle)).e2e_s < wanted else (middle, high)
    print(f"link at {low:.3f} of its rate", flush=True)
    path.write_text(with_link(plan, low).to_json())
    report = measured(case.parent)
    path.write_text(text)
    return report


def with_wrong_record(case: Path) -> GateReport:
    """Measure with a record in which the link has another rate than the machine."""
    path = case / "record.json"
    text, record = path.read_text(), read_document(Hardware, path)
    path.write_text(slower_link(record, WRONG).to_json())
    report = measured(case.parent)
    path.write_text(text)
    return report


def with_link(plan: Plan, share: float) -> Plan:
    """Return the plan for a machine whose link has a share of its rate."""
    hardware = slower_link(plan.hardware, share)
    return plan.model_copy(update={"hardware": hardware, "hardware_sha256": digest(hardware)})


def slower_link(record: Hardware, share: float) -> Hardware:
    """Return the record with a share of the link's rate."""

    def changed(link):
        figure = link.bandwidth
        ends = {name: getattr(figure, name) * share for name in ("value", "p10", "p90")}
        return link.model_copy(update={"bandwidth": figure.model_copy(update=ends)})

    links = tuple(changed(link) if link.name == LINK else link for link in record.links)
    return record.model_copy(update={"links": links})


def measured(suite: Path) -> GateReport:
    """Run the suite and return its report; its histories get nothing, so that each step meets the same baseline."""
    document = FOLDER / "report.json"
    run("helm-check", "suite", suite, "-o", document, "--no-record", allowed=(0, 4, 6))
    return read_document(GateReport, document)


def line(planted: Planted, report: GateReport) -> str:
    """Say what was planted and what the gate said."""
    case = report.cases[0]
    word = "as planted" if case.verdict == planted.expected else "no answer" if case.verdict == "undecided" else "WRONG"
    return f"{planted.what}: {case.verdict} ({word}): {case.reason}"


def run(*command: object, allowed: tuple[int, ...] = (0,)) -> None:
    """Print and run one command of this environment; exits with its code if that is not allowed."""
    words = [str(word) for word in command]
    print(f"\n$ {' '.join(words)}", flush=True)
    code = subprocess.run([str(Path(sys.executable).with_name(words[0])), *words[1:]], check=False).returncode
    if code not in allowed:
        sys.exit(code or 1)


if __name__ == "__main__":
    sys.exit(main())
