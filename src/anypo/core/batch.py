"""`Batch`: every trainable step of every trajectory, as flat columns with integer ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from anypo.core.errors import UsageError
from anypo.math import segments

LASTING = frozenset({"prompt", "version", "position", "stage"})
"""Ids that keep their value when batches are joined; every other id is local and renumbered."""

CURES = {
    "logp": "it is computed by the likelihood while an objective is evaluated",
    "logp_old": "declare it in the piece's `needs`",
    "logp_mu": "the rollout records it; data without a sampler has none",
    "value": "the recipe needs a critic, for example regularize=(ValueLoss(),)",
    "advantage": "it is written by the recipe's advantage piece",
    "weight": "it is written by the recipe's aggregate piece",
    "log_ratio": "it is written by the recipe's ratio piece",
}


@dataclass(frozen=True)
class Batch:
    """All trainable steps, concatenated, without padding and without masks.

    Parameters
    ----------
    columns : name → tensor `[N, …]`, one row per step (`reward`, `advantage`, `logp_mu`, …).
    ids : name → int64 tensor `[N]`. Nested units `turn ⊂ traj ⊂ group`, `seq` (one network
        input), free units (`anchor`, `stage`, …), and lasting ids (`prompt`, `version`).
        Local ids are dense: `0 … K−1`, so that row `k` of a table belongs to unit `k`.
    tables : level → name → one value per unit of that level (tensor, or list).
    inputs : name → what the network reads, one row per `seq` (tensor, or list of tensors).

    The steps of a trajectory are contiguous and in time order.
    """

    columns: Mapping[str, Tensor] = field(default_factory=dict)
    ids: Mapping[str, Tensor] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> Batch:
        """The batch of no steps: the neutral element of `+`."""
        return cls()

    def __len__(self) -> int:
        for x in (*self.ids.values(), *self.columns.values()):
            return len(x)
        return 0

    def __getitem__(self, name: str) -> Tensor:
        if name in self.columns:
            return self.columns[name]
        cure = CURES.get(name, f"the columns here are {', '.join(sorted(self.columns)) or 'none'}")
        raise UsageError(f"the batch has no column {name!r}: {cure}")

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def id(self, level: str) -> Tensor:
        """Ids of a level, `[N]`; `step` and `batch` are always there."""
        if level in self.ids:
            return self.ids[level]
        device = next((x.device for x in self.ids.values()), None)
        if level == "step":
            return torch.arange(len(self), device=device)
        if level == "batch":
            return torch.zeros(len(self), dtype=torch.long, device=device)
        if level == "turn" and "seq" in self.ids:
            return self.ids["seq"]
        raise UsageError(
            f"the batch has no id {level!r}; it has {', '.join(sorted(self.ids)) or 'none'}"
        )

    def count(self, level: str) -> int:
        """Number of units of a level that have a step."""
        return len(self) if level == "step" else segments.dense(self.id(level))[1]

    def table(self, level: str) -> Mapping[str, Any]:
        """The table of a level, one row per unit: `batch.table("traj")["answer"]`."""
        return self.tables.get(level, {})

    def with_(self, columns: Mapping[str, Tensor]) -> Batch:
        """The same batch with columns added or replaced."""
        for name, x in columns.items():
            if len(x) != len(self):
                raise ValueError(f"column {name!r} has {len(x)} rows, the batch {len(self)} steps")
        return replace(self, columns={**self.columns, **columns})

    # ── the three primitives ────────────────────────────────────────────────────────────────

    def _units(self, over: str, within: str | Sequence[str]) -> tuple[Tensor, Tensor, int]:
        """First step of each `over` unit, the dense `within` id of that step, and their count."""
        names = (within,) if isinstance(within, str) else tuple(within)
        outer = segments.combine(*[self.id(name) for name in names])
        if over == "step":
            picks = torch.arange(len(self), device=outer.device)
        else:
            unit, count = segments.dense(self.id(over))
            picks = segments.first_index(unit, count)
            if not torch.equal(outer[picks][unit], outer):
                raise UsageError(f"a {over!r} unit spans several {'×'.join(names)!r} units")
        return picks, outer, int(outer.max()) + 1 if len(self) else 0

    def _reduce(self, x: Tensor, over: str, within: str | Sequence[str], how) -> Tensor:
        if len(x) != len(self):
            raise ValueError(f"values have {len(x)} rows, the batch {len(self)} steps")
        if not len(self):
            return x
        picks, outer, count = self._units(over, within)
        if over != "step":
            self._constant(x, over, picks)
        return how(x[picks], outer[picks], count)[outer]

    def _constant(self, x: Tensor, over: str, picks: Tensor) -> None:
        """Raise unless a unit has one value, to rounding: vector units round equal inputs apart."""
        unit, _ = segments.dense(self.id(over))
        x = x.detach() if x.is_floating_point() else x.double()
        value, spread = x.nan_to_num(), x[picks][unit].nan_to_num()
        slack = 64 * torch.finfo(x.dtype).eps
        if not torch.allclose(value, spread, rtol=slack, atol=slack):
            raise UsageError(
                f"a statistic over {over!r} needs one value per {over}; collapse it first, for "
                f"example batch.sum(x, within={over!r})"
            )

    def sum(self, x: Tensor, within: str | Sequence[str], over: str = "step") -> Tensor:
        """Sum of one value per `over` unit within each `within` unit, on the step axis `[N]`."""
        return self._reduce(x, over, within, segments.segment_sum)

    def mean(self, x: Tensor, within: str | Sequence[str], over: str = "step") -> Tensor:
        """Mean of one value per `over` unit within each `within` unit, on the step axis `[N]`."""
        return self._reduce(x, over, within, segments.segment_mean)

    def std(
        self, x: Tensor, within: str | Sequence[str], over: str = "step", ddof: int = 1
    ) -> Tensor:
        """Two-pass standard deviation; 0 for a single or an all-equal unit. On the step axis."""
        return self._reduce(
            x, over, within, lambda v, i, k: segments.segment_std(v, i, k, ddof=ddof)
        )

    def max(self, x: Tensor, within: str | Sequence[str], over: str = "step") -> Tensor:
        """Largest value within each unit, on the step axis `[N]`."""
        return self._reduce(
            x, over, within, lambda v, i, k: segments.segment_extreme(v, i, k, "max")
        )

    def min(self, x: Tensor, within: str | Sequence[str], over: str = "step") -> Tensor:
        """Smallest value within each unit, on the step axis `[N]`."""
        return self._reduce(
            x, over, within, lambda v, i, k: segments.segment_extreme(v, i, k, "min")
        )

    def quantile(
        self, x: Tensor, q: float, within: str | Sequence[str], over: str = "step"
    ) -> Tensor:
        """Quantile `q` within each unit, on the step axis `[N]`."""
        return self._reduce(x, over, within, lambda v, i, k: segments.segment_quantile(v, i, k, q))

    def rank(self, x: Tensor, within: str | Sequence[str], over: str = "traj") -> Tensor:
        """Rank of each `over` unit within its `within` unit (0 = smallest, ties share the mean)."""
        if over == "step":
            return self._reduce(x, over, within, lambda v, i, k: segments.segment_rank(v, i))
        picks, outer, _ = self._units(over, within)
        self._constant(x, over, picks)
        unit, _ = segments.dense(self.id(over))
        return segments.segment_rank(x[picks], outer[picks])[unit]

    def size(self, over: str, within: str | Sequence[str]) -> Tensor:
        """How many `over` units each `within` unit has, float64 on the step axis `[N]`."""
        ones = torch.ones(len(self), dtype=torch.float64, device=self.id("batch").device)
        return self.sum(ones, within=within, over=over)

    def scan(self, x: Tensor, a: Tensor | float, within: str = "traj") -> Tensor:
        """`y_n = x_n + a_n · y_{n+1}`, restarting at each unit; shape `[N]`."""
        a = torch.as_tensor(a, dtype=x.dtype, device=x.device)
        return segments.scan(x, a.expand_as(x), self.id(within))

    def next(self, x: Tensor, within: str = "traj", fill: Tensor | float = 0.0) -> Tensor:
        """`x_{n+1}` of the same unit, `fill` at its last step; shape `[N]`."""
        return segments.shift(x, self.id(within), fill)

    def last(self, level: str = "traj") -> Tensor:
        """Whether a step is the last of its unit, bool `[N]`."""
        unit, count = segments.dense(self.id(level))
        out = torch.zeros(len(self), dtype=torch.bool, device=unit.device)
        out[segments.last_index(unit, count)] = True
        return out

    def at(self, level: str) -> Batch:
        """The same batch with one row per unit: rewards summed, constant columns kept."""
        unit, count = segments.dense(self.id(level))
        picks = segments.first_index(unit, count)
        columns = {
            name: segments.segment_sum(x, unit, count) if name == "reward" else x[picks]
            for name, x in self.columns.items()
            if name == "reward" or torch.equal(x[picks][unit], x)
        }
        ids = {k: v[picks] for k, v in self.ids.items() if torch.equal(v[picks][unit], v)}
        return Batch(columns, ids, self.tables, {})

    def spread(self, level: str, values: Tensor) -> Tensor:
        """Values of units (`[K]`, in the order of `at(level)`) back on the step axis `[N]`."""
        return values[segments.dense(self.id(level))[0]]

    # ── slicing and joining ─────────────────────────────────────────────────────────────────

    def take(self, steps: Tensor) -> Batch:
        """The chosen steps (bool `[N]` or indices), with ids renumbered and tables sliced alike."""
        columns = {name: x[steps] for name, x in self.columns.items()}
        ids: dict[str, Tensor] = {}
        tables: dict[str, dict[str, Any]] = {}
        inputs: Mapping[str, Any] = {}
        for name, x in self.ids.items():
            picked = x[steps]
            if name in LASTING:
                ids[name] = picked
                continue
            units, ids[name] = torch.unique(picked, return_inverse=True)
            if name in self.tables:
                tables[name] = {k: _rows(v, units) for k, v in self.tables[name].items()}
            if name == "seq":
                inputs = {k: _rows(v, units) for k, v in self.inputs.items()}
        return Batch(columns, ids, tables, inputs)

    def take_units(self, level: str, units: Tensor | Iterable[int]) -> Batch:
        """The steps of the named units of a level."""
        units = torch.as_tensor(list(units) if not isinstance(units, Tensor) else units)
        return self.take(torch.isin(self.id(level), units.to(self.id(level).device)))

    def __add__(self, other: Batch) -> Batch:
        return concat([self, other])


def concat(batches: Sequence[Batch]) -> Batch:
    """Join batches: local ids are renumbered so that units stay apart, lasting ids are kept.

    A column, id, table or input that one of the batches lacks is an error: half a column would be
    a silent gap.
    """
    parts = [b for b in batches if len(b)]
    if len(parts) < 2:
        return parts[0] if parts else Batch.empty()
    for kind in ("columns", "ids", "inputs"):
        names = [set(getattr(b, kind)) for b in parts]
        if any(n != names[0] for n in names):
            odd = sorted(set.union(*names) - set.intersection(*names))
            raise ValueError(f"cannot join batches: {kind} {odd} are not in all of them")
    columns = {k: torch.cat([b.columns[k] for b in parts]) for k in parts[0].columns}
    ids = {}
    for name in parts[0].ids:
        offset, pieces = 0, []
        for b in parts:
            pieces.append(b.ids[name] + (0 if name in LASTING else offset))
            offset += int(b.ids[name].max()) + 1
        ids[name] = torch.cat(pieces)
    tables = {
        level: {k: _join([b.tables[level][k] for b in parts]) for k in table}
        for level, table in parts[0].tables.items()
    }
    inputs = {k: _join([b.inputs[k] for b in parts]) for k in parts[0].inputs}
    return Batch(columns, ids, tables, inputs)


def _rows(values: Any, units: Tensor) -> Any:
    if isinstance(values, Tensor):
        return values[units]
    return [values[i] for i in units.tolist()]


def _join(values: Sequence[Any]) -> Any:
    if isinstance(values[0], Tensor):
        return torch.cat(list(values))
    return [row for part in values for row in part]
