"""What is said of two records: the figures that price plans and differ."""

from plans import figure, make_hardware

from helmsman.gate.record_changes import plan_change, record_changes


def test_the_same_record_has_no_changes() -> None:
    assert record_changes(make_hardware(), make_hardware()) == []


def test_a_changed_figure_is_named_by_its_place_with_both_values() -> None:
    assert record_changes(make_hardware(), make_hardware(bandwidth=2e9)) == [
        "record test machine: links.h2d.bandwidth was 4e+09, is 2e+09 (-50.0%)",
        "record test machine: links.d2h.bandwidth was 4e+09, is 2e+09 (-50.0%)",
    ]


def test_the_most_changed_comes_first_and_the_rest_is_counted() -> None:
    before = make_hardware()
    memories = tuple(memory.model_copy(update={"bandwidth": figure(9e9)}) for memory in before.memories)
    now = make_hardware(ram=before.memories[0].capacity // 4, bandwidth=1e9).model_copy(update={"memories": memories})
    lines = record_changes(before, now)
    assert "(-75.0%)" in lines[0] and "(-10.0%)" in lines[-1]


def test_figures_that_came_or_went_are_counted() -> None:
    before = make_hardware()
    fewer = before.model_copy(update={"links": before.links[:1]})
    assert any("came or went" in line for line in record_changes(before, fewer))


def test_plans_of_one_label_may_differ() -> None:
    assert "same label" in plan_change("cpu(1)", "cpu(1)")
    assert plan_change("cpu(1)", "cpu(2)") == "the plan was cpu(1), is cpu(2)"
