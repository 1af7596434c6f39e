"""`anypo generate`: what a policy answers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

from anypo.cli.options import Flag, Precision, gather, parse, said

POLICY = said("a policy by name, a folder, or a run's folder", "POLICY")
PROMPTS = said("one or several; - reads one from each line of the standard input", "PROMPT…")

LINE_END = "\x1e"


@dataclass(frozen=True)
class Generate:
    """Answers of a policy to prompts; a run's folder is its last checkpoint."""

    policy: Annotated[tyro.conf.Positional[str], POLICY]
    prompts: Annotated[tyro.conf.Positional[tuple[str, ...]], PROMPTS]
    n: int = 1
    """answers to each prompt"""
    temperature: float = 1.0
    """of the sampled distribution; 0 is greedy"""
    max_tokens: int = 256
    """most tokens of an answer"""
    seed: int = 0
    """the same one gives the same answers"""
    precision: Precision = ""
    json: Flag = False
    """print one JSON object"""


def run(words: list[str]) -> int:
    """Print answers; what a terminal would obey is written out."""
    # several prompts travel as lines, so a line end inside of one needs another name on the way
    kept = [word.replace("\n", LINE_END) for word in words]
    options = parse(Generate, gather(Generate, kept), "generate")
    from anypo import api
    from anypo.cli.screen import cell, console, print_json
    from anypo.core.errors import UsageError

    prompts = [prompt.replace(LINE_END, "\n") for prompt in options.prompts]
    if prompts == ["-"]:
        prompts = [line.rstrip("\n") for line in sys.stdin if line.strip()]
    if not prompts:
        raise UsageError("there is no prompt: give one, or write - and pipe them in")
    answers = api.generate(
        options.policy,
        prompts,
        options.n,
        temperature=options.temperature,
        max_tokens=options.max_tokens,
        seed=options.seed,
        precision=options.precision,
    )
    if options.json:
        print_json({"answers": [{"prompt": p, "texts": t} for p, t in zip(prompts, answers)]})
        return 0
    screen = console(sys.stdout)
    for number, (prompt, texts) in enumerate(zip(prompts, answers)):
        if len(prompts) > 1:
            screen.print(*[""] * (number > 0), cell(prompt, style="bold"), sep="\n", soft_wrap=True)
        for k, text in enumerate(texts, 1):
            mark = f"{k}. " if len(texts) > 1 else ""
            screen.print(cell(mark + text), soft_wrap=True)
    return 0
