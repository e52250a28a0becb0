"""The cost model: operation x hardware -> seconds as an interval, with the bound that decides and its source.

A compute task costs max(flops / (P eta_c), bytes / (M eta_m), launch) + overhead (eq 4.10, 4.13 per task;
E-HELM-08: P is measured, not set to M; E-HELM-12: launch is a floor). A transfer costs latency + bytes / B."""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

from helmsman.hwdb.percentiles import OPPOSITE, End, duration_at, rate_at
from helmsman.lowering.graph import PLACE, Task
from helmsman.lowering.nearest_format import ASSUMED
from helmsman.lowering.serving_names import DECODE_ATTENTION, HOST_ATTENTION
from helmsman.planner.cost.assumed_figures import with_assumed, with_joint_share_alone
from helmsman.planner.cost.device_rates import least_seconds
from helmsman.planner.cost.estimate import Bound, Estimate, Rate, longest
from helmsman.planner.cost.expansion import Expansion, expansion, pieces
from helmsman.planner.cost.rooflines import MOST_PRICES, Rooflines, product, rooflines_of, source_kind
from helmsman.planner.cost.table_prices import FIXED, INTERPOLATED, TablePrice, TablePrices
from helmsman.planner.cost.task_amounts import OVERHEAD_ROWS, chunks_of
from helmsman.schemas.figures import Figure, scaled_figure
from helmsman.schemas.hardware import NATIVE_KINDS, Device, Hardware, Link, lane_owner
from helmsman.schemas.plan import Path
from helmsman.schemas.same import Same
from helmsman.timing.handovers import Handovers, without_time_between
from helmsman.timing.interference import Slowed, Slowings, beside, of_arithmetic, slowings
from helmsman.timing.pools import Pools

_MATRICES = ("linear", "experts")
"""Kinds that multiply with weights."""

_NEVER_CAPTURED = ("decompress", "reshape", "scores", "softmax", "wv")


def work_of(task: Task) -> tuple[object, ...]:
    """All that the price of a task depends on: tasks that agree in it do equal work."""
    return (*task[:PLACE], task.layer is None)


@dataclass(frozen=True, slots=True)
class CostOptions:
    """`corrections` off: efficiencies 1, launch and overhead 0 (HELM-42). `l3_blend`: eq 4.14 (E-HELM-27). `capped`
    off: links may be faster than the lanes they share, as the printed projection to CXL has it (E-GUPTA-10). `chunked`
    off: passes over prompts go through in one piece, as served ones do."""

    corrections: bool = True
    l3_blend: bool = False
    capped: bool = True
    chunked: bool = True


