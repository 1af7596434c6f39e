"""Parquet files through pyarrow: datasets in, completions out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
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
    columns = {_encodable(n): _column([row.get(n) for row in rows]) for n in names}
    table = pa.table(columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    pq.write_table(table, part)
    os.replace(part, path)


def _column(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except UnicodeEncodeError:
        return _column([_encodable(v) for v in values])
    except (pa.ArrowException, OverflowError):
        return pa.array([None if v is None else json.dumps(v, default=str) for v in values])


def _encodable(value: Any) -> Any:
    """The value with lone surrogates, which no file of text may hold, written out."""
    if isinstance(value, dict):
        return {_encodable(key): _encodable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encodable(inner) for inner in value]
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column as JSON has them."""
    kind = column.type.value_type if pa.types.is_list(column.type) else column.type
    plain = (pa.types.is_string, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    values = column.to_pylist()
    return values if any(is_(kind) for is_ in plain) else [_plain(v) for v in values]


class Table:
    """A parquet file read in parts: columns when they are asked for, rows by their numbers.

    Raises `UsageError` as `read_rows` does.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._columns: dict[str, pa.ChunkedArray] = {}
        try:
            self._file = pq.ParquetFile(self.path)
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise UsageError(f"{path} cannot be read as parquet ({reason})") from error
        self.names: list[str] = list(self._file.schema_arrow.names)
        self.count: int = self._file.metadata.num_rows

    def column(self, name: str) -> list[Any]:
        """All values of a column."""
        return _values(self._read(name))

    def rows(self, picks: Sequence[int], names: Sequence[str]) -> list[Row]:
        """Some rows, with some columns."""
        places = pa.array(picks, pa.int64())
        taken = {n: _values(self._read(n).take(places)) for n in names}
        return [{n: values[k] for n, values in taken.items()} for k in range(len(picks))]

    def find(self, text: str, names: Sequence[str]) -> list[int]:
        """The rows that hold a text, in any case, in one of some columns."""
        found: set[int] = set()
        for name in names:
            if self.is_text(name):
                mask = pc.match_substring(self._read(name), text, ignore_case=True).fill_null(False)
                found.update(pc.indices_nonzero(mask).to_pylist())
        return sorted(found)

    def is_text(self, name: str) -> bool:
        """Whether a column holds texts."""
        kind = self._file.schema_arrow.field(name).type
        return pa.types.is_string(kind) or pa.types.is_large_string(kind)

    def sizes(self, name: str) -> Any:
        """Absolute values of a column of lists of numbers, all in one NumPy array."""
        flat = pc.list_flatten(self._read(name).combine_chunks())
        return abs(flat.drop_null().to_numpy(zero_copy_only=False))

    def _read(self, name: str) -> pa.ChunkedArray:
        if name not in self._columns:
            self._columns[name] = self._file.read([name]).column(0)
        return self._columns[name]
