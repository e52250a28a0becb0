"""WebReady: where the planner service listens, and where it keeps its jobs."""

from typing import Literal

from helmsman.schemas.base import Count, Document, FilePath, Index, version


class WebReady(Document):
    """The line of `helm-web --json` when requests may come. `workers`: processes that answer questions at once, and as
    many again that do jobs; `recovered`: jobs that another server had left and that are queued again."""

    schema_id: Literal["helm.web-ready/1"] = version("helm.web-ready/1")
    url: str
    store: FilePath
    workers: Count
    recovered: Index
