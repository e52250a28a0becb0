"""How much of a link's rate pages move at, while the device behind it works through a window.

    python -m benchmarks.link_share PLAN TRACE

PLAN: with --kv-window; TRACE: of helm-run, for example with --depth. A decode step streams from its device's first
task, as buffers are full before that, to its last page. The share is what the pages take at the record's rate, with a
latency each, over the time that passed from the first page that is not there at the beginning."""

import argparse
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median

from helmsman.schemas.hardware import Hardware, Link
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import read_document
from helmsman.schemas.trace import Span, read_trace

PAGE = 1 << 16
"""Bytes of the smallest copy that counts: what is less has another reason than a page."""


def shares(hardware: Hardware, spans: Sequence[Span]) -> Iterator[float]:
    """Of every decode step and every link that pages came over in it."""
    steps = sorted((span for span in spans if span.phase == "decode"), key=_step)
    for _, each in groupby(steps, _step):
        step = list(each)
        for link in hardware.links:
            pages = [span for span in step if span.resource == link.name and span.bytes >= PAGE]
            working = [span.start_s for span in step if span.resource in _devices(hardware, link)]
            late = [page for page in pages if page.end_s > min(working, default=0.0)]
            if late:
                yield _seconds(link, late) / (max(page.end_s for page in late) - min(page.start_s for page in late))


def _step(span: Span) -> tuple[int, int]:
    return span.run, span.iteration


def _devices(hardware: Hardware, link: Link) -> set[str]:
    return {device.name for device in hardware.devices if device.memory == link.target_memory}


def _seconds(link: Link, pages: Sequence[Span]) -> float:
    return sum(link.latency.value + page.bytes / link.bandwidth.value for page in pages)


def main() -> None:
    """Print the median of all steps, and between which they lie."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("trace", type=Path)
    args = parser.parse_args()
    found = sorted(shares(read_document(Plan, args.plan).hardware, read_trace(args.trace).spans))
    if not found:
        parser.error(f"no pages of 64 KiB and more come in {args.trace}")
    between = f"[{found[0]:.3f} .. {found[-1]:.3f}], n {len(found)}"
    print(f"link while pages stream: {median(found):.3f} of its rate {between}")


if __name__ == "__main__":
    main()
