"""ServerReady: where a server listens, and for how much."""

from typing import Literal

from helmsman.schemas.base import Count, Document, Index, Name, version


class ServerReady(Document):
    """The line of `helm-serve --json` when requests may come. `sequences`: in a pass at most; `kv_tokens`: tokens of
    each cache, by where it is."""

    schema_id: Literal["helm.server-ready/1"] = version("helm.server-ready/1")
    url: str
    model: Name
    policy: Name
    sequences: Count
    kv_tokens: dict[Name, Index]
