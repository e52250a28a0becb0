"""Profiles and operation tables for people: rates, milliseconds, and what was noticed while they were measured."""

from collections.abc import Iterable, Iterator

from helmsman.executor.profile.disturbance import DISTURBANCE
from helmsman.executor.profile.readings import CONTENDED
from helmsman.executor.profile.table_record import LAYER, OPERATION, PART, RESHAPE, SHARE, TOOK
from helmsman.schemas.figures import DISTURBED, Rate
from helmsman.schemas.hardware import LEFT, OTHERS, TABLE, DiskReads, Hardware, Reading
from helmsman.schemas.operation_table import COLUMNS, OperationRow, OperationTable
from helmsman.schemas.units import format_bytes, format_rate, format_seconds

_WIDTH = 13


def table_summary(hardware: Hardware, table: OperationTable, name: str) -> str:
    """The table of a layer of model `name`."""
    shown = [column for column in COLUMNS if any(getattr(row, column) for row in table.rows)]
    threads = "1 thread" if table.threads == 1 else f"{table.threads} threads"
    title = (
        f"one layer of {name}, batch {table.batch}, {table.context} tokens in the cache, {table.format} weights,"
        f" {table.kv_format} KV; host on {threads}; ms"
    )
    head = "  " + "operation".ljust(10) + "".join(column.rjust(_WIDTH) for column in shown)
    rows = ["  " + row.op.ljust(10) + "".join(_cells(row, shown)) for row in table.rows]
    sums = [sum(getattr(row, column).value for row in table.rows if getattr(row, column)) for column in shown]
    last = "  " + "layer".ljust(10) + "".join(_cell(total) for total in sums)
    own = [reading for reading in hardware.readings if reading.conditions.get(TABLE) == table.key]
    return "\n".join([title, head, *rows, last, *_notes(own, table.threads)])


def _cells(row: OperationRow, shown: list[str]) -> Iterator[str]:
    for column in shown:
        figure = getattr(row, column)
        yield "-".rjust(_WIDTH) if figure is None else _cell(figure.value)


def _cell(seconds: float) -> str:
    return f"{1e3 * seconds:{_WIDTH}.4f}"


def _notes(readings: list[Reading], chosen: int | None) -> Iterator[str]:
    """Threads that were tried, storage devices and what they carry, what turning caches would add, what measuring cost,
    and how much it was disturbed."""
    yield from _swept(readings, chosen)
    yield from _turned(readings)
    for reading in readings:
        value = reading.figure.value
        if reading.what == SHARE:
            direct = reading.conditions["direct"]
            buffered = "" if direct else "; the file system has no direct reads, buffered ones are used"
            yield f"  storage {reading.conditions['folder']}: {value:.1%} of every weight{buffered}"
        elif reading.what == TOOK:
            yield f"  measured in {value:.1f} s{_parts(readings)}"
        elif reading.what == OTHERS and value > DISTURBED:
            yield f"  other processes took {value:.0%} of the CPU time in all"
    yield from _disturbed(readings)


def _disturbed(readings: list[Reading]) -> Iterator[str]:
    """Yield lines on the points of a table that stayed disturbed, and that its figures say so."""
    left = {reading.conditions["of"]: reading.figure.value for reading in readings if reading.what == DISTURBANCE}
    if left:
        parts, most = ", ".join(map(str, left)), max(left.values())
        told = f"others took up to {most:.0%} of the time of {parts}, whose figures have wider spreads"
        yield f"  disturbed: {told}; measure with --again when nothing else runs"
    yield from unsteady(readings)


def unsteady(readings: Iterable[Reading]) -> Iterator[str]:
    """Yield a line with the number of points of a profile or a table whose samples stayed unsteady, if any did."""
    for reading in readings:
        if reading.what == LEFT and reading.conditions["of"] == "unsteady" and reading.figure.value > 0:
            left = (
                f"{reading.figure.value:.0f} points, whose samples lie far apart though nobody here took time from them"
            )
            yield f"  unsteady: {left}; their figures are as wide"


def _swept(readings: list[Reading], chosen: int | None) -> Iterator[str]:
    """Milliseconds of the layer and seconds of measuring by number of threads (PARK-48, 73)."""
    took = {
        reading.conditions["threads"]: reading
        for reading in readings
        if reading.what == PART and "threads" in reading.conditions
    }
    for reading in readings:
        if reading.what == LAYER:
            threads = reading.conditions["threads"]
            cost = f", tried in {took[threads].figure.value:.1f} s" if threads in took else ""
            used = "  <- used" if threads == chosen else ""
            yield f"  host on {threads:>3} threads{_cell(reading.figure.value)} ms a layer{cost}{used}"


def _turned(readings: list[Reading]) -> Iterator[str]:
    """Yield lines on what the layout (batch, tokens, width) would add to Scores (PARK-15)."""
    scores = {
        reading.device: reading.figure.value
        for reading in readings
        if reading.what == OPERATION and reading.conditions["op"] == "scores"
    }
    for reading in readings:
        if reading.what == RESHAPE:
            value, size = reading.figure.value, reading.conditions.get("bytes")
            rate = f", {float(size) / value / 1e9:.2f} GB/s" if size is not None else ""
            alone = reading.conditions["link"] == "idle" and reading.device in scores
            more = f", {value / scores[reading.device]:+.0%} of scores" if alone else ""
            beside = f"link {reading.conditions['link']}"
            yield f"  reshape on {reading.device}, {beside}: {1e3 * value:.4f} ms to turn the keys{rate}{more}"


