"""The table of an engine's constants, as the package keeps it: by backend, kind, class and device."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import exp, hypot, sqrt
from typing import Any

import numpy as np

from benchmarks.engine_rows.devices import RowDevice
from benchmarks.engine_rows.hierarchy import Array, Fitted, Hierarchy
from benchmarks.engine_rows.offload import (
    LATENT,
    LATENT_SOURCE,
    HostRow,
    host_cache_effects,
    host_overhead_effects,
    host_prompt_effects,
    host_share_effects,
    host_unpacking_effects,
    product_terms,
    weights_terms,
)
from benchmarks.engine_rows.rows import ERAS, EngineRow
from benchmarks.engine_rows.terms import (
    Effect,
    Question,
    Term,
    attending_effects,
    cache_effects,
    decode_question_on,
    expanding_effects,
    overhead_effects,
    power_effects,
    prompt_effects,
    prompt_question_on,
    share_effects,
    size_effects,
)
from helmsman.hwdb.engine_classes import HALF_ENERGY
from helmsman.hwdb.engine_constants import FAMILIES, UNPACKINGS, Family, Unpacking, unpacked_values, unpacking_of
from helmsman.planner.strategies.engines.calibration import HOST_DOUBT
from helmsman.schemas.formats import StoredFormat

_TYPICAL = {"model": "Meta-Llama-3-8B", "quant": "Q4_K_M", "prompt": 512, "output": 128, "depth": 0}
"""The work whose prediction's spread stands for that of all."""

_PROMPT_FAMILIES = ("16", "4")
_HOST_FLASH: dict[str, dict[str, float]] = {"false": {}, "true": {"cache": 0.57}}
"""What rows of processors do not say: how attention in one operation, and in steps, differ. Measured with llama.cpp of
llama-cpp-python 0.3.36, Qwen3-0.6B in q4_0. Steps after 1,024 tokens took 1.24 and 1.40 times as long in one operation,
after 4,096 3.1 and 3.2 times (AMD EPYC, Zen 3, AVX2, one thread, others working), and 1.96 times on a Zen 4 with
AVX-512; a factor of two is that of heads which share keys, so 1.2 to 2.6 times a token, whose mean is kept. Prompts did
not differ beyond noise with one thread (512 tokens: 0.91 and 1.12, 1,536: 1.10); two disturbed threads took 0.61 to
0.92 of the time for 1,024."""

_ANOTHER = "another"


def node_devices(questions: Iterable[Question]) -> dict[str, RowDevice]:
    """Return by node a device that stands for it: one of which nothing else is known."""
    nodes: dict[str, RowDevice] = {}
    for question in questions:
        device = question.device
        own, group, kind, backend = device.nodes
        nodes[own] = device
        nodes[group] = replace(device, nodes=(f"{group}/{_ANOTHER}", group, kind, backend))
        nodes[kind] = replace(device, nodes=(f"{kind}/{_ANOTHER}/{_ANOTHER}", f"{kind}/{_ANOTHER}", kind, backend))
        far = f"{backend}/{_ANOTHER}"
        nodes[backend] = replace(device, matrices=True, nodes=(f"{far}/x/x", f"{far}/x", far, backend))
    return nodes


def _rows_of_nodes(questions: Sequence[Question]) -> Mapping[str, list[int]]:
    """Return the numbers of the rows that each node's constants come from."""
    rows: dict[str, list[int]] = defaultdict(list)
    for question in questions:
        for name in question.device.nodes:
            rows[name].append(question.row.number)
    return rows


