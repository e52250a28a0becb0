"""The lane that binds a pass, and how much of it."""

from plans import make_hardware

from helmsman.planner.prediction.phase_document import bottleneck
from helmsman.schemas.predicted import Interval, Term


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
    assert bottleneck(terms, make_hardware(), 1.0) == "dram bandwidth (50 %)"


def test_a_memory_binds_where_its_users_together_ask_for_more_than_a_lane_has_to_do():
    """The link is busy for 81 % of the pass, the memory from which it and the CPU read for 93 %."""
    terms = [term("q", "cpu", 0.7, "memory"), term("q.weights", "h2d", 0.81, "link")]
    assert bottleneck(terms, make_hardware(), 1.0, {"dram bandwidth": 0.93}) == "dram bandwidth (93 %)"
    assert bottleneck(terms, make_hardware(), 1.0, {"dram bandwidth": 0.7}) == "h2d bandwidth (81 %)"


def test_expanding_has_one_name_on_a_stream_of_its_own_and_beside_operations():
    beside = [term("q", "cpu", 0.1, "memory"), term("q.weights.decompress", "cpu", 0.4, "memory")]
    apart = [term("q", "cpu", 0.1, "memory"), term("q.weights.decompress", "cpu:decompress", 0.5, "memory")]
    for terms in (beside, apart):
        assert bottleneck(terms, make_hardware(), 1.0) == "cpu:decompress, dram bandwidth (50 %)"
