"""Text in Markdown: nothing that a user or a model wrote becomes markup."""

from __future__ import annotations

import markdown
import pytest
from markdown_it import MarkdownIt

from anypo.report.markdown import block, code, marked, plain, table

HOSTILE = [
    "<script>alert(1)</script>",
    "[click](javascript:alert(1))",
    "![x](https://example.org/pixel.png)",
    "**bold** _it_ `code` ~~gone~~",
    "# heading\n\n- item\n---\nfoo: bar",
    "a | b | c",
    "``` \n```python\nx",
    "\x1b[31mred\x1b[0m \u202egnp.exe",
    "https://example.org www.example.org <https://example.org> user@example.org",
    "1. one",
    "$x$ &amp; &lt;",
    "`",
    "``",
    "a`b``c```d",
    "\ud800",
    "",
]


COMMON = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def html(text: str) -> str:
    """What a renderer makes of it; two of them must agree on how many elements there are."""
    other = COMMON.render(text)
    shown = markdown.markdown(text, extensions=["tables", "fenced_code"])
    assert other.count("<") == shown.count("<"), other
    return shown


@pytest.mark.parametrize("text", HOSTILE)
def test_plain_text_renders_as_itself(text):
    shown = html(f"before {plain(text)} after")
    assert shown.count("<") == 2, f"a paragraph and nothing else: {shown}"
    alone = html(plain(text))
    assert alone.count("<") <= 2
    assert "<p>" in alone or not text


def test_plain_text_says_what_it_said():
    shown = html(plain("a_b *c* <d> & `e` [f] 1.5"))
    assert shown == "<p>a_b *c* &lt;d&gt; &amp; `e` [f] 1.5</p>"


@pytest.mark.parametrize("text", [t for t in HOSTILE if t])
def test_code_is_one_span(text):
    shown = html(f"x {code(text)} y")
    assert shown.startswith("<p>x <code>")
    assert shown.endswith("</code> y</p>")
    assert shown.count("<") == 4


def test_code_says_what_it_said():
    assert code("a`b") == "``a`b``"
    assert code("`a`") == "`` `a` ``"
    assert code("a|b") == "`a∣b`"
    assert code("") == ""


@pytest.mark.parametrize("text", HOSTILE)
def test_a_block_is_one_block(text):
    shown = html(f"{block(text, 'python')}\n\nafter")
    assert shown.count("<pre>") == 1
    assert shown.endswith("</pre>\n<p>after</p>")
    assert "<script>" not in shown


@pytest.mark.parametrize("text", HOSTILE)
def test_a_cell_stays_in_its_column(text):
    shown = html(table(("a", "b"), [(plain(text), code(text) or "–"), ("x", "y")]))
    assert shown.count("<tr>") == 3
    assert shown.count("<td>") == 4


def test_prose_has_its_code_and_nothing_else():
    assert marked("The `a*b` of x_i\n and `c`.") == "The `a*b` of x\\_i and `c`."
