"""Which searches are tried for a question, and among which ways each composes."""

from types import SimpleNamespace

import pytest
from questions import asked

from helmsman.planner.strategies.optimal.search.compositions import Aim
from helmsman.planner.strategies.optimal.search.finalists import Finalists
from helmsman.planner.strategies.optimal.search.search_portfolio import ALL, UNDIVIDED, tried

REQUEST = Aim("request", {"prefill": 1.0, "decode": 10.0})


@pytest.mark.parametrize("prompts", [False, True])
def test_without_divided_prompts_is_tried_where_prompts_count(prompts):
    assert (UNDIVIDED in tried(asked("opt-125m").frame, prompts)) is prompts


def test_a_requested_store_is_tried_without_it_too():
    frame = asked("opt-125m").frame
    requested = SimpleNamespace(roles=frame.roles, store=SimpleNamespace(requested=True))
    offered = SimpleNamespace(roles=frame.roles, store=SimpleNamespace(requested=False))
    plain = tried(frame, True)
    assert tried(offered, True) == plain
    assert tried(requested, True) == (*plain, *(search._replace(near=True) for search in plain))


def test_a_search_without_divided_prompts_composes_no_such_way():
    search = Finalists(asked("opt-125m"), REQUEST)
    ways = search.blocks.ways
    every, undivided = search._space(ALL).names, search._space(UNDIVIDED).names
    assert any(ways[row].prompt == "divided" for row in every)
    assert len(undivided) and all(ways[row].prompt != "divided" for row in undivided)
