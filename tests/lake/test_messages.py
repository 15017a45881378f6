"""What becomes of messages."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="tables need pyarrow: pip install 'mqttscope[spark]'")

from mqttscope.dissect import Options, dissect_segments
from mqttscope.lake.messages import Exchanges
from mqttscope.lake.options import LakeOptions
from mqttscope.mqtt import ControlPacket, ProtocolVersion, packets
from tests.dissect.talk import Talk, Tape, connect
from tests.lake.reading import Row, collect

MS = 1_000_000


def messages(*spoken: tuple[str, ControlPacket], version: ProtocolVersion = ProtocolVersion.V5) -> list[Row]:
    tape = Tape()
    talk = Talk(tape).handshake()
    talk.client(connect(int(version)), version=version)
    talk.server(packets.Connack(), version=version)
    for who, packet in spoken:
        getattr(talk, who)(packet, version=version)
    options = LakeOptions()
    return collect(dissect_segments(tape.segments, Options(count_by_connection=True)), options).get("messages", [])


def publish(qos: int, identifier: int | None = 1, **values: Any) -> packets.Publish:
    return packets.Publish(qos=qos, packet_identifier=identifier, topic_name="a", payload=b"x", **values)


def only(rows: list[Row], *names: str) -> tuple[Any, ...]:
    (row,) = rows
    return tuple(row[name] for name in names)


def test_qos_0_is_sent_and_that_is_all() -> None:
    found = messages(("client", publish(0, None)))

    assert only(found, "state", "ended", "completed_ns", "qos", "topic", "packet_in_connection") == (
        "sent", None, None, 0, "a", 2,
    )  # fmt: skip


def test_qos_1_is_completed_by_its_puback() -> None:
    found = messages(("client", publish(1)), ("client", publish(1, dup=True)), ("server", packets.Puback(1, 0x10)))

    assert only(found, "state", "ended", "latency_ns", "retransmissions", "acknowledge_reason_code") == (
        "completed", "answer", 2 * MS, 1, 0x10,
    )  # fmt: skip


def test_qos_2_goes_through_all_its_steps() -> None:
    steps = (
        ("server", publish(2)), ("client", packets.Pubrec(1)), ("server", packets.Pubrel(1)),
        ("client", packets.Pubcomp(1, 0x92)),
    )  # fmt: skip
    (row,) = messages(*steps)

    assert row["state"] == "refused"
    assert row["acknowledged_ns"] - row["timestamp_ns"] == MS
    assert row["released_ns"] - row["timestamp_ns"] == 2 * MS
    assert row["completed_ns"] - row["timestamp_ns"] == row["latency_ns"] == 3 * MS
    assert [row[f"{name}_reason_code"] for name in ("acknowledge", "release", "complete")] == [0, 0, 0x92]
    states = [messages(*steps[:count])[0]["state"] for count in range(1, 4)]
    assert states == ["sent", "received", "released"]
    assert messages(*steps[:2])[0]["ended"] == "connection"


def test_a_pubrec_that_refuses_ends_it() -> None:
    found = messages(("client", publish(2)), ("server", packets.Pubrec(1, 0x97)))

    assert only(found, "state", "ended", "latency_ns") == ("refused", "answer", MS)


def test_before_5_there_are_no_reason_codes() -> None:
    found = messages(("client", publish(1)), ("server", packets.Puback(1)), version=ProtocolVersion.V3_1_1)

    assert only(found, "state", "acknowledge_reason_code") == ("completed", None)


def test_an_identifier_that_is_used_again_takes_its_place() -> None:
    found = messages(("client", publish(1)), ("client", publish(1)), ("server", packets.Puback(1)))

    assert [(row["state"], row["ended"], row["packet_in_connection"]) for row in found] == [
        ("sent", "replaced", 2),
        ("completed", "answer", 3),
    ]


def test_directions_have_identifiers_of_their_own() -> None:
    found = messages(("client", publish(1)), ("server", publish(1)), ("server", packets.Puback(1)))

    assert [(row["direction"], row["ended"]) for row in found] == [
        ("client_to_server", "answer"),
        ("server_to_client", "connection"),
    ]
    assert not list(Exchanges().close())


def test_a_message_seen_with_dup_first_says_so() -> None:
    assert only(messages(("client", publish(1, dup=True))), "dup", "retransmissions") == (True, 0)
