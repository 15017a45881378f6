"""Every capture of a collection: read without a fault, counted as tshark or as the truth beside it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mqttscope.dissect import Options
from mqttscope.events import PacketEvent, UnparsedEvent
from tests import corpora
from tests.corpus.reading import Found, read
from tests.each import each, sampled

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


ROWS = {row["file"]: row for row in corpora.index(corpora.DATA)}
"""The lines of the index of tests/data, by the name of the capture."""
FURTHER = {row["file"]: row for row in corpora.index(corpora.folder()) if row["file"] not in ROWS}
"""Those of the corpora beyond them."""


def collected(chosen: Callable[[str], object]) -> list[Any]:
    """Captures of both collections that tshark has counted, as parameters."""

    def names(rows: dict[str, dict[str, str]]) -> list[str]:
        # These have no count; what they are for is in their own tests.
        own = "trials/", "stacks/", "live/damaged"
        return [name for name in rows if not name.startswith(own) and chosen(name)]

    return [*names(ROWS), *corpora.cases(corpora.INDEX, names(FURTHER))]


def row_of(name: str) -> dict[str, str]:
    return ROWS.get(name) or FURTHER[name]


def count_of(name: str) -> int:
    """Packets that tshark sees."""
    return int(row_of(name)["mqtt_tshark_ooo"] or 0)


def derived(name: str) -> bool:
    return name.startswith("derived/") and not name.endswith(UNSUPPORTED_LINK)


@cache
def found_in(name: str) -> Found:
    return read(corpora.path("captures", name))


@cache
def truth(folder: str) -> dict[tuple[int, str], list[bytes]]:
    """The exact packets of a derived family by flow and direction."""
    words = {"c2s": "client_to_server", "s2c": "server_to_client"}
    listed = json.loads(corpora.path("captures", folder, "truth.json").read_text(encoding="utf-8"))
    return {
        (row["flow"], words[row["direction"]]): [bytes.fromhex(raw) for raw in row["packets"]]
        for row in listed
        if row["packets"]
    }


def family(name: str) -> str:
    return name.rpartition("/")[0]


@pytest.mark.parametrize("root", corpora.collections(corpora.INDEX))
def test_an_index_names_every_capture(root: Path) -> None:
    names = {row["file"] for row in corpora.index(root)}
    endings = (".pcap", ".pcapng", ".gz", ".lz4", ".zst")
    captures = {corpora.relative(path) for path in root.glob("captures/**/*") if path.suffix in endings}

    assert len(names) >= 300
    assert names <= captures
    assert {name for name in captures - names if not name.startswith(corpora.NOT_INDEXED)} == set()


@corpora.needs(corpora.INDEX)
def test_what_is_explained_exists() -> None:
    names = {*ROWS, *FURTHER}

    assert set(EXPLAINED) <= names
    assert names >= WITH_HOLES


@sampled("name", collected(lambda name: True))
def test_every_file_is_read_and_counted_as_expected(name: str) -> None:
    result = found_in(name)

    expected, _ = EXPLAINED.get(name, (count_of(name), ""))
    assert result.count == expected
    assert len(result.closed) == len(result.connections)


@each("name", [name for name in EXPLAINED if name in ROWS or name in FURTHER])
def test_nothing_is_explained_that_needs_no_explanation(name: str) -> None:
    count, reason = EXPLAINED[name]

    assert count != count_of(name)
    assert reason


@sampled("name", collected(lambda name: not count_of(name) and name not in EXPLAINED))
def test_no_mqtt_is_seen_where_there_is_none(name: str) -> None:
    assert found_in(name).connections == []


@sampled("name", collected(lambda name: derived(name) and name not in WITH_HOLES))
def test_the_bytes_of_all_packets_are_the_true_ones(name: str) -> None:
    result = found_in(name)

    assert result.streams() == truth(family(name))
    assert not result.malformed
    assert not result.unparsed
    assert not result.gaps
    assert all(connection.version_known or not connection.handshake_seen for connection in result.connections)


@sampled("name", collected(lambda name: name in WITH_HOLES))
def test_where_bytes_are_missing_each_item_is_a_part_of_what_was_sent(name: str) -> None:
    """Items and gaps cover the true streams in order: what was captured is right, what is missing has its length."""
    result = found_in(name)
    sent = {stream: b"".join(packets) for stream, packets in truth(family(name)).items()}
    at = dict.fromkeys(sent, 0)
    lost = dict.fromkeys(sent, 0)
    for gap in result.gaps:
        lost[gap.connection.number, str(gap.direction)] += gap.length
    for event in result.events:
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

    assert result.gaps
    assert not result.malformed
    assert all(len(raw) - at[stream] == lost[stream] for stream, raw in sent.items())


@sampled("name", collected(lambda name: name.endswith(UNSUPPORTED_LINK)))
def test_a_link_type_nobody_can_read_is_one_error_that_names_it(name: str) -> None:
    result = found_in(name)

    assert len(result.events) == len(result.errors) == 1
    assert "147" in result.errors[0].message
    assert result.errors[0].frames == 0


@pytest.mark.parametrize(
    "version",
    [5, *(pytest.param(version, marks=corpora.needs(f"captures/live/paho-ws-v{version}.*")) for version in (3, 4))],
)
def test_packets_in_websocket_are_the_true_ones(version: int) -> None:
    truth_of_it = corpora.path("captures", "live", f"paho-ws-v{version}.ws-truth.json")
    expected: dict[str, Any] = json.loads(truth_of_it.read_text(encoding="utf-8"))
    result = found_in(f"live/{expected['file']}")
    short = {"client_to_server": "c2s", "server_to_client": "s2c"}

    assert {connection.transport for connection in result.connections} == {"websocket"}
    assert {kind.lower(): number for kind, number in expected["mqtt_packets"].items()} == result.types()
    streams: dict[tuple[int, str], dict[str, int]] = {}
    for event in result.packets:
        types = streams.setdefault((event.connection.number, short[event.direction]), {})
        types[event.type.upper()] = types.get(event.type.upper(), 0) + 1
    assert streams == {(row["tcp_stream"], row["direction"]): row["mqtt_packets"] for row in expected["streams"]}


@sampled("name", collected(lambda name: count_of(name) and name not in EXPLAINED))
def test_versions_and_types_are_those_that_tshark_saw(name: str) -> None:
    result, row = found_in(name), row_of(name)

    levels: dict[str, int] = {}
    for event in result.both:
        if event.type == "connect":
            text = event.connection.version.text
            levels[text] = levels.get(text, 0) + 1
    versions = [word.partition("x") for word in row["versions"].split(",") if word]
    assert levels == {text: int(number) for text, _, number in versions}
    types = result.types()
    types.update(event.type or "" for event in result.malformed)
    seen = {kind.lower(): int(number) for kind, _, number in (word.partition(":") for word in row["types"].split())}
    if "type0" in seen:
        seen["reserved"] = seen.pop("type0")
    assert types == seen


def test_tls_is_listed_where_the_user_names_the_port() -> None:
    result = read(corpora.path("captures", "live", "paho-tls12-v4.pcap"), Options(ports={8884: "tls"}))

    assert [connection.transport for connection in result.connections] == ["tls", "tls"]
    assert result.count == 0
    assert {connection.details["version"] for connection in result.connections} == {"TLS 1.3"}
