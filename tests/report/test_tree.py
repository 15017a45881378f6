"""Packets field by field: what the lines say; the bytes below them: test_hexdump.py."""

from __future__ import annotations

import re

import pytest

from mqttscope.mqtt import Connect, Properties, Publish, Subscribe, Subscription, Unsubscribe
from mqttscope.report import public
from mqttscope.report.tree import Tree
from tests.each import each
from tests.report.make import Talk, acknowledged, block_of, conversation, publish, shown

PUBLISH = """\
03:04:05.124456 #0 dev1   → PUBLISH  packet 0 · frame 1 · 39 bytes · MQTT 5.0
  a     0 33           flags                      PUBLISH
                       0011 ....  packet_type = 3 (PUBLISH)
                       .... 0...  dup = 0
                       .... .01.  qos = 1 (at least once)
                       .... ...1  retain = 1
  b     1 25           remaining_length           37 bytes
  c   2-6 00 03 …  62  topic_name                 a/b
  d   7-8 00 0a        packet_identifier          10
                       properties
  e     9 0a             property_length          10 bytes
  f 10-12 23 00 01       topic_alias              1 → a/b
  g 13-19 26 00 …  76    user_property            k = v
  h 20-38 7b 22 …  7d  payload                    19 bytes
  payload as json
    {
      "t": 21.5,
      "a": []
    }
  0000  33 25 00 03 61 2f 62 00 0a 0a 23 00 01 26 00 01  3%..a/b...#..&..
        a- b- c------------- d---- e- f------- g-------
  0010  6b 00 01 76 7b 22 74 22 3a 32 31 2e 35 2c 20 22  k..v{"t":21.5, "
        ----------- h----------------------------------
  0020  61 22 3a 5b 5d 20 7d                             a":[] }

"""


def test_a_publish_in_full() -> None:
    properties = Properties(topic_alias=1, user_property=[("k", "v")])
    packet = publish("a/b", b'{"t":21.5, "a":[] }', qos=1, packet_identifier=10, retain=True, properties=properties)
    assert "\n".join(block_of(packet)) + "\n" == PUBLISH


def test_a_fault_is_named_and_pointed_at() -> None:
    lines = block_of(bytes.fromhex("30 07 00 02 c3 28 00 78 79"))
    assert "  utf8_ill_formed at byte 4, topic_name: not well-formed UTF-8: c3" in lines
    assert "              ^^^^^^^^^^^ utf8_ill_formed" in lines
    assert any("\\xc3(" in line for line in lines)


def test_all_faults_are_listed_and_pointed_at() -> None:
    lines = block_of(bytes.fromhex("82 0b 00 01 00 00 02 c3 28 ff 00 01 61"))
    faults = [line.split()[0] for line in lines if " at byte " in line]
    assert len(faults) >= 3
    for name in faults:
        assert any(("^" in line and name in line) or line.strip() == name for line in lines), name


@each(
    "packet, expected",
    [
        # Text that is short stands beside its bytes.
        (publish("t", b"on"), r".*payload +on"),
        (publish("", b"x", properties=Properties(topic_alias=7)), r".*7 → unknown.*"),
    ],
)
def test_what_is_said_of_a_message(packet: Publish, expected: str) -> None:
    assert any(re.fullmatch(expected, line) for line in block_of(packet))


def test_a_huge_packet_is_explained_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public, "MAX_TRACED_BYTES", 1000)
    packet = Unsubscribe(packet_identifier=1, topic_filters=["a"] * 3000)
    lines = shown(Tree, [Talk().say(packet)], width=80)
    assert any("unparsed" in line for line in lines)
    assert len(lines) < 900
    long_payload = shown(Tree, [Talk().say(publish("t", bytes(5000)))], width=80)
    assert not any("unparsed" in line for line in long_payload)


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        pytest.param(
            Subscribe(packet_identifier=1, subscriptions=[Subscription("a", 1, True, False, 1)]),
            [
                "00.. ....  reserved = 0",
                "..01 ....  retain_handling = 1 (send retained messages if the subscription is new)",
                ".... 0...  retain_as_published = 0",
                ".... .1..  no_local = 1",
                ".... ..01  maximum_qos = 1",
            ],
            id="subscription options",
        ),
        pytest.param(
            Connect(protocol_level=5, client_identifier="c", user_name="u", keep_alive=0),
            ["1... ....  user_name = 1", ".... ..1.  clean_start = 1", "0 (off)", "5 (MQTT 5.0)"],
            id="connect flags",
        ),
        pytest.param(bytes.fromhex("e0 01 8e"), ["0x8e Session taken over"], id="reason code"),
        pytest.param(
            Connect(
                protocol_level=5, properties=Properties(session_expiry_interval=86400, request_problem_information=0)
            ),
            ["86400 s (24 h)", "0 (no)"],
            id="units of properties",
        ),
        pytest.param(bytes.fromhex("60 02 00 01"), [".... 0000  reserved = 0 (must be 2)"], id="wrong header flags"),
    ],
)
def test_meanings(packet: object, expected: list[str]) -> None:
    lines = "\n".join(block_of(packet, width=0))  # type: ignore[arg-type]
    assert [text for text in expected if text not in lines] == []


def test_every_event_of_a_conversation_is_there() -> None:
    text = "\n".join(shown(Tree, conversation(), width=80))
    for reported_text in ("opened", "GAP", "UNPARSED", "MALFORMED", "reset by server", "!! b.pcap"):
        assert reported_text in text


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param("30 05 0001 61 ff", ["1 byte of this packet never came"], id="missing"),
        pytest.param("c0 01 00", ["remaining_length           1 byte"], id="behind"),
        pytest.param("e0 03 00 00 00", ["1 byte after the last field"], id="in a detail"),
        pytest.param(
            "10 13 0004 4d515454 04 c2 0000 0000 0001 75 0001 70",
            ["password                   (1 byte, hidden)"], id="password",
        ),
        pytest.param("20 09 00 00 06 27 00000001 7f", ["maximum_packet_size      1 byte"], id="property"),
    ],
)  # fmt: skip
def test_one_byte_is_a_byte(raw: str, expected: list[str]) -> None:
    text = "\n".join(block_of(bytes.fromhex(raw)))
    assert [other_text for other_text in expected if other_text not in text] == []
    assert not re.search(r"\b1 bytes", text)


def test_a_long_value_is_cut_between_characters() -> None:
    for before in range(509, 513):
        (line,) = (line for line in block_of(publish("x" * before + "日" * 9), width=0) if "topic_name" in line)
        assert "\\x" not in line
        assert line.endswith(f"… ({before + 27} bytes)")


def test_a_line_says_whether_tcp_acknowledged_a_packet() -> None:
    texts = [line.strip() for line in shown(Tree, acknowledged()) if "TCP:" in line]
    assert texts == [
        "TCP: acknowledged",
        "TCP: acknowledged after the FIN of the server",
        "TCP: never acknowledged",
        "TCP: the capture does not show an acknowledgment",
    ]
    assert "TCP: not known yet" in "".join(shown(Tree, acknowledged(is_done=False)))
    assert "TCP:" not in "".join(shown(Tree, conversation()))
