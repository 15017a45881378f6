"""What is to be read between two offsets of a stream."""

from __future__ import annotations

import json
import os

from mqttscope.capture.growing import Grown
from mqttscope.capture.pcap import Memory
from mqttscope.capture.reading import NO_FRAME
from mqttscope.spark.going_on import remembered
from mqttscope.spark.locations import Location
from mqttscope.spark.offsets import Followed, Offset
from mqttscope.spark.plan import Task
from mqttscope.spark.rows import ERROR, READ, Note

GROWING, BEHIND, COMPLETE, KNOWN = "growing", "behind", "complete", "known"
"""What a row of kind `READ` says of a capture: it is read to its present end; more is there, which the limit of a batch
left for the next one; it is read to its end for good; its content was in the lake already."""


def tasks(start: Offset, end: Offset) -> list[Task]:
    """One task for each capture in which something is to be read or said; the same ones for the same offsets."""
    before = {one.file: one for one in start.captures.values()}
    made = [
        Task(one.file, Location(one.name, one.name), notes=[Note(ERROR, one.message, one.frames, one.offset)])
        for one in end.said
    ]
    for one in end.captures.values():
        earlier = before.get(one.file)
        if earlier == one and not one.waiting:
            continue
        is_known = one.name in end.passed
        task = Task(one.file, _location(one), notes=[_read(one, is_known=is_known)])
        if not is_known:
            task.grown = _grown(one, earlier)
        made.append(task)
    return made


def _location(one: Followed) -> Location:
    return Location(one.name, os.path.abspath(one.name), one.size or one.memory.position)


def _grown(one: Followed, earlier: Followed | None) -> Grown | None:
    """What is new of a capture."""
    position = 0 if earlier is None else earlier.memory.position
    was_begun = one.begun > (0 if earlier is None else earlier.begun)
    was_complete = earlier is not None and earlier.size is not None
    if one.memory.position <= position and (one.size is None or was_complete):
        return None
    if was_begun or (one.begun and not position):
        begin = remembered(one.name, one.begun)
    elif earlier is None:
        begin = Memory()
    elif was_complete:
        begin = remembered(one.name, position)
    else:
        begin = earlier.memory.copy()
    return Grown(begin, one.memory.copy() if one.size is None else None, one.size or 0)


def _read(one: Followed, *, is_known: bool) -> Note:
    state = KNOWN if is_known else BEHIND if one.waiting else GROWING if one.size is None else COMPLETE
    now_ns = None if one.size is not None or one.now_ns == NO_FRAME else int(one.now_ns)
    position = one.memory.position if one.size is None else one.size
    # Names in rows are text; who wants to open the file needs its own, and has to know whether it is still this one.
    told = json.dumps([one.name, one.memory.position, one.head, one.tail])
    return Note(READ, state, one.memory.frames, position, one.waiting, told, timestamp_ns=now_ns)
