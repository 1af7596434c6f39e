"""The public calls: `methods`, `recipe`, `train`, `evaluate`."""

from anypo.api.compare import compare
from anypo.api.contest import Contender
from anypo.api.evaluate import evaluate
from anypo.api.export import export
from anypo.api.generate import generate, load_policy
from anypo.api.harness import Metric, harness
from anypo.api.names import ACRONYMS, Namesake, find, load_recipe, methods, namesakes, recipe
from anypo.api.record import claim, describe
from anypo.api.scores import Scores
from anypo.api.train import Run, train

__all__ = [
    "ACRONYMS",
    "Contender",
    "Metric",
    "Namesake",
    "Run",
    "Scores",
    "claim",
    "compare",
    "describe",
    "evaluate",
    "export",
    "find",
    "generate",
    "harness",
    "load_policy",
    "load_recipe",
    "methods",
    "namesakes",
    "recipe",
    "train",
]
