from __future__ import annotations

from ast import literal_eval
from itertools import product

import pytest

from mqttscope.mqtt import ProtocolVersion
from mqttscope.mqtt.constants import PacketType
from mqttscope.session import ConnectionSide, Exchange
from mqttscope.session.inflight import (
    EXCHANGE_TRANSITIONS,
    MAX_PACKET_IDENTIFIERS,
    RECEIVED,
    RELEASED,
    SENT,
    ExchangePhase,
)
from tests.each import each
from tests.session.story import V3_1, V3_1_1, V5, Story
from tests.tables import cases_of


def exchange(identifier: int, number: int, kind: str = "publish") -> Exchange:
    return Exchange(identifier, number, 1, 0, kind)


WINDOWS = """
QoS 0 begins nothing
    > publish a | 0 | 0 | []
QoS 1 is in flight until PUBACK
    > publish a qos=1 id=1 | 1 | 1 | [1]
PUBACK ends QoS 1, the peak stays
    > publish a qos=1 id=1; < puback 1 | 0 | 1 | []
PUBACK with an error ends QoS 1 as well
    > publish a qos=1 id=1; < puback 1 code=0x80 | 0 | 1 | []
answers come in any order
    > publish a qos=1 id=1; > publish a qos=1 id=2; < puback 2 | 1 | 2 | [1]
another identifier ends nothing
    > publish a qos=1 id=1; < puback 2 | 1 | 1 | [1]
its own PUBACK ends nothing
    > publish a qos=1 id=1; > puback 1 | 1 | 1 | [1]
PUBREC keeps QoS 2 in flight
    > publish a qos=2 id=1; < pubrec 1 | 1 | 1 | [1]
PUBREL keeps QoS 2 in flight
    > publish a qos=2 id=1; < pubrec 1; > pubrel 1 | 1 | 1 | [1]
PUBCOMP ends
    > publish a qos=2 id=1; < pubrec 1; > pubrel 1; < pubcomp 1 | 0 | 1 | []
PUBREC below 0x80 keeps QoS 2 in flight
    > publish a qos=2 id=1; < pubrec 1 code=0x10 | 1 | 1 | [1]
PUBREC of 0x80 ends QoS 2
    > publish a qos=2 id=1; < pubrec 1 code=0x80 | 0 | 1 | []
PUBREC above 0x80 ends QoS 2
    > publish a qos=2 id=1; < pubrec 1 code=0x97 | 0 | 1 | []
a retransmission is counted once
    > publish a qos=1 id=1; > publish a dup qos=1 id=1 | 1 | 1 | [1]
an identifier used again replaces the exchange
    > publish a qos=1 id=1; > publish a qos=1 id=1 | 1 | 1 | [1]
a retransmission of an earlier connection is in flight
    > publish a dup qos=1 id=1 | 1 | 1 | [1]
SUBSCRIBE and UNSUBSCRIBE are not in flight
    > subscribe 7 a/#:1 b:0; > unsubscribe 8 a/# | 0 | 0 | [7, 8]
SUBACK and UNSUBACK end their exchanges
    > subscribe 7 a/#:1 b:0; < suback 7 1 0; > unsubscribe 8 a/#; < unsuback 8 | 0 | 0 | []
UNSUBACK does not answer SUBSCRIBE
    > subscribe 7 a/#:1 b:0; < unsuback 7 | 0 | 0 | [7]
PUBACK does not answer SUBSCRIBE
    > subscribe 7 a/#:1 b:0; < puback 7 | 0 | 0 | [7]
PUBREC does not answer SUBSCRIBE
    > subscribe 7 a/#:1 b:0; < pubrec 7 code=0x80 | 0 | 0 | [7]
a SUBSCRIBE of the same identifier replaces it
    > publish a qos=1 id=7; > subscribe 7 a/#:1 b:0 | 0 | 1 | [7]
the server's window is another one
    < publish a qos=1 id=1; > puback 1 | 0 | 0 | []
"""


@each("rows, in_flight, peak, open_exchanges", cases_of(WINDOWS, str, int, int, literal_eval))
def test_window_of_the_client(rows: str, in_flight: int, peak: int, open_exchanges: list[int]) -> None:
    side = Story(rows).connection.client_side

    assert (side.in_flight, side.in_flight_peak, list(side.exchanges)) == (in_flight, peak, open_exchanges)


def test_the_same_identifier_in_both_directions_is_two_exchanges() -> None:
    story = Story("> publish a qos=1 id=5; < publish a qos=2 id=5")

    story.tell("< puback 5")

    assert not story.connection.client_side.exchanges
    assert story.connection.server_side.in_flight == 1
    assert story.connection.server_side.exchanges[5].qos == 2


