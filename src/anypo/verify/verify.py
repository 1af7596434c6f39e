"""`anypo verify`: run the pieces of a recipe on reference cases and report the largest error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.recipe import Recipe
from anypo.engine.collect import credit
from anypo.engine.metrics import clip_fractions
from anypo.engine.problem import weigh
from anypo.verify import vectors

TOLERANCE = 1e-8
TERMS = ("logp", "logp_old", "value", "value_old", "return")


@dataclass(frozen=True)
class Row:
    """One case: `status` is ok, FAILED, or not covered; `error` the largest absolute difference."""

    file: str
    case: int
    method: str
    kind: str
    status: str
    error: float
    tolerance: float
    compared: tuple[str, ...]
    left_out: tuple[str, ...]
    note: str = ""


def files(paths: list[Path]) -> list[Path]:
    """The vector files that some files and folders hold; a missing one is a `UsageError`."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path} does not exist: name a vector file, or a folder of them")
        found += sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not found:
        raise UsageError("no .json file in " + ", ".join(map(str, paths)))
    return found


def verify(path: Path, resolve: Callable[[str], Recipe]) -> list[Row]:
    """The rows of one file; `resolve` gives the recipe of a method, or raises `UsageError`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        method, kind, cases = data["method"], data["kind"], data["cases"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no vector file ({error})") from None
    tolerance = float(data.get("tolerance", TOLERANCE))
    return [
        _row(path.name, i, method, kind, case, tolerance, resolve) for i, case in enumerate(cases)
    ]


def _row(
    file: str,
    index: int,
    method: str,
    kind: str,
    case: Mapping[str, Any],
    tolerance: float,
    resolve: Callable[[str], Recipe],
) -> Row:
    def row(status: str, error: float = 0.0, note: str = "", **keys: tuple[str, ...]) -> Row:
        compared, left = keys.get("compared", ()), keys.get("left", ())
        return Row(file, index, method, kind, status, error, tolerance, compared, left, note)

    if kind not in RUNNERS:
        return row("not covered", note=f"no runner for kind {kind}")
    try:
        recipe = resolve(method)
    except UsageError as error:
        return row("not covered", note=str(error))
    if unknown := vectors.known(case["inputs"], recipe):
        return row("not covered", note="unknown inputs: " + ", ".join(unknown))
    got = RUNNERS[kind](vectors.configure(recipe, case["inputs"]), case["inputs"])
    expected = case["expected"]
    errors = {k: _error(got[k], expected[k]) for k in expected if k in got}
    left = tuple(k for k in expected if k not in got)
    if not errors:
        return row("not covered", note="nothing to compare", left=left)
    worst = max(errors.values())
    status = "ok" if worst <= tolerance else "FAILED"
    where = "" if status == "ok" else "largest in " + max(errors, key=lambda k: errors[k])
    return row(status, worst, where, compared=tuple(errors), left=left)


def _error(got: Any, expected: Any) -> float:
    a = torch.as_tensor(got, dtype=torch.float64)
    b = torch.as_tensor(expected, dtype=torch.float64)
    if a.shape != b.shape:
        return float("inf")
    difference = (a - b).abs()
    return float("inf") if bool(difference.isnan().any()) else float(difference.max())


def _advantage(recipe: Recipe, inputs: Mapping[str, Any]) -> dict[str, Any]:
    batch, mask = vectors.batch_of(inputs)
    batch = batch.with_({"position": torch.arange(len(batch))})
    kept = recipe.sampling.keep(batch)
    flags = torch.zeros(len(batch))
    flags[kept["position"]] = 1.0
    last = batch.last("traj")
    groups = batch.at("group").id("group")
    return {
        "advantages": vectors.padded(credit(recipe, batch)["advantage"], mask),
        "kept": flags[last],
        "kept_groups": torch.isin(groups, batch.id("group")[kept["position"]]).double(),
    }


def _loss(recipe: Recipe, inputs: Mapping[str, Any]) -> dict[str, Any]:
    batch, mask = vectors.batch_of(inputs)
    if "advantage" not in batch and "reward" in batch:
        batch = credit(recipe, batch)
    # A case about one term says nothing of the others: with zeros in their columns they are 0.
    absent = [c for c in ("advantage", *TERMS) if c not in batch]
    return _objective(recipe, batch.with_({c: _zeros(batch) for c in absent}), mask)


def _objective(recipe: Recipe, batch: Batch, mask: Tensor) -> dict[str, Any]:
    objective = recipe.objectives[0]
    batch = weigh(objective, batch)
    leaves = {c: batch[c].clone().requires_grad_() for c in sorted(objective.live)}
    live = batch.with_(leaves)
    loss = objective.loss(live)
    grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    names = {"logp": "grad_logp", "value": "grad_values"}
    out: dict[str, Any] = {"loss": loss.detach()}
    for name, grad in zip(leaves, grads, strict=True):
        out[names.get(name, f"grad_{name}")] = vectors.padded(
            torch.zeros(len(batch)).double() if grad is None else grad, mask
        )
    ratio = objective.ratio(batch).exp()
    out["sequence_ratio"] = ratio[batch.last("traj")]
    clipped, dual = clip_fractions(objective, batch)
    if clipped == clipped:
        out |= {"clip_fraction": clipped, "dual_clip_fraction": dual}
    if hasattr(objective.surrogate, "bounds"):
        bounds = objective.surrogate.bounds(ratio, batch["advantage"])  # pyright: ignore
        out |= dict(zip(("low", "high", "pos_neg_ratio"), bounds, strict=True))
    return out


def _preference(recipe: Recipe, inputs: Mapping[str, Any]) -> dict[str, Any]:
    batch = credit(recipe, vectors.preference_batch(inputs))
    out = _objective(recipe, batch, torch.ones(len(batch), 1).bool())
    chosen, rejected = out.pop("grad_logp").flatten().chunk(2)
    return {"loss": out["loss"], "grad_chosen_logp": chosen, "grad_rejected_logp": rejected}


def _reward(recipe: Recipe, inputs: Mapping[str, Any]) -> dict[str, Any]:
    batch, _ = vectors.batch_of(inputs)
    batch = batch.with_({"reward": batch["reward"] if "reward" in batch else _zeros(batch)})
    for piece in recipe.reward:
        batch = batch.with_({"reward": piece(batch)})
    return {"rewards": batch.at("traj")["reward"]}


def _zeros(batch: Batch) -> Tensor:
    return torch.zeros(len(batch), dtype=torch.float64)


RUNNERS: dict[str, Callable[[Recipe, Mapping[str, Any]], dict[str, Any]]] = {
    "advantage": _advantage,
    "loss": _loss,
    "preference-loss": _preference,
    "reward": _reward,
}
"""Kind of a file → what is run for it."""
