"""Papers that a text names, and entries of a bibliography with what is certain of them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

PAPER = re.compile(r"\b(?:\d{4}\.\d{4,5}\b|10\.\d{4,9}/[^\s,;)]*[^\s,;).])")
"""An arXiv id or a DOI."""

KNOWN = Path(__file__).parents[1] / "papers.tsv"
"""Authors and titles of some papers; authors may be empty. Nothing is made up for the others."""


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


@cache
def known() -> dict[str, dict[str, str]]:
    """Paper → `author`, `title` and `year`, of those that are in the table."""
    lines = KNOWN.read_text("utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    return {paper: {"author": a, "title": t, "year": y} for paper, a, t, y in rows}


def facts(paper: str) -> dict[str, str]:
    """What is certain of a paper; the number of a preprint begins with its year."""
    stands = {"author": "", "title": "", "year": ""}
    if re.fullmatch(r"\d{4}\.\d{4,5}", paper):
        stands["year"] = f"20{paper[:2]}"
    return stands | known().get(paper, {})


def entry(paper: str, note: str) -> str:
    """A BibTeX entry with what is certain, and how the paper is called here as a note."""
    doi = {"doi": paper} if paper.startswith("10.") else {}
    arxiv = {"eprint": paper, "archivePrefix": "arXiv"} if PAPER.fullmatch(paper) else {}
    place = doi or arxiv or {"howpublished": escaped(paper)}
    words = {k: escaped(v) for k, v in facts(paper).items()}
    words["title"] = f"{{{words['title']}}}" if words["title"] else ""  # capitals stay
    return bibtex(paper, {**words, **place, "url": link(paper), "note": escaped(note)})


def bibtex(name: str, fields: dict[str, str]) -> str:
    """An entry out of fields that are BibTeX already; empty ones are left out."""
    key = "".join(c if (c.isascii() and c.isalnum()) or c in ".-" else "-" for c in name)
    lines = [f"  {k} = {{{v}}}" for k, v in fields.items() if v]
    return "@misc{" + key + ",\n" + ",\n".join(lines) + "\n}"


SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "{": r"\textbraceleft{}",
    "}": r"\textbraceright{}",
    **{c: f"\\{c}" for c in "&%$#_"},
}
"""Characters that TeX obeys → how they are written; BibTeX counts braces, escaped or not."""


def escaped(text: str) -> str:
    """Text that TeX prints as it is, on one line."""
    return "".join(SPECIAL.get(c, c) for c in " ".join(text.split()))


def described(paper: str, note: str) -> str:
    """A paper on one line for a person."""
    sure = facts(paper)
    people = sure["author"].replace(" and others", " et al.").replace(" and ", "; ")
    title, when = sure["title"] or note, f" ({sure['year']})" if sure["year"] else ""
    place = f"arXiv:{paper}" if PAPER.fullmatch(paper) and not paper.startswith("10.") else paper
    parts = [people + when, title] if people else [title + when]
    return ". ".join(p.strip() for p in (*parts, place, link(paper)) if p.strip())
