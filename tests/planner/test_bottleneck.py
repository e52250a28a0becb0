"""The lane that binds a pass, and how much of it."""

from plans import make_hardware

from helmsman.planner.predict import bottleneck
from helmsman.schemas.plan import Interval, Term


def term(op: str, resource: str, seconds: float, bound: str) -> Term:
    interval = Interval(low=seconds, mid=seconds, high=seconds)
    kept = {"tasks": 1, "bytes": 1, "flops": 1.0, "source": "assumed"}
    return Term(op=op, resource=resource, seconds=interval, bound=bound, **kept)


def test_lanes_that_overlap_do_not_share_the_pass_between_them():
    """Two lanes, both at work nearly all the time: the share is of the pass, not of all lanes' seconds."""
    terms = [term("q", "cpu", 0.9, "memory"), term("o", "loopback", 0.95, "compute")]
    assert bottleneck(terms, make_hardware(), 1.0) == "loopback compute (95 %)"


def test_a_lane_counts_as_a_whole_and_names_what_binds_it_most():
    """Neither of its bounds alone is as long as the other lane."""
    terms = [term("q", "cpu", 0.3, "memory"), term("o", "cpu", 0.2, "compute"), term("k", "loopback", 0.4, "compute")]
    assert bottleneck(terms, make_hardware(), 1.0) == "cpu memory bandwidth (dram) (50 %)"
