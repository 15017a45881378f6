"""A busy broker among clients that break rules of every scope, as a set of files that rotate."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from mqttscope.capture import PcapngWriter, open_capture
from mqttscope.lint.context import WIDE
from mqttscope.lint.examples import Conversation, segments
from mqttscope.net.frame import Frame
from mqttscope.net.segment import direction_key
from tests.bench.frames import MSS
from tests.bench.generate import START_NS, STEP_NS, generate
from tests.dissect.secure import as_frame
from tests.lake.reading import all_of_them

ALL_EXAMPLES = 10_600
"""Frames of all conversations that rules give as examples."""
CONVERSATIONS = [one for rule in all_of_them() for one in (*rule.bad, *rule.good)]
WIDE_CONVERSATIONS = [one for rule in all_of_them() if rule.scope in WIDE for one in (*rule.bad, *rule.good)]


def busy_capture(folder: Path, frames: int, seed: int) -> Path:
    """A capture of about so many frames: generated devices, and conversations of the rules' examples among them.

    Half of the conversations have a server of their own; the others share two, so that wide rules see them together.
    """
    calm, target = folder / "calm.pcapng", folder / "busy.pcapng"
    # Half of a small capture, so that few examples are not there; a tenth of a large one.
    among = max(frames // 10, min(frames // 2, ALL_EXAMPLES))
    generate(calm, frames - among, seed=seed, devices=max(20, min(1_000, frames // 150)))
    generated = (one for one in open_capture([calm]) if isinstance(one, Frame))
    examples = _conversations(random.Random(seed), among, frames * STEP_NS // 2)
    with PcapngWriter(target) as out:
        for frame in heapq.merge(generated, examples, key=lambda one: one.timestamp_ns):
            out.write(frame)
    calm.unlink()
    return target


def _conversations(chance: random.Random, frames: int, length_ns: int) -> list[Frame]:
    """Frames of conversations that begin anywhere in a time of so many nanoseconds, in the order of time."""
    made: list[Frame] = []
    for number, one in enumerate(_each(chance)):
        if len(made) >= frames:
            break
        found = segments(one, MSS)
        own = number >> 8 & 0xFF, number & 0xFF
        client = bytes((172, 16 + (number >> 16), *own))
        server = bytes((198, 18, *chance.choice((own, own, (255, 254), (255, 255)))))
        later_ns = START_NS + chance.randrange(length_ns) - found[0].timestamp_ns
        for each in found:
            out = each.key[:4] == bytes((10, 0, 0, 4))
            key = direction_key(client + server if out else server + client, each.key[8:12])
            made.append(as_frame(replace(each, key=key, timestamp_ns=each.timestamp_ns + later_ns)))
    made.sort(key=lambda one: one.timestamp_ns)
    return made


def _each(chance: random.Random) -> Iterator[Conversation]:
    """Examples of wide scope, which are few; then all in an order of its own, again and again."""
    yield from WIDE_CONVERSATIONS
    while True:
        yield from chance.sample(CONVERSATIONS, len(CONVERSATIONS))


def rotated(capture: Path, folder: Path, files: int, frames: int) -> list[str]:
    """The frames of a capture in so many files, one after the other; their paths in the order of time."""
    folder.mkdir()
    found: Iterator[Frame] = (one for one in open_capture([capture]) if isinstance(one, Frame))
    made = []
    for number in range(files):
        # The last one takes what is left.
        size = None if number == files - 1 else frames // files
        target = folder / f"busy_{number:05d}.pcapng"
        with PcapngWriter(target) as out:
            for frame in islice(found, size):
                out.write(frame)
        made.append(str(target))
    return made
