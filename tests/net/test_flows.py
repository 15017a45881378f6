from __future__ import annotations

import contextlib
import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dpkt
import pytest

from mqttscope.net.flow import Flow, FlowEvent, FlowOpened, StreamData, StreamGap, StreamOverlap
from mqttscope.net.flows import FlowTable
from mqttscope.net.segment import ACK, SYN, Segment, direction_key, reverse_key
from tests import corpora
from tests.net.script import HANDSHAKE, check_tiling, feed, parse, render

if TYPE_CHECKING:
    from collections.abc import Iterator


DERIVED = "captures/derived/*/tcp-*.pcap"
STRANGE = "captures/tcp-*/*.pcap*"
NETWORK_LAYER = {1: dpkt.ethernet.Ethernet, 113: dpkt.sll.SLL, 276: dpkt.sll2.SLL2}


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def test_acknowledgments_of_both_sides_are_kept_as_stream_offsets() -> None:
    lines = [*HANDSHAKE, "> A 101:abc 501", "< A 501:xyz 103", "> FA 104 504", "< A 504 105"]
    flow = feed(FlowTable(), parse(lines))[0].flow

    assert flow.initiator.acknowledged == 4
    assert flow.responder.acknowledged == 3


def test_an_old_acknowledgment_does_not_take_back_a_newer_one() -> None:
    flow = feed(FlowTable(), parse([*HANDSHAKE, "> A 101:abc 501", "< A 501 104", "< A 501 102"]))[0].flow

    assert flow.initiator.acknowledged == 3


def test_what_is_ignored_moves_neither_direction() -> None:
    table = FlowTable()
    lines = [*HANDSHAKE, "> S 100", "> R 90000", "< A 501 200000000", "> FA 101 501", "> FA 101 501", "> A 102:xyz 501"]
    flow = feed(table, parse(lines[:-3]))[0].flow

    assert (flow.initiator.state, flow.initiator.acknowledged, flow.responder.state) == ("open", 0, "open")

    events = [render(event) for event in feed(table, parse(lines[-3:]))]

    assert events == ["> closed fin", "> discarded 3 after_fin"]
    assert (flow.initiator.state, flow.initiator.fin_offset, flow.responder.state) == ("fin", 0, "open")


def test_a_connection_of_an_endpoint_with_itself_does_no_harm() -> None:
    key = direction_key(bytes([10, 0, 0, 1] * 2), (1883).to_bytes(2, "big") * 2)
    assert reverse_key(key) == key

    table = FlowTable()
    segments = [
        Segment(key, 100, 0, SYN, 1000, b"", 0, 1, 0, "c"),
        Segment(key, 100, 101, SYN | ACK, 1000, b"", 0, 2, 0, "c"),
        Segment(key, 101, 101, ACK, 1000, b"abc", 0, 3, 0, "c"),
    ]
    check_tiling([*feed(table, segments), *table.close()])
    assert not table.flows


def test_a_flow_goes_on_in_another_table() -> None:
    first, second = FlowTable(), FlowTable()
    segments = parse([*HANDSHAKE, "> A 103:cd 501", "< A 501 105", "> A 101:ab 501", "> FA 105 501"])
    events = feed(first, segments[:4])
    flow: Flow = events[0].flow
    second.adopt(flow)
    events += feed(second, segments[4:])

    assert [render(event) for event in events] == ["opened", "> 0:abcd", "> closed fin"]
    assert second.buffered_bytes == 0


def test_the_context_belongs_to_the_layer_above() -> None:
    table = FlowTable()
    flow = feed(table, parse(HANDSHAKE))[0].flow
    assert flow.context is None

    flow.context = "mine"
    (event,) = feed(table, parse(["> A 101:abc 501"]))
    assert event.flow.context == "mine"


