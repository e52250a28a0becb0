"""Facts that the product does not compute, and why, in groups."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """Facts with one reason; `facts`: their ids, without one that is computed."""

    reason: str
    facts: tuple[str, ...]


def _ids(paper: str, *numbers: int | range) -> tuple[str, ...]:
    each = (n for number in numbers for n in (number if isinstance(number, range) else (number,)))
    return tuple(f"{paper}-F{n:03}" for n in each)


GROUPS = (
    Group(
        "Speeds of kernels on machines that are not at hand; the product measures its own on the machine where it runs "
        "(`benchmarks.kernels`).",
        (*_ids("HELM", 49, 50, 51, 52, 55), *_ids("PARK", 106, 108), *_ids("APEX", 10, 11, 17)),
    ),
    Group(
        "Printed values that their own text or arithmetic contradicts; the corrected ones are computed (errata "
        "E-HELM-01, 02, 06, 18, 24, 25, E-GUPTA-04, E-APEX-04, 06, 08).",
        (
            *_ids("HELM", 28, 29, 30, 31, 32, 33, 35, 36, 37, 38, 77, 78, 79, 209, 260, 281, 283),
            *_ids("GUPTA", 41, 51, 58, 59, 60, 61, 62, 162),
            *_ids("APEX", 14, 26, 27, 28, 37, 38),
            *_ids("NEO", 16, 32),
        ),
    ),
    Group(
        "Predictions and errors of the paper's own model, whose inputs are not published (E-HELM-12, 29); ours stand "
        "beside the measurements instead.",
        _ids("HELM", 300, 301, 302, 305, 306, 309, 310, 313, 314, 321, 322, 325, 326, 329, 330),
    ),
    Group(
        "What caches that grow by copying cost in software (E-HELM-26), and what other machines than the laptop reach "
        "without HELM's kernel: the framework's rate there is not published; all-GPU plans cannot lose by a kernel of "
        "the CPU (E-HELM-13, 14).",
        _ids("HELM", range(261, 267), 273, 274, range(284, 294), 341),
    ),
    Group(
        "Settings of runs and descriptions of machines and software, without a number that a model could be off by; "
        "records and questions are written with them.",
        (
            *_ids("HELM", range(42, 45), 46, 47, 48, range(80, 83), range(87, 93)),
            *_ids("PARK", range(89, 96), 102, 105, 111, 112, 114),
            *_ids("GUPTA", range(1, 12), range(15, 28), 34, range(38, 41), 56, 57, 68),
            *_ids("APEX", range(1, 8), 16, 30),
            *_ids("NEO", range(1, 5), range(6, 11), 12, 17),
        ),
    ),
    Group("Not reported there (NR).", _ids("HELM", 132, 140, 164)),
    Group(
        "Executed on the machine at hand, not computed: `python -m benchmarks.park_egger --figure table2`, `--figure "
        "numerics`; the balance of storage devices is tested in `tests/e2e/test_stripe.py`.",
        _ids("PARK", *range(96, 102), 107, 113),
    ),
    Group("Workloads that are not at hand.", _ids("APEX", 18, 19)),
)
