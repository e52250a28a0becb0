"""Problems that the service tells, as the errors that the library raises for them."""

from helmsman.schemas.errors import BadInputError, HardwareUnavailableError, HelmError, InfeasibleError, UsageError
from helmsman.schemas.problem import Problem
from helmsman.schemas.read import parse_document

_KINDS: dict[str, type[HelmError]] = {kind.code: kind for kind in (BadInputError, HardwareUnavailableError, UsageError)}


class ServiceError(HelmError):
    """A refusal of the service itself: no key, too much at once, no such job, a mistake of its own.

    `status`: of HTTP; `reason`: the problem's code, such as `rate`, `points`, `jobs` or `no-job`."""

    code = "service"
    exit_code = 6

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail, field=problem.field, value=problem.value, remedy=problem.remedy)
        self.status, self.reason = problem.status, problem.code


def error_of(problem: Problem) -> HelmError:
    """Return the error that a problem is to who asked."""
    if problem.code == InfeasibleError.code:
        return InfeasibleError(
            problem.detail, lacks=problem.lacks, field=problem.field, value=problem.value, remedy=problem.remedy
        )
    kind = _KINDS.get(problem.code)
    if kind is None:
        return ServiceError(problem)
    return kind(problem.detail, field=problem.field, value=problem.value, remedy=problem.remedy)


def problem_in(content: bytes, status: int) -> Problem:
    """Return the problem of an answer; of something else that answers there, one that says its status."""
    try:
        return parse_document(Problem, content, "problem")
    except BadInputError:
        detail = f"not an answer of a planner service (HTTP status {status})"
        return Problem(
            type="urn:helm:problem:foreign",
            title="Not a planner service",
            status=max(400, min(status, 599)),
            detail=detail,
            code="foreign",
            remedy="check the URL, and what stands between",
        )
