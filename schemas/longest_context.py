"""The longest context of a question: the most tokens of each sequence for which its strategy has a plan."""

from typing import Literal

from helmsman.schemas.base import Count, Document, Name, version


class LongestContext(Document):
    """The answer of `helm-plan --max-context`. `max_context`: tokens of prompt and output together; `limited_by`: what
    would have to be larger for more of them."""

    schema_id: Literal["helm.longest-context/1"] = version("helm.longest-context/1")
    model: Name
    hardware: Name
    max_context: Count
    limited_by: Literal["model", "memory"]
