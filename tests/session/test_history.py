"""What a history remembers of both sides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.events import PacketEvent
from mqttscope.lint.conversation_text import parse_conversations
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import segments
from mqttscope.mqtt.constants import Direction
from mqttscope.session import history as module
from mqttscope.session.history import NEVER_NS, History
from mqttscope.session.inflight import RELEASED, SENT
from tests.growth import kept_of_each
from tests.tables import cases_of, differing


def told(text: str) -> History:
    """The history after a conversation, which is opened before."""
    history: History | None = None
    linter = Linter([])
    (conversation,) = parse_conversations(f"a conversation\n    opened; {text}")
    for event in dissect_segments(segments(conversation)):
        linter.feed(event)
        if isinstance(event, PacketEvent):
            history = event.connection.history
    assert history is not None
    return history


def test_packets_of_a_websocket_frame_are_counted_from_the_frame_before() -> None:
    side = History().client
    for count in (1, 2, 4):
        side.frame(count, within=False)

    assert (side.frames, side.odd_frame) == (2, "held 2 packets")


FACTS = """
CONNECT and CONNACK are kept with their place
    nothing; | connect_sent.packet=0 connack_sent.packet=1 connack_sent.position=5 connect.protocol_level=5
    connack.reason_code=0
what is owed keeps the order of arrival
    > publish a x qos=1 id=5 & publish a x qos=1 id=3 & publish a x qos=2 id=9; < puback 3 |
    server.owes_puback=[5] server.owes_pubrec=[9] client.owes_puback=[]
PUBREC is owed for QoS 2
    > publish a x qos=2 id=9 | server.owes_pubrec=[9] client.owes_pubrel=[] server.owes_pubcomp=[]
then PUBREL
    > publish a x qos=2 id=9; < pubrec 9 | server.owes_pubrec=[] client.owes_pubrel=[9] server.owes_pubcomp=[]
then PUBCOMP
    > publish a x qos=2 id=9; < pubrec 9; > pubrel 9 |
    server.owes_pubrec=[] client.owes_pubrel=[] server.owes_pubcomp=[9]
then nothing
    > publish a x qos=2 id=9; < pubrec 9; > pubrel 9; < pubcomp 9 |
    server.owes_pubrec=[] client.owes_pubrel=[] server.owes_pubcomp=[]
an exchange that ended is remembered with its answer
    > publish a data qos=1 id=7; < puback 7 code=0x87; > publish a x qos=2 id=8; < pubrec 8 code=0x97 |
    client.ended[7].by=4 client.ended[7].reason_code=0x87 client.ended[7].checksum=2918445923
    client.ended[7].exchange.topic=a client.ended[8].by=5 client.ended[8].reason_code=0x97 client.owes_pubrel=[]
a gap forgives what the lost bytes may have paid
    < publish a x qos=1 id=4; lost > puback 4; > pingreq; < pingresp; +1 > pingreq | client.owes_puback=[]
pings are counted until they are answered
    > pingreq & pingreq; < pingresp | client.pings=1
an answer to no ping counts nothing
    < pingresp | client.pings=0
two answers to no ping count nothing
    < pingresp & pingresp | client.pings=0
pings that have no answer are counted
    > pingreq & pingreq; < pingresp; > pingreq | client.pings=2 server.pings=0
the ends of either side
    < disconnect code=0x8b; > auth code=0x18 |
    server.disconnect.reason_code=0x8b client.disconnect=None client.auth.reason_code=0x18
the lengths of segments are known
    > raw 30; > raw 0400016158; > pingreq |
    client.length_before=5 client.segment_length=2 client.single_bytes=1 server.single_bytes=0
"""


@pytest.mark.parametrize(("story", "facts"), cases_of(FACTS, str, str))
def test_what_is_remembered(story: str, facts: str) -> None:
    assert differing(told(story.removeprefix("nothing;")), facts) == {}


def test_each_side_is_found_by_its_direction() -> None:
    history = told("> pingreq")

    assert history.party(Direction.SERVER_TO_CLIENT) is history.server


def test_what_is_remembered_of_an_exchange_is_little() -> None:
    numbers = range(1_001, 1_001 + module.MAX_ENDED)
    story = "; ".join(f"> publish a x qos=1 id={number}; < puback {number}" for number in numbers)
    remembered = []

    def connection(_: int) -> None:
        remembered.append(told(story).client.ended)

    # An exchange, its answer and what joins them took 485 bytes as objects of their own, in an interpreter of 64 bits.
    assert kept_of_each(connection, count=4, before=1) < 420 * module.MAX_ENDED
    assert [len(ended) for ended in remembered] == 5 * [module.MAX_ENDED]


def test_an_exchange_that_ended_and_its_answer_are_made_again() -> None:
    ended = told("> publish a x qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7 code=0x92").client.ended[7]
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
    history = told("> publish a x qos=1 id=1 & publish a x qos=1 id=65535")

    assert [number for number in (1, 2, 65_534, 65_535) if history.client.has_sent(number)] == [1, 65_535]
    assert not history.server.has_sent(1)


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

    history.note_late(Direction.CLIENT_TO_SERVER)

    assert not history.client.in_step()


def test_bytes_that_were_not_read_as_packets_yet_are_not_shown() -> None:
    history = History()
    history.segment(from_client=True, position=10, acknowledged=9, delivered=9, timestamp_ns=1, held=0, unread=9)

    assert not history.client.in_step()


@pytest.mark.parametrize("passing", [False, True])
def test_what_is_due_comes_once_and_the_rest_later(passing: bool) -> None:
    history = History()
    history.asked = {"B": 5, "A": 7, "C": 20}
    history.asked_next = {"A": 30, "D": 6, "E": 40}

    # Who is asked now has no other time left, whichever table it stands in.
    assert history.due(10, passing=passing) == (["A", "B"] if passing else ["A", "B", "D"])
    assert (history.asked, history.asked_next) == ({"C": 20}, {"D": 6, "E": 40} if passing else {"E": 40})
    assert history.due_ns == (6 if passing else 20)
    assert history.due(100) == (["C", "D", "E"] if passing else ["C", "E"])
    assert history.due_ns == NEVER_NS
