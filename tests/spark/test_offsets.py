"""Offsets: they say everything, in little room."""

from __future__ import annotations

import json

import pytest

from mqttscope.capture.pcap import Interface, ReaderState
from mqttscope.spark.offsets import Followed, Offset, Said


def test_written_and_read_again() -> None:
    memory = ReaderState(900, 7, 1_700_000_000_000_000_000, [1], 0, False, ">", [Interface(1, 0, 1000, 1, 0)])
    offset = Offset(
        {
            "a.pcapng": Followed(0, "a.pcapng", ReaderState(500, 3), 11, 12, 510),
            "b.pcapng": Followed(1, "b.pcapng", memory, 1, 2, None, 77, 5),
            "c.gz": Followed(2, "c.gz", ReaderState(), waiting=9, is_whole=True),
            "d.gz": Followed(3, "d.gz", ReaderState(20), 3, 4, 20, is_whole=True),
        },
        4,
        [Said(9, "e", "has gone", 3, 70)],
        ["d.gz"],
    )  # fmt: skip
    written = json.dumps(offset.written())

    again = Offset.of(json.loads(written))
    assert again == offset
    assert list(again.captures) == list(offset.captures)
    assert json.dumps(again.written()) == written
    assert offset.captures["b.pcapng"].copy() == offset.captures["b.pcapng"]
    assert Offset.of(Offset().written()) == Offset()


def test_names_that_are_no_utf8() -> None:
    names = ("a\udcff.pcap", "b\udcff.pcap")
    offset = Offset({names[0]: Followed(0, names[0], ReaderState(20), size=20), names[1]: Followed(1, names[1])}, 2)

    assert Offset.of(json.loads(json.dumps(offset.written()))) == offset


def test_how_far_a_capture_is() -> None:
    assert Followed(0, "a", first_ns=5).now_ns == 5
    assert Followed(0, "a", ReaderState(9, 1, 7), first_ns=5).now_ns == 7


def test_other_versions_are_refused() -> None:
    with pytest.raises(ValueError, match="the offset has version 7, this program reads 1"):
        Offset.of({"version": 7})
