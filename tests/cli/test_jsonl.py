"""The JSON Lines of the commands, key by key, for packets of every type: the interface that scripts rely on."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from tests.cli.running import CAPTURES, capture, decoded, inspected, invoke, without
from tests.each import each, some

V5, V3_1_1 = (("--mqtt-version", version) for version in ("5.0", "3.1.1"))
WITH_WILL = (
    "10 3c 0004 4d515454 05 ce 003c 05 11 00000e10 0003 616263"
    "  0e 18 0000003c 26 0001 6b 0001 76 01 01 0003 772f74 0003 627965 0004 75736572 0006 736563726574"
)


def reason(code: int, name: str, **properties: str | int) -> dict[str, Any]:
    """What packets of 5.0 show of a reason code, with the properties beside it."""
    return {"reason_code": code, "reason": name, "properties": properties}


BODIES: list[tuple[str, str, tuple[str, ...], dict[str, Any]]] = [
    (
        "CONNECT with a Will that has properties of its own, user name and password",
        WITH_WILL,
        (),
        {
            "protocol_name": "MQTT",
            "protocol_level": 5,
            "clean_start": True,
            "keep_alive": 60,
            "properties": {"session_expiry_interval": 3600},
            "client_identifier": "abc",
            "will": {
                "will_topic": "w/t",
                "will_payload": {"length": 3, "text": "bye"},
                "will_qos": 1,
                "will_retain": False,
                "properties": {
                    "will_delay_interval": 60,
                    "user_property": [{"name": "k", "value": "v"}],
                    "payload_format_indicator": 1,
                },
            },
            "user_name": "user",
            "password": {"length": 6, "redacted": True},
        },
    ),
    (
        "PUBLISH with user properties and a subscription identifier, which are always lists",
        "30 16 0001 61 10 0b 05 26 0001 6b 0001 76 26 0001 6b 0001 77 ff 00",
        V5,
        {
            "dup": False,
            "qos": 0,
            "retain": False,
            "topic_name": "a",
            "packet_identifier": None,
            "properties": {
                "subscription_identifier": [5],
                "user_property": [{"name": "k", "value": "v"}, {"name": "k", "value": "w"}],
            },
            "payload": {"length": 2, "hex": "ff00"},
        },
    ),
    ("PUBREC with a reason", "50 03 000a 87", V5, {"packet_identifier": 10, **reason(135, "Not authorized")}),
    (
        "PUBCOMP with a reason",
        "70 03 000a 92",
        V5,
        {"packet_identifier": 10, **reason(146, "Packet Identifier not found")},
    ),
    (
        "UNSUBSCRIBE",
        "a2 09 0001 00 0001 61 0001 62",
        V5,
        {"packet_identifier": 1, "properties": {}, "topic_filters": ["a", "b"]},
    ),
    (
        "UNSUBACK",
        "b0 04 0001 00 11",
        V5,
        {
            "packet_identifier": 1,
            "properties": {},
            "reason_codes": [17],
            "reasons": ["No subscription existed"],
        },
    ),
    ("PINGRESP", "d0 00", (), {}),
    (
        "DISCONNECT with a reason string",
        "e0 07 82 05 1f 0002 6f6b",
        V5,
        reason(130, "Protocol Error", reason_string="ok"),
    ),
]


ENVELOPE = [
    "schema", "event", "capture", "frame", "timestamp", "timestamp_ns", "connection", "client", "server", "direction",
    "client_identifier", "version", "version_known",
]  # fmt: skip
PACKET = [*ENVELOPE, "packet", "type", "length", "remaining_length"]
CONNECTION = [
    "schema", "event", "capture", "frame", "timestamp", "timestamp_ns", "connection", "client", "server", "transport",
    "handshake_seen", "roles_known", "roles_evidence",
]  # fmt: skip
EVENTS = {
    "packet", "malformed", "gap", "unparsed", "connection_opened", "connection_ending", "connection_closed",
    "discarded", "capture_error",
}  # fmt: skip


@pytest.fixture(scope="module", params=some(CAPTURES, 4), ids=lambda path: str(path.parent.name))
def lines(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return inspected(request.param).lines


def test_every_line_has_the_keys_of_its_event_in_their_order(lines: list[dict[str, Any]]) -> None:
    assert lines
    for line in lines:
        names = list(line)
        assert names[:3] == ["schema", "event", "capture"]
        assert line["schema"] == 1
        assert line["event"] in EVENTS
        match line["event"]:
            case "packet":
                kind = [line["type"]]
                assert names[: len(PACKET) + 1] == PACKET + kind
                rest = names[len(PACKET) + 1 :]
                assert rest in ((["topic"], ["topic", "missing"]) if kind == ["publish"] else ([],))
            case "malformed":
                assert names[: len(ENVELOPE) + 4] == [*ENVELOPE, "packet", "type", "length", "malformed"]
                assert set(names[len(ENVELOPE) + 4 :]) <= {line["type"], "topic"}
            case "gap":
                assert names == [*ENVELOPE, "length", "reason"]
            case "unparsed":
                names = [name for name in names if name != "packet_type"]
                assert names == [*ENVELOPE, "length", "reason", "missing", "raw"]
            case "connection_opened" | "connection_closed":
                assert names[: len(CONNECTION)] == CONNECTION


def test_packets_and_connections_are_numbered_from_0(lines: list[dict[str, Any]]) -> None:
    numbers = [line["packet"] for line in lines if "packet" in line]
    opened = [line["connection"] for line in lines if line["event"] == "connection_opened"]

    assert numbers == list(range(len(numbers)))
    assert opened == list(range(len(opened)))


def test_a_connection_opens_before_its_packets_and_counts_them_at_its_end(lines: list[dict[str, Any]]) -> None:
    for number in {line["connection"] for line in lines}:
        first, *between, closed = (line for line in lines if line["connection"] == number)
        assert (first["event"], closed["event"]) == ("connection_opened", "connection_closed")
        assert not {"connection_opened", "connection_closed"} & {line["event"] for line in between}
        for direction in ("client_to_server", "server_to_client"):
            documents = [line for line in between if line["event"] == "packet" and line["direction"] == direction]
            assert closed["packets"][direction] >= len(documents)
            times = [line["timestamp_ns"] for line in between if "packet" in line and line["direction"] == direction]
            assert all(earlier <= later for earlier, later in pairwise(times))
        gaps = [line["length"] for line in between if line["event"] == "gap"]
        assert (closed["gaps"], closed["gap_bytes"]) == (len(gaps), sum(gaps))


def test_times_directions_and_endpoints_have_one_form(lines: list[dict[str, Any]]) -> None:
    from datetime import UTC, datetime

    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", line["timestamp"])
        seconds, nanoseconds = divmod(line["timestamp_ns"], 1_000_000_000)
        assert line["timestamp"][:19] == datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        assert int(line["timestamp"][20:29]) == nanoseconds
        assert line.get("direction", "client_to_server") in ("client_to_server", "server_to_client")
        assert all(re.fullmatch(r"(\d+\.){3}\d+:\d+|\[[0-9a-f:]+\]:\d+", line[end]) for end in ("client", "server"))


def test_a_topic_is_null_where_nobody_can_know_it() -> None:
    lines = inspected(capture("joined-after-alias")).packets
    unknown = [line for line in lines if line["type"] == "publish" and line["topic"] is None]

    assert unknown
    assert all(line["publish"]["topic_name"] == "" for line in unknown)


@each("raw, arguments, fields", [row[1:] for row in BODIES], ids=[row[0] for row in BODIES])
def test_the_object_of_a_packet(raw: str, arguments: tuple[str, ...], fields: dict[str, Any]) -> None:
    line = decoded(raw, *arguments)

    assert line["event"] == "packet"
    assert line[line["type"]] == fields
    assert line["length"] == len(bytes.fromhex(raw))
    assert list(line[line["type"]]) == list(fields)


def test_the_bytes_of_a_captured_broken_connect_do_not_tell_the_password() -> None:
    path = capture("refused-connect")
    packets = inspected(path, "--show-secrets").packets
    secret = next(line["connect"]["password"]["text"] for line in packets if line.get("connect", {}).get("password"))
    # The protocol name is not what it should be; everything after it can be read.
    broken = path.read_bytes().replace(b"\0\4MQTT", b"\0\4mqtt")
    hidden = invoke("inspect", "-", "--format", "jsonl", stdin=broken)
    shown = invoke("inspect", "-", "--format", "jsonl", "--show-secrets", stdin=broken)

    assert hidden.of("malformed")
    for result in (secret, secret.encode().hex()):
        assert result not in hidden.text
        assert result in shown.text


def test_decode_gives_back_the_bytes_it_was_given_but_for_secrets() -> None:
    raw = "10 1a 0004 4d515454 04 c2 003c 0000 0002 6d65 0006 736563726574 00"
    line = decoded(raw, code=1)

    assert line["malformed"]["raw"] == bytes.fromhex(raw).hex().replace("73656372657400", "2a" * 7)
    assert decoded(raw, "--show-secrets", code=1)["malformed"]["raw"] == bytes.fromhex(raw).hex()
    assert line["connect"]["password"] == {"length": 6, "redacted": True}
    assert (line["version"], line["version_known"]) == ("3.1.1", True)


def test_a_malformed_packet_shows_what_could_be_read_and_where_the_fault_is() -> None:
    # The topic says 9 bytes, and 2 are left.
    line = decoded("32 04 0009 6162", "--from", "client", code=1)

    assert without(line, "version", "version_known") == {
        "schema": 1,
        "event": "malformed",
        "direction": "client_to_server",
        "client_identifier": None,
        "packet": 0,
        "type": "publish",
        "length": 6,
        "malformed": {
            "reason": "field_overrun",
            "offset": 2,
            "field": "topic_name",
            "detail": line["malformed"]["detail"],
            "reason_code": 129,
            "raw": "320400096162",
        },
        "publish": {"dup": False, "qos": 1, "retain": False},
        "topic": None,
    }
    assert line["malformed"]["detail"] == "needs 11 bytes, 4 left"


def test_several_faults_are_all_told() -> None:
    # QoS 3, and a topic that is not UTF-8.
    line = decoded("36 05 0001 ff 0001", *V3_1_1, code=1)

    assert [row["reason"] for row in line["malformed"]["faults"]] == ["qos_invalid", "utf8_ill_formed"]
    assert line["malformed"]["reason"] == "qos_invalid"
    assert all(set(each) == {"reason", "offset", "field", "detail"} for each in line["malformed"]["faults"])


def test_a_gap_and_what_follows() -> None:
    (gap,) = inspected(capture("lost-segment")).of("gap")

    assert (gap["length"], gap["reason"]) == (33, "not_captured")
    assert (gap["direction"], gap["client_identifier"]) == ("client_to_server", "sensor-1")


def test_unparsed_bytes_are_there() -> None:
    lines = [line for path in CAPTURES for line in inspected(path).of("unparsed")]

    assert lines
    for line in lines:
        assert line["raw"]["length"] + line["missing"] >= 0
        assert line["length"] >= line["missing"]


def test_a_payload_that_lost_bytes_counts_them() -> None:
    cut = [line for line in inspected(capture("lost-in-payload")).packets if "missing" in line]

    assert cut
    for line in cut:
        assert line["publish"]["payload"]["truncated"]
        assert line["publish"]["payload"]["length"] > line["missing"] > 0
        assert line["length"] == line["remaining_length"] + 4


def test_connections_say_how_they_began_and_ended() -> None:
    lines = inspected(capture("v5-server-disconnect"))
    opened, closed = lines.of("connection_opened")[0], lines.of("connection_closed")

    assert without(opened, "capture", "timestamp", "timestamp_ns", "client") == {
        "schema": 1,
        "event": "connection_opened",
        "frame": 1,
        "connection": 0,
        "server": "127.0.0.1:1883",
        "transport": "tcp",
        "handshake_seen": True,
        "roles_known": True,
        "roles_evidence": "TCP handshake",
    }
    by_server = [line for line in closed if line["disconnect_by"] == "server"]
    assert by_server
    for line in by_server:
        assert line["how"] in ("fin", "reset")
        assert line["disconnect_reason"] >= 0x80
        assert line["version_evidence"] == "CONNECT"


@pytest.mark.parametrize(("name", "transport"), [("websocket-v5", "websocket"), ("tls-13", "tls")])
def test_transports_tell_their_details(name: str, transport: str) -> None:
    lines = inspected(capture(name))
    opened = lines.of("connection_opened")
    assert {line["transport"] for line in opened} == {transport}
    assert all(line[transport] for line in opened)
    if transport == "websocket":
        assert opened[0]["websocket"]["subprotocol"] == "mqtt"
        assert lines.packets
    else:
        assert lines.of("connection_closed")[0]["tls"]["version"] == "TLS 1.3"
        assert not lines.packets


def test_a_capture_error() -> None:
    done = invoke("inspect", "no.pcap", "--format", "jsonl")

    assert done.lines == [
        {
            "schema": 1, "event": "capture_error", "capture": "no.pcap", "message": "does not exist",
            "offset": None, "frames": 0,
        }
    ]  # fmt: skip
