"""`anypo verify`: run the pieces of a recipe on reference cases and report the largest error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anypo.core import combine
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import Piece, Reward
from anypo.core.recipe import Recipe, recorded
from anypo.engine.collect import credit, stamped
from anypo.engine.metrics import clip_fractions
from anypo.engine.problem import weigh
from anypo.pieces.advantage.beside import Beside
from anypo.verify import functions, vectors

TOLERANCE = 1e-8
ROW_COLUMNS = frozenset(vectors.ROWS.values())
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
        own = f"{method} {kind}"
        name = own if own in functions.FUNCTIONS else method
        recipe = configured(name, case["inputs"], resolve)
        got = _results(recipe, kind, case["inputs"])
        for key, form in vectors.VARIANTS.items():
            if key in case["expected"]:
                other = configured(name, {**case["inputs"], **form}, resolve)
                got[key] = _results(other, kind, case["inputs"])["advantages"]
    except UsageError as error:  # a method, a field or a column that we do not have
        return row("not covered", note=str(error).splitlines()[0])
    expected = {k: v for k, v in case["expected"].items() if not isinstance(v, str)}
    steps = case["inputs"].get("mask")
    errors = {
        k: _error(_named(got, k, expected[k]), expected[k], steps) for k in expected if k in got
    }
    left = tuple(k for k in expected if k not in got)
    if not errors:
        return row("not covered", note="nothing to compare", left=left)
    worst = max(errors.values())
    status = "ok" if worst <= tolerance else "FAILED"
    where = "" if status == "ok" else "largest in " + max(errors, key=lambda k: errors[k])
    return row(status, worst, where, compared=tuple(errors), left=left)


def configured(
    method: str, inputs: Mapping[str, Any], resolve: Callable[..., Recipe]
) -> Recipe | functions.Function:
    """What a case is run on, with its hyper-parameters: arguments of the method, then fields.

    A method is a recipe, of which the first stage that has all fields is taken; or a piece alone,
    or a function. Raises `UsageError` for a method or a hyper-parameter that is not known.
    """
    if method in functions.FUNCTIONS:
        return functions.FUNCTIONS[method]
    base = functions.ALONE.get(method) or partial(resolve, method)
    recipe: Recipe = base()
    arguments = dict(vectors.WORDS.get(str(inputs.get("loss")), {}))
    for name, value in inputs.items():
        if not vectors.data(name, value):
            with suppress(UsageError, TypeError):
                recipe = base(**arguments, **{name: value})
                arguments[name] = value
    recipe = base(**arguments)
    rest = {k: v for k, v in inputs.items() if k not in arguments}
    missing = [vectors.unknown(rest, stage) for stage in recipe.stages]
    for stage in (s for s, m in zip(recipe.stages, missing, strict=True) if not m):
        with suppress(UsageError):  # another stage may take the values that this one refuses
            return vectors.configure(stage, rest)
    if all(missing):
        raise UsageError("unknown inputs: " + ", ".join(missing[0]))
    return vectors.configure(recipe.stages[missing.index([])], rest)


def _named(got: Mapping[str, Any], name: str, expected: Any) -> Any:
    """A result by its name in the file; rewards may be written per row or per step."""
    per_step = f"token_{name}"
    return got[per_step] if per_step in got and torch.as_tensor(expected).dim() == 2 else got[name]


def _error(got: Any, expected: Any, steps: Any = None) -> float:
    """Largest difference; where a position is no step, what a code leaves there says nothing."""
    a = torch.as_tensor(got, dtype=torch.float64)
    b = vectors.rectangle(expected)
    if a.shape == (len(b) if b.dim() else 0, 1):  # one step per row, written without the axis
        a = a[:, 0]
    if a.shape != b.shape:
        return float("inf")
    difference = (a - b).abs()
    mask = None if steps is None else torch.as_tensor(steps).bool()
    if mask is not None and mask.shape == difference.shape:
        difference = difference[mask]
    return float("inf") if bool(difference.isnan().any()) else float(difference.max())


def _prepared(recipe: Recipe, inputs: Mapping[str, Any]) -> tuple[Batch, Tensor]:
    """The case's batch after the recipe's shaping; what a rollout counts on is there."""
    batch, mask = vectors.batch_of(inputs)
    if "reward" not in batch:
        batch = batch.with_({"reward": _zeros(batch)})
    batch = recipe.sampling.mark(batch)
    start = {k: v for p in recipe.pieces for k, v in p.init().items()}
    state = {k: v for k, v in stamped(batch, start).items() if k not in batch}
    score = {} if "score" in batch else {"score": batch["reward"]}
    for value in ("value", "ref.base.value"):
        if value in batch and f"{value}_next" not in batch:
            score |= {f"{value}_next": batch.next(batch[value], within="traj")}
    batch = batch.with_({**score, **state})
    given = {"token_rewards", "advantages", "rank_advantages"} & {*inputs}
    fresh = "logp" in batch and "logp_old" not in batch  # rewards are given before an update
    batch = batch.with_({"logp_old": batch["logp"]}) if fresh and not given else batch
    for piece in () if given else recipe.reward:
        batch = batch.with_({"reward": _shaped(piece, batch)})
    return batch, mask


def _shaped(piece: Reward, batch: Batch) -> Tensor:
    """The piece's reward; a case about one term says nothing of costs whose columns it lacks."""
    try:
        return piece(batch)
    except UsageError:
        if all(c in batch or recorded(c) for c in piece.needs):
            raise
        return batch["reward"]


