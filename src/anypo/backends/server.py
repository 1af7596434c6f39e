"""Asking an OpenAI-compatible server many things at once, with bounds on time, tries and failures.

Nothing that is asked or answered is written anywhere, and the key, read from the environment when a
request is sent, stands in no message.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from anypo.core.errors import UsageError

if TYPE_CHECKING:
    import httpx2

LONGEST_PAUSE = 60.0
REFUSED = {
    401: "the key is not accepted",
    403: "the key is not accepted",
    404: "there is no such address or model",
    405: "the address does not take such requests",
}
"""Statuses that no further try can mend."""

UNFIT = (400, 413, 422)
"""Statuses that say that one request is not to be answered, such as a prompt that is too long."""


class Malformed(Exception):
    """An answer that does not say what was asked; the message says what is wrong."""


class _Down(Exception):
    """An outage: no answer in time, no connection, or a server that is busy or broken."""

    def __init__(self, why: str, pause: float = 0.0) -> None:
        super().__init__(why)
        self.pause = pause


class _Unfit(Exception):
    """A request that the server does not answer, whoever asks again."""


@dataclass(frozen=True)
class Fault:
    """Why a request has no answer: `outage`, `unfit` or `malformed`, and the last reason."""

    kind: str
    why: str


@dataclass
class Server:
    """An OpenAI-compatible server, asked with time-outs, tries with growing pauses, and a cache.

    Parameters
    ----------
    url : with or without `/v1`; empty for what the variable OPENAI_BASE_URL says.
    key_env : the environment variable that holds the key (default OPENAI_API_KEY; none is sent
        where it is not set).
    timeout : seconds for one try, from the first byte sent to the last received (default 60).
    tries : most tries of one request (default 4); one whose answer cannot be read has two.
    together : most requests at one time (default 8).
    patience : requests in a row without an answer, after which the server counts as down (8).
    pause : seconds before the second try; every further pause is twice as long, at most a minute,
        or as long as the server asks (default 0.5).

    Raises `UsageError` for an address that is none, for what no further try can mend, such as a
    wrong key, and for a server that is down.
    """

    url: str = ""
    key_env: str = "OPENAI_API_KEY"
    timeout: float = 60.0
    tries: int = 4
    together: int = 8
    patience: int = 8
    pause: float = 0.5
    known: dict[str, Any] = field(default_factory=dict, repr=False)
    down: int = 0

    def __post_init__(self) -> None:
        self.url = (self.url or os.environ.get("OPENAI_BASE_URL", "")).rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"{self.url!r} is no address of a server: give url: http://HOST:PORT/v1, or set "
                "OPENAI_BASE_URL"
            )
        if parts.username or parts.password:
            raise UsageError("the address of a server holds a password: set OPENAI_API_KEY instead")
        for name in ("timeout", "tries", "together", "patience"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name}={getattr(self, name)} of a server must be above 0")

    def address(self, path: str, version: bool = True) -> str:
        """The address of a path, below `/v1` or beside it."""
        root = self.url.removesuffix("/v1")
        return f"{root}/v1/{path}" if version else f"{root}/{path}"

    def ask(
        self,
        address: str,
        bodies: Sequence[Mapping[str, Any]],
        read: Callable[[Any], Any],
    ) -> list[Any]:
        """What `read` makes of the answer to each body, or a `Fault`; equal bodies are asked once.

        Parameters
        ----------
        address : where each body is posted.
        bodies : JSON-able requests.
        read : the answer's JSON → a value; raises `Malformed`.
        """
        keys = [_key(address, body) for body in bodies]
        fresh = {k: b for k, b in zip(keys, bodies, strict=True) if k not in self.known}
        found = self._run(address, fresh, read) if fresh else {}
        self.known |= {k: x for k, x in found.items() if not isinstance(x, Fault)}
        self._tell([x for x in found.values() if isinstance(x, Fault)], len(fresh))
        return [found[k] if k in found else self.known[k] for k in keys]

    def _run(self, address: str, fresh: Mapping[str, Any], read: Any) -> dict[str, Any]:
        """In a thread of its own, so that a caller may have an event loop already."""
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: asyncio.run(self._all(address, fresh, read))).result()

    async def _all(self, address: str, fresh: Mapping[str, Any], read: Any) -> dict[str, Any]:
        import httpx2

        token = os.environ.get(self.key_env, "")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        gate = asyncio.Semaphore(self.together)
        async with httpx2.AsyncClient(headers=headers, timeout=None) as client:

            async def one(body: Any) -> Any:
                async with gate:
                    return await self._one(client, address, body, read)

            tasks = [asyncio.create_task(one(body)) for body in fresh.values()]
            try:
                return dict(zip(fresh, await asyncio.gather(*tasks), strict=True))
            finally:
                for task in tasks:
                    task.cancel()

    async def _one(self, client: httpx2.AsyncClient, address: str, body: Any, read: Any) -> Any:
        """The answer to one body, or the reason why there is none after all tries."""
        fault, odd = Fault("outage", ""), 0
        for k in range(self.tries):
            try:
                value = read(await self._post(client, address, body))
                self.down = 0
                return value
            except Malformed as error:
                self.down, odd, fault = 0, odd + 1, Fault("malformed", str(error))
                if odd > 1:
                    break
            except _Unfit as error:
                self.down, fault = 0, Fault("unfit", str(error))
                break
            except _Down as error:
                fault = Fault("outage", str(error))
                if k + 1 < self.tries:
                    await asyncio.sleep(min(max(self.pause * 2**k, error.pause), LONGEST_PAUSE))
        return fault if fault.kind != "outage" else self._count(fault)

    def _count(self, fault: Fault) -> Fault:
        """One more request without an answer; raises when there were too many in a row."""
        self.down += 1
        if self.down >= self.patience:
            raise UsageError(
                f"the server at {self.url} is down: {self.down} requests in a row had no answer "
                f"after {self.tries} tries each (the last: {fault.why}). See that it runs, then "
                "run the same command to go on"
            )
        return fault

    async def _post(self, client: httpx2.AsyncClient, address: str, body: Any) -> Any:
        import httpx2

        try:
            async with asyncio.timeout(self.timeout):
                reply = await client.post(address, json=body)
        except TimeoutError:
            raise _Down(f"no answer within {self.timeout:g} s") from None
        except httpx2.HTTPError as error:
            raise _Down(str(error) or type(error).__name__) from None
        return self._content(reply)

    def _content(self, reply: httpx2.Response) -> Any:
        """The JSON of an answer; raises for any other status than success."""
        status, said = reply.status_code, " ".join(reply.text[:200].split())
        if status in REFUSED:
            raise UsageError(
                f"the server at {self.url} answered {status} ({said or 'nothing'}): "
                f"{REFUSED[status]}; check url, model and the variable {self.key_env}"
            )
        if status in UNFIT:
            raise _Unfit(f"status {status}: {said}")
        if status >= 300:
            raise _Down(f"status {status}: {said}", _seconds(reply.headers.get("retry-after", "")))
        try:
            return reply.json()
        except ValueError:
            raise Malformed(f"no JSON: {said[:80]!r}") from None

    def _tell(self, faults: Sequence[Fault], asked: int) -> None:
        """Say how many requests had no answer, and why; where none was fit, that ends the run."""
        if not faults:
            return
        unfit = [f for f in faults if f.kind == "unfit"]
        if len(unfit) == asked > 1:
            raise UsageError(
                f"the server at {self.url} refuses every request ({unfit[-1].why}): check the "
                "model's name and what is sent with each"
            )
        kinds = Counter(f.kind for f in faults)
        parts = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
        warnings.warn(
            f"{len(faults)} of {asked} requests to {self.url} had no usable answer ({parts}; the "
            f"last: {faults[-1].why}): these completions count as not scorable",
            stacklevel=2,
        )


def _key(address: str, body: Mapping[str, Any]) -> str:
    text = json.dumps([address, body], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _seconds(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0
