"""The page in a browser: browsing completions, colours, curves, themes, hostile text, size."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from anypo.report.report import write_report
from tests.report.runs import completion, facts, make, metrics

COLUMN = "#rows tbody td[data-name='{}']"


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> str:
    """A run of twelve iterations with sixty completions each."""
    out = make(tmp_path_factory.mktemp("page") / "run", rows=60)
    return write_report(out).as_uri()


def column(tab, name: str) -> list[str]:
    """The cells of a column, as they are read."""
    return tab.texts(COLUMN.format(name))


# ── browsing ─────────────────────────────────────────────────────────────────────────────────────


def test_iterations_are_switched(visit, url):
    tab = visit(url)
    assert tab.page.input_value("#step") == "12"
    assert column(tab, "completion")[:2] == ["it is 12.0", "it is 12.1"]
    tab.page.click("#earlier")
    assert column(tab, "completion")[0] == "it is 11.0"
    tab.page.fill("#step", "3")
    tab.page.press("#step", "Enter")
    assert column(tab, "completion")[0] == "it is 3.0"
    tab.page.press("#which", "Home")
    assert column(tab, "completion")[0] == "it is 1.0"
    assert tab.page.is_disabled("#earlier")
    assert tab.asked == [url]  # the page itself, and nothing else


def test_columns_are_sorted_both_ways_and_back(visit, url):
    tab = visit(url)
    tab.page.click("#rows th button:text-is('advantage')")
    values = [float(x.replace("−", "-")) for x in column(tab, "advantage")]
    assert values == sorted(values, reverse=True)
    assert values[0] == 56.5  # of all sixty, not of the page's own
    assert tab.page.get_attribute("#rows th:has(button:focus)", "aria-sort") == "descending"
    tab.page.keyboard.press("Enter")
    assert column(tab, "advantage")[0] == "−2.500"
    assert tab.page.get_attribute("#rows th[aria-sort]", "aria-sort") == "ascending"
    tab.page.click("#rows th button:text-is('completion')")
    assert column(tab, "completion")[0] == "it is 12.9"
    tab.page.click("#unsort")
    assert column(tab, "completion")[:2] == ["it is 12.0", "it is 12.1"]


def test_texts_are_searched_and_pages_turned(visit, url):
    tab = visit(url)
    assert tab.page.inner_text("#count") == "1 to 25 of 60"
    tab.page.click("#on")
    assert column(tab, "completion")[0] == "it is 12.25"
    tab.page.click("#on")
    assert tab.page.inner_text("#count") == "51 to 60 of 60"
    assert tab.page.is_disabled("#on")
    tab.page.fill("#find", "IS 12.4")
    tab.page.wait_for_selector("#count:has-text('found')")
    assert tab.page.inner_text("#count") == "1 to 11 of 11 found, 60 in all"
    assert column(tab, "completion")[1] == "it is 12.40"
    tab.page.click("#earlier")  # the search stays
    assert tab.page.inner_text("#count").startswith("none of 0 found")


def test_parts_of_the_reward_have_columns_and_curves(visit, tmp_path):
    out = make(tmp_path / "run")
    rows = [{**row, "rewards/right/mean": row["reward"] / 2} for row in metrics(12)]
    (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tab = visit(write_report(out).as_uri())
    heads = [text.split("\n")[0].strip() for text in tab.texts("#rows th")]
    assert heads == "prompt completion format right reward advantage group".split()
    assert column(tab, "right") == ["0", "1"] * 3
    assert "Reward: right" in tab.texts("figcaption b")


def test_tokens_are_coloured_by_their_gradient(visit, url):
    tab = visit(url)
    row = "#rows tbody tr:first-child .token"
    assert [c.split()[-1] for c in tab.run(CLASSES, row)] == ["up4", "up1", "down4", "token"]
    titles = tab.run("s => [...document.querySelectorAll(s)].map(e => e.title)", row)
    # Of an iteration: sixty times 0.004 + 0.001 + 0.004.
    assert titles[0] == "gradient +0.004, 0.741 % of this iteration’s"
    assert titles[2] == "gradient −0.004, 0.741 % of this iteration’s"
    assert titles[3] == "gradient 0, 0 % of this iteration’s"
    shades = [tab.run(SHADE, f"{row}:nth-child({k})") for k in (1, 2, 3, 4)]
    assert len({*shades}) == 4
    assert shades[3] == "rgba(0, 0, 0, 0)"
    assert "±0.004" in tab.page.inner_text("#legend")
    tab.page.uncheck("#coloured")
    assert tab.run(SHADE, row) == "rgba(0, 0, 0, 0)"
    assert not tab.page.is_visible("#legend")


CLASSES = "s => [...document.querySelectorAll(s)].map(e => e.className)"
SHADE = "s => getComputedStyle(document.querySelector(s)).backgroundColor"


def test_letters_beyond_the_first_plane_keep_their_colours_in_place(visit, tmp_path):
    odd = {"completion": "𝔸b", "tokens": ["𝔸", "b", ""], "gradient": [0.1, -0.1, 0.05]}
    out = make(tmp_path / "run", 1, 1, lambda k, i: completion(k, i, **odd))
    tab = visit(write_report(out).as_uri())
    assert tab.texts("#rows .token") == ["𝔸", "b", "∎"]
    assert [c.split()[-1] for c in tab.run(CLASSES, "#rows .token")] == ["up4", "down4", "up2"]


def test_a_run_without_gradients_has_no_colours_and_no_legend(visit, tmp_path):
    gone = ("tokens", "gradient", "rewards/format", "rewards/right")

    def older(step: int, index: int) -> dict:
        return {k: v for k, v in completion(step, index).items() if k not in gone}

    tab = visit(write_report(make(tmp_path / "run", made=older)).as_uri())
    assert column(tab, "completion")[0] == "it is 12.0"
    assert tab.page.locator(".token").count() == 0
    assert not tab.page.is_visible("#legend")
    assert not tab.page.is_visible("#colour")


# ── curves ───────────────────────────────────────────────────────────────────────────────────────


def test_the_cursor_reads_all_curves_at_an_iteration(visit, url):
    tab = visit(url)
    names = tab.texts("figcaption b")
    reward, entropy = (names.index(name) for name in ("Reward", "Entropy"))
    last = "figure:nth-of-type(1) .last"
    assert tab.page.locator(last).count()
    read = lambda i: tab.page.inner_text(f"[data-chart='{i}'] .last")  # noqa: E731
    assert (read(reward), read(entropy)) == ("1", "1")
    tab.page.focus(f"[data-chart='{reward}'] .plot")
    for key in ("End", "ArrowLeft", "ArrowLeft", "ArrowLeft"):
        tab.page.keyboard.press(key)
    assert (read(reward), read(entropy)) == ("0.75", "1.25")  # iteration 9 of 12
    slider = tab.page.locator(f"[data-chart='{reward}'] .plot")
    assert slider.get_attribute("aria-valuetext") == "iteration 9: 0.75"
    label = tab.page.locator(f"[data-chart='{reward}'] .cursor text")
    assert label.text_content() == "iteration 9"
    tab.page.keyboard.press("Enter")
    assert tab.page.input_value("#step") == "9"
    tab.page.keyboard.press("Escape")
    assert (read(reward), read(entropy)) == ("1", "1")


def test_the_pointer_reads_what_lies_under_it(visit, url):
    tab = visit(url)
    index = tab.texts("figcaption b").index("Reward")
    plot = tab.page.locator(f"[data-chart='{index}'] .plot")
    plot.scroll_into_view_if_needed()
    facts = tab.run(f"page.data.charts[{index}]")
    box = plot.bounding_box()
    # The pixel of iteration 5, from the numbers that the page was given.
    share = (5 - facts["x"][0]) / (facts["x"][1] - facts["x"][0])
    across = facts["box"][0] + share * (facts["box"][2] - facts["box"][0])
    tab.page.mouse.move(box["x"] + across / facts["size"][0] * box["width"], box["y"] + 20)
    assert tab.page.inner_text(f"[data-chart='{index}'] .last") == "0.417"
    # The dot lies on the drawn line: the path's own point of that iteration.
    dot = plot.locator("circle")
    dots = [float(dot.get_attribute(name)) for name in ("cx", "cy")]
    drawn = tab.run(POINTS, f"[data-chart='{index}'] .plot > svg")
    assert min(abs(x - dots[0]) + abs(y - dots[1]) for x, y in drawn) < 0.1
    tab.page.mouse.move(0, 0)
    assert tab.page.inner_text(f"[data-chart='{index}'] .last") == "1"


POINTS = r"""s => [...document.querySelectorAll(s + ' path')]
  .map(p => p.getAttribute('d').match(/-?[\d.]+ -?[\d.]+/g) || [])
  .map(pairs => pairs.map(pair => pair.split(' ').map(Number)))
  .sort((a, b) => b.length - a.length)[0]"""


# ── themes and widths ────────────────────────────────────────────────────────────────────────────

CONTRAST = """() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = (top, under) => top.slice(0, 3).map((x, i) => x * top[3] + under[i] * (1 - top[3]));
  const light = (rgb) => {
    const linear = (x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb.map((x) => linear(x / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      layers.unshift(parse(getComputedStyle(e).backgroundColor));
    }
    return layers.reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || element.closest('script, style, button:disabled')) continue;
    if (!element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const back = ground(element);
    const ink = over(parse(element.closest('svg') ? style.fill : style.color), back);
    const [a, b] = [light(ink), light(back)].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), element.className, text.slice(0, 30)]);
  }
  return found.sort((a, b) => a[0] - b[0]);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_in_both_themes(visit, url, scheme):
    tab = visit(url, scheme=scheme)
    for kind in ("up1", "up2", "up3", "up4", "down1", "down2", "down3", "down4"):
        tab.run("k => document.querySelector('.token').classList.replace("
                "[...document.querySelector('.token').classList].pop(), k)", kind)  # fmt: skip
        found = tab.run(CONTRAST)
        assert len(found) > 300
        assert found[0][0] >= 4.5, found[:5]
    ground = tab.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground))) > 384) == (scheme == "light")


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_sticks_out_at_any_width(visit, url, width):
    tab = visit(url, width=width)
    assert tab.run("document.documentElement.scrollWidth") <= width
    if width == 360:  # a wide table may be scrolled on a wide screen, where one sees that it can be
        assert tab.run("document.querySelector('#table').scrollWidth") <= width