def table_of(decode: Sequence[Question], prompts: Sequence[Question], about: Mapping[str, str]) -> dict[str, Any]:
    """Return the table fitted to the questions of both phases; `about`: its source."""
    devices = node_devices([*decode, *prompts])
    newest = {q.device.backend: q.row.era for q in sorted(decode, key=lambda q: q.row.era)}
    typical = {name: _typical(decode[0].row, device, newest[device.backend]) for name, device in devices.items()}
    step = _Phase(decode, [decode_question_on(typical[name], device) for name, device in devices.items()])
    first = _Phase(prompts, [prompt_question_on(typical[name], device) for name, device in devices.items()])
    rows = _rows_of_nodes(decode)
    nodes = {}
    for at, (name, device) in enumerate(devices.items()):
        row = typical[name]
        flash = replace(row, note="FA")
        node: dict[str, Any] = {
            "overhead": _rounded(step.value(_plain(overhead_effects(row, device)))),
            "prompt_overhead": _rounded(first.value(_plain(overhead_effects(row, device)))),
            "shares": {f: _rounded(step.value(_plain(share_effects(row, device, f)))) for f in FAMILIES},
            "cache": _rounded(step.value(_plain(cache_effects(row, device)))),
            "prompts": {
                f: _rounded(first.value(_plain(prompt_effects(row, device, "16" if f == "16" else "q"))))
                for f in _PROMPT_FAMILIES
            },
            "size": _rounded(first.sum(size_effects(row, device))),
            "attending": _rounded(first.value(_plain(attending_effects(flash, device)))),
            "scores": _rounded(first.value(_plain(attending_effects(row, device)))),
            "expanding": _rounded(first.value(_plain(expanding_effects(row, device)))),
            "joule": _rounded(first.value(_plain(power_effects(row, device)))),
            "spread": {"decode": _rounded(step.spreads[at]), "prompt": _rounded(first.spreads[at])},
            "covariance": {
                "decode": _half(step.covariance(_decode_times(row, device))),
                "prompt": _half(first.covariance(_prompt_times(flash, device, first))),
            },
            "rows": len(rows[name]),
        }
        if name.count("/") >= 2:
            node["of"] = sorted(rows[name])
        nodes[name] = node
    backends = {name: _factors(name, step, first) for name in sorted({q.device.backend for q in decode})}
    return {"engine": "llama.cpp", "source": dict(about), "backends": backends, "nodes": dict(sorted(nodes.items()))}


Times = Sequence[tuple[float, Iterable[Effect], bool]]
"""What a constant takes, as parts: how much of it, effects, and whether they are of a rate."""


def _decode_times(row: EngineRow, device: RowDevice) -> list[Times]:
    """Return the parts of what every constant of a step takes: overhead, weights by family, caches."""
    shares = [[(1.0, list(share_effects(row, device, family)), True)] for family in FAMILIES]
    return [
        [(1.0, list(overhead_effects(row, device)), False)],
        *shares,
        [(1.0, list(cache_effects(row, device)), True)],
    ]


def _prompt_times(row: EngineRow, device: RowDevice, phase: "_Phase") -> list[Times]:
    """Return those of a prompt: overhead, products with plain and with quantised weights, of which each is FLOPs over a
    rate and over what a watt does, attention, and how products change with the model's size."""

    def products(family: str) -> tuple[float, list[Effect], list[Effect]]:
        effects, watts = list(prompt_effects(row, device, family)), list(power_effects(row, device))
        rate = device.flops if family == "16" else device.int8
        by_rate = 1.0 / (rate * phase.value(effects))
        energy = HALF_ENERGY if family == "16" else 1.0
        by_watt = energy / (device.power * phase.value(watts)) if device.power else 0.0
        return by_rate / (by_rate + by_watt), effects, watts

    attending = [(1.0, list(attending_effects(row, device)), True)]
    made: list[Times] = [[(1.0, list(overhead_effects(row, device)), False)]]
    for part, effects, watts in map(products, ("16", "q")):
        made.append([(part, effects, True), (1.0 - part, watts, True)])
    return [*made, attending, [(part, list(size_effects(row, device)), True)]]


def _half(covariance: "Array") -> list[list[float]]:
    """Return the rows of a covariance as far as the diagonal."""
    return [[float(f"{value:.3g}") for value in row[: at + 1]] for at, row in enumerate(covariance)]


