"""What a history remembers of both sides."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.events import PacketEvent
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import Step, client, conversation, lost, opened, segments, server
from mqttscope.mqtt import packets
from mqttscope.mqtt.constants import Direction
from mqttscope.session import history as module
from mqttscope.session.history import NEVER_NS, History
from mqttscope.session.inflight import RELEASED, SENT
from tests.growth import kept_of_each


def told(*steps: Step) -> History:
    """The history after a conversation."""
    found: History | None = None
    linter = Linter([])
    for event in dissect_segments(segments(conversation("a conversation", *opened(), *steps))):
        linter.feed(event)
        if isinstance(event, PacketEvent):
            found = event.connection.history
    assert found is not None
    return found


def publish(qos: int, identifier: int, payload: bytes = b"x") -> packets.Publish:
    return packets.Publish(qos=qos, topic_name="a", packet_identifier=identifier, payload=payload)


def test_connect_and_connack_are_kept_with_their_place() -> None:
    history = told()

    assert history.connect is not None
    assert history.connack is not None
    assert history.connect_sent is not None
    assert history.connack_sent is not None
    assert (history.connect_sent.packet, history.connack_sent.packet) == (0, 1)
    assert history.connack_sent.position == len(history.connack.raw)


def test_what_is_owed_keeps_the_order_of_arrival() -> None:
    history = told(client(publish(1, 5), publish(1, 3), publish(2, 9)), server(packets.Puback(packet_identifier=3)))

    assert list(history.server.owes_puback) == [5]
    assert list(history.server.owes_pubrec) == [9]
    assert history.client.owes_puback == {}


def test_qos_2_is_owed_step_by_step() -> None:
    steps = [
        client(publish(2, 9)),
        server(packets.Pubrec(packet_identifier=9)),
        client(packets.Pubrel(packet_identifier=9)),
        server(packets.Pubcomp(packet_identifier=9)),
    ]

    def owed(count: int) -> list[list[int]]:
        history = told(*steps[:count])
        parties = (history.server.owes_pubrec, history.client.owes_pubrel, history.server.owes_pubcomp)
        return [list(one) for one in parties]

    assert [owed(count) for count in range(1, 5)] == [
        [[9], [], []],
        [[], [9], []],
        [[], [], [9]],
        [[], [], []],
    ]


def test_an_exchange_that_ended_is_remembered_with_its_answer() -> None:
    history = told(
        client(publish(1, 7, b"data")),
        server(packets.Puback(packet_identifier=7, reason_code=0x87)),
        client(publish(2, 8)),
        server(packets.Pubrec(packet_identifier=8, reason_code=0x97)),
    )
    acknowledged, refused = history.client.ended[7], history.client.ended[8]

    assert (acknowledged.by, acknowledged.reason_code) == (4, 0x87)
    assert acknowledged.checksum == zlib.crc32(b"data")
    assert acknowledged.exchange.topic == "a"
    assert (refused.by, refused.reason_code) == (5, 0x97)
    assert history.client.owes_pubrel == {}


def test_what_is_remembered_of_an_exchange_is_little() -> None:
    steps = [
        step
        for number in range(1_001, 1_001 + module.MAX_ENDED)
        for step in (client(publish(1, number)), server(packets.Puback(packet_identifier=number)))
    ]
    remembered = []

    def connection(_: int) -> None:
        remembered.append(told(*steps).client.ended)

    # An exchange, its answer and what joins them took 485 bytes as objects of their own, in an interpreter of 64 bits.
    assert kept_of_each(connection, count=4, before=1) < 420 * module.MAX_ENDED
    assert [len(ended) for ended in remembered] == 5 * [module.MAX_ENDED]


def test_an_exchange_that_ended_and_its_answer_are_made_again() -> None:
    history = told(
        client(publish(2, 7)),
        server(packets.Pubrec(packet_identifier=7)),
        client(packets.Pubrel(packet_identifier=7)),
        server(packets.Pubcomp(packet_identifier=7, reason_code=0x92)),
    )
    ended = history.client.ended[7]
    assert (ended.exchange.kind, ended.exchange.qos, ended.exchange.packet, ended.exchange.phase) == (
        "publish", 2, 2, RELEASED,
    )  # fmt: skip
    assert (ended.exchange.released_by, ended.answer.packet, ended.answer.reason_code) == (4, 5, 0x92)

    again = replace(ended, packet_identifier=0, packet=0, frame=0, timestamp_ns=0, qos=0, topic=None, phase=SENT)
    again.answer_packet = again.answer_frame = again.answer_ns = again.answer_position = 0
    again.released_by = -1
    again.exchange, again.answer = ended.exchange, ended.answer
    assert again == ended


def test_identifiers_that_were_ever_sent_are_known() -> None:
    history = told(client(publish(1, 1), publish(1, 65_535)))

    assert [number for number in (1, 2, 65_534, 65_535) if history.client.has_sent(number)] == [1, 65_535]
    assert not history.server.has_sent(1)


def test_few_packets_are_kept_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENDED", 3)
    monkeypatch.setattr(module, "MAX_RECENT", 2)
    exchanges = [
        step
        for number in range(1, 10)
        for step in (client(publish(1, number)), server(packets.Puback(packet_identifier=number)))
    ]
    history = told(*exchanges)

    assert list(history.client.ended) == [7, 8, 9]
    assert len(history.client.recent) <= 4


def test_a_gap_forgives_what_the_lost_bytes_may_have_paid() -> None:
    history = told(
        server(publish(1, 4)),
        lost(client(packets.Puback(packet_identifier=4))),
        client(packets.Pingreq()),
        server(packets.Pingresp()),
        client(packets.Pingreq(), after=1),
    )

    assert history.client.owes_puback == {}


def test_pings_are_counted_until_they_are_answered() -> None:
    assert told(client(packets.Pingreq(), packets.Pingreq()), server(packets.Pingresp())).client.pings == 1
    assert told(server(packets.Pingresp())).client.pings == 0


def test_the_ends_of_either_side() -> None:
    history = told(server(packets.Disconnect(reason_code=0x8B)), client(packets.Auth(reason_code=0x18)))

    assert history.server.disconnect is not None
    assert history.server.disconnect.reason_code == 0x8B
    assert history.client.disconnect is None
    assert history.client.auth is not None
    assert history.party(Direction.SERVER_TO_CLIENT) is history.server


def test_the_lengths_of_segments_are_known() -> None:
    history = told(client(b"\x30"), client(b"\x04\x00\x01aX"), client(packets.Pingreq()))

    assert (history.client.length_before, history.client.segment_length) == (5, 2)
    assert history.client.single_bytes == 1
    assert history.server.single_bytes == 0


def test_a_packet_in_pieces_begins_in_the_segment_of_its_first_byte() -> None:
    history = History()
    party = history.client

    history.segment(from_client=True, position=10, acknowledged=3, delivered=3, timestamp_ns=1, held=0)
    assert party.begun is None
    history.segment(from_client=True, position=20, acknowledged=5, delivered=5, timestamp_ns=2, held=4)
    assert party.begun == (3, 1)
    history.segment(from_client=True, position=30, acknowledged=7, delivered=7, timestamp_ns=3, held=14)
    assert party.begun == (3, 1)
    history.segment(from_client=True, position=40, acknowledged=9, delivered=9, timestamp_ns=4, held=0)
    assert party.begun is None


def test_what_is_read_late_says_nothing_of_what_its_sender_knew() -> None:
    history = History()
    history.segment(from_client=True, position=10, acknowledged=3, delivered=3, timestamp_ns=1, held=0)
    assert history.client.in_step()

    history.late(Direction.CLIENT_TO_SERVER)

    assert not history.client.in_step()


def test_bytes_that_were_not_read_as_packets_yet_are_not_shown() -> None:
    history = History()
    history.segment(from_client=True, position=10, acknowledged=9, delivered=9, timestamp_ns=1, held=0, unread=9)

    assert not history.client.in_step()


def test_pings_that_have_no_answer_are_counted() -> None:
    found = told(client(packets.Pingreq(), packets.Pingreq()), server(packets.Pingresp()), client(packets.Pingreq()))
    assert (found.client.pings, found.server.pings) == (2, 0)
    assert told(server(packets.Pingresp(), packets.Pingresp())).client.pings == 0


@pytest.mark.parametrize("passing", [False, True])
def test_what_is_due_comes_once_and_the_rest_later(passing: bool) -> None:
    found = History()
    found.asked = {"B": 5, "A": 7, "C": 20}
    found.asked_next = {"A": 30, "D": 6, "E": 40}

    # Who is asked now has no other time left, whichever table it stands in.
    assert found.due(10, passing=passing) == (["A", "B"] if passing else ["A", "B", "D"])
    assert (found.asked, found.asked_next) == ({"C": 20}, {"D": 6, "E": 40} if passing else {"E": 40})
    assert found.due_ns == (6 if passing else 20)
    assert found.due(100) == (["C", "D", "E"] if passing else ["C", "E"])
    assert found.due_ns == NEVER_NS