def test_without_scripts_all_but_the_browsing_is_there(visit, url):
    tab = visit(url, java_script_enabled=False)
    shown = tab.page.inner_text("body")
    for words in ("It learned", "Answers, before and after", "Entropy", "anypo train grpo"):
        assert words in shown
    assert "Browsing completions needs JavaScript" in shown
    assert tab.page.locator("#curves svg").count() >= 5
    assert not tab.page.is_visible(".copy")


# ── hostile text ─────────────────────────────────────────────────────────────────────────────────

EVIL = [
    "</script><script>document.title='owned'</script>",
    "<img src=https://example.com/x onerror=alert(1)>",
    "<!--<script>",
    "\x1b[31mred\x1b[0m\x07\x9b2J",
    "\u202egnp.exe\u2066 \ufeff\u200b",
    "a\ud800b",
    "{{ 7 * 7 }}{% raw %}${alert(1)}",
    "javascript:alert(1)",
]


def test_hostile_text_stays_text_everywhere(visit, tmp_path):
    every = " ".join(EVIL)

    def hostile(step: int, index: int) -> dict:
        text = EVIL[index % len(EVIL)]
        cut = {"completion": text * 2, "tokens": [text, text], "gradient": [0.1, -0.2]}
        return completion(step, index, prompt=f"{text} {step % 2}", **cut) | {
            f"rewards/{text}": 1.0
        }

    changes = {
        "task": {"name": every, "kind": "language", "reward": every, "dataset": every},
        "policy": {"name": every, every: every},
        "command": every,
        "versions": {every: every},
        "given": {every: every},
        "method": every,
        "asked": {"task": every, "reward": every},
    }
    out = make(tmp_path / "run", 4, len(EVIL), hostile, **changes)
    scores = json.loads((out / "scores.json").read_text())
    (out / "scores.json").write_text(json.dumps({**scores, "stopped": every}))
    rows = [{**row, f"rewards/{every}/mean": row["step"]} for row in metrics(4)]
    (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tab = visit(write_report(out).as_uri())
    controls = r"\x1b[31mred\x1b[0m\x07\x9b2J"
    for words in (EVIL[0], EVIL[1], controls, r"\u202egnp.exe\u2066"):
        assert tab.page.locator("#rows tbody").inner_text().count(words) >= 2
        assert words in tab.page.inner_text("#task")
        assert words in tab.page.inner_text("#repeat")
    for words in (EVIL[0], EVIL[1], controls):
        assert words in tab.page.inner_text("#answers")
    assert r"a\ud800b" in tab.page.inner_text("#rows tbody")
    assert r"a\ud800b" in tab.page.inner_text("h1")
    assert tab.page.title() != "owned"
    assert tab.run("document.querySelectorAll('img, iframe, object, script').length") == 2
    assert tab.run("[...document.links].filter(a => a.protocol === 'javascript:').length") == 0
    tab.page.fill("#find", "<img")
    tab.page.wait_for_selector("#count:has-text('found')")
    assert len(column(tab, "completion")) == 1
    assert len(tab.asked) == 1


def test_ten_megabytes_in_one_line_leave_a_usable_page(visit, tmp_path):
    long = "x" * 10_000_000

    def huge(step: int, index: int) -> dict:
        tokens = ["x" * 1000] * 10_000 if index == 0 else ["y"]
        text = long if index == 0 else "y"
        return completion(step, index, completion=text, tokens=tokens, gradient=[0.1] * len(tokens))

    page = write_report(make(tmp_path / "run", 1, 2, huge))
    assert page.stat().st_size < 1_000_000
    tab = visit(page.as_uri())
    assert column(tab, "completion")[1] == "y"
    assert "10000000 characters" in tab.page.inner_text("#rows .rest").replace("\u202f", "")
    assert tab.run("document.documentElement.scrollWidth") <= 1280
    assert "the first 1500 characters of long texts" in tab.page.inner_text("#completions")


# ── size ─────────────────────────────────────────────────────────────────────────────────────────


def raw_size(out: Path) -> int:
    """Bytes of a run's completions, before compression."""
    import pyarrow.parquet as pq

    some = [pq.read_table(out / "completions" / f"step_{k:05d}.parquet") for k in range(1, 5)]
    return 25 * sum(table.nbytes for table in some)


def test_a_run_of_200_mb_has_a_page_that_can_be_used(visit, large):
    assert raw_size(large) > 200e6
    page = write_report(large)
    assert 3e6 < page.stat().st_size < 10e6
    started = time.monotonic()
    tab = visit(page.as_uri())
    tab.page.wait_for_selector("#rows tbody tr")
    assert time.monotonic() - started < 10
    note = tab.page.inner_text("#completions .note")
    assert "60 of 100 recorded iterations" in note
    assert "of 64 completions of each" in note
    assert "the first 1500 characters of long texts" in note
    assert "anypo watch shows all" in note
    started = time.monotonic()
    tab.page.click("#earlier")
    tab.page.click("#rows th button:text-is('advantage')")
    assert time.monotonic() - started < 5
    assert tab.page.locator("#rows .token.up4, #rows .token.down4").count() > 10


def test_the_page_of_a_run_without_anything_says_so(visit, tmp_path):
    (tmp_path / "anypo.json").write_text(json.dumps(facts()))
    tab = visit(write_report(tmp_path).as_uri())
    shown = tab.page.inner_text("body")
    assert "Nothing to judge by yet" in shown
    assert "No curve yet" in shown
    assert tab.page.locator("#completions").count() == 0