def _advantage(recipe: Recipe, inputs: Mapping[str, Any]) -> dict[str, Any]:
    batch, mask = _prepared(recipe, inputs)
    marked = batch.with_({"place": torch.arange(len(batch))})
    kept = recipe.sampling.thin(recipe.sampling.keep(marked))
    flags = torch.zeros(len(batch))
    flags[kept["place"]] = 1.0
    last = batch.last("traj")
    groups = batch.at("group").id("group")
    credited = credit(recipe, batch)
    out = {name: vectors.padded(x, mask) for name, x in credited.columns.items() if x.dim() == 1}
    advantage = vectors.padded(credited["advantage"], mask)
    first = getattr(recipe.advantage, "first", recipe.advantage)  # before it is standardised
    raw = combine.value(first, batch)
    return out | {
        "advantages": advantage,
        "advantages_raw": vectors.padded(raw, mask),
        "advantages_whitened": advantage,
        "returns": vectors.padded(credited.columns.get("return", raw), mask),
        "token_rewards": vectors.padded(batch["reward"], mask),
        "rank_advantages": advantage,
        "rank_rewards": vectors.padded(batch.scan(batch["reward"], 1.0), mask),
        "rewards": batch.at("traj")["reward"],
        "calibrated_rewards": batch.at("traj")["reward"],
        "transition_advantage": advantage,
        "unique_transitions": batch.count("edge") if "edge" in batch.ids else 0,
        "kept": flags[last],
        "kept_groups": torch.isin(groups, batch.id("group")[kept["place"]]).double(),
    }


def _loss(recipe: Recipe, inputs: Mapping[str, Any]) -> dict[str, Any]:
    batch, mask = _prepared(recipe, inputs)
    if "advantage" not in batch and (vectors.OUTCOMES & {*inputs}):
        batch = credit(recipe, batch)
    batch = batch.with_(_beside(recipe, batch))
    # A case about one term says nothing of the others: with zeros in their columns they are 0,
    # and a penalty on the distance to a reference that is not there is none.
    recipe = recipe.but(regularize=tuple(p for p in recipe.regularize if _has_reference(p, batch)))
    absent = [c for c in ("advantage", *TERMS) if c not in batch]
    return _objective(recipe, batch.with_({c: _zeros(batch) for c in absent}), mask)


def _has_reference(piece: Piece, batch: Batch) -> bool:
    return all(c in batch for c in piece.needs if c.startswith("ref."))


def _parts(piece: Piece) -> list[Piece]:
    """A piece, or those that it combines."""
    inner = piece.parts if isinstance(piece, combine.Combined) else ()
    return [q for p in inner for q in _parts(p)] or [piece]


def _beside(recipe: Recipe, batch: Batch) -> dict[str, Tensor]:
    """What the recipe writes beside an advantage that is given, unless the case gives it too."""
    piece = recipe.advantage
    if "advantage" not in batch or not isinstance(piece, Beside) or piece.name in batch:
        return {}
    return {piece.name: combine.value(piece.other, batch)}


def _objective(recipe: Recipe, batch: Batch, mask: Tensor) -> dict[str, Any]:
    objective = recipe.objectives[0]
    out: dict[str, Any] = {}
    for piece in (q for p in (*objective.pieces, objective.aggregate) for q in _parts(p)):
        if type(piece) in functions.PARTS:
            out[functions.PARTS[type(piece)]] = vectors.padded(combine.value(piece, batch), mask)
    batch = weigh(objective, batch.with_({"place": torch.arange(len(batch))}))
    leaves = {c: batch[c].clone().requires_grad_() for c in sorted(objective.live)}
    live = batch.with_(leaves)
    loss = objective.loss(live)
    grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    names = {"logp": "grad_logp", "value": "grad_values"}
    out["loss"] = loss.detach()
    for name, grad in zip(leaves, grads, strict=True):
        whole = torch.zeros(int(mask.sum())).double()  # steps without a weight have no gradient
        if grad is not None:
            whole[batch["place"]] = grad
        whole = vectors.padded(whole, mask)
        # A number of the row stands on all of its steps.
        out[names.get(name, f"grad_{name}")] = whole.sum(1) if name in ROW_COLUMNS else whole
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
    # The answer's log-probability stands on its first step.
    chosen, rejected = out.pop("grad_logp").flatten()[batch.last("traj")].chunk(2)
    return {"loss": out["loss"], "grad_chosen_logp": chosen, "grad_rejected_logp": rejected}


def _reward(recipe: Recipe, inputs: Mapping[str, Any]) -> dict[str, Any]:
    batch, mask = _prepared(recipe, inputs)
    tokens = vectors.padded(batch["reward"], mask)
    return {"rewards": batch.at("traj")["reward"], "token_rewards": tokens}


def _results(recipe: Any, kind: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What a case's recipe or function gives."""
    if isinstance(recipe, Recipe):
        return RUNNERS[kind](recipe, inputs)
    return _function(recipe, inputs)


def _function(function: functions.Function, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return function(**inputs)


def _zeros(batch: Batch) -> Tensor:
    return torch.zeros(len(batch), dtype=torch.float64)


RUNNERS: dict[str, Callable[[Any, Mapping[str, Any]], dict[str, Any]]] = {
    "advantage": _advantage,
    "loss": _loss,
    "preference-loss": _preference,
    "reward": _reward,
    **dict.fromkeys(("function", "value", "divergence", "update"), _function),
}
"""Kind of a file → what is run for it."""
