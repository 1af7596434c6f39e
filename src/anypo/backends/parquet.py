"""Parquet files through pyarrow: datasets in, completions out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anypo.core.errors import UsageError
from anypo.tasks.dataset import find
from anypo.tasks.task import Row


def read_rows(path: Path | str) -> list[Row]:
    """The rows of a parquet file as JSON-able mappings (a date or a decimal becomes its text).

    Raises `UsageError` for an absent file and for one that is no whole parquet file.
    """
    try:
        return [_plain(row) for row in pq.read_table(find(Path(path))).to_pylist()]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"{path} cannot be read as parquet ({reason}): write it again") from error


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def write_rows(path: Path | str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a parquet file, whole or not at all; an absent value is null.

    A column whose values have no common parquet type is written as JSON text.
    """
    path = Path(path)
    names = dict.fromkeys(name for row in rows for name in row)
    table = pa.table({name: _column([row.get(name) for row in rows]) for name in names})
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    pq.write_table(table, part)
    os.replace(part, path)


def _column(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return pa.array([None if v is None else json.dumps(v, default=str) for v in values])