@pytest.mark.parametrize(("phase", "answer"), EXCHANGE_TRANSITIONS, ids=lambda each: each.name)
def test_an_exchange_follows_the_table(phase: ExchangePhase, answer: PacketType) -> None:
    rows = {PacketType.PUBREC: "< pubrec 9", PacketType.PUBREL: "> pubrel 9"}
    ways = {SENT: "", RECEIVED: "; < pubrec 9", RELEASED: "; < pubrec 9; > pubrel 9"}
    story = Story("> publish a qos=2 id=9" + ways[phase])
    running = story.connection.client_side.exchanges[9]
    assert running.phase is phase

    story.tell(rows[answer])

    assert running.phase is EXCHANGE_TRANSITIONS[phase, answer]
    assert running.phase is {PacketType.PUBREC: RECEIVED, PacketType.PUBREL: RELEASED}[answer]


def test_an_exchange_has_a_way_from_every_phase_for_both_packets() -> None:
    assert set(EXCHANGE_TRANSITIONS) == set(product(ExchangePhase, (PacketType.PUBREC, PacketType.PUBREL)))


def test_phases_of_qos_2() -> None:
    story = Story("> publish t qos=2 id=9")
    running = story.connection.client_side.exchanges[9]
    assert (running.phase, running.packet, running.frame, running.timestamp_ns) == ("sent", 0, 1, 0)
    assert (running.kind, running.qos, running.topic) == ("publish", 2, "t")
    assert story.connection.server_side.receiving == {9: 0}

    story.tell("< pubrec 9")
    assert (running.phase, running.released_by) == ("received", None)

    story.tell("> pubrel 9")
    assert (running.phase, running.released_by) == ("released", 2)
    assert story.connection.server_side.receiving == {9: 0}

    story.tell("< pubcomp 9")
    assert not story.connection.client_side.exchanges
    assert not story.connection.server_side.receiving


def test_a_refused_message_is_not_waited_for_by_its_receiver() -> None:
    story = Story("< publish a qos=2 id=3; > pubrec 3 code=0x87")

    assert not story.connection.client_side.receiving
    assert story.connection.server_side.in_flight == 0


def test_a_retransmission_counts_on_the_exchange_it_repeats() -> None:
    story = Story("> publish a qos=2 id=1; > publish a dup qos=2 id=1; > publish a dup qos=2 id=1")

    running = story.connection.client_side.exchanges[1]
    assert (running.packet, running.retransmissions) == (0, 2)
    assert story.connection.server_side.receiving == {1: 0}


def test_an_identifier_used_again_without_dup_is_a_new_exchange() -> None:
    story = Story("> publish old qos=1 id=1; > publish new qos=1 id=1")

    running = story.connection.client_side.exchanges[1]
    assert (running.packet, running.topic, running.retransmissions) == (1, "new", 0)


@pytest.mark.parametrize("version", [V5, V3_1_1, V3_1])
def test_a_stray_pubrel_does_not_touch_a_subscription(version: ProtocolVersion) -> None:
    story = Story("> subscribe 7 a/#:1 b:0; > pubrel 7; < pubrec 7", version=version)

    running = story.connection.client_side.exchanges[7]
    assert (running.kind, running.phase, running.released_by, running.filters) == ("subscribe", "sent", None, 2)
    assert story.answers == [None, None, None]


def test_each_answer_finds_what_it_answers() -> None:
    story = Story(
        "> connect; > publish a qos=2 id=1; > subscribe 7 a/#:1 b:0; < pubrec 1; > pubrel 1; < pubcomp 1; "
        "< suback 7 0 0; > unsubscribe 8 a/#; < unsuback 8 0; < publish a qos=1 id=1; > puback 1; > puback 1; "
        "< pubrel 1",
    )

    assert story.answers == [None, None, None, 1, 1, 1, 2, None, 7, None, 9, None, None]


def test_the_whole_range_of_identifiers_fits_and_no_more() -> None:
    side = ConnectionSide()

    for number in range(2 * MAX_PACKET_IDENTIFIERS):
        side.begin(exchange(number % MAX_PACKET_IDENTIFIERS + 1, number))

    assert len(side.exchanges) == side.in_flight == side.in_flight_peak == MAX_PACKET_IDENTIFIERS


def test_finish_takes_an_exchange_of_its_kind_only() -> None:
    side = ConnectionSide()
    side.begin(exchange(1, 0))

    assert side.finish(1, "subscribe") is None
    assert side.finish(2, "publish") is None
    assert side.in_flight == 1

    actual_exchange = side.finish(1, "publish")
    assert actual_exchange is not None
    assert actual_exchange.packet == 0
    assert side.in_flight == 0


def test_a_table_is_created_when_it_is_first_used() -> None:
    side = ConnectionSide()

    assert not side.has_any("exchanges", "receiving")
    side.exchanges[1] = exchange(1, 0)
    assert side.has_any("receiving", "exchanges")
    assert side.exchanges is side.exchanges
    side.empty("exchanges", "receiving")
    assert (len(side.exchanges), len(side.receiving)) == (0, 0)
    assert not side.has_any("exchanges")
    with pytest.raises(AttributeError, match="ConnectionSide has no attribute 'absent'"):
        _ = side.absent  # type: ignore[attr-defined]
