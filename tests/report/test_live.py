"""The live page: it follows a run, keeps the reader's place, and answers nobody else."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from anypo.backends.parquet import Table, write_rows
from anypo.cli import main
from anypo.core.errors import UsageError
from anypo.report import live
from anypo.report.live import Server, ordered, part_of
from tests.report.runs import completion, facts, make, metrics

ROOT = Path(__file__).parents[2]


@pytest.fixture
def serve() -> Iterator:
    """Serve a run's folder for the time of a test."""
    made: list[Server] = []

    def start(out: Path) -> Server:
        server = Server(out)
        made.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server

    yield start
    for server in made:
        server.shutdown()
        server.server_close()


def get(server: Server, path: str, method: str = "GET", **headers: str):
    """Status, headers and body of a request; a header's `_` is a dash."""
    link = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
    link.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        link.putheader(name.replace("_", "-"), value)
    link.endheaders()
    answer = link.getresponse()
    body = answer.read()
    link.close()
    return answer.status, dict(answer.getheaders()), body


def ask(server: Server, path: str, **parameters):
    """The JSON that a page's script would get."""
    status, _, body = get(server, f"{path}?{urlencode(parameters)}")
    assert status == 200, body
    return json.loads(body)


def going(out: Path, steps: int, rows: int = 6) -> Path:
    """A run of twelve iterations that has done so many, and goes on."""
    make(out, steps, rows)
    (out / "scores.json").unlink()
    return out


def write_on(out: Path, step: int, rows: int = 6) -> None:
    """One more iteration, as the engine writes it: metrics first, then completions."""
    with open(out / "metrics.jsonl", "a") as file:
        file.write(json.dumps(metrics(12)[step - 1]) + "\n")
    table = [completion(step, i) for i in range(rows)]
    write_rows(out / "completions" / f"step_{step:05d}.parquet", table)


# ── in the browser ───────────────────────────────────────────────────────────────────────────────


# A test asks for `serve` before `visit`, so that its browser leaves before its server does.


@pytest.fixture
def eager(monkeypatch) -> None:
    """A page asks often, and is drawn whenever the run has changed, however long that takes."""
    monkeypatch.setattr(live, "SHARE", 0)
    monkeypatch.setattr(live, "EVERY", 0.2)


def test_it_follows_a_run_and_keeps_the_readers_place(serve, visit, tmp_path, eager):
    out = going(tmp_path / "run", 3, rows=60)
    tab = visit(serve(out).url, width=900)
    tab.page.wait_for_selector("#rows tbody tr")
    assert tab.page.input_value("#step") == "3"
    assert "running, 3 of 12 iterations" in wait(tab, "#news", "running")
    write_on(out, 4, rows=60)
    tab.page.wait_for_selector("#rows td:has-text('it is 4.0')")  # the newest is followed
    assert tab.texts("[data-chart] .last")[tab.texts("figcaption b").index("Reward")] == "0.333"

    tab.page.fill("#step", "2")
    tab.page.press("#step", "Enter")
    tab.page.wait_for_selector("#rows[data-step='2']")
    write_on(out, 5, rows=60)
    wait(tab, "#top", "5 of 12")
    assert tab.page.input_value("#step") == "2"  # who chose an iteration is not led away from it
    assert not tab.page.is_checked("#follow")
    tab.page.fill("#find", "it is 2.1")
    wait(tab, "#count", "11 found")
    tab.page.click("#rows th button:text-is('advantage')")
    tab.page.evaluate("document.querySelector('#rows').scrollIntoView()")
    tab.page.wait_for_timeout(200)
    place = tab.run("[scrollY, document.querySelector('#table').getBoundingClientRect().top]")
    rows = tab.texts("#rows td[data-name='completion']")
    tab.page.locator("[data-chart='0'] .plot").focus()
    tab.page.evaluate(f"scrollTo(0, {place[0]})")
    write_on(out, 6, rows=60)
    wait(tab, "#top", "6 of 12")
    assert tab.page.input_value("#step") == "2"
    assert tab.page.input_value("#find") == "it is 2.1"
    assert tab.texts("#rows td[data-name='completion']") == rows
    assert tab.run("document.querySelector('#table').getBoundingClientRect().top") == place[1]
    assert tab.run("document.activeElement.closest('[data-chart]').dataset.chart") == "0"
    assert tab.page.get_attribute("#which", "max") == "5"

    (out / "scores.json").write_text(json.dumps({"before": {}, "after": {}, "stopped": "enough"}))
    assert "ended after 6 iterations" in wait(tab, "#news", "ended")
    assert "enough" in wait(tab, "#top", "ended early")
    assert {url.split("?")[0].rsplit("/", 1)[0] for url in tab.asked} == {tab.page.url.rstrip("/")}


