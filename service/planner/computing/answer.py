"""The answer of a worker, and the media types that answers have."""

from dataclasses import dataclass

JSON = "application/json"
PARQUET = "application/vnd.apache.parquet"
PROBLEM = "application/problem+json"


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """A document, as bytes of JSON, and the status of HTTP that goes with it; `points`: the number of questions that a
    checked one is; `files`: by media type, the digests of files that hold the answer instead; `spent`: it says more of
    the process that gave it than of the question, and the process is to be replaced."""

    content: bytes
    status: int = 200
    points: int = 0
    files: tuple[tuple[str, str], ...] = ()
    spent: bool = False

    @property
    def media(self) -> str:
        """Return the media type of the content."""
        return JSON if self.status < 400 else PROBLEM
