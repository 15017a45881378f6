from __future__ import annotations

from itertools import product

import pytest

from mqttscope.mqtt import Puback, Pubcomp, Pubrec, Pubrel, Suback, Subscribe, Subscription, Unsuback, Unsubscribe
from mqttscope.mqtt.constants import PacketType
from mqttscope.session import Exchange, Side
from mqttscope.session.inflight import (
    EXCHANGE_TRANSITIONS,
    MAX_PACKET_IDENTIFIERS,
    RECEIVED,
    RELEASED,
    SENT,
    ExchangePhase,
)
from tests.each import each
from tests.session.story import V3_1, V3_1_1, V5, Row, Story, connect, publish

SUBSCRIBE = Subscribe(7, subscriptions=[Subscription("a/#", 1), Subscription("b", 0)])
UNSUBSCRIBE = Unsubscribe(8, topic_filters=["a/#"])


def exchange(identifier: int, number: int, kind: str = "publish") -> Exchange:
    return Exchange(identifier, number, 1, 0, kind)


@each(
    "rows, in_flight, peak, open_exchanges",
    [
        pytest.param([("C", publish())], 0, 0, [], id="QoS 0 begins nothing"),
        pytest.param([("C", publish(1, 1))], 1, 1, [1], id="QoS 1 is in flight until PUBACK"),
        pytest.param([("C", publish(1, 1)), ("S", Puback(1))], 0, 1, [], id="PUBACK ends QoS 1, the peak stays"),
        pytest.param(
            [("C", publish(1, 1)), ("S", Puback(1, 0x80))], 0, 1, [], id="PUBACK with an error ends QoS 1 as well"
        ),
        pytest.param(
            [("C", publish(1, 1)), ("C", publish(2, 1)), ("S", Puback(2))], 1, 2, [1], id="answers come in any order"
        ),
        pytest.param([("C", publish(1, 1)), ("S", Puback(2))], 1, 1, [1], id="another identifier ends nothing"),
        pytest.param([("C", publish(1, 1)), ("C", Puback(1))], 1, 1, [1], id="its own PUBACK ends nothing"),
        pytest.param([("C", publish(1, 2)), ("S", Pubrec(1))], 1, 1, [1], id="PUBREC keeps QoS 2 in flight"),
        pytest.param(
            [("C", publish(1, 2)), ("S", Pubrec(1)), ("C", Pubrel(1))], 1, 1, [1], id="PUBREL keeps QoS 2 in flight"
        ),
        pytest.param(
            [("C", publish(1, 2)), ("S", Pubrec(1)), ("C", Pubrel(1)), ("S", Pubcomp(1))], 0, 1, [], id="PUBCOMP ends"
        ),
        pytest.param(
            [("C", publish(1, 2)), ("S", Pubrec(1, 0x10))], 1, 1, [1], id="PUBREC below 0x80 keeps QoS 2 in flight"
        ),
        pytest.param([("C", publish(1, 2)), ("S", Pubrec(1, 0x80))], 0, 1, [], id="PUBREC of 0x80 ends QoS 2"),
        pytest.param([("C", publish(1, 2)), ("S", Pubrec(1, 0x97))], 0, 1, [], id="PUBREC above 0x80 ends QoS 2"),
        pytest.param(
            [("C", publish(1, 1)), ("C", publish(1, 1, dup=True))], 1, 1, [1], id="a retransmission is counted once"
        ),
        pytest.param(
            [("C", publish(1, 1)), ("C", publish(1, 1))], 1, 1, [1], id="an identifier used again replaces the exchange"
        ),
        pytest.param(
            [("C", publish(1, 1, dup=True))], 1, 1, [1], id="a retransmission of an earlier connection is in flight"
        ),
        pytest.param(
            [("C", SUBSCRIBE), ("C", UNSUBSCRIBE)], 0, 0, [7, 8], id="SUBSCRIBE and UNSUBSCRIBE are not in flight"
        ),
        pytest.param(
            [("C", SUBSCRIBE), ("S", Suback(7, reason_codes=[1, 0])), ("C", UNSUBSCRIBE), ("S", Unsuback(8))],
            0, 0, [], id="SUBACK and UNSUBACK end their exchanges",
        ),
        pytest.param([("C", SUBSCRIBE), ("S", Unsuback(7))], 0, 0, [7], id="UNSUBACK does not answer SUBSCRIBE"),
        pytest.param([("C", SUBSCRIBE), ("S", Puback(7))], 0, 0, [7], id="PUBACK does not answer SUBSCRIBE"),
        pytest.param([("C", SUBSCRIBE), ("S", Pubrec(7, 0x80))], 0, 0, [7], id="PUBREC does not answer SUBSCRIBE"),
        pytest.param(
            [("C", publish(7, 1)), ("C", SUBSCRIBE)], 0, 1, [7], id="a SUBSCRIBE of the same identifier replaces it"
        ),
        pytest.param([("S", publish(1, 1)), ("C", Puback(1))], 0, 0, [], id="the server's window is another one"),
    ],
)  # fmt: skip
def test_window_of_the_client(rows: list[Row], in_flight: int, peak: int, open_exchanges: list[int]) -> None:
    side = Story(*rows).connection.client_side

    assert (side.in_flight, side.in_flight_peak, list(side.exchanges)) == (in_flight, peak, open_exchanges)


