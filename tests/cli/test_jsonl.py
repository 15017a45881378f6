"""The JSON Lines of the commands, key by key, for packets of every type: the interface that scripts rely on."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from tests.cli.running import CAPTURES, capture, decoded, inspected, invoke, without
from tests.each import each, some

V5 = ("--mqtt-version", "5.0")
WITH_WILL = (
    "10 3c 0004 4d515454 05 ce 003c 05 11 00000e10 0003 616263"
    "  0e 18 0000003c 26 0001 6b 0001 76 01 01 0003 772f74 0003 627965 0004 75736572 0006 736563726574"
)
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
        "CONNECT of 3.1.1 without anything",
        "10 0c 0004 4d515454 04 02 000a 0000",
        (),
        {
            "protocol_name": "MQTT",
            "protocol_level": 4,
            "clean_start": True,
            "keep_alive": 10,
            "client_identifier": "",
            "will": None,
            "user_name": None,
            "password": None,
        },
    ),
    (
        "CONNACK",
        "20 06 01 00 03 22 000a",
        V5,
        {
            "session_present": True,
            "reason_code": 0,
            "reason": "Success",
            "properties": {"topic_alias_maximum": 10},
        },
    ),
    (
        "CONNACK of 3.1.1 that refuses",
        "20 02 00 05",
        ("--mqtt-version", "3.1.1"),
        {"session_present": False, "reason_code": 5, "reason": "Connection Refused, not authorized"},
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
    (
        "PUBACK whose reason code was left out",
        "40 02 000a",
        V5,
        {"packet_identifier": 10, "reason_code": 0, "reason": "Success", "properties": {}},
    ),
    ("PUBACK of 3.1.1", "40 02 000a", ("--mqtt-version", "3.1.1"), {"packet_identifier": 10}),
    (
        "PUBREC with a reason",
        "50 03 000a 87",
        V5,
        {"packet_identifier": 10, "reason_code": 135, "reason": "Not authorized", "properties": {}},
    ),
    ("PUBREL of 3.1.1", "62 02 000a", ("--mqtt-version", "3.1.1"), {"packet_identifier": 10}),
    (
        "PUBCOMP with a reason",
        "70 03 000a 92",
        V5,
        {"packet_identifier": 10, "reason_code": 146, "reason": "Packet Identifier not found", "properties": {}},
    ),
    (
        "SUBSCRIBE with all options",
        "82 0c 0001 02 0b 07 0004 612f2f23 2d",
        V5,
        {
            "packet_identifier": 1,
            "properties": {"subscription_identifier": [7]},
            "subscriptions": [
                {
                    "topic_filter": "a//#",
                    "maximum_qos": 1,
                    "no_local": True,
                    "retain_as_published": True,
                    "retain_handling": 2,
                }
            ],
        },
    ),
    (
        "SUBSCRIBE of 3.1.1",
        "82 06 0001 0001 23 02",
        ("--mqtt-version", "3.1.1"),
        {"packet_identifier": 1, "subscriptions": [{"topic_filter": "#", "maximum_qos": 2}]},
    ),
    (
        "SUBACK",
        "90 05 0001 00 01 87",
        V5,
        {
            "packet_identifier": 1,
            "properties": {},
            "reason_codes": [1, 135],
            "reasons": ["Granted QoS 1", "Not authorized"],
        },
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
    ("UNSUBACK of 3.1.1", "b0 02 0001", ("--mqtt-version", "3.1.1"), {"packet_identifier": 1}),
    ("PINGREQ", "c0 00", (), {}),
    ("PINGRESP", "d0 00", (), {}),
    (
        "DISCONNECT of 5.0 with nothing means success",
        "e0 00",
        V5,
        {"reason_code": 0, "reason": "Normal disconnection", "properties": {}},
    ),
    (
        "DISCONNECT with a reason string",
        "e0 07 82 05 1f 0002 6f6b",
        V5,
        {"reason_code": 130, "reason": "Protocol Error", "properties": {"reason_string": "ok"}},
    ),
    ("DISCONNECT of 3.1.1", "e0 00", ("--mqtt-version", "3.1.1"), {}),
    (
        "AUTH",
        "f0 07 18 05 15 0002 4b31",
        V5,
        {
            "reason_code": 24,
            "reason": "Continue authentication",
            "properties": {"authentication_method": "K1"},
        },
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


def test_every_line_has_the_schema_and_one_of_the_events(lines: list[dict[str, Any]]) -> None:
    assert lines
    for line in lines:
        assert list(line)[:3] == ["schema", "event", "capture"]
        assert line["schema"] == 1
        assert line["event"] in EVENTS


def test_the_keys_of_each_event_come_in_their_order(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        names = list(line)
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
                assert [name for name in names if name != "packet_type"] == [
                    *ENVELOPE, "length", "reason", "missing", "raw",
                ]  # fmt: skip
            case "connection_opened" | "connection_closed":
                assert names[: len(CONNECTION)] == CONNECTION


def test_packets_and_connections_are_numbered_from_0(lines: list[dict[str, Any]]) -> None:
    numbers = [line["packet"] for line in lines if "packet" in line]
    opened = [line["connection"] for line in lines if line["event"] == "connection_opened"]

    assert numbers == list(range(len(numbers)))
    assert opened == list(range(len(opened)))


def test_every_connection_opens_before_its_packets_and_closes_behind_them(lines: list[dict[str, Any]]) -> None:
    for number in {line["connection"] for line in lines}:
        events = [line["event"] for line in lines if line["connection"] == number]
        assert events[0] == "connection_opened"
        assert events[-1] == "connection_closed"
        assert not {"connection_opened", "connection_closed"} & set(events[1:-1])


def test_times_are_whole_and_say_the_same_twice(lines: list[dict[str, Any]]) -> None:
    from datetime import UTC, datetime

    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", line["timestamp"])
        seconds, nanoseconds = divmod(line["timestamp_ns"], 1_000_000_000)
        assert line["timestamp"][:19] == datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        assert int(line["timestamp"][20:29]) == nanoseconds


def test_directions_and_endpoints_are_words_and_text(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        assert line.get("direction", "client_to_server") in ("client_to_server", "server_to_client")
        assert all(re.fullmatch(r"(\d+\.){3}\d+:\d+|\[[0-9a-f:]+\]:\d+", line[end]) for end in ("client", "server"))


def test_a_closed_connection_counts_what_was_shown(lines: list[dict[str, Any]]) -> None:
    for closed in (line for line in lines if line["event"] == "connection_closed"):
        own = [line for line in lines if line["connection"] == closed["connection"] and "packet" in line]
        for direction in ("client_to_server", "server_to_client"):
            said = [line for line in own if line["direction"] == direction and line["event"] == "packet"]
            assert closed["packets"][direction] >= len(said)
        gaps = [line for line in lines if line["connection"] == closed["connection"] and line["event"] == "gap"]
        assert closed["gaps"] == len(gaps)
        assert closed["gap_bytes"] == sum(line["length"] for line in gaps)


def test_the_example_of_the_interface() -> None:
    """A PUBLISH that leaves its topic to the alias, in full."""
    lines = inspected(capture("alias-both-directions")).packets
    line = next(one for one in lines if one["type"] == "publish" and not one["publish"]["topic_name"])

    assert line == {
        "schema": 1,
        "event": "packet",
        "capture": str(capture("alias-both-directions")),
        "frame": 16,
        "timestamp": "2026-01-01T00:00:00.016000000Z",
        "timestamp_ns": 1767225600016000000,
        "connection": 0,
        "client": "192.0.2.10:50000",
        "server": "198.51.100.1:1883",
        "direction": "client_to_server",
        "client_identifier": "both",
        "version": "5.0",
        "version_known": True,
        "packet": 6,
        "type": "publish",
        "length": 9,
        "remaining_length": 7,
        "publish": {
            "dup": False,
            "qos": 0,
            "retain": False,
            "topic_name": "",
            "packet_identifier": None,
            "properties": {"topic_alias": 1},
            "payload": {"length": 1, "text": "x"},
        },
        "topic": "client/topic",
    }


def test_a_topic_is_null_where_nobody_can_know_it() -> None:
    lines = inspected(capture("joined-after-alias")).packets
    unknown = [line for line in lines if line["type"] == "publish" and line["topic"] is None]

    assert unknown
    assert all(line["publish"]["topic_name"] == "" for line in unknown)


@each("raw, arguments, body", [row[1:] for row in BODIES], ids=[row[0] for row in BODIES])
def test_the_object_of_a_packet(raw: str, arguments: tuple[str, ...], body: dict[str, Any]) -> None:
    line = decoded(raw, *arguments)

    assert line["event"] == "packet"
    assert line[line["type"]] == body
    assert line["length"] == len(bytes.fromhex(raw))
    assert list(line[line["type"]]) == list(body)


def test_every_packet_type_is_among_them() -> None:
    assert len({decoded(raw, *arguments)["type"] for _, raw, arguments, _ in BODIES}) == 15


def test_all_27_properties_have_their_names() -> None:
    values = {
        "01": ("payload_format_indicator", "01", 1),
        "02": ("message_expiry_interval", "0000003c", 60),
        "03": ("content_type", "0001 74", "t"),
        "08": ("response_topic", "0001 72", "r"),
        "09": ("correlation_data", "0002 ff00", {"length": 2, "hex": "ff00"}),
        "0b": ("subscription_identifier", "8001", [128]),
        "11": ("session_expiry_interval", "ffffffff", 4294967295),
        "12": ("assigned_client_identifier", "0001 63", "c"),
        "13": ("server_keep_alive", "001e", 30),
        "15": ("authentication_method", "0001 6d", "m"),
        "16": ("authentication_data", "0001 00", {"length": 1, "hex": "00"}),
        "17": ("request_problem_information", "00", 0),
        "18": ("will_delay_interval", "00000005", 5),
        "19": ("request_response_information", "01", 1),
        "1a": ("response_information", "0001 69", "i"),
        "1c": ("server_reference", "0001 73", "s"),
        "1f": ("reason_string", "0001 6f", "o"),
        "21": ("receive_maximum", "0014", 20),
        "22": ("topic_alias_maximum", "000a", 10),
        "23": ("topic_alias", "0001", 1),
        "24": ("maximum_qos", "01", 1),
        "25": ("retain_available", "00", 0),
        "26": ("user_property", "0001 6e 0001 76", [{"name": "n", "value": "v"}]),
        "27": ("maximum_packet_size", "00010000", 65536),
        "28": ("wildcard_subscription_available", "00", 0),
        "29": ("subscription_identifier_available", "00", 0),
        "2a": ("shared_subscription_available", "01", 1),
    }
    assert len(values) == 27
    for number, (name, raw, value) in values.items():
        block = bytes.fromhex(number + raw)
        # A CONNACK: where a property does not belong, the packet is malformed, and may be another than it seems.
        whole = bytes([0x20, 3 + len(block), 0, 0, len(block)]) + block
        line = invoke("decode", whole.hex(), *V5, "--format", "jsonl", "--show-secrets").lines[0]
        assert line["connack"]["properties"] == {name: value}


def test_passwords_on_demand() -> None:
    assert decoded(WITH_WILL, "--show-secrets")["connect"]["password"] == {"length": 6, "text": "secret"}


def test_the_bytes_of_a_captured_broken_connect_do_not_tell_the_password() -> None:
    path = capture("refused-connect")
    packets = inspected(path, "--show-secrets").packets
    secret = next(line["connect"]["password"]["text"] for line in packets if line.get("connect", {}).get("password"))
    # The protocol name is not what it should be; everything after it can be read.
    broken = path.read_bytes().replace(b"\0\4MQTT", b"\0\4mqtt")
    hidden = invoke("inspect", "-", "--format", "jsonl", given=broken)
    shown = invoke("inspect", "-", "--format", "jsonl", "--show-secrets", given=broken)

    assert hidden.of("malformed")
    for told in (secret, secret.encode().hex()):
        assert told not in hidden.text
        assert told in shown.text


def test_decode_gives_back_the_bytes_it_was_given_but_for_secrets() -> None:
    raw = "10 1a 0004 4d515454 04 c2 003c 0000 0002 6d65 0006 736563726574 00"
    line = decoded(raw, code=1)

    assert line["malformed"]["raw"] == bytes.fromhex(raw).hex().replace("6d65000673656372657400", "2a" * 11)
    assert decoded(raw, "--show-secrets", code=1)["malformed"]["raw"] == bytes.fromhex(raw).hex()
    assert line["connect"]["password"] == {"length": 6, "redacted": True}
    assert (line["version"], line["version_known"]) == ("3.1.1", True)


def test_binary_values_are_text_only_when_they_are_printable() -> None:
    def payload(raw: bytes) -> dict[str, Any]:
        whole = bytes([0x30, 3 + len(raw)]) + b"\0\1a" + raw
        found: dict[str, Any] = decoded(whole.hex(), "--mqtt-version", "3.1.1")["publish"]["payload"]
        return found

    assert payload(b"") == {"length": 0, "text": ""}
    assert payload("tab\tline\nü 🙂".encode()) == {"length": 16, "text": "tab\tline\nü 🙂"}
    assert payload(b"\x1b[31m") == {"length": 5, "hex": "1b5b33316d"}
    assert payload(b"\xff\xfe") == {"length": 2, "hex": "fffe"}


def test_text_that_is_not_utf8_keeps_its_bytes() -> None:
    line = decoded("30 05 0003 61ff62", "--mqtt-version", "3.1.1", code=1)

    assert line["event"] == "malformed"
    assert line["malformed"]["reason"] == "utf8_ill_formed"
    assert line["publish"]["topic_name"] == {"length": 3, "hex": "61ff62"}
    assert line["topic"] == {"length": 3, "hex": "61ff62"}


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
            "raw": "320400092a2a",
            "redacted": True,
        },
        "publish": {"dup": False, "qos": 1, "retain": False},
        "topic": None,
    }
    assert line["malformed"]["detail"] == "needs 11 bytes, 4 left"


def test_several_faults_are_all_told() -> None:
    # QoS 3, and a topic that is not UTF-8.
    line = decoded("36 05 0001 ff 0001", "--mqtt-version", "3.1.1", code=1)

    assert [one["reason"] for one in line["malformed"]["faults"]] == ["qos_invalid", "utf8_ill_formed"]
    assert line["malformed"]["reason"] == "qos_invalid"
    assert all(set(one) == {"reason", "offset", "field", "detail"} for one in line["malformed"]["faults"])


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
    for line in lines.of("connection_opened"):
        assert line["transport"] == transport
        assert line[transport]
    if transport == "websocket":
        assert lines.of("connection_opened")[0]["websocket"]["subprotocol"] == "mqtt"
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


def test_times_of_the_packets_of_one_direction_never_go_back(lines: list[dict[str, Any]]) -> None:
    for number, direction in {(line["connection"], line["direction"]) for line in lines if "packet" in line}:
        times = [
            line["timestamp_ns"]
            for line in lines
            if "packet" in line and (line["connection"], line["direction"]) == (number, direction)
        ]
        assert all(earlier <= later for earlier, later in pairwise(times))
