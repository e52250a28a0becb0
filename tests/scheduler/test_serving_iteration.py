import pytest
from serving_iteration import Cohort, PromptChunk, ServingIteration, SubBatch

MIXED = SubBatch((PromptChunk(10, 5), PromptChunk(4, home="cpu", ends=False)), (50, 60), (70,))
HOST = SubBatch(cpu=(80, 90))


def test_what_a_sub_batch_has_to_do() -> None:
    assert (MIXED.tokens, MIXED.outputs, MIXED.leaving, MIXED.phase) == (17, 4, 4, "prefill")
    assert [chunk.pairs for chunk in MIXED.prompts] == [sum(range(6, 16)), 1 + 2 + 3 + 4]
    both = ServingIteration(1, "two-sub-batches", (MIXED, HOST))
    assert (both.outputs, both.context, both.phase) == (6, 90, "prefill")


def test_a_cohort_joins_one_stage_of_a_deferred_pass_and_the_rest_of_a_sub_batch() -> None:
    cohort = Cohort(1, (100, 110))
    deferred = ServingIteration(1, "deferred", (SubBatch(gpu=(50,)),), cohorts=(cohort,))
    assert [len(deferred.joining(stage)) for stage in range(4)] == [0, 2, 0, 0]
    assert deferred.context == 110
    rest = ServingIteration(1, "two-sub-batches", (MIXED, SubBatch()), cohorts=(cohort,))
    assert [len(rest.joining(stage)) for stage in range(4)] == [0, 2, 2, 2]


def test_several_cohorts_join_stages_of_their_own() -> None:
    cohorts = Cohort(2, (100, 110)), Cohort(0, (300,)), Cohort(3, (90,))
    deferred = ServingIteration(1, "deferred", (SubBatch(gpu=(50,)),), cohorts=cohorts)
    assert [len(deferred.joining(stage)) for stage in range(4)] == [1, 0, 2, 1]
    assert deferred.context == 300
    rest = ServingIteration(1, "two-sub-batches", (MIXED, HOST), cohorts=cohorts)
    assert [len(rest.joining(stage)) for stage in range(4)] == [1, 1, 3, 4]


@pytest.mark.parametrize(
    ("overlap", "batches", "cohort", "message"),
    [
        ("none", (MIXED, HOST), None, "1 sub-batches"),
        ("two-sub-batches", (MIXED,), None, "2 sub-batches"),
        ("two-sub-batches", (MIXED, SubBatch()), None, "without tokens"),
        ("none", (SubBatch(),), None, "without tokens"),
        ("two-sub-batches", (HOST, MIXED), None, "on the host"),
        ("deferred", (MIXED,), None, "are cohorts"),
        ("none", (MIXED,), Cohort(0, (9,)), "joins"),
        ("deferred", (SubBatch(gpu=(9,)),), Cohort(0, ()), "joins"),
        ("deferred", (SubBatch(gpu=(9,)),), Cohort(1, (9,)), "at one layer"),
    ],
)
def test_what_no_pass_can_be_is_refused(
    overlap: str, batches: tuple[SubBatch, ...], cohort: Cohort | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ServingIteration(1, overlap, batches, cohorts=() if cohort is None else (cohort, cohort))
