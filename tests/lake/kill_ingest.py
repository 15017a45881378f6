"""Ingests that are killed: ``python -m tests.lake.kill_ingest FOLDER STEP PART PART`` prints what became of them.

The first part is ingested, then the second one is killed where it brings something to the disk: at the first place, at
that STEP places after it, and so on to the end; each time in a new copy of the lake.  Every ingest is a process of its
own, a fork of this one, which has no threads of delta-rs: these do not survive a fork.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from mqttscope.lake.manifest import PENDING, read_manifest
from mqttscope.lake.schemas import TABLES
from mqttscope.lake.writer import read_table, write_lake
from tests.lake.reading import options


def forked(work: Callable[[], Any]) -> Any:
    """What work gives in a process of its own; ``None`` where that was killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with open(writer, "w") as out:
            json.dump(work(), out)
        os._exit(0)
    os.close(writer)
    with open(reader) as given:
        told = given.read()
    _, status = os.waitpid(child, 0)
    return json.loads(told) if status == 0 else None


def killed(lake: Path, capture: str, place: int) -> bool:
    """Ingest a capture, and end without a word when something is brought to the disk for the n-th time."""
    sync, calls = os.fsync, count(1)

    def fsync(fd: Any) -> None:
        if next(calls) == place:
            os.kill(os.getpid(), signal.SIGKILL)
        sync(fd)

    os.fsync = fsync
    write_lake([capture], lake, options())
    return True


def rows(lake: Path) -> dict[str, list[str]]:
    """What mqttscope reads."""
    return {name: sorted(map(repr, read_table(lake, name).to_pylist())) for name in TABLES}


def in_tables(lake: Path) -> dict[str, list[str]]:
    """What everyone else reads."""
    return {name: sorted(map(repr, DeltaTable(str(lake / name)).to_pyarrow_table().to_pylist())) for name in TABLES}


def again(lake: Path, capture: str) -> dict[str, Any]:
    """What is read after a kill, and after the same ingest has been run again."""
    pending, before, read = (lake / PENDING).exists(), rows(lake), read_manifest(lake).generation
    write_lake([capture], lake, options())
    return {
        "pending": pending, "read": read, "before": before, "after": rows(lake), "in_tables": in_tables(lake),
        "generation": read_manifest(lake).generation,
    }  # fmt: skip


def main(folder: str, step: str, first: str, second: str) -> None:
    """Kill ingests until one ends by itself."""
    base = Path(folder) / "base"
    forked(lambda: write_lake([first], base, options()).rows)
    for place in count(1, int(step)):
        lake = Path(folder) / f"lake-{place}"
        shutil.copytree(base, lake)
        if forked(partial(killed, lake, second, place)):
            break
        sys.stdout.write(json.dumps(forked(partial(again, lake, second))) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
