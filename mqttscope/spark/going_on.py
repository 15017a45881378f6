"""One capture of a stream: going on in it, and what becomes of it."""

from __future__ import annotations

from contextlib import suppress

from mqttscope.capture.growing import advance, may_be_compressed, memory_at
from mqttscope.capture.pcap import Memory
from mqttscope.spark.contents import CHECK_BYTES, begins_with, checks
from mqttscope.spark.offsets import Followed, Said


def begins_compressed(name: str, one: Followed) -> bool:
    """Whether a file is compressed, and begins with what was read of a capture."""
    try:
        with open(name, "rb", buffering=0) as file:
            if not may_be_compressed(file.read(4)):
                return False
        return begins_with(name, one)
    except OSError:
        return False  # the next look says why


def remembered(name: str, position: int) -> Memory:
    """What a reader that came to a position remembers: found again from the beginning of the capture."""
    with open(name, "rb", buffering=0) as file:
        return memory_at(file, position)


def begin_at(one: Followed, position: int) -> None:
    """Go on in a capture behind a position, up to which it was read elsewhere."""
    one.begun = position
    if not one.is_whole:
        one.memory = remembered(one.name, position)
        with suppress(OSError), open(one.name, "rb", buffering=0) as file:
            one.head, one.tail = checks(file, one.memory.position)


def gone_on(one: Followed, name: str, size: int) -> Followed:
    """A capture as it is taken over, under its name now: one that was complete and has grown is so no more."""
    taken = one.copy()
    taken.name = name
    if one.size is not None and size > one.size and not one.is_whole:
        taken.memory = remembered(name, one.memory.position)
        taken.size = None
    return taken


def lost(one: Followed, size: int | None) -> Said:
    """What to say of a capture that cannot be read on; ``size``: of what has its name now."""
    position, frames = one.memory.position, one.memory.frames
    what = "has gone before it was complete"
    if size is not None:
        what = "has been replaced before it was complete"
        if CHECK_BYTES <= size < position:
            with suppress(OSError), open(one.name, "rb", buffering=0) as file:
                if checks(file, position)[0] == one.head:
                    what = f"has shrunk from {position} to {size} bytes"
    return Said(one.file, one.name, f"{what}: what came behind frame {frames} is not read", frames, position)


def advance_in(one: Followed, size: int, limit: int) -> int:
    """Read on by about ``limit`` bytes, of ``size`` at most; returns by how many."""
    try:
        with open(one.name, "rb", buffering=0) as file:
            if one.is_whole:
                passed = size - one.memory.position
                one.memory.position = size
            else:
                passed = advance(file, one.memory, size, limit=limit)
            one.head, one.tail = checks(file, one.memory.position)
    except OSError:
        return 0  # the next look says why
    return passed
