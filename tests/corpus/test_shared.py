"""Every capture of the shared collection: read without a fault, counted as tshark or as the truth beside it says."""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path
from typing import Any

from mqttscope.dissect import Options
from mqttscope.events import PacketEvent, UnparsedEvent
from tests.conftest import ROOT, shared_path
from tests.corpus.reading import Found, read
from tests.each import sampled

SHARED = ROOT.parent / "shared" / "captures"
AT_LEAST = 360

CUT = "tshark stops at cut packets and loses those after them"
PIECES = "tshark loses framing where a segment ends inside a Remaining Length of two bytes"
OVERLAPS = "tshark reads retransmitted pieces as new data"
TLS = "tshark decrypts with the key log; here TLS is listed only, and on this port only when the user names it"
WEB = "tshark does not decode MQTT over WebSocket"

EXPLAINED: dict[str, tuple[int, str]] = {
    "derived/paho-v5-live/file-snap64.pcap": (34, CUT + "; 31 packets lack bytes that they cannot be read without"),
    "derived/suricata-mqtt5-props/file-snap64.pcap": (2, "tshark counts the 3 packets that lack their middle too"),
    "live/snap96-v4.pcap": (
        68, CUT + "; of 73 packets 2 lack their middle, 3 lie in bytes that were cut or could not be told from payload",
    ),
    **{f"derived/paho-v5-live/{name}.pcap": (73, PIECES) for name in (
        "tcp-3-byte-segments", "tcp-7-byte-segments", "tcp-cut-after-2", "tcp-cut-after-3",
        "tcp-seq-wraparound-shuffled",
    )},
    **{f"derived/suricata-mqtt5-props/{name}.pcap": (5, PIECES) for name in (
        "tcp-1-byte-segments", "tcp-2-byte-segments", "tcp-cut-after-2",
    )},
    "derived/paho-v5-live/tcp-overlapping.pcap": (73, OVERLAPS),
    "derived/paho-v5-live/tcp-overlapping-shuffled.pcap": (73, OVERLAPS),
    "derived/paho-v5-live/tcp-lost-second-data-segment.pcap": (71, "tshark gives up a stream at its first hole"),
    "derived/suricata-mqtt5-props/tcp-lost-second-data-segment.pcap": (4, "tshark gives up a stream at its first hole"),
    "live/paho-tls12-v4.pcap": (0, TLS),
    "live/paho-tls12-v4-dsb.pcapng": (0, TLS),
    "live/paho-ws-v3.pcap": (75, WEB),
    "live/paho-ws-v4.pcap": (73, WEB),
    "live/paho-ws-v5.pcap": (73, WEB),
}  # fmt: skip
"""Files in which the count is another one than tshark's: ours, and why."""

WITH_HOLES = {
    "derived/paho-v5-live/file-snap64.pcap",
    "derived/suricata-mqtt5-props/file-snap64.pcap",
    "derived/paho-v5-live/tcp-lost-second-data-segment.pcap",
    "derived/suricata-mqtt5-props/tcp-lost-second-data-segment.pcap",
}
UNSUPPORTED_LINK = "link-linktype-user0.pcap"


