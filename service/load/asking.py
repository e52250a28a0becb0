"""What is sent for a request: which path, which fields."""

from dataclasses import dataclass
from typing import Any, Literal

from helmsman.schemas.requests import Requests
from helmsman.service.load.prompts import Prompt

Path = Literal["completions", "chat"]


@dataclass(frozen=True)
class Asking:
    """`path`: completions, or conversations of one message. `plain`: only OpenAI's own fields; otherwise answers are as
    long as asked (`ignore_eos`), and chunks say which tokens they have (`return_token_ids`), as vLLM and Helm do."""

    requests: Requests
    prompt: Prompt
    path: Path = "completions"
    model: str | None = None
    plain: bool = False

    @property
    def target(self) -> str:
        """The path of the URL."""
        return "/v1/completions" if self.path == "completions" else "/v1/chat/completions"

    def body(self, row: int) -> dict[str, Any]:
        """The request as JSON."""
        prompt = self.prompt(row)
        said = {"prompt": prompt} if self.path == "completions" else {"messages": [{"role": "user", "content": prompt}]}
        body = {
            **said,
            "max_tokens": int(self.requests.output_tokens[row]),
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.model is not None:
            body["model"] = self.model
        return body if self.plain else body | self._additions(row)

    def _additions(self, row: int) -> dict[str, Any]:
        priority = int(self.requests.priority[row])
        return {"ignore_eos": True, "return_token_ids": True} | ({"priority": priority} if priority else {})
