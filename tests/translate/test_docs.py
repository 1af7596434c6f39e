"""`docs/coming-from.md` says what the tool says, and names words that there are."""

from __future__ import annotations

import re
from dataclasses import fields

from pages import coming_from

from anypo.cli import train
from anypo.cli.options import leaves
from anypo.core.neutral import Adam
from anypo.engine.settings import Settings
from anypo.translate import table

PAGE = coming_from.PAGE.read_text("utf-8")


def test_the_examples_are_up_to_date():
    assert coming_from.filled(PAGE) == PAGE, "run `make faithfulness` and commit what it writes"
    assert PAGE.count("```sh\nanypo train ") == 3


def test_a_stale_example_is_mended():
    stale = re.sub(r"--lr 2e-06", "--lr 1", PAGE)
    assert stale != PAGE
    assert coming_from.filled(stale) == PAGE


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_word_of_the_table_is_known():
    body = PAGE.partition("## Words")[2].partition("## Traps")[0]
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in body.splitlines() if "|" in line]
    keys = {name: {r.key for r in table.table(name)} for name in ("trl", "verl", "sb3")}
    loss = {r.value for r in table.table("verl")}
    options = {*leaves(train.Train), *(f.name for f in fields(Settings)), "group"}
    assert len(rows) == 20
    for ours, *others in rows[2:]:
        for word in words(ours):
            if word.startswith("--"):
                assert word[2:].replace("-", "_") in options, word
            elif word.startswith("update."):
                assert word[7:] in {f.name for f in fields(Adam)}
        for library, cell in zip(keys, others, strict=True):
            for word in words(cell):
                assert word in keys[library] | loss, (library, word)
