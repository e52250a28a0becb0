"""The form of a request that is sent: which path, which fields."""

from dataclasses import dataclass
from typing import Any

from helmsman.schemas.requests import Requests
from helmsman.service.inference.load.prompts import Prompt


@dataclass(frozen=True)
class RequestForm:
    """`chat`: conversations of one message instead of completions. `plain`: only OpenAI's own fields; otherwise answers
    are as long as asked (`ignore_eos`) and chunks say which tokens they have (`return_token_ids`), as with vLLM."""

    requests: Requests
    prompt: Prompt
    chat: bool = False
    model: str | None = None
    plain: bool = False

    @property
    def target(self) -> str:
        """Return the path of the URL."""
        return "/v1/chat/completions" if self.chat else "/v1/completions"

    def body(self, row: int) -> dict[str, Any]:
        """Return the request as JSON."""
        prompt = self.prompt(row)
        said = {"messages": [{"role": "user", "content": prompt}]} if self.chat else {"prompt": prompt}
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