def _parts(readings: list[Reading]) -> str:
    """`: layers in memory 0.5 s, ...`; the sweep's threads have lines of their own."""
    parts = [
        f"{reading.conditions['part']} {reading.figure.value:.1f} s{_iterations(reading)}"
        for reading in readings
        if reading.what == PART and "threads" not in reading.conditions
    ]
    return f": {', '.join(parts)}" if parts else ""


def _iterations(part: Reading) -> str:
    """The balancing is within the part before it."""
    iterations = part.conditions.get("iterations")
    return "" if iterations is None else f" of that, {iterations} iterations"


def summary(hardware: Hardware) -> str:
    """Return lines on what was measured of a machine: its devices, memories and links, and how much that was
    disturbed."""
    lines = [f"{hardware.host.cpu if hardware.host else hardware.name}"]
    for device in hardware.devices:
        peak = max(compute.flops.value for compute in device.compute)
        cores = "" if device.cores is None else f"{device.cores} cores, "
        lines.append(
            f"  {device.name:<9} {cores}reads {format_rate(device.read.value)} "
            f"[{format_rate(device.read.p10)} .. {format_rate(device.read.p90)}], {peak / 1e9:.0f} GFLOP/s"
        )
    lines += [f"  {m.name:<9} {format_bytes(m.available)} of {format_bytes(m.capacity)}" for m in hardware.memories]
    lines += [
        f"  {link.name:<9} {format_rate(link.bandwidth.value)}, {format_seconds(link.latency.value)}"
        for link in hardware.links
    ]
    return "\n".join([*lines, *_pairs(hardware), *_experts(hardware), *_disks(hardware), *_machine_disturbed(hardware)])


def _pairs(hardware: Hardware) -> Iterator[str]:
    """Yield a line for each link beside which the host's reads were measured, and that beside them."""
    host = hardware.devices[0].name
    rates = {
        (
            reading.device,
            reading.conditions["other"],
            reading.conditions.get("link", reading.device),
        ): reading.figure.value
        for reading in hardware.readings
        if reading.what == CONTENDED
    } | dict(_beside_loopback(hardware, host))
    for link in dict.fromkeys(link for _, _, link in rates):
        texts = [
            f"{name} {format_rate(rates[name, 'busy', link])} (alone {format_rate(rates[name, 'idle', link])})"
            for name in (host, str(link))
            if (name, "idle", link) in rates and (name, "busy", link) in rates
        ]
        if texts:
            yield f"  at once   {', '.join(texts)}"


def _beside_loopback(hardware: Hardware, host: str) -> Iterator[tuple[tuple[str, str, str], float]]:
    """Yield rates of the host and of the link to a loopback accelerator: each while the other rests, and works."""
    for reading in hardware.readings:
        given = reading.conditions
        if reading.what == "copy" and given.get("cpu") == "busy":
            yield (reading.device, "busy", reading.device), reading.figure.value
            alone = next(link for link in hardware.links if link.name == reading.device)
            yield (alone.name, "idle", alone.name), alone.bandwidth.value
            yield (host, "idle", alone.name), hardware.device(host).read.value
        plain = reading.what == "read" and given.get("pattern") == "scattered"
        if plain and reading.device == host and given.get("link") == "busy":
            yield (host, "busy", "h2d"), reading.figure.value


def _experts(hardware: Hardware) -> Iterator[str]:
    """Yield a line for each format of experts that the host was measured with: the share of reads that they reach with
    one token, and FLOP/s by the tokens of each, activations rounded as kernels do by themselves."""
    host = hardware.devices[0].name
    own = [reading for reading in hardware.readings if reading.device == host]
    for fmt in dict.fromkeys(r.conditions["format"] for r in own if r.what == "experts"):
        shares = [r.figure.value for r in own if r.what == "experts" and r.conditions["format"] == fmt]
        products = [r for r in own if r.what == "expert products" and r.conditions["format"] == fmt]
        usual = products[0].conditions.get("rounding") if products else None  # the default precision is the first
        several = {r.conditions["tokens"]: r.figure.value for r in products if r.conditions.get("rounding") == usual}
        rates = ", ".join(f"{rate / 1e9:.1f}" for rate in several.values())
        of = ", ".join(map(str, several))
        alone = f"{max(shares):.2f} of plain reads with a token"
        yield f"  experts   {fmt}: {alone}; {rates} GFLOP/s with {of} tokens of each"


def _disks(hardware: Hardware) -> Iterator[str]:
    for disk in hardware.disks:
        few, many = (f"{format_rate(rate.value)} by {count}" for count, rate in _ends(disk))
        pages = f"reads of {format_bytes(disk.bytes)} anywhere"
        yield f"  disk      {disk.folder}: {pages} take {format_seconds(disk.latency.value)}; {few}, {many} at once"


def _ends(disk: DiskReads) -> list[tuple[int, Rate]]:
    pairs = list(zip(disk.readers, disk.rates, strict=True))
    return [pairs[0], pairs[-1]]


def _machine_disturbed(hardware: Hardware) -> Iterator[str]:
    """Yield lines on what others took while it was measured, and what of that is left in the figures."""
    readings = [reading for reading in hardware.readings if TABLE not in reading.conditions]
    points = [reading.figure.value for reading in readings if reading.what == DISTURBANCE]
    if points:
        left = f"{len(points)} points stayed disturbed, up to {max(points):.0%}; their figures have wider spreads"
        yield f"  disturbed: {left}; measure again when nothing else runs"
    yield from unsteady(readings)
    for reading in readings:
        if reading.what == OTHERS and reading.figure.value > DISTURBED:
            rest = "" if points else ", and no point was left disturbed"
            yield f"  other processes took {reading.figure.value:.0%} of the CPU time in all{rest}"
