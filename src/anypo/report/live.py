"""The report of a run while it goes, served to this machine alone; it only reads."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from anypo.backends.parquet import Table
from anypo.core.errors import UsageError
from anypo.report.completions import (
    MOST_COLOURED,
    Step,
    colours,
    columns,
    framed,
    packed,
    read_some,
    recorded,
    scale,
    shortened,
)
from anypo.report.report import policy, rendered
from anypo.report.run import load
from anypo.report.text import visible

MOST_SIZE, MOST_FIND, MOST_PART, MOST_AT_ONCE = 100, 200, 100_000, 4
"""Rows of an answer, characters of a search, characters of a text's part, answers at a time."""

SHARE = 10
"""A page is drawn again after so many times what the last one took: a tenth of a core at most."""

LONGEST = 30.0
"""Most seconds after which a page is drawn again; at once when a run has ended."""

STEPS = 12
"""Iterations out of which a live page takes its examples."""

EVERY = 2.0
"""Seconds after which a page asks for news."""

PATIENCE = 120.0
"""Seconds without news after which a page says so; longer where iterations are longer."""

Answer = tuple[str, bytes]


@dataclass
class Open:
    """The completions of an iteration, and what is the same for each page of its table."""

    step: int
    table: Table

    def __post_init__(self) -> None:
        self.limit, self.pull = scale(self.table)
        self.names = shown_columns(self.table)
        prompts = self.table.column("prompt") if "prompt" in self.table.names else []
        self.frame = framed(str(shortened(p)) for p in prompts)


def shown_columns(table: Table) -> list[str]:
    """The columns of a file that a table shows: those of a report that held all its rows."""
    small = [n for n in ("score", "reward", "truncated") if n in table.names]
    rows = table.rows(range(table.count), small)
    named = dict.fromkeys(table.names)
    return columns([Step(0, table.count, [{**named, **row} for row in rows])])


@dataclass
class Live:
    """A run's folder as a server sees it: its page, drawn anew when it changed, and its files."""

    out: Path
    page: str = ""
    stamp: str = ""
    due: float = 0.0
    told: dict[str, Any] = field(default_factory=dict)
    told_due: float = 0.0
    opened: Open | None = None
    drawing: threading.Lock = field(default_factory=threading.Lock)
    opening: threading.Lock = field(default_factory=threading.Lock)

    def signature(self) -> str:
        """Changes whenever the run has written something that the page shows."""
        named = ("anypo.json", "metrics.jsonl", "before.json", "scores.json", "completions")
        files = (self.out / name for name in named)
        return "-".join(f"{s.st_mtime_ns:x}.{s.st_size:x}" for f in files if (s := _stat(f)))

    def draw(self) -> str:
        """The page as it stands; one thread draws, and no oftener than it can be borne."""
        with self.drawing:
            now, started = self.signature(), time.monotonic()
            if not self.page or (now != self.stamp and started >= self.due):
                self.page, self.stamp = (
                    rendered(load(self.out, most=STEPS), live={"stamp": now, "every": EVERY}),
                    now,
                )
                spent = time.monotonic() - started
                self.due = time.monotonic() + min(SHARE * spent, LONGEST)
            return self.page

    def state(self, query: Query | None = None) -> dict[str, Any]:
        """How far the run is, since when it has been quiet, and the stamp of a page to be had."""
        started = time.monotonic()
        if not self.told or started >= self.told_due:
            run = load(self.out, completions=False)
            longest = max((row.get("step_time") or 0.0 for row in run.rows[-20:]), default=0.0)
            self.told = {"step": run.last, "wanted": run.setting("steps", run.last)}
            self.told |= {"ended": run.ended, "patience": max(PATIENCE, 5 * longest)}
            self.told_due = time.monotonic() + SHARE * (time.monotonic() - started)
        if self.told["ended"]:  # nothing is left that drawing could slow down
            self.due = 0.0
        newest = max((s.st_mtime for f in self.out.iterdir() if (s := _stat(f))), default=0.0)
        stamp = self.signature() if started >= self.due else self.stamp
        return {**self.told, "stamp": stamp, "quiet": max(0.0, time.time() - newest)}

    def open(self, step: int) -> Open:
        """The completions of an iteration; the last ones asked for stay open."""
        file = recorded(self.out).get(step)
        if file is None:
            raise Refused(404, f"iteration {step} has no recorded completions")
        with self.opening:
            if self.opened is None or self.opened.table.path != file:
                self.opened = Open(step, Table(file))
            return self.opened

    def completions(self, query: Query) -> dict[str, Any]:
        """Some rows of an iteration: searched, sorted, and a page of them."""
        opened, find = self.open(query.number("step")), query.text("find")[:MOST_FIND]
        size, start = min(query.number("size"), MOST_SIZE), query.number("from")
        table = opened.table
        picks = table.find(find, opened.names) if find else list(range(table.count))
        picks = ordered(table, picks, query.text("sort"), query.number("down") > 0)
        head, tail = opened.frame
        rows = read_some(table, picks[start : start + size], MOST_COLOURED)
        return {
            "columns": opened.names,
            "head": head,
            "tail": tail,
            "total": table.count,
            "kept": table.count,
            "found": len(picks),
            "limit": opened.limit,
            "pull": opened.pull,
            "rows": [packed(row, opened.names, head, tail) for row in rows],
        }

    def text(self, query: Query) -> dict[str, Any]:
        """A part of a text that is too long for a table, with its colours if it has some."""
        table, column = self.open(query.number("step")).table, query.text("column")
        index, start = query.number("index"), query.number("from")
        if column not in table.names or index >= table.count:
            raise Refused(404, "there is no such text")
        names = [n for n in dict.fromkeys((column, "tokens", "gradient")) if n in table.names]
        (row,) = table.rows([index], names)
        whole = str(row[column] if row[column] is not None else "")
        end = start + MOST_PART
        marks = part_of(row, whole, start, end) if column == "completion" else None
        shown = visible(whole[start:end])
        more = {"colours": colours(shown, *marks, most=MOST_PART)} if marks else {}
        return {"text": shown, "next": end if end < len(whole) else None, **more}


