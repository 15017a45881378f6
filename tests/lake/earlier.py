"""Lakes as earlier releases wrote them: Parquet files and a manifest, without Delta tables."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from mqttscope.lake.manifest import EARLIER, NAME
from mqttscope.lake.schemas import RENAMED, TABLES


def make_earlier(lake: Path, *, schema: int = 2) -> None:
    """Make a lake one of an earlier release; in version 1 columns had other names, and some were not there."""
    data: dict[str, Any] = json.loads((lake / NAME).read_text())
    for name in TABLES:
        shutil.rmtree(lake / name / "_delta_log")
    for table, names in data["open_files"].items():
        for place, name in enumerate(names):
            token = f"{name.partition('/')[2].partition('-')[0]}-{table}-token-{place}.parquet"
            (lake / "open").mkdir(exist_ok=True)
            (lake / name).rename(lake / "open" / token)
            names[place] = f"open/{token}"
            for known in ("sizes", "rows", "checksums"):
                data[known][names[place]] = data[known].pop(name)
    del data["versions"], data["checksum"], data["options"]
    if schema == 1:
        _make_first(lake, data)
    data |= {"format": EARLIER, "retired": {}}
    (lake / NAME).write_text(json.dumps(data))


def _make_first(lake: Path, data: dict[str, Any]) -> None:
    then = RENAMED["connections"]
    for name in [*data["files"].get("connections", []), *data["open_files"].get("connections", [])]:
        table = pq.read_table(lake / name, partitioning=None).drop_columns(["late", "also_closed"])
        pq.write_table(
            table.rename_columns([then.get(column_name, column_name) for column_name in table.column_names]),
            lake / name,
        )
        data["sizes"][name] = (lake / name).stat().st_size
    del data["checksums"], data["schema"]
