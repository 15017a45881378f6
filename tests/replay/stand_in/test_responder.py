"""Which recorded packet a packet of a device is."""

from __future__ import annotations

from mqttscope.replay.script import Entry
from mqttscope.replay.stand_in.responder import Counterparts
from tests.replay.talk import packet, record

TEXT = """
    dev > connect
    dev > publish a 1
    dev > publish b 2
    dev > publish a 3
    dev > subscribe 1 x:1 y:2
    dev > subscribe 2 z:0
    dev > pingreq
"""


class Found:
    def __init__(self) -> None:
        self.entries = record(TEXT)[0].entries
        self.counterparts = Counterparts(self.entries)

    def of(self, line: str, expected: int | None = None) -> int | None:
        kind, *words = line.split()
        made = packet("dev", kind, words)
        topic = words[0] if kind == "publish" else None
        at: Entry | None = None if expected is None else self.entries[expected]
        found = self.counterparts.find(made, topic, at)
        return None if found is None else self.entries.index(found.entry)


def test_by_topic_and_payload_then_topic() -> None:
    found = Found()
    assert [found.of("publish a 3"), found.of("publish a other"), found.of("publish a third")] == [3, 1, None]


def test_what_only_resembles_takes_nothing_away() -> None:
    found = Found()
    assert found.of("publish a other") == 1
    assert [found.of("publish a 1"), found.of("publish a 3")] == [1, 3]


def test_another_topic_is_what_was_expected() -> None:
    found = Found()
    assert found.of("publish other 2") is None
    assert found.of("publish other 2", expected=2) == 2
    assert found.of("publish other 2", expected=4) is None


def test_requests() -> None:
    found = Found()
    assert found.of("subscribe 7 y:0 x:0") == 4
    assert found.of("subscribe 8 unknown:0") == 5
    assert found.of("subscribe 9 unknown:0") is None
    assert [found.of("pingreq"), found.of("pingreq")] == [6, None]
