"""Where a lake has a name: every Parquet column, statistics, Delta logs, states and manifests are decoded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from mqttscope.lake.state import MAGIC, unpacked


def values(value: Any) -> Iterator[str | bytes]:
    """All texts and bytes in a value, in encoded states too."""
    if isinstance(value, bytes) and value[:4] == MAGIC:
        yield from values(list(unpacked(value)))
    elif isinstance(value, str | bytes):
        yield value
    elif isinstance(value, dict):
        for name, own in value.items():
            yield from values(name)
            yield from values(own)
    elif isinstance(value, list | tuple):
        for own in value:
            yield from values(own)


def _content(path: Path) -> Iterator[str | bytes]:
    if path.suffix == ".parquet":
        file = pq.ParquetFile(path)
        yield from values(file.read().to_pylist())
        yield from values(file.metadata.to_dict() | {"metadata": file.metadata.metadata})
        for group in range(file.num_row_groups):
            for at in range(file.metadata.num_columns):
                statistics = file.metadata.row_group(group).column(at).statistics
                if statistics is not None and statistics.has_min_max:
                    yield from values([statistics.min, statistics.max])
    elif path.suffix == ".json":
        for line in [path.read_text()] if path.name == "manifest.json" else path.read_text().splitlines():
            yield from values(json.loads(line))
    else:
        yield path.read_bytes()


def places(lake: Path, name: str) -> list[str]:
    """The files of a lake that have a name, anywhere."""
    names = []
    for path in sorted(path for path in lake.rglob("*") if path.is_file()):
        texts = list(_content(path))
        if any(name in text if isinstance(text, str) else name.encode() in text for text in texts):
            names.append(path.relative_to(lake).as_posix())
    return names
