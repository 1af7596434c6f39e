"""A reward model behind an address: vLLM's pooling endpoint, one conversation a request."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

from anypo.backends.server import Fault, Malformed, Server
from anypo.core.errors import UsageError
from anypo.core.text import sendable
from anypo.tasks.task import Prompt, Row


class RewardServer:
    """Scores completions by a sequence classifier that `vllm serve MODEL --runner pooling` holds.

    Each conversation is posted to `/pooling` as `messages` with `task: classify` and
    `use_activation: false`, so that the logit comes back; the server's chat template is the
    model's. What does not come back, or is no single number, is not scorable; a server that is down
    ends the run, see `Server`.

    Parameters
    ----------
    url : of the server. model : its name there.
    name : of its curve (default the last part of the model's name).
    options : fields of `Server` (`key_env`, `timeout`, `tries`, `together`, `patience`, `pause`).
    """

    required = True

    def __init__(self, url: str, model: str = "", name: str = "", **options: Any) -> None:
        self.server = Server(url, **options)
        if not model:
            raise UsageError(f"the reward model at {self.server.url} needs model, its name there")
        self.model, self.label = model, name or model.rpartition("/")[2]
        self.name = f"the reward model {model} at {urlsplit(self.server.url).netloc}"

    @property
    def version(self) -> str:
        """A hash of the model's name: its weights are not to be seen from here."""
        return hashlib.sha256(json.dumps(["pooling", self.model]).encode()).hexdigest()

    def check(self, columns: Iterable[str]) -> None:
        """It needs no column."""

    def __call__(
        self,
        prompts: Sequence[Prompt],
        completions: Sequence[str],
        rows: Sequence[Row],
        completion_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[float]:
        """The logit of each completion, NaN without an answer."""
        bodies = [self.request(*pair) for pair in zip(prompts, completions, strict=True)]
        found = self.server.ask(self.server.address("pooling", version=False), bodies, self.read)
        return [math.nan if isinstance(x, Fault) else x for x in found]

    def request(self, prompt: Prompt, completion: str) -> dict[str, Any]:
        """What the server is asked about one completion."""
        asked = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        said = [*asked, {"role": "assistant", "content": completion}]
        messages = [{**m, "content": sendable(m["content"])} for m in said]
        body = {"model": self.model, "messages": messages, "task": "classify"}
        return {**body, "use_activation": False}

    def read(self, reply: Any) -> float:
        """The single number in a reply; raises `Malformed`."""
        try:
            value = reply["data"][0]["data"]
        except (KeyError, IndexError, TypeError):
            raise Malformed("the reply has no data[0].data") from None
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Malformed(f"the reply holds {str(value)[:60]!r}, not one number")
        if not math.isfinite(value):
            raise Malformed(f"the reply holds {value}")
        return float(value)
