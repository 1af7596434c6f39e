"""Papers that a text names."""

from __future__ import annotations

import re

PAPER = re.compile(r"\b(?:\d{4}\.\d{4,5}\b|10\.\d{4,9}/[^\s,;)]*[^\s,;).])")
"""An arXiv id or a DOI."""


def papers(paper: str, doc: str) -> dict[str, str]:
    """The arXiv id or DOI → what the text calls it: a method's own paper, then those it names."""
    found = dict.fromkeys(PAPER.findall(paper) or [paper], "")
    for sentence in re.split(r"[;:]\s|\.\s", " ".join(doc.split())):
        for name in PAPER.findall(sentence):
            said = sentence.partition(name)[0].strip(" ,(")
            found[name] = found.get(name) or (said if len(said) <= 60 else "")
    return found


def link(paper: str) -> str:
    """The page of a paper; empty where its name is no identifier."""
    if paper.startswith("10."):
        return f"https://doi.org/{paper}"
    return f"https://arxiv.org/abs/{paper}" if PAPER.fullmatch(paper) else ""


def entry(paper: str, note: str) -> str:
    """A BibTeX entry with what is certain: the identifier, and how the paper is called here."""
    doi = {"doi": paper} if paper.startswith("10.") else {}
    arxiv = {"eprint": paper, "archivePrefix": "arXiv"} if PAPER.fullmatch(paper) else {}
    fields = {**(doi or arxiv or {"howpublished": paper}), "url": link(paper), "note": note}
    key = "".join(c if c.isalnum() or c in ".-" else "-" for c in paper)
    lines = [f"  {k} = {{{v}}}" for k, v in fields.items() if v]
    return "@misc{" + key + ",\n" + ",\n".join(lines) + "\n}"