@dataclass(frozen=True)
class CostModel:
    """Prices tasks on one machine."""

    hardware: Hardware
    options: CostOptions = CostOptions()
    table: TablePrices | None = None

    def price(self, task: Task) -> Estimate:
        """Seconds of `task` when it has its lane and its memories to itself; equal work is priced once.

        What the operation table holds comes from there, the rest from rooflines."""
        key = work_of(task)
        price = self._priced.get(key)
        if price is None:
            if len(self._priced) >= MOST_PRICES:
                self._priced.clear()
            derived = self._derived(task, key)
            measured = self.table.measured(task) if self.table else None
            price = derived if measured is None else self._tabled(task, measured, derived)
            price = self._priced[key] = price.plus(self.look_up(task)) if task.looks_up else price
        return price

    def look_up(self, task: Task) -> Estimate | None:
        """Return the seconds, behind a router, until it is known which experts are in slots: in every chunk of its
        rows; None where the record has no such figure."""
        figure = self._devices[lane_owner(task.resource)].look_up
        if figure is None or not self.options.corrections:
            return None
        return self._constant(scaled_figure(figure, chunks_of(task)), "overhead")

    def without_table(self) -> "CostModel":
        """Return the prices of the record's rates alone."""
        return self if self.table is None else replace(self, table=None)

    def _derived(self, task: Task, work: Hashable) -> Estimate:
        """Return the seconds by rooflines of a task that does some `work`."""
        if task.kind == "transfer":
            return self._transfer(task)
        chunks = self._chunks_of_experts(task)
        if chunks == 1:
            return self._operation(task, work)
        parts = {name: getattr(task, name) // chunks for name in ("tokens", "activation_bytes", "flops")}
        one = task._replace(**parts)
        return self._operation(one, work_of(one)).times(chunks)

    def _chunks_of_experts(self, task: Task) -> int:
        """Return in how many chunks experts are read and multiplied: by kernels of ours in those of a prompt; engines'
        passes are as long as they take them."""
        if task.kind != "experts" or task.phase != "prefill" or not self.options.chunked:
            return 1
        device = self._devices[lane_owner(task.resource)]
        ours = device.kind in NATIVE_KINDS and device.prompt_overhead is None
        return max(1, chunks_of(task)) if ours else 1

    def slowed(self, end: End = "mid") -> Slowed | None:
        """Return the function that gives, by task, the links and devices whose work slows the task while it is under
        way, and by how much, at `end` of the figures' intervals; a link that the task's price counts already is left
        out. None where the record has no such figure above 0."""
        if end not in self._slowings:
            self._slowings[end] = slowings(self._together, end)
        return self._slowed_by(self._slowings[end])

    def slowed_on(self, machine: Hardware) -> Slowed | None:
        """Return the same function with the slowing figures of `machine`, which has the same devices and links; tasks
        keep the prices of this cost model."""
        return self._slowed_by(slowings(machine))

    def _slowed_by(self, known: Mapping[str, Slowings]) -> Slowed | None:
        if not known:
            return None

        def slowings_of(task: Task) -> Slowings:
            slowing = known.get(lane_owner(task.resource), ())
            if not slowing:
                return ()
            price = self.price(task)
            part = price.compute / price.mid if price.bound == "compute" and price.mid else 0.0
            return beside(of_arithmetic(slowing, part), price.beside)

        return slowings_of

    def between(self, end: End = "mid", launching: End | None = None) -> Handovers:
        """The time between tasks at one end of its interval, that of launches at its end `launching`, by default the
        same; none without corrections."""
        ends = end, launching or end
        if ends not in self._between:
            corrected = self.options.corrections
            hardware = self._together if corrected else without_time_between(self.hardware)
            self._between[ends] = Handovers(hardware, *ends)
        return self._between[ends]

    def pools_at(self, end: End = "mid", alone: bool = False) -> Pools:
        """Return the memories, links and the host's thread that tasks share at one end of their intervals: the more
        several users of a memory reach, the faster a pass. `alone`: no other figure errs, so that of an assumed joint
        rate only its share of the bandwidth does."""
        key = end, alone and end != "mid"
        if key not in self._pools:
            between = self.between(end)
            hardware = with_joint_share_alone(between.hardware) if key[1] else between.hardware
            self._pools[key] = Pools(hardware, partial(rate_at, end=OPPOSITE[end]), between.thread)
        return self._pools[key]

    def _tabled(self, task: Task, measured: TablePrice, derived: Estimate) -> Estimate:
        """The table's seconds; what bounds them, and the part that scales with bandwidth, as rooflines have it.

        From another batch a product or attention keeps its share of the roofline, other work what it took beyond it."""
        parts = [self._constant(figure, derived.bound) for figure in measured.figures]
        low, mid, high = (measured.scale * sum(getattr(part, end) for part in parts) for end in ("low", "mid", "high"))
        if measured.reference is not None:
            there = self._derived(measured.reference, work_of(measured.reference)).mid
            if task.kind in FIXED and mid > there:
                fixed = (mid - there) / mid
                low, mid, high = derived.low + fixed * low, derived.mid + fixed * mid, derived.high + fixed * high
            else:
                low, mid, high = (seconds * derived.mid / there for seconds in (low, mid, high))
        part = mid / derived.mid if derived.mid else 0.0
        source = measured.source or parts[0].source
        memory, compute = part * derived.memory, part * derived.compute
        return Estimate(low, mid, high, derived.bound, source, memory, compute, measured.beside)

    @cached_property
    def _together(self) -> Hardware:
        """The record, with what is assumed of devices that nobody measured together; without corrections, as it is."""
        return with_assumed(self.hardware) if self.options.corrections else self.hardware

    @cached_property
    def pools(self) -> Pools:
        """The memories, links and the host's thread that tasks share, at the medians."""
        return self.pools_at()

    @cached_property
    def _slowings(self) -> dict[End, dict[str, Slowings]]:
        """Return the cache of what was computed before."""
        return {}

    @cached_property
    def _between(self) -> dict[tuple[End, End], Handovers]:
        return {}

    @cached_property
    def _pools(self) -> dict[tuple[End, bool], Pools]:
        return {}

    @cached_property
    def _priced(self) -> dict[tuple[object, ...], Estimate]:
        return {}

    def _operation(self, task: Task, work: Hashable) -> Estimate:
        device = self._devices[lane_owner(task.resource)]
        if task.kind == "decompress" and device.decompress is None and self.expansion(device.name) is not None:
            return self._expanding(task, device.name)
        launches, overhead = self._beside_work(task, device)
        roofline = self._rooflines[device.name].of(task, work)
        bound = longest([roofline.compute, roofline.memory, *launches])
        bound = bound.plus(roofline.elementwise).plus(roofline.inputs).plus(overhead)
        online = task.op in (HOST_ATTENTION, DECODE_ATTENTION)
        return bound.plus(self.requests(device, task.tokens)) if online else bound

    def _beside_work(self, task: Task, device: Device) -> tuple[tuple[Estimate, ...], Estimate | None]:
        """Return what an operation takes however much it does: what launches take at least, and its overhead. All of a
        kind that have as many chunks take the same."""
        key = device.name, task.kind, task.phase, chunks_of(task, OVERHEAD_ROWS)
        if key not in self._fixed:
            if len(self._fixed) >= MOST_PRICES:
                self._fixed.clear()
            self._fixed[key] = tuple(self._launches(device, task)), self._overhead(device, task)
        return self._fixed[key]

    @cached_property
    def _fixed(self) -> dict[tuple[object, ...], tuple[tuple[Estimate, ...], Estimate | None]]:
        return {}

    def _launches(self, device: Device, task: Task) -> Iterator[Estimate]:
        """Yield what launching an operation takes at least: between two of them, and of each by itself."""
        if not self.options.corrections:
            return
        least = self._least[device.name]
        if least is not None:
            yield least
        times = _launched(task)
        if device.prompt_launch is not None and times:
            yield self._constant(scaled_figure(device.prompt_launch, times), "launch")

    @cached_property
    def _least(self) -> dict[str, Estimate | None]:
        """Return by device the least time between two operations."""
        least = {device.name: least_seconds(device) for device in self.hardware.devices}
        return {name: None if figure is None else self._constant(figure, "launch") for name, figure in least.items()}

    def _expanding(self, task: Task, device: str) -> Estimate:
        """By the line through the expansions of the record's tables."""
        known = self.expansion(device)
        assert known is not None
        figure = known.seconds(task.bytes, pieces(task))
        constant = self._constant(figure, "memory")
        source = ASSUMED if figure.source == ASSUMED else INTERPOLATED
        return constant._replace(source=source, memory=min(constant.mid, known.slope * task.bytes), beside=known.beside)

    def expansion(self, device: str) -> Expansion | None:
        """Return what tables of the record say of expanding 4-bit groups on `device`."""
        if device not in self._expansions:
            self._expansions[device] = expansion(self.hardware, device)
        return self._expansions[device]

    @cached_property
    def _expansions(self) -> dict[str, Expansion | None]:
        """Return the cache of what was computed before."""
        return {}

    @cached_property
    def _rooflines(self) -> dict[str, Rooflines]:
        corrections, l3_blend = self.options.corrections, self.options.l3_blend
        devices = self.hardware.devices
        return {device.name: rooflines_of(device, self.hardware, corrections, l3_blend) for device in devices}

    @cached_property
    def _kinds(self) -> dict[str, str]:
        """Return the kind of every source of figures."""
        return {name: source.kind for name, source in self.hardware.sources.items()}

    @cached_property
    def _devices(self) -> dict[str, Device]:
        return {device.name: device for device in self.hardware.devices}

    def _overhead(self, device: Device, task: Task) -> Estimate | None:
        if not self.options.corrections:
            return None
        own = next((figure for of, figure in (device.overheads or {}).items() if of == task.kind), None)
        if device.prompt_overhead is not None and task.phase == "prefill":
            by_chunk = self._constant(scaled_figure(device.prompt_overhead, chunks_of(task, OVERHEAD_ROWS)), "overhead")
            if own is None:
                return by_chunk
            beside = by_chunk if task.kind in _MATRICES else None
            return self._constant(own, "overhead").plus(beside)
        figure = device.overhead if own is None else own
        return None if figure is None else self._constant(figure, "overhead")

    def requests(self, device: Device, count: int) -> Estimate | None:
        """Return the seconds that `count` requests add to a layer's attention on `device`, beside those of reading
        their caches; None where the record has no such figure."""
        if device.request is None or not self.options.corrections:
            return None
        one = self._constant(device.request, "overhead")
        return Estimate(count * one.low, count * one.mid, count * one.high, one.bound, one.source)

    def _transfer(self, task: Task) -> Estimate:
        """T_comm = l_link + W_act / B_link (eq 4.15)."""
        key = lane_owner(task.resource), task.path
        if key not in self._crossings:
            self._crossings[key] = self._crossing(*key)
        rate, constants = self._crossings[key]
        seconds = rate.seconds(task.bytes, "link")
        for constant in constants:
            seconds = seconds.plus(constant)
        return seconds

    def _crossing(self, name: str, path: Path) -> tuple[Rate, tuple[Estimate, ...]]:
        """Return the rate of a link on a path, and what a transfer takes however much it moves."""
        link = next(link for link in self.hardware.links if link.name == name)
        corrected = self.options.corrections
        share, overhead = (link.reached(path), link.overhead) if corrected else (None, None)
        rates = [self._carried(link)] if share is None else [self._carried(link), share]
        beside = [link.latency] if overhead is None else [link.latency, overhead]
        return product(rates, self._kinds), tuple(self._constant(figure, "link") for figure in beside)

    @cached_property
    def _crossings(self) -> dict[tuple[str, Path], tuple[Rate, tuple[Estimate, ...]]]:
        return {}

    def _carried(self, link: Link) -> Figure:
        """The rate of a link: what it reaches alone, or what the lanes that it shares carry (E-GUPTA-10)."""
        if link.shares is None or not self.options.capped:
            return link.bandwidth
        owner = next(other for other in self.hardware.links if other.name == link.shares)
        return min(link.bandwidth, owner.carries or owner.bandwidth, key=lambda figure: figure.value)

    def _constant(self, figure: Figure, bound: Bound) -> Estimate:
        """A duration; its spread is widened from p10..p90 to the 5th..95th percentile."""
        low, high = duration_at(figure, "low"), duration_at(figure, "high")
        return Estimate(low, figure.value, high, bound, self.source(figure))

    def source(self, figure: Figure) -> str:
        """Return the kind of source that a figure has."""
        return source_kind(figure, self._kinds)


@lru_cache(maxsize=16)
def shared_costs(machine: Same[Hardware], options: CostOptions) -> CostModel:
    """Return the one cost model of a machine without tables of its layers: neighbouring questions share prices."""
    return CostModel(machine.document, options)


def _launched(task: Task) -> int:
    """How often an operation is launched by itself, where a decode step is a captured graph: for every chunk of a
    prompt; of a step where it moves or expands, or is a part of divided attention."""
    if task.phase == "prefill":
        return chunks_of(task)
    return 1 if task.kind in _NEVER_CAPTURED else 0