def wait(tab, selector: str, words: str) -> str:
    """The text of an element once it holds some words."""
    tab.page.wait_for_selector(f"{selector}:has-text('{words}')")
    return tab.page.inner_text(selector)


def test_it_begins_before_the_first_iteration(serve, visit, tmp_path, eager):
    out = tmp_path / "run"
    out.mkdir()
    (out / "anypo.json").write_text(json.dumps(facts()))
    tab = visit(serve(out).url)
    assert "No completions are recorded yet" in tab.page.inner_text("#completions")
    (out / "completions").mkdir()
    write_on(out, 1)
    tab.page.wait_for_selector("#rows td:has-text('it is 1.0')")
    tab.page.wait_for_selector("#answers")
    assert not tab.page.is_visible("#none")


def test_half_written_files_and_a_lost_server_are_said(serve, visit, tmp_path, eager):
    out = going(tmp_path / "run", 2)
    with open(out / "metrics.jsonl", "a") as file:
        file.write('{"step": 3, "rew')
    (out / "scores.json").write_text('{"before": {')
    (out / "completions" / "step_00003.parquet.part").write_bytes(b"PAR1")
    server = serve(out)
    tab = visit(server.url)
    assert "2 of 12 iterations" in wait(tab, "#news", "running")
    assert ask(server, "/state")["ended"] is False
    for file in out.rglob("*"):
        os.utime(file, (1e9, 1e9))
    assert "no news for" in wait(tab, "#news", "no news")
    server.shutdown()
    server.server_close()
    assert wait(tab, "#news", "gone")
    tab.page.goto("about:blank")
    assert {error for error in tab.errors if "ERR_CONNECTION_REFUSED" not in error} == set()
    tab.errors.clear()  # the browser said that it could not connect


def test_a_large_run_is_whole(serve, visit, large):
    server = serve(large)
    tab = visit(server.url)
    tab.page.wait_for_selector("#rows tbody tr")
    tab.page.fill("#step", "37")
    tab.page.press("#step", "Enter")
    tab.page.wait_for_selector("#rows[data-step='37']")
    tab.page.click(".open-row >> nth=0")
    box = "#rows tr.open td[data-name='completion'] > div"
    before = tab.page.inner_text(box)
    assert "in all)" in before
    tab.page.click(f"{box} .more")
    tab.page.wait_for_selector(f"{box} .more", state="detached")
    table = Table(large / "completions" / "step_00037.parquet")
    (row,) = table.rows([0], ["completion", "tokens"])
    assert tab.page.locator(box).text_content() == row["completion"]
    assert tab.page.locator(f"{box} .token").count() == len(row["tokens"])


# ── what it answers ──────────────────────────────────────────────────────────────────────────────


def test_rows_are_those_that_the_page_itself_would_show(serve, tmp_path):
    server = serve(make(tmp_path / "run", rows=60))
    found = ask(server, "/completions", step=7, size=10, sort="advantage", down=1, find="IS 7.1")
    assert (found["total"], found["found"], len(found["rows"])) == (60, 11, 10)
    assert [row["index"] for row in found["rows"]] == [19, 18, 17, 16, 15, 14, 13, 12, 11, 10]
    rest = ask(
        server, "/completions", step=7, size=10, sort="advantage", find="IS 7.1", **{"from": 10}
    )
    assert [row["index"] for row in rest["rows"]] == [19]
    names = "prompt completion rewards/format rewards/right score reward advantage group".split()
    assert found["columns"] == [n for n in names if n != "score"]
    assert found["rows"][0]["cells"][1] == "it is 7.19"
    unit, marks, steps = found["rows"][0]["colours"]
    assert marks == [2, 3, 2, 3]
    assert [s * unit for s in steps] == pytest.approx([0.004, 0.001, -0.004, 0], abs=4e-7)
    assert found["limit"] == 0.004