def read_segments(path: Path) -> Iterator[Segment]:
    """The TCP segments of a capture as dpkt sees them."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        records: list[tuple[int, bytes]] = []
        with contextlib.suppress(ValueError, dpkt.Error):
            reader = dpkt.pcap.UniversalReader(file)
            records.extend((round(float(timestamp) * 1e9), data) for timestamp, data in reader)
        for number, (timestamp_ns, data) in enumerate(records, 1):
            try:
                layer = NETWORK_LAYER.get(reader.datalink(), dpkt.ip.IP)(data)
            except dpkt.Error:
                continue
            while not isinstance(layer, (dpkt.ip.IP, dpkt.ip6.IP6, bytes)):
                layer = layer.data
            if isinstance(layer, bytes) or not isinstance(layer.data, dpkt.tcp.TCP):
                continue
            tcp = layer.data
            if isinstance(layer, dpkt.ip.IP):
                length = layer.len - layer.hl * 4 - tcp.off * 4
            else:
                length = layer.plen - tcp.off * 4
            payload = bytes(tcp.data)[: max(0, length)]
            key = direction_key(layer.src + layer.dst, tcp.sport.to_bytes(2, "big") + tcp.dport.to_bytes(2, "big"))
            missing = max(0, length - len(payload))
            where = (number, timestamp_ns, path.name)
            yield Segment(key, tcp.seq, tcp.ack, tcp.flags, tcp.win, payload, missing, *where)


def run(path: Path) -> list[FlowEvent]:
    table = FlowTable()
    events = feed(table, list(read_segments(path)))
    events.extend(table.close())
    check_tiling(events)
    assert table.buffered_bytes == 0
    assert not table.flows
    return events


def streams(events: list[FlowEvent]) -> list[tuple[str, bytes]]:
    """Direction and content of every stream, with a byte of FF for each one lost."""
    contents: dict[tuple[int, str], bytes] = defaultdict(bytes)
    for event in events:
        if isinstance(event, FlowOpened):
            contents[id(event.flow), "c2s"] += b""
            contents[id(event.flow), "s2c"] += b""
        elif isinstance(event, (StreamData, StreamGap)):
            data = event.data if isinstance(event, StreamData) else b"\xff" * event.length
            contents[id(event.flow), "c2s" if event.from_initiator else "s2c"] += data
    return sorted((direction, data) for (_, direction), data in contents.items())


def truth(path: Path) -> list[tuple[str, bytes]]:
    entries = json.loads(path.with_name("truth.json").read_text())
    return sorted((entry["direction"], bytes.fromhex("".join(entry["packets"]))) for entry in entries)


def derived(*, lost: bool) -> list[Any]:
    """Real streams that were cut and mixed: with a lost segment, or without."""

    def chosen(paths: list[Path]) -> list[Path]:
        return [path for path in paths if ("lost" in path.name) is lost]

    return [*chosen(corpora.committed(DERIVED)), *corpora.cases(DERIVED, chosen(corpora.further(DERIVED)))]


def test_there_are_captures() -> None:
    assert len(corpora.committed(DERIVED)) >= 20
    assert len(corpora.committed(STRANGE)) >= 100


@pytest.mark.long
@pytest.mark.parametrize("path", derived(lost=False), ids=name_of)
def test_real_streams_come_out_whole_however_they_were_cut_and_mixed(path: Path) -> None:
    events = run(path)

    assert streams(events) == truth(path)
    assert not [event for event in events if isinstance(event, (StreamGap, StreamOverlap))]


@pytest.mark.parametrize("path", derived(lost=True), ids=name_of)
def test_a_lost_segment_of_a_real_stream_is_a_proven_gap_of_its_length(path: Path) -> None:
    events = run(path)
    gaps = [event for event in events if isinstance(event, StreamGap)]

    assert {gap.reason for gap in gaps} == {"not_captured"}
    pairs = streams(events)
    assert [(direction, len(data)) for direction, data in pairs] == [(way, len(data)) for way, data in truth(path)]
    lost = 0
    for (_, data), (_, wanted) in zip(pairs, truth(path), strict=True):
        different = [at for at, (number, other) in enumerate(zip(data, wanted, strict=True)) if number != other]
        lost += len(different)
        assert all(data[at] == 0xFF for at in different)
    assert 0 < lost <= sum(gap.length for gap in gaps)


@pytest.mark.parametrize("path", [*corpora.committed(STRANGE), *corpora.cases(STRANGE)], ids=name_of)
def test_strange_captures_never_raise_and_keep_the_laws(path: Path) -> None:
    run(path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tcp-zeek/tcp__handshake-reorder.pcap", [("c2s", 136, 0), ("s2c", 5007, 0)]),
        ("tcp-zeek/tcp__miss_end_data.pcap", [("c2s", 538, 0), ("s2c", 2902, 2902)]),
        ("tcp-suricata-verify/leading-gap.pcap", [("c2s", 12, 4), ("s2c", 0, 0)]),
        ("tcp-suricata-verify/rst-with-data.pcap", [("c2s", 0, 0), ("s2c", 17, 0)]),
        ("tcp-zeek/tcp__rst-inject-rae.pcap", [("c2s", 25, 0), ("s2c", 0, 0)]),
        ("tcp-suricata-verify/split-handshake-5whs.pcap", [("c2s", 4, 0), ("s2c", 0, 0)]),
    ],
)
def test_known_captures(name: str, expected: list[tuple[str, int, int]]) -> None:
    events = run(corpora.path("captures", name))
    lost = {"c2s": 0, "s2c": 0}
    for event in events:
        if isinstance(event, StreamGap):
            lost["c2s" if event.from_initiator else "s2c"] += event.length

    assert [(direction, len(data), lost[direction]) for direction, data in streams(events)] == expected
