"""What several rules need: problems of a WebSocket, other layouts, open requests; durations and their words."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttscope.dissect import dissect_segments
from mqttscope.events import ConnectionClosed
from mqttscope.lint import shared_checks
from mqttscope.lint.examples import client, closes, framed, make_connect, upgraded
from mqttscope.lint.rules.practice_payload.content_type_mismatch import _mismatch
from mqttscope.mqtt.codec import decode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import Malformed
from mqttscope.mqtt.packets import Pingreq
from mqttscope.net.websocket import TEXT
from mqttscope.session.connection import Connection
from tests.each import each
from tests.explain.causes.test_listener import UPGRADE
from tests.lint.lint_help import linted, steps_of, talked

V3_1, V3_1_1, V5 = ProtocolVersion


OLD = (
    "32 09 00 03 61 2f 62 00 0a 68 69",  # PUBLISH "hi"
    "30 05 00 03 61 2f 62",  # PUBLISH without payload
    "82 08 00 0a 00 03 61 2f 62 01",  # SUBSCRIBE
    "a2 07 00 0a 00 03 61 2f 62",  # UNSUBSCRIBE
    "90 03 00 0a 01",  # SUBACK
    "b0 02 00 0a",  # UNSUBACK
    "20 02 00 00",  # CONNACK
    shared_checks.REFUSAL_OF_3_1_1.hex(),
)
NEW = (
    "82 09 00 0a 00 00 03 61 2f 62 01",  # SUBSCRIBE
    "20 03 00 84 00",  # CONNACK
    "40 04 00 0a 00 00",  # PUBACK
    "b0 04 00 0a 00 00",  # UNSUBACK
    "e0 01 04",  # DISCONNECT
    "f0 00",  # AUTH
)
OTHER_FAULTS = {
    "30 0a 00 03 61 2f 62 02 7f 00 68 69": V5,  # an unknown property
    "30 0b 00 03 61 2f 62 02 23 00 01 68 69": V5,  # a property that crosses the end of its block
    "30 8a 00 00 03 61 2f 62 00 68 69 68 6f": V5,  # a length that is only too long
    "62 03 00 0a 91": V5,  # a reason code
    "80 09 00 0a 00 00 03 61 2f 62 01": V3_1_1,  # flags
    "30 08 00 03 61 2f ff 00 68 69": V5,  # ill-formed in both
    "30 08 00 03 61 2f": V5,  # cut
    "30 80 80 80 80": V5,
    "10 0d 00 04 4d 51 54 54 04 02 00 3c 00 02 63": V5,  # a CONNECT has its own version
}


@each(
    "text, version, other",
    [
        *((text, V5, V3_1_1) for text in OLD),
        *((text, version, V5) for text in NEW for version in (V3_1, V3_1_1)),
        *((text, version, None) for text, version in OTHER_FAULTS.items()),
    ],
)
def test_a_packet_of_another_version_is_seen(
    text: str, version: ProtocolVersion, other: ProtocolVersion | None
) -> None:
    packet = decode(bytes.fromhex(text), version)
    assert isinstance(packet, Malformed)
    assert shared_checks.other_layout(packet, version) is other


@each(
    "endpoint, loopback",
    [
        ("127.0.0.1:1883", True),
        ("127.3.2.1:1883", True),
        ("[::1]:1883", True),
        ("[::ffff:127.0.0.1]:1883", True),
        ("localhost:1883", True),
        ("10.0.0.2:1883", False),
        ("[fd00::1]:1883", False),
        ("broker:1883", False),
    ],
)
def test_loopback(endpoint: str, loopback: bool) -> None:
    assert shared_checks.is_loopback(endpoint) is loopback


@each("transport, plain", [("tcp", True), ("websocket", True), ("tls", False)])
def test_plain_transports_and_their_problems(transport: str, *, plain: bool) -> None:
    details: dict[str, object] = {"problems": ["of TLS"]}
    connection = Connection(0, "10.0.0.4:51234", "10.0.0.2:1883", "", 1, 0, details=details, transport=transport)

    assert shared_checks.is_plain(connection) is plain
    assert transport == "websocket" or shared_checks.problems(connection) == []


def connection_of(offered: str | None, selected: str | None, opcode: int = 2) -> Connection:
    packets = client(framed(make_connect())), client(framed(Pingreq(), opcode=opcode))
    captured = talked(*upgraded(offered, selected), *packets, closes("client"))
    (closed,) = [event for event in dissect_segments(captured) if isinstance(event, ConnectionClosed)]
    return closed.connection


@each(
    "offered, reason, detail",
    [
        (None, "subprotocol_not_offered", "the request offers no subprotocol"),
        ("mqttv3.1", "subprotocol_old", "the request offers mqttv3.1"),
        ("MQTT, chat", "subprotocol_foreign", "the request offers MQTT, 1 other"),
    ],
)
def test_what_the_request_offers_instead_is_told(offered: str | None, reason: str, detail: str) -> None:
    assert shared_checks.problem(connection_of(offered, offered), *shared_checks.NOT_OFFERED) == (reason, detail)


def test_a_good_upgrade_has_no_problems() -> None:
    connection = connection_of("mqttv3.1, mqtt", "mqtt")

    assert shared_checks.problems(connection) == []
    assert shared_checks.problem(connection, *shared_checks.NOT_OFFERED) is None


def test_a_problem_names_its_frame() -> None:
    (text,) = shared_checks.problems(connection_of("mqtt", "mqtt", TEXT))

    assert (text["reason"], text["from_client"], text["frame"]) == ("text_frame", True, 7)


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=200))
def test_percentiles_are_near_the_true_ones(values: list[int]) -> None:
    spread = shared_checks.DurationHistogram()
    for index, value in enumerate(values):
        spread.add(value, index)

    assert spread.number == len(values)
    assert spread.worst_ns == max(values) == values[spread.worst]
    low = statistics.median_low(values)
    assert low <= spread.percentile(0.5) <= low * 1.13 + 1
    assert spread.percentile(1) == max(values)


def test_nothing_has_no_percentiles_and_negative_counts_as_none() -> None:
    spread = shared_checks.DurationHistogram()

    assert spread.percentile(0.5) == 0
    spread.add(-5)
    assert spread.percentile(0.99) == 0


@each(
    "nanoseconds, text",
    [
        (1_500, "1.5 µs"),
        (40_000_000, "40 ms"),
        (4_200_000_000, "4.2 s"),
        (119_000_000_000, "119 s"),
        (120_000_000_000, "2 min"),
        (200_000_000_000, "3 min 20 s"),
    ],
)
def test_durations_for_people(nanoseconds: int, text: str) -> None:
    assert shared_checks.duration(nanoseconds) == text


def test_one_and_many() -> None:
    assert shared_checks.count(1, "message") == "1 message"
    assert shared_checks.count(1200, "message") == "1,200 messages"


def test_json_that_python_does_not_read_is_no_mismatch() -> None:
    for payload in (b"9" * 5_000, b"[" * 5_000 + b"]" * 5_000, b"1e999"):
        assert _mismatch("application/json", payload) == "", payload[:10]
    for payload in (b"[", b"21.5;22", b"\xff"):
        assert _mismatch("application/json", payload) == "does not parse as JSON"


@pytest.mark.parametrize(("status", "codes"), [("101 Switching", {"WSK203"}), ("404 Not Found", set())])
def test_an_upgrade_that_is_refused_selects_no_subprotocol(status: str, codes: set[str]) -> None:
    answer = f"HTTP/1.1 {status}\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nContent-Length: 0\\r\\n\\r\\n"
    findings = linted(*steps_of(f'{UPGRADE}; silent < raw "{answer}"; > fin'), codes=("WSK203",))

    assert {finding.rule for finding in findings} == codes


@each("raw, is_named", [('40 05 6d22 "abc"', False), ("40 04 6d220000", True), ("40 02 6d22", True)])
def test_what_was_read_out_of_other_bytes_acknowledges_nothing(raw: str, is_named: bool) -> None:
    findings = linted(*steps_of(f"opened 3.1.1; > raw {raw}"), codes=("ACK203",))

    assert bool(findings) is is_named
