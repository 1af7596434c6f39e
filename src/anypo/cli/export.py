"""`anypo export`: a run's policy for other software to load, with a model card."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

from anypo.cli.options import Flag, gather, parse, said


@dataclass(frozen=True)
class Export:
    """A run's last checkpoint as a folder for transformers, peft and servers, with its card."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """the folder of a run, or of one of its checkpoints"""
    to: Annotated[str, said("the folder to write", "FOLDER", "RUN/export")] = ""
    merge: Flag = False
    """add a LoRA adapter to the weights of its base"""
    checkpoint: int = 0
    """the iteration of a checkpoint (0: the last)"""
    dtype: Annotated[str, said("float32, bfloat16 or float16", "NAME", "float32")] = "float32"
    base: Annotated[str, said("what an adapter shall name as its base", "ID", "where it is")] = ""
    license: Annotated[str, said("for the card, such as apache-2.0", "ID")] = ""
    push: Annotated[str, said("also upload it to the Hugging Face hub", "USER/NAME")] = ""
    private: Flag = False
    """make what is pushed private"""
    json: Flag = False
    """print one JSON object"""


def run(words: list[str]) -> int:
    """Print where everything is."""
    options = parse(Export, gather(Export, words), "export")
    from anypo import api
    from anypo.cli.screen import cell, console, print_json

    told: list[str] = []
    target = api.export(
        options.run,
        options.to,
        merge=options.merge,
        checkpoint=options.checkpoint,
        dtype=options.dtype,
        base=options.base,
        license=options.license,
        push=options.push,
        private=options.private,
        notice=told.append,
    )
    if options.json:
        files = sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file())
        print_json({"folder": str(target), "files": files})
        return 0
    screen = console(sys.stdout)
    for text in told:
        screen.print(cell(text), soft_wrap=True)
    screen.print(cell(f"card: {target / 'README.md'}"), soft_wrap=True)
    return 0
