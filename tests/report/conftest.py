"""One headless Chromium for the tests of a session, and pages that note all they should not do."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from anypo.backends.parquet import write_rows
from tests.report.runs import completion, make

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The machine's own Chromium, driven by playwright."""
    sync = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    path = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("there is no Chromium on this machine")
    with sync.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=QUIET)
        yield made
        made.close()


@dataclass
class Tab:
    """A page in the browser, what its console said, and what it asked the network for."""

    page: Any
    errors: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def texts(self, selector: str) -> list[str]:
        """The visible texts of all elements of a kind."""
        return self.page.locator(selector).all_inner_texts()

    def run(self, script: str, *values: Any) -> Any:
        """The value of a script on the page."""
        return self.page.evaluate(script, *values)


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Tab]]:
    """Open an address: `visit(url, scheme="dark", width=1280)`; no error may be left behind."""
    contexts: list[Any] = []
    tabs: list[Tab] = []

    def opened(url: str, scheme: str = "light", width: int = 1280, **options: Any) -> Tab:
        size = {"width": width, "height": 900}
        context = browser.new_context(color_scheme=scheme, viewport=size, **options)
        contexts.append(context)
        tab = Tab(context.new_page())
        tabs.append(tab)
        tab.page.set_default_timeout(15_000)
        loud = ("error", "warning")
        tab.page.on("console", lambda m: tab.errors.append(m.text) if m.type in loud else None)
        tab.page.on("pageerror", lambda error: tab.errors.append(str(error)))
        tab.page.on("dialog", lambda dialog: (tab.errors.append("dialog"), dialog.dismiss()))
        tab.page.on("request", lambda request: tab.asked.append(request.url))
        tab.page.goto(url)
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert [e for tab in tabs for e in tab.errors] == []


@pytest.fixture(scope="session")
def large(tmp_path_factory) -> Path:
    """A run with 200 MB of completions: 100 iterations of 64 answers with 2000 tokens each."""
    out = make(tmp_path_factory.mktemp("large") / "run", 100, 0, settings={"steps": 100})
    words = [f" w{k:x}" for k in range(997)]
    for step in range(1, 5):
        rows = []
        for i in range(64):
            tokens = [words[(step * 131 + i * 17 + k * k) % 997] for k in range(2000)]
            pull = [((step + i * k) % 1009 - 504) / 7919 for k in range(2000)]
            text = "".join(tokens)
            rows.append(completion(step, i, completion=text, tokens=tokens, gradient=pull))
        write_rows(out / "completions" / f"step_{step:05d}.parquet", rows)
    for step in range(5, 101):  # no two neighbours are alike
        there = out / "completions" / f"step_{1 + step % 4:05d}.parquet"
        shutil.copyfile(there, there.with_name(f"step_{step:05d}.parquet"))
    return out
