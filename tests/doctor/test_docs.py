"""docs/doctor.md says of every check what the code says."""

from __future__ import annotations

from pathlib import Path

from anypo.doctor import CHECKS

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"


def table() -> str:
    """The table of checks; what `python -m tests.doctor.test_docs` prints belongs on the page."""
    rows = ["| kind | what is wrong | when | source |", "|---|---|---|---|"]
    rows += [f"| `{c.kind}` | {c.title} | {c.threshold} | {c.source} |" for c in CHECKS]
    return "\n".join(rows)


def test_the_page_has_every_check_as_it_is():
    assert table() in PAGE.read_text("utf-8")


if __name__ == "__main__":
    print(table())