def host_part(
    decode: Sequence[Question], prompts: Sequence[Question]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the factors and the nodes of processors, fitted to the questions of both phases, and what attention over
    latent vectors takes on accelerators beside them."""
    devices = node_devices([*decode, *prompts])
    of = HostRow(0, "nobody", "2025", False, 1)
    step = _Phase(decode, [_host_step(device, of) for device in devices.values()])
    first = _Phase(prompts, [_host_first(device, of) for device in devices.values()])
    rows = _rows_of_nodes(decode)
    nodes = {}
    for at, (name, device) in enumerate(devices.items()):
        share = _rounded(step.value(_plain(host_share_effects(device, of))))
        products = {form: _rounded(first.value(_plain(host_prompt_effects(device, form, of)))) for form in UNPACKINGS}
        nodes[name] = {
            "overhead": _rounded(step.value(_plain(host_overhead_effects(device, of)))),
            "prompt_overhead": 0.0,
            "shares": dict.fromkeys(FAMILIES, share),
            "unpacking": {
                form: _rounded(step.value(_plain(host_unpacking_effects(device, form, of)))) for form in UNPACKINGS
            },
            "cache": _rounded(1.0 / step.value(_plain(host_cache_effects(device)))),
            "prompts": {"16": products["16"], "4": products["k"]},
            "products": products,
            "attending": 1.0,
            "spread": {"decode": _rounded(step.spreads[at]), "prompt": _rounded(first.spreads[at])},
            "covariance": {
                "decode": _half(step.covariance(_host_times(device, of, step))),
                "prompt": _half(first.covariance(_host_prompt_times(device, of))),
            },
            "rows": len(rows[name]),
            "of": sorted(rows[name]),
        }
    kept = {name: node for name, node in nodes.items() if node["rows"]}
    same = {"overhead": 1.0, "prompt_overhead": 1.0, "shares": dict.fromkeys(FAMILIES, 1.0)}
    eras = {"2025": {**same, "prompts": dict.fromkeys(_PROMPT_FAMILIES, 1.0)}}
    factors = dict.fromkeys(("overhead", "prompt_overhead", "cache"), 1.0)
    flash = {form: {**factors, **apart} for form, apart in _HOST_FLASH.items()}
    sockets = _rounded(step.factor("share|cpu!2"))
    return {"eras": eras, "flash": flash, "sockets": sockets, "doubt": HOST_DOUBT}, kept, _latent(decode, step)


def _latent(decode: Sequence[Question], step: "_Phase") -> dict[str, Any]:
    """Return by how much attention of one token over latent vectors is slower than that of prompts, how far the next
    source is from that, and the rows; nothing where there are none."""
    rows = [q.row.number for q in decode if any(e.name == LATENT for term in q.terms for e in term.effects)]
    if not rows:
        return {}
    place = step.fitted.names[LATENT]
    spread = hypot(sqrt(step.fitted.covariance[place, place]), LATENT_SOURCE)
    return {"latent": {"times": _rounded(step.factor(LATENT)), "sd": float(f"{spread:.2g}"), "of": sorted(rows)}}


_LIKE: Mapping[Family, StoredFormat] = {"16": "f16", "8": "q8_0", "6": "q6_k", "4": "q4_k", "2": "q2_k"}
"""A format of each family, by which what weights take is divided into reading and unpacking."""


def _host_times(device: RowDevice, of: HostRow, phase: "_Phase") -> list[Times]:
    """Return the parts of what every constant of a step takes on a processor."""

    def weights(fmt: StoredFormat) -> Times:
        share = list(host_share_effects(device, of))
        unpacking = list(host_unpacking_effects(device, unpacking_of(fmt), of))
        read = 1.0 / (device.bandwidth * phase.value(share))
        unpacked = unpacked_values(fmt) / (device.flops * phase.value(unpacking))
        part = read / (read + unpacked)
        return [(part, share, True), (1.0 - part, unpacking, True)]

    cache = [(1.0, list(host_cache_effects(device)), False)]
    overhead = [(1.0, list(host_overhead_effects(device, of)), False)]
    return [overhead, *(weights(_LIKE[family]) for family in FAMILIES), cache]


def _host_prompt_times(device: RowDevice, of: HostRow) -> list[Times]:
    """Return those of a prompt, which has no overhead of its own there, nor a change with a model's size; attention is
    as by class."""
    plain, coded = ([(1.0, list(host_prompt_effects(device, form, of)), True)] for form in _TYPICAL_FORMS)
    return [[], plain, coded, [(1.0, [Effect("attending|cpu", 0.0, 0.5)], False)], []]


_TYPICAL_FORMS: tuple[Unpacking, ...] = ("16", "k")


def _host_step(device: RowDevice, of: HostRow) -> Question:
    """Return the decode step of a model of 8 billion parameters on a processor."""
    overhead = Term(355, False, tuple(host_overhead_effects(device, of)))
    return Question(of, device, (*weights_terms({"q4_k": 4.6e9}, device, of), overhead), 1.0, HOST_DOUBT)


def _host_first(device: RowDevice, of: HostRow) -> Question:
    return Question(of, device, tuple(product_terms({"q4_k": 7e12}, device, of)), 1.0, HOST_DOUBT)


def written(table: Mapping[str, Any]) -> str:
    """Return the table as the package's file has it, a line for every node."""
    head = {key: value for key, value in table.items() if key not in ("nodes", "backends")}
    lines = [json.dumps(head)[:-1] + ","]
    for part in ("backends", "nodes"):
        rows = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in table[part].items()]
        lines.append(f' "{part}": {{\n' + ",\n".join(rows) + "\n }" + ("," if part == "backends" else ""))
    return "\n".join(lines) + "\n}\n"


