"""Ingests that are killed: ``python -m tests.lake.kill_ingest LAKES STEP PART PART [SETTINGS]`` says what became of it.

In place of the second part, ``forget NAME``, ``expire NS``, ``rebuild PART`` and ``relint CODE`` are killed.  LAKES is
a folder, or a place in a store, and so may be a part; the settings of the store are a JSON object.  The first part is
ingested, then the second one is killed where it brings something to the disk or the store: at the first place, at that
STEP places after it, and so on to the end; each time in a new copy of the lake.  With ``NUMBER@SEED`` as STEP it is
killed that often, at random times.  Every ingest is a process of its own,
a fork of this one, which has no threads of delta-rs and pyarrow: these do not survive a fork.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from mqttscope.capture.locations import find
from mqttscope.lake import delta
from mqttscope.lake.forget import expire, forget, keep_findings
from mqttscope.lake.manifest import PENDING, read_manifest
from mqttscope.lake.store import LakeStore, Place, StorePath, place
from mqttscope.lake.writer import write_lake
from tests.lake.reading import all_of_them, all_rows, options, rows_for_others


def forked(work: Callable[[], Any], killed_after_s: float | None = None) -> Any:
    """What work gives in a process of its own; ``None`` where that was killed.  `AssertionError` if it failed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with open(writer, "w") as out:
            json.dump(work(), out)
        os._exit(0)
    os.close(writer)
    if killed_after_s is not None:
        time.sleep(killed_after_s)
        os.kill(child, signal.SIGKILL)
    with open(reader) as wrapper:
        text = wrapper.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), f"the process ended with {code}"
    return None if code or not text else json.loads(text)


def ingest(lake: Place, capture: str) -> dict[str, int]:
    """Take a capture in, wherever it is."""
    settings = {} if isinstance(lake, Path) else lake.store.settings
    return write_lake(find([capture], settings), lake, options(), settings=settings).rows


def change(lake: Place, work: str) -> None:
    """Ingest a capture, or change the lake otherwise."""
    name, _, word = work.partition(" ")
    key = os.environ.get("MQTTSCOPE_KEY_FILE")
    if name == "forget":
        forget(lake, [word], key_file=key, everywhere=True)
    elif name == "expire":
        expire(lake, int(word))
    elif name == "rebuild":
        settings = {} if isinstance(lake, Path) else lake.store.settings
        write_lake(find([word], settings), lake, options(key_file=key), settings=settings, rebuild=True)
    elif name == "relint":
        keep_findings(lake, options(rules=tuple(rule for rule in all_of_them() if rule.code != word)))
    else:
        ingest(lake, work)


def killed(lake: Place, capture: str, moment: int) -> bool:
    """Ingest a capture or change the lake, and end when something is brought to the disk for the n-th time.

    In a store the moments before and after something is written or committed count.
    """
    calls = count(1)

    def reached() -> None:
        if next(calls) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(owner: Any, name: str, *, after: bool) -> None:
        real = getattr(owner, name)

        def watched(*arguments: Any, **more: Any) -> Any:
            reached()
            result = real(*arguments, **more)
            if after:
                reached()
            return result

        setattr(owner, name, watched)

    if isinstance(lake, Path):
        watch(os, "fsync", after=False)
        watch(Path, "unlink", after=False)
    else:
        for owner, name in ((StorePath, "open_output"), (LakeStore, "replace"), (delta, "_publish")):
            watch(owner, name, after=True)
    change(lake, capture)
    return True


def again(lake: Place, capture: str) -> dict[str, Any]:
    """What is read after a kill, and after the same ingest has been run again."""
    pending, before, read = is_pending(lake), all_rows(lake), read_manifest(lake).generation
    change(lake, capture)
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
    if "@" in step:
        number, _, seed = step.partition("@")
        _kill_at_random(named, second, int(number), random.Random(int(seed)))
        return
    for moment in count(1, int(step)):
        lake = named(f"lake-{moment}")
        forked(partial(copy, named("base"), lake))
        if forked(partial(killed, lake, second, moment)):
            break
        sys.stdout.write(json.dumps(forked(partial(again, lake, second))) + "\n")


def _kill_at_random(named: Callable[[str], Place], work: str, number: int, chance: random.Random) -> None:
    """Kill a change this often, at random times of its usual duration."""
    forked(partial(copy, named("base"), named("measured")))
    begun = time.monotonic()
    forked(partial(change, named("measured"), work))
    duration_s = time.monotonic() - begun
    for at in range(number):
        lake = named(f"lake-{at}")
        forked(partial(copy, named("base"), lake))
        forked(partial(change, lake, work), chance.uniform(0, duration_s))
        sys.stdout.write(json.dumps(forked(partial(again, lake, work))) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
