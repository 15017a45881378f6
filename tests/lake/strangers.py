"""A program that knows nothing of mqttscope reads the tables of a lake: ``python strangers.py LAKE OUT``.

It writes what each reader finds in each table into the folder OUT, as files of Arrow.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
from deltalake import DeltaTable


def readers(path: str) -> dict[str, Any]:
    """The rows of a table, by the name of the reader."""
    table = DeltaTable(path)
    arrow = table.to_pyarrow_table()
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    connection.register("rows", arrow)
    files = [file_uri.replace("'", "''") for file_uri in table.file_uris()]
    document = {
        "pyarrow": arrow,
        "duckdb": connection.sql("select * from rows").to_arrow_table(),
        "polars": polars.read_delta(path).to_arrow(),
        "polars, lazily": polars.scan_delta(path).collect().to_arrow(),
    }
    if files:
        names = ", ".join(f"'{file}'" for file in files)
        document["duckdb, by files"] = connection.sql(f"select * from read_parquet([{names}])").to_arrow_table()
    return document


def main(lake: str, out: str) -> None:
    """Read all tables."""
    for folder in sorted(Path(lake).iterdir()):
        if not (folder / "_delta_log").is_dir():
            continue
        for reader, actual_reader in readers(str(folder)).items():
            with (
                pa.OSFile(f"{out}/{folder.name}.{reader}.arrow", "wb") as file,
                pa.ipc.new_file(file, actual_reader.schema) as to,
            ):
                to.write_table(actual_reader)
    assert not [name for name in sys.modules if name.startswith("mqttscope")]


if __name__ == "__main__":
    main(*sys.argv[1:])