def part_of(row: Mapping[str, Any], whole: str, start: int, end: int) -> Any:
    """The tokens that lie in a part of a text, the first and the last one cut, and their gradient.

    None where the tokens together are not the text.
    """
    tokens, gradient = row.get("tokens"), row.get("gradient")
    if not isinstance(tokens, list) or not isinstance(gradient, list):
        return None
    if "".join(map(str, tokens)) != whole:
        return None
    place, texts, sizes = 0, [], []
    for token, size in zip(tokens, gradient, strict=False):
        if place < end and (place + len(token) > start or place >= start):
            texts.append(token[max(0, start - place) : end - place])
            sizes.append(size)
        place += len(token)
    return texts, sizes


def ordered(table: Table, picks: list[int], name: str, down: bool) -> list[int]:
    """Rows by the values of a column, those without one last; as recorded without a column."""
    if name not in table.names or name in ("tokens", "gradient"):
        return picks
    values = table.column(name)
    known = [k for k in picks if values[k] is not None and values[k] == values[k]]
    odd = any(isinstance(values[k], (list, dict)) for k in known)
    key: Callable[[int], Any] = (lambda k: str(values[k])) if odd else values.__getitem__
    return sorted(known, key=key, reverse=down) + [k for k in picks if k not in {*known}]


def _stat(file: Path) -> Any:
    try:
        return file.stat()
    except OSError:
        return None


class Refused(Exception):
    """A request that is not answered: its status and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class Query:
    """The parameters of a request, each of them once, short, and of its type."""

    def __init__(self, text: str) -> None:
        try:
            found = parse_qs(text, keep_blank_values=True, max_num_fields=12, errors="replace")
        except ValueError:
            raise Refused(400, "too many parameters") from None
        self.values = {name: values[-1] for name, values in found.items()}

    def text(self, name: str) -> str:
        """A text, empty if not given."""
        return self.values.get(name, "")

    def number(self, name: str) -> int:
        """A whole number from 0 on, 0 if not given."""
        value = self.values.get(name, "0")
        if not (value.isascii() and value.isdigit() and len(value) <= 12):
            raise Refused(400, f"{name} must be a whole number")
        return int(value)


class Handler(BaseHTTPRequestHandler):
    """Answers GET from this machine, under this machine's own names, and nothing else."""

    timeout = 20
    server_version, sys_version = "anypo", ""
    server: Server

    def do_GET(self) -> None:
        """The page, or what its script asks for."""
        try:
            self._check()
            with self.server.places:
                kind, body = self._answer()
            self._send(200, kind, body)
        except Refused as refused:
            self._send(refused.status, "text/plain", refused.why.encode())
        except UsageError as error:
            self._send(503, "text/plain", str(error).encode("utf-8", "replace"))

    def _check(self) -> None:
        """A page of another site may not read this one through a name that points here."""
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if host not in ("127.0.0.1", "localhost"):  # on any port: it may be a forwarded one
            raise Refused(403, "this page is for this machine: open it as 127.0.0.1")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise Refused(403, "this page answers no other site")

    def _answer(self) -> Answer:
        parts = urlsplit(self.path)
        live, query = self.server.live, Query(parts.query)
        if parts.path in ("/", "/page"):
            return "text/html", live.draw().encode("utf-8", "replace")
        known = {"/state": live.state, "/completions": live.completions, "/text": live.text}
        if parts.path not in known:
            raise Refused(404, "there is nothing here")
        found = json.dumps(known[parts.path](query), allow_nan=False)
        return "application/json", found.encode()

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'",
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal is for people."""


class Server(ThreadingHTTPServer):
    """Serves one run on 127.0.0.1; `port` 0 takes a free one."""

    daemon_threads = True

    def __init__(self, out: Path, port: int = 0) -> None:
        load(out, completions=False)  # a folder without a run is refused before anything is served
        self.live, self.places = Live(out), threading.BoundedSemaphore(MOST_AT_ONCE)
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except OSError as error:
            raise UsageError(
                f"port {port} cannot be used ({error.strerror}): choose another --port"
            ) from None

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader who left in the middle of an answer is no error worth a word."""