def test_a_long_text_comes_in_parts_with_its_colours(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(live, "MOST_PART", 4)
    marks = {
        "completion": "abcdef<b>",
        "tokens": ["abc", "def", "<b>"],
        "gradient": [1.0, -1.0, 2.0],
    }
    out = make(tmp_path / "run", 1, 1, lambda k, i: completion(k, i, **marks))
    server = serve(out)
    parts, start = [], 0
    while start is not None:
        parts.append(ask(server, "/text", step=1, index=0, column="completion", **{"from": start}))
        start = parts[-1]["next"]
    assert [p["text"] for p in parts] == ["abcd", "ef<b", ">"]
    pulls = [[round(s * p["colours"][0]) for s in p["colours"][2]] for p in parts]
    assert pulls == [[1, -1], [-1, 2], [2]]
    assert part_of({"tokens": ["x"], "gradient": [1.0]}, "other", 0, 4) is None


def test_values_without_an_order_come_last():
    class Sorted:
        names = ["x"]

        def column(self, name: str) -> list:
            return [None, 2.0, float("nan"), 1.0, 2.0]

    assert ordered(Sorted(), [0, 1, 2, 3, 4], "x", False) == [3, 1, 4, 0, 2]
    assert ordered(Sorted(), [0, 1, 2, 3, 4], "x", True) == [1, 4, 3, 0, 2]
    assert ordered(Sorted(), [2, 1], "no column", True) == [2, 1]


def test_a_page_is_drawn_no_oftener_than_it_can_be_borne(tmp_path, monkeypatch):
    out = going(tmp_path / "run", 2)
    watched = live.Live(out)
    drawn: list[str] = []
    monkeypatch.setattr(live, "rendered", lambda run, live: drawn.append(live["stamp"]) or "page")
    watched.draw()
    write_on(out, 3)
    watched.due = 1e18
    assert watched.draw() == "page"
    assert len(drawn) == 1
    assert watched.state()["stamp"] == drawn[0]  # nor does a page ask for what is not to be had
    watched.due = 0.0
    watched.draw()
    watched.draw()
    assert len(drawn) == 2
    assert watched.state()["stamp"] == drawn[1]
    watched.due = 1e18
    (out / "scores.json").write_text(json.dumps({"before": {}, "after": {}}))
    watched.told_due = 0.0
    assert watched.state()["stamp"] != drawn[1]  # the end is shown at once
    watched.draw()
    assert len(drawn) == 3


# ── whom it answers ──────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def server(serve, tmp_path) -> Server:
    """A server of a short run."""
    return serve(make(tmp_path / "run", 2))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:9999", "127.0.0.1:80"])
def test_this_machine_is_answered(server, host):
    assert get(server, "/state", Host=host)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7007", "127.0.0.1.evil.example", ""]
)
def test_another_name_for_this_machine_is_refused(server, host):
    status, _, body = get(server, "/", Host=host)
    assert (status, b"127.0.0.1" in body, b"grpo" in body) == (403, True, False)


def test_another_site_is_refused(server):
    assert get(server, "/state", Sec_Fetch_Site="cross-site")[0] == 403
    assert get(server, "/state", Sec_Fetch_Site="same-origin")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_only_get_is_answered(server, method):
    assert get(server, "/state", method)[0] == 501


@pytest.mark.parametrize(
    "path",
    [
        "/../anypo.json",
        "/anypo.json",
        "/%2e%2e/anypo.json",
        "//etc/passwd",
        "/completions/step_00001.parquet",
        "/completions?step=../../x",
        "/completions?step=-1",
        "/completions?step=9",
        "/completions?step=1&size=x",
        "/completions?" + "&".join(f"a{k}=1" for k in range(50)),
        "/text?step=1&column=no&index=0",
        "/text?step=1&column=prompt&index=99",
    ],
)
def test_nothing_but_the_run_is_to_be_had(server, path):
    assert get(server, path)[0] in (400, 404)


def test_an_answer_has_a_largest_size(server, monkeypatch):
    monkeypatch.setattr(live, "MOST_SIZE", 3)
    assert len(ask(server, "/completions", step=1, size=10**9)["rows"]) == 3
    assert ask(server, "/completions", step=1, size=5, find="x" * 5000)["found"] == 0


def test_answers_say_what_they_are_and_who_may_use_them(server):
    _, headers, body = get(server, "/")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-eval" not in policy
    assert f"script-src {policy.split('script-src ')[1].split(';')[0]}".encode() in body.replace(
        b"&#39;", b"'"
    )
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers


def test_a_damaged_file_of_completions_is_one_sentence(server, tmp_path):
    (tmp_path / "run" / "completions" / "step_00001.parquet").write_bytes(b"PAR1 no PAR1")
    status, _, body = get(server, "/completions?step=1&size=1")
    assert status == 503
    assert b"cannot be read as parquet" in body


def test_only_a_run_is_watched_and_only_on_a_free_port(server, tmp_path, capsys):
    with pytest.raises(UsageError, match="holds no run"):
        Server(tmp_path)
    assert main(["watch", str(tmp_path)]) == 2
    assert main(["watch", str(tmp_path / "run"), "--port", "70000"]) == 2
    assert main(["watch", str(tmp_path / "run"), "--port", str(server.server_address[1])]) == 2
    assert "choose another --port" in capsys.readouterr().err


def test_the_command_serves_until_it_is_interrupted(tmp_path):
    command = [
        sys.executable,
        "-m",
        "anypo",
        "watch",
        str(make(tmp_path / "run", 2)),
        "--port",
        "0",
    ]
    done = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
    )
    line = done.stdout.readline()
    port = int(line.split(":")[2].split("/")[0])
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    link.request("GET", "/state")
    assert json.loads(link.getresponse().read())["step"] == 2
    done.send_signal(signal.SIGINT)
    assert done.wait(20) == 0
    assert "Ctrl-C" in line
