"""Arrays of buffers are those that pyarrow makes of the same values."""

from __future__ import annotations

import subprocess
import sys
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from mqttscope.lake.columns import array_of, batch_of
from mqttscope.lake.schemas import INTERNAL, TABLES
from tests.cli.running import environment
from tests.conftest import ROOT
from tests.each import each

KINDS = sorted({column.type for table in (*TABLES.values(), *INTERNAL) for column in table.columns}, key=str)
TEXTS = ("", "a", "b\u00e9", "c" * 9)


def value(kind: pa.DataType, chance: Random, nulls: float) -> Any:
    if chance.random() < nulls:
        return None
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return {field.name: value(field.type, chance, nulls) for field in fields if chance.random() < 0.5}
    if pa.types.is_list(kind):
        return [value(kind.value_type, chance, nulls) for _ in range(chance.randrange(3))]
    if pa.types.is_string(kind):
        return chance.choice((*TEXTS, str(chance.random())))
    if pa.types.is_binary(kind):
        return chance.randbytes(chance.randrange(4))
    return chance.random() < 0.5 if pa.types.is_boolean(kind) else chance.randrange(-5, 5)


@each("kind", KINDS, ids=str)
def test_arrays_are_those_that_pyarrow_makes(kind: pa.DataType) -> None:
    chance = Random(str(kind))
    for nulls in (0, 0.01, 0.5, 1):
        for count in (0, 1, 2, 40, 300):
            values = [value(kind, chance, nulls) for _ in range(count)]
            result, wanted = array_of(values, kind), pa.array(values, kind)
            result.validate(full=True)
            assert (result.type, result.to_pylist()) == (kind, wanted.to_pylist())


def test_what_a_struct_has_no_field_for_does_not_count() -> None:
    assert array_of([{"a": 1, "b": 2}, {}], pa.struct([("a", pa.int64())])).to_pylist() == [{"a": 1}, {"a": None}]


def test_rows_fit_their_columns() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert batch_of(schema, [(1, "x"), (None, "y")]).to_pylist() == [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]
    assert batch_of(schema, []).num_rows == 0
    for rows in ([(1,)], [(1, "x"), (1,)], [(1, "x", 2)]):
        with pytest.raises(ValueError, match="zip"):
            batch_of(schema, rows)


def test_an_ingest_does_without_pandas(tmp_path: Any) -> None:
    capture = ROOT / "captures" / "v5-qos" / "capture.pcapng"
    program = (
        "import sys; from mqttscope.lake.writer import write_lake; "
        f"write_lake([{str(capture)!r}], {str(tmp_path / 'lake')!r}); sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], env=environment(), check=False).returncode == 0
