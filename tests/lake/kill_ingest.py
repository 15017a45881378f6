"""Ingests that are killed: ``python -m tests.lake.kill_ingest LAKES STEP PART PART [SETTINGS]`` says what became of it.

LAKES is a folder, or a place in a store, and so may be a part; the settings of the store are a JSON object.  The first
part is ingested, then the second one is killed where it brings something to the disk or the store: at the first place,
at that STEP places after it, and so on to the end; each time in a new copy of the lake.  Every ingest is a process of
its own, a fork of this one, which has no threads of delta-rs and pyarrow: these do not survive a fork.
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

from mqttscope.capture.locations import find
from mqttscope.lake import delta
from mqttscope.lake.manifest import PENDING, read_manifest
from mqttscope.lake.store import Place, Store, StorePath, place
from mqttscope.lake.writer import write_lake
from tests.lake.reading import all_rows, options, rows_for_others


def forked(work: Callable[[], Any]) -> Any:
    """What work gives in a process of its own; ``None`` where that was killed.  `AssertionError` if it failed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with open(writer, "w") as out:
            json.dump(work(), out)
        os._exit(0)
    os.close(writer)
    with open(reader) as given:
        told = given.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), f"the process ended with {code}"
    return None if code else json.loads(told)


def ingest(lake: Place, capture: str) -> dict[str, int]:
    """Take a capture in, wherever it is."""
    settings = {} if isinstance(lake, Path) else lake.store.settings
    return write_lake(find([capture], settings), lake, options(), settings=settings).rows


def killed(lake: Place, capture: str, moment: int) -> bool:
    """Ingest a capture, and end without a word when something is brought to the disk for the n-th time.

    In a store the moments before and after something is written or committed count.
    """
    calls = count(1)

    def reached() -> None:
        if next(calls) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(owner: Any, name: str, *, after: bool) -> None:
        real = getattr(owner, name)

        def watched(*given: Any, **more: Any) -> Any:
            reached()
            found = real(*given, **more)
            if after:
                reached()
            return found

        setattr(owner, name, watched)

    if isinstance(lake, Path):
        watch(os, "fsync", after=False)
    else:
        for owner, name in ((StorePath, "open_output"), (Store, "replace"), (delta, "_publish")):
            watch(owner, name, after=True)
    ingest(lake, capture)
    return True


def again(lake: Place, capture: str) -> dict[str, Any]:
    """What is read after a kill, and after the same ingest has been run again."""
    pending, before, read = is_pending(lake), all_rows(lake), read_manifest(lake).generation
    ingest(lake, capture)
    return {
        "pending": pending, "read": read, "before": before, "after": all_rows(lake), "in_tables": rows_for_others(lake),
        "generation": read_manifest(lake).generation,
    }  # fmt: skip


def is_pending(lake: Place) -> bool:
    """Whether a commit has broken off that the next ingest completes."""
    if isinstance(lake, Path):
        return (lake / PENDING).exists()
    return read_manifest(lake, PENDING).generation > read_manifest(lake).generation


def copy(base: Place, lake: Place) -> None:
    """A copy of a lake."""
    if isinstance(base, Path):
        shutil.copytree(base, str(lake))
        return
    assert isinstance(lake, StorePath)
    for name in base.store.files():
        with (lake / name).open_output() as file:
            file.write((base / name).read_bytes())


def main(lakes: str, step: str, first: str, second: str, settings: str = "{}") -> None:
    """Kill ingests until one ends by itself."""

    def named(name: str) -> Place:
        return place(f"{lakes}/{name}", json.loads(settings))

    forked(lambda: ingest(named("base"), first))
    for moment in count(1, int(step)):
        lake = named(f"lake-{moment}")
        forked(partial(copy, named("base"), lake))
        if forked(partial(killed, lake, second, moment)):
            break
        sys.stdout.write(json.dumps(forked(partial(again, lake, second))) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