def rows() -> list[dict[str, str]]:
    """The lines of the index; none without the collection."""
    if not (SHARED / "INDEX.tsv").is_file():
        return []
    with (SHARED / "INDEX.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


ROWS = rows()
COUNTS = {row["file"]: int(row["mqtt_tshark_ooo"] or 0) for row in ROWS}
DERIVED = [name for name in COUNTS if name.startswith("derived/")]
WEBSOCKET = sorted(path.name for path in SHARED.glob("live/*.ws-truth.json"))


@cache
def found_in(name: str) -> Found:
    return read(SHARED / name)


@cache
def truth(folder: str) -> dict[tuple[int, str], list[bytes]]:
    """The exact packets of a derived family by flow and direction."""
    words = {"c2s": "client_to_server", "s2c": "server_to_client"}
    listed = json.loads((SHARED / folder / "truth.json").read_text(encoding="utf-8"))
    return {
        (one["flow"], words[one["direction"]]): [bytes.fromhex(raw) for raw in one["packets"]]
        for one in listed
        if one["packets"]
    }


def family(name: str) -> str:
    return name.rpartition("/")[0]


def test_the_collection_is_there() -> None:
    shared_path()

    assert len(ROWS) >= AT_LEAST
    assert len(DERIVED) >= 140
    assert sum(count > 0 for count in COUNTS.values()) >= 180
    assert len(WEBSOCKET) == 3
    assert set(EXPLAINED) <= set(COUNTS)
    assert set(COUNTS) >= WITH_HOLES
    captures = {path for path in SHARED.rglob("*") if path.suffix in (".pcap", ".pcapng", ".gz", ".lz4", ".zst")}
    # What trials are for stands in their own tests.
    assert {path for path in captures if path.parent.name != "trials"} == {SHARED / name for name in COUNTS}


@sampled("name", COUNTS)
def test_every_file_is_read_and_counted_as_expected(name: str) -> None:
    found = found_in(name)

    expected, _ = EXPLAINED.get(name, (COUNTS[name], ""))
    assert found.count == expected
    assert len(found.closed) == len(found.connections)


def test_nothing_is_explained_that_needs_no_explanation() -> None:
    shared_path()

    assert [name for name, (count, reason) in EXPLAINED.items() if count == COUNTS[name] or not reason] == []


@sampled("name", [name for name in COUNTS if not COUNTS[name] and name not in EXPLAINED])
def test_no_mqtt_is_seen_where_there_is_none(name: str) -> None:
    assert found_in(name).connections == []


@sampled("name", [one for one in DERIVED if one not in WITH_HOLES and not one.endswith(UNSUPPORTED_LINK)])
def test_the_bytes_of_all_packets_are_the_true_ones(name: str) -> None:
    found = found_in(name)

    assert found.streams() == truth(family(name))
    assert not found.malformed
    assert not found.unparsed
    assert not found.gaps
    assert all(one.version_known or not one.handshake_seen for one in found.connections)


@sampled("name", sorted(WITH_HOLES & set(COUNTS)))
def test_where_bytes_are_missing_each_item_is_a_part_of_what_was_sent(name: str) -> None:
    """Items and gaps cover the true streams in order: what was captured is right, what is missing has its length."""
    found = found_in(name)
    sent = {stream: b"".join(packets) for stream, packets in truth(family(name)).items()}
    at = dict.fromkeys(sent, 0)
    lost = dict.fromkeys(sent, 0)
    for gap in found.gaps:
        lost[gap.connection.number, str(gap.direction)] += gap.length
    for event in found.events:
        if isinstance(event, PacketEvent):
            raw, missing = event.packet.raw, event.packet.missing
        elif isinstance(event, UnparsedEvent):
            # Bytes passed over lie after the gap that made it necessary, those of a cut packet before it.
            raw, missing = event.unparsed.raw, event.unparsed.missing
            if event.unparsed.reason == "resynchronised":
                missing = 0
        else:
            continue
        stream = (event.connection.number, str(event.direction))
        start = sent[stream].index(raw, at[stream])
        # A hole between two packets, or around whole ones, is told as a gap only.
        lost[stream] -= start - at[stream] + missing
        at[stream] = start + len(raw) + missing

    assert found.gaps
    assert not found.malformed
    assert all(len(raw) - at[stream] == lost[stream] for stream, raw in sent.items())


@sampled("name", [name for name in DERIVED if name.endswith(UNSUPPORTED_LINK)])
def test_a_link_type_nobody_can_read_is_one_error_that_names_it(name: str) -> None:
    found = found_in(name)

    assert len(found.events) == len(found.errors) == 1
    assert "147" in found.errors[0].message
    assert found.errors[0].frames == 0


@sampled("name", WEBSOCKET)
def test_packets_in_websocket_are_the_true_ones(name: str) -> None:
    expected: dict[str, Any] = json.loads((SHARED / "live" / name).read_text(encoding="utf-8"))
    found = found_in(f"live/{expected['file']}")
    short = {"client_to_server": "c2s", "server_to_client": "s2c"}

    assert {one.transport for one in found.connections} == {"websocket"}
    assert {kind.lower(): number for kind, number in expected["mqtt_packets"].items()} == found.types()
    streams: dict[tuple[int, str], dict[str, int]] = {}
    for event in found.packets:
        types = streams.setdefault((event.connection.number, short[event.direction]), {})
        types[event.type.upper()] = types.get(event.type.upper(), 0) + 1
    assert streams == {(one["tcp_stream"], one["direction"]): one["mqtt_packets"] for one in expected["streams"]}


COUNTED_ALIKE = [row for row in ROWS if COUNTS[row["file"]] and row["file"] not in EXPLAINED]


@sampled("row", COUNTED_ALIKE, ids=lambda row: str(row["file"]))
def test_versions_and_types_are_those_that_tshark_saw(row: dict[str, str]) -> None:
    found = found_in(row["file"])

    levels: dict[str, int] = {}
    for event in found.both:
        if event.type == "connect":
            text = event.connection.version.text
            levels[text] = levels.get(text, 0) + 1
    versions = [one.partition("x") for one in row["versions"].split(",") if one]
    assert levels == {text: int(number) for text, _, number in versions}
    types = found.types()
    types.update(event.type or "" for event in found.malformed)
    seen = {kind.lower(): int(number) for kind, _, number in (one.partition(":") for one in row["types"].split())}
    if "type0" in seen:
        seen["reserved"] = seen.pop("type0")
    assert types == seen


def test_tls_is_listed_where_the_user_names_the_port() -> None:
    path = shared_path("captures", "live", "paho-tls12-v4.pcap")

    found = read(Path(path), Options(ports={8884: "tls"}))

    assert [one.transport for one in found.connections] == ["tls", "tls"]
    assert found.count == 0
    assert {one.details["version"] for one in found.connections} == {"TLS 1.3"}