def test_the_same_identifier_in_both_directions_is_two_exchanges() -> None:
    story = Story(("C", publish(5, 1)), ("S", publish(5, 2)))

    story.tell(("S", Puback(5)))

    assert not story.connection.client_side.exchanges
    assert story.connection.server_side.in_flight == 1
    assert story.connection.server_side.exchanges[5].qos == 2


@pytest.mark.parametrize(("phase", "answer"), EXCHANGE_TRANSITIONS, ids=lambda one: one.name)
def test_an_exchange_follows_the_table(phase: ExchangePhase, answer: PacketType) -> None:
    rows: dict[PacketType, Row] = {PacketType.PUBREC: ("S", Pubrec(9)), PacketType.PUBREL: ("C", Pubrel(9))}
    ways = {SENT: [], RECEIVED: [PacketType.PUBREC], RELEASED: [PacketType.PUBREC, PacketType.PUBREL]}
    story = Story(("C", publish(9, 2)), *(rows[one] for one in ways[phase]))
    running = story.connection.client_side.exchanges[9]
    assert running.phase is phase

    story.tell(rows[answer])

    assert running.phase is EXCHANGE_TRANSITIONS[phase, answer]
    assert running.phase is {PacketType.PUBREC: RECEIVED, PacketType.PUBREL: RELEASED}[answer]


def test_an_exchange_has_a_way_from_every_phase_for_both_packets() -> None:
    assert set(EXCHANGE_TRANSITIONS) == set(product(ExchangePhase, (PacketType.PUBREC, PacketType.PUBREL)))


def test_phases_of_qos_2() -> None:
    story = Story(("C", publish(9, 2, "t")))
    running = story.connection.client_side.exchanges[9]
    assert (running.phase, running.packet, running.frame, running.timestamp_ns) == ("sent", 0, 1, 0)
    assert (running.kind, running.qos, running.topic) == ("publish", 2, "t")
    assert story.connection.server_side.receiving == {9: 0}

    story.tell(("S", Pubrec(9)))
    assert (running.phase, running.released_by) == ("received", None)

    story.tell(("C", Pubrel(9)))
    assert (running.phase, running.released_by) == ("released", 2)
    assert story.connection.server_side.receiving == {9: 0}

    story.tell(("S", Pubcomp(9)))
    assert not story.connection.client_side.exchanges
    assert not story.connection.server_side.receiving


def test_a_refused_message_is_not_waited_for_by_its_receiver() -> None:
    story = Story(("S", publish(3, 2)), ("C", Pubrec(3, 0x87)))

    assert not story.connection.client_side.receiving
    assert story.connection.server_side.in_flight == 0


def test_a_retransmission_counts_on_the_exchange_it_repeats() -> None:
    story = Story(("C", publish(1, 2)), ("C", publish(1, 2, dup=True)), ("C", publish(1, 2, dup=True)))

    running = story.connection.client_side.exchanges[1]
    assert (running.packet, running.retransmissions) == (0, 2)
    assert story.connection.server_side.receiving == {1: 0}


def test_an_identifier_used_again_without_dup_is_a_new_exchange() -> None:
    story = Story(("C", publish(1, 1, "old")), ("C", publish(1, 1, "new")))

    running = story.connection.client_side.exchanges[1]
    assert (running.packet, running.topic, running.retransmissions) == (1, "new", 0)


@pytest.mark.parametrize(
    ("stray", "version"), [(Pubrel(7), V5), (Pubrel(7), V3_1_1), (Pubrel(7), V3_1)], ids=lambda value: str(value)
)
def test_a_stray_pubrel_does_not_touch_a_subscription(stray: Pubrel, version: object) -> None:
    story = Story(("C", SUBSCRIBE), ("C", stray), ("S", Pubrec(7)), version=version)  # type: ignore[arg-type]

    running = story.connection.client_side.exchanges[7]
    assert (running.kind, running.phase, running.released_by, running.filters) == ("subscribe", "sent", None, 2)
    assert story.answers == [None, None, None]


def test_each_answer_finds_what_it_answers() -> None:
    story = Story(
        ("C", connect()),
        ("C", publish(1, 2)),
        ("C", SUBSCRIBE),
        ("S", Pubrec(1)),
        ("C", Pubrel(1)),
        ("S", Pubcomp(1)),
        ("S", Suback(7, reason_codes=[0, 0])),
        ("C", UNSUBSCRIBE),
        ("S", Unsuback(8, None, [0])),
        ("S", publish(1, 1)),
        ("C", Puback(1)),
        ("C", Puback(1)),
        ("S", Pubrel(1)),
    )

    assert story.answers == [None, None, None, 1, 1, 1, 2, None, 7, None, 9, None, None]


def test_the_whole_range_of_identifiers_fits_and_no_more() -> None:
    side = Side()

    for number in range(2 * MAX_PACKET_IDENTIFIERS):
        side.begin(exchange(number % MAX_PACKET_IDENTIFIERS + 1, number))

    assert len(side.exchanges) == side.in_flight == side.in_flight_peak == MAX_PACKET_IDENTIFIERS


def test_finish_takes_an_exchange_of_its_kind_only() -> None:
    side = Side()
    side.begin(exchange(1, 0))

    assert side.finish(1, "subscribe") is None
    assert side.finish(2, "publish") is None
    assert side.in_flight == 1

    found = side.finish(1, "publish")
    assert found is not None
    assert found.packet == 0
    assert side.in_flight == 0
