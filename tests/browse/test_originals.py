"""Packets of captures that a lake was made of, by their frames."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection
from pathlib import Path

from tests import tools

tools.package("textual")

from mqttscope.browse.index import FROM_SERVER, Index
from mqttscope.browse.originals import Originals, WantedPacket
from mqttscope.browse.rows import PACKETS
from mqttscope.capture.fingerprint import fingerprint_at
from mqttscope.cli.browsing import SourceCapture
from mqttscope.cli.options import FileOptions, ProtocolOptions
from tests.browse.made import SECONDS, built, capture
from tests.each import each

NAMES = ("v5-qos", "many-in-one-segment", "coalesced", "ws-fragmented", "pcap-in-gzip", "lost-segment")


def opened(path: str, digests: Collection[str]) -> SourceCapture:
    return SourceCapture(path, digests, FileOptions(), ProtocolOptions())


def ready(originals: Originals, path: Path) -> str:
    """Why a capture cannot be read, once that is known."""
    originals.state(str(path))
    until = time.monotonic() + SECONDS
    while originals.is_reading and time.monotonic() < until:
        time.sleep(0.01)
    return originals.state(str(path))


def wanted(index: Index) -> list[tuple[WantedPacket, bytes]]:
    """How each packet is found, and its bytes."""
    out: list[tuple[WantedPacket, bytes]] = []
    for row in index.rows.run(0, len(index.rows)):
        raw = index.raw(row)
        if row.kind in PACKETS:
            what = (
                row.frame,
                bool(row.flags & FROM_SERVER),
                row.header,
                len(raw),
                index.connections[row.connection].client,
            )
            out.append(((*what, sum(row[:5] == what for row, _ in out)), raw))
    return out


@each("name", [text for text in NAMES if capture(text).exists()])
def test_packets_are_found_by_their_frames(name: str) -> None:
    path = capture(name)
    originals = Originals({fingerprint_at(path).digest: str(path)}, opened)
    try:
        assert ready(originals, path) == ""
        for what, raw in wanted(built(path)):
            event = originals.packet(str(path), what)
            if event is None or event.packet.missing:
                assert name == "lost-segment"
            else:
                assert event.packet.raw == raw
        assert originals.packet(str(path), (1, False, 0x10, 3, "nobody", 0)) is None
    finally:
        originals.stop()


def test_why_there_are_no_bytes(tmp_path: Path) -> None:
    path, other = tmp_path / "a.pcapng", tmp_path / "b.pcapng"
    shutil.copy(capture("v5-qos"), path)
    digest = fingerprint_at(path).digest
    originals = Originals({digest: str(path), "0" * 64: str(other)}, opened)
    nothing: WantedPacket = (1, False, 0x10, 3, "nobody", 0)
    try:
        assert ready(originals, other) == "b.pcapng no longer exists"
        assert ready(originals, tmp_path / "c.pcapng") == "c.pcapng has a name that the lake does not list"
        shutil.copy(path, other)
        originals.stop()
        assert ready(originals, other) == "b.pcapng has changed since it was ingested"
        assert originals.packet(str(other), nothing) is None
        # The same capture under a name that has had two contents.
        both = Originals({digest: str(path), "0" * 64: str(path)}, opened)
        assert ready(both, path) == ""
        both.stop()
    finally:
        originals.stop()


def test_few_captures_stay_open(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.pcapng" for number in range(5)]
    for path in paths:
        shutil.copy(capture("v5-qos"), path)
    digest = fingerprint_at(paths[0]).digest
    captures: list[SourceCapture] = []

    def counted(path: str, digests: Collection[str]) -> SourceCapture:
        captures.append(opened(path, [digest]))
        return captures[-1]

    originals = Originals({f"{number}": str(path) for number, path in enumerate(paths)}, counted)
    for path in paths:
        assert ready(originals, path) == ""
    assert len(originals._opened) == 3
    assert len(captures) == 5
    # Looked at again, one that was closed is read again.
    assert ready(originals, paths[0]) == ""
    assert len(captures) == 6
    originals.stop()