class _Phase:
    """The fit of a phase, with a row of every node that nothing was measured of."""

    def __init__(self, questions: Sequence[Question], stand_ins: Sequence[Question | None]) -> None:
        known = [q for q in stand_ins if q is not None]
        assert len(known) == len(stand_ins), "the typical row has all that is needed"
        model = Hierarchy([*questions, *known])
        measured = np.arange(len(questions) + len(known)) < len(questions)
        self.fitted: Fitted = model.fit(measured)
        self.spreads = [float(d) for d in model.predict(self.fitted, ~measured)[1]]

    def value(self, effects: Iterable[Effect]) -> float:
        """Return the constant that is the exponential of the sum of effects."""
        return exp(self.sum(effects))

    def sum(self, effects: Iterable[Effect]) -> float:
        """Return the sum of effects, of each the whole."""
        return sum(self._mean(effect) for effect in effects)

    def covariance(self, times: Sequence[Times]) -> "Array":
        """Return the covariance of the logarithms of times; effects that no row has are as uncertain as before."""
        known = self.fitted.names
        unknown = sorted(
            {e.name: e for parts in times for _, effects, _ in parts for e in effects if e.name not in known}.items()
        )
        places = {**known, **{name: len(known) + at for at, (name, _) in enumerate(unknown)}}
        design = np.zeros((len(times), len(places)))
        for at, parts in enumerate(times):
            for weight, effects, rate in parts:
                for effect in effects:
                    design[at, places[effect.name]] += -weight if rate else weight
        of_known = design[:, : len(known)] @ self.fitted.covariance @ design[:, : len(known)].T
        others = np.diag([effect.sd**2 for _, effect in unknown])
        whole: Array = of_known + design[:, len(known) :] @ others @ design[:, len(known) :].T
        return whole

    def factor(self, name: str) -> float:
        """Return what an effect multiplies by; 1 for one that no row has."""
        place = self.fitted.names.get(name)
        return 1.0 if place is None else exp(float(self.fitted.mean[place]))

    def _mean(self, effect: Effect) -> float:
        place = self.fitted.names.get(effect.name)
        return effect.mean if place is None else float(self.fitted.mean[place])


def _plain(effects: Iterable[Effect]) -> list[Effect]:
    """Return effects without those of builds and of attention, which are factors of the backend, and of a session."""
    return [e for e in effects if "@" not in e.name and "!" not in e.name and e.name.count("|") == 1]


def _typical(like: EngineRow, device: RowDevice, era: str) -> EngineRow:
    row = replace(like, backend=device.backend, era=era, prefill=1.0, decode=1.0, source="nobody", **_TYPICAL)
    return replace(row, note="")


def _factors(backend: str, step: _Phase, first: _Phase) -> dict[str, Any]:
    """Return what builds of an era, and attention as a kernel of its own, multiply constants by; eras after the last
    that was measured are like it."""
    eras = {
        era: {
            "overhead": _rounded(step.factor(f"overhead|{backend}@{era}")),
            "prompt_overhead": _rounded(first.factor(f"overhead|{backend}@{era}")),
            "shares": {f: _rounded(step.factor(f"share|{backend}#{f}@{era}")) for f in FAMILIES},
            "prompts": {
                f: _rounded(first.factor(f"prompt|{backend}#{'16' if f == '16' else 'q'}@{era}"))
                for f in _PROMPT_FAMILIES
            },
        }
        for era in ERAS
        if f"overhead|{backend}@{era}" in step.fitted.names
    }
    known = sorted(eras)[-1]
    eras = {**eras, **{era: eras[known] for era in ERAS if era > known}}
    flash = {
        str(on).lower(): {
            "overhead": _rounded(step.factor(f"overhead|{backend}!{on}")),
            "prompt_overhead": _rounded(first.factor(f"overhead|{backend}!{on}")),
            "cache": _rounded(_known(step, f"cache|{backend}!{on}", 2.0 if on else 1.0)),
        }
        for on in (False, True)
    }
    return {"eras": eras, "flash": flash}


def _known(phase: _Phase, name: str, otherwise: float) -> float:
    return phase.factor(name) if name in phase.fitted.names else otherwise


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
