"""What the tables remember of a connection that is open, and what becomes of its messages."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.capture import open_capture
from mqttscope.dissect import Options, dissect, dissect_segments
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.state import dump, load
from mqttscope.lake.tables import Collector
from mqttscope.lake.tracker import MAX_HOLES, Exchanges, Hole, KeyMemory, OpenConnection, Tracker
from mqttscope.lint.finding import Scope
from mqttscope.mqtt import ControlPacket, ProtocolVersion, packets
from tests.cli.running import capture
from tests.dissect.talk import Talk, Tape, connect
from tests.each import each
from tests.lake.reading import Row, all_of_them, collect, collected, ordered, usual

MS = 1_000_000
V5 = ProtocolVersion.V5


def messages(*spoken: tuple[str, ControlPacket], version: ProtocolVersion = V5) -> list[Row]:
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


@each("spoken, version, expected", [
    ([("client", publish(0, None))], V5, {
        "state": "sent", "ended": None, "completed_ns": None, "qos": 0, "topic": "a", "packet_in_connection": 2,
    }),
    ([("client", publish(1)), ("client", publish(1, dup=True)), ("server", packets.Puback(1, 0x10))], V5, {
        "state": "completed", "ended": "answer", "latency_ns": 2 * MS, "retransmissions": 1,
        "acknowledge_reason_code": 0x10,
    }),
    ([("client", publish(2)), ("server", packets.Pubrec(1, 0x97))], V5, {
        "state": "refused", "ended": "answer", "latency_ns": MS,
    }),
    ([("client", publish(1)), ("server", packets.Puback(1))], ProtocolVersion.V3_1_1, {
        "state": "completed", "acknowledge_reason_code": None,
    }),
    ([("client", publish(1, dup=True))], V5, {"dup": True, "retransmissions": 0}),
], ids=["QoS 0", "QoS 1", "refused by PUBREC", "no reason codes before 5.0", "seen with DUP first"])  # fmt: skip
def test_what_becomes_of_a_message(
    spoken: list[tuple[str, ControlPacket]], version: ProtocolVersion, expected: Row
) -> None:
    (row,) = messages(*spoken, version=version)

    assert {name: row[name] for name in expected} == expected


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


def test_an_identifier_that_is_used_again_takes_its_place() -> None:
    documents = messages(("client", publish(1)), ("client", publish(1)), ("server", packets.Puback(1)))

    assert [(row["state"], row["ended"], row["packet_in_connection"]) for row in documents] == [
        ("sent", "replaced", 2),
        ("completed", "answer", 3),
    ]


def test_directions_have_identifiers_of_their_own() -> None:
    documents = messages(("client", publish(1)), ("server", publish(1)), ("server", packets.Puback(1)))

    assert [(row["direction"], row["ended"]) for row in documents] == [
        ("client_to_server", "answer"),
        ("server_to_client", "connection"),
    ]
    assert not list(Exchanges().close())


PATH = capture("planted-violations")


def test_trackers_are_plain_data() -> None:
    collector = Collector(LakeOptions(payload_limit=65_536, rules=all_of_them()))
    for number, event in enumerate(dissect(open_capture([PATH]), collector.options.reading())):
        collector.feed(event)
        if number % 5 == 0 and (connection := getattr(event, "connection", None)) is not None:
            tracker = collector.trackers.get(connection.number)
            if tracker is not None:
                again = load(dump(tracker))
                assert again == tracker
                collector.adopt(connection, again)
    assert ordered(collected(collector)) == ordered(usual(PATH))


def test_holes_are_kept_with_their_direction_in_the_order_they_came() -> None:
    tracker = Tracker("a")
    tracker.note_hole(True, 10, 5)
    tracker.note_hole(False, 0, 1)

    assert tracker.holes == [Hole(True, 10, 15), Hole(False, 0, 1)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10_000), st.integers(1, 50)), max_size=MAX_HOLES + 60))
def test_holes_are_bounded_and_none_is_forgotten(holes: list[tuple[bool, int, int]]) -> None:
    """Where there are too many, two of one direction become one: more may be missing than was said, never less."""
    tracker = Tracker("a")
    for hole in holes:
        tracker.note_hole(*hole)

    assert len(tracker.holes) == min(len(holes), MAX_HOLES)
    for from_client, start, length in holes:
        assert any(
            hole.from_client is from_client and hole.start <= start and start + length <= hole.end
            for hole in tracker.holes
        )


def test_the_only_hole_of_a_direction_is_never_joined_with_one_of_the_other() -> None:
    tracker = Tracker("a")
    tracker.note_hole(False, 7, 1)
    for number in range(MAX_HOLES):
        tracker.note_hole(True, 10 * number, 1)

    # It cannot become one with any other, and so is kept as the newest; the next one too many finds two to join.
    assert Hole(False, 7, 8) in tracker.holes
    tracker.note_hole(True, 10 * MAX_HOLES, 1)
    assert Hole(False, 7, 8) in tracker.holes
    assert tracker.holes[0] == Hole(True, 0, 11)


def test_what_keys_remember_is_plain_data() -> None:
    memory = KeyMemory(open={("a", 1, 0): OpenConnection({"OPS401": 5}, {"OPS402": 6}, True, {Scope.BROKER: 2})})

    assert load(dump(memory)) == memory
