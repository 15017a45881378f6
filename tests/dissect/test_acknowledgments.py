"""Which packets TCP acknowledged: proofs, contradictions, and cases that the capture leaves open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from mqttscope.dissect import Dissector, Options, dissect_segments
from mqttscope.dissect.acknowledgments import Acknowledgments, selective, tcp_acknowledged
from mqttscope.events import MalformedEvent, PacketEvent
from mqttscope.net.frame import Plaintext
from mqttscope.net.segment import Segment
from tests.dissect.scenes import MASK, mixed_tape, websocket
from tests.dissect.talk import PINGREQ, SECOND, Talk, Tape, connect, read, wire
from tests.dissect.test_plaintexts import contents, secured
from tests.net.framing import frame
from tests.tables import cases_of

SILENT = "> connect; ack server; < connack; ack client"
CASES = f"""
the receiver acknowledges at once
    {SILENT}; > pingreq; ack server | yes yes yes
with its answer
    {SILENT}; > pingreq; < pingresp; ack client | yes yes yes yes
sent again and again, and never acknowledged
    {SILENT}; > pingreq; back client 2; +1; > pingreq; back client 2; +2; > pingreq; old server;
      < pingresp | yes yes no -
the same before the capture ends
    {SILENT}; > pingreq | yes yes -
the capture continues with nothing from the receiver
    {SILENT}; > pingreq; +6; > pingreq | yes yes no -
the receiver resets
    {SILENT}; > pingreq; old server; reset server | yes yes no
the FIN of the receiver acknowledges all
    {SILENT}; > pingreq; fin server; ack client | yes yes yes
only after the FIN of the receiver
    {SILENT}; < pingresp; old client; fin client; ack server; new client; ack client | yes yes fin
the last acknowledgment comes when both sides have ended
    {SILENT}; > pingreq; old server; fin server; fin client; new server; ack server | yes yes fin
"""


class Told(Talk):
    """A conversation with sides that may repeat data, or acknowledge less than they received."""

    def back(self, who: str, count: int) -> None:
        """The next bytes of a side are its last ones again."""
        self.position[who] -= count

    def old(self, who: str) -> None:
        """A side acknowledges two bytes less from now on."""
        self.behind = who

    def new(self, who: str) -> None:
        """It acknowledges everything again."""
        assert self.behind == who
        self.behind = ""

    behind = ""

    def _send(self, who: str, flags: int, payload: bytes = b"", missing: int = 0) -> int:
        other = "server" if who == "client" else "client"
        lag = 2 * (self.behind == who)
        self.position[other] -= lag
        sent = super()._send(who, flags, payload, missing)
        self.position[other] += lag
        return sent


def words(items: Iterable[Segment | Plaintext], segments: list[Segment] | None = None) -> list[str]:
    """The answer for each packet: yes, no, unknown (-), or acknowledged after the FIN of its receiver."""
    items = list(items)
    acknowledgments = Acknowledgments(segments or [segment for segment in items if isinstance(segment, Segment)])
    known = {True: "yes", False: "no", None: "-"}
    texts = []
    for event in acknowledgments.attach(dissect_segments(items, dissector=Dissector(Options(decrypting=True)))):
        if isinstance(event, PacketEvent | MalformedEvent):
            answer = known[tcp_acknowledged(event)]
            texts.append("fin" if acknowledgments.is_after_fin(event) and answer == "yes" else answer)
    return texts


@pytest.mark.parametrize(("story", "expected"), cases_of(CASES, str, str.split))
def test_what_later_segments_show(story: str, expected: list[str]) -> None:
    assert words(Told().handshake().tell(story).tape.segments) == expected


def test_the_position_wraps() -> None:
    talk = Told()
    talk.position = {"client": 2**32 - 12, "server": 2**32 - 3}
    assert words(talk.handshake().tell(f"{SILENT}; > pingreq; ack server; > pingreq").tape.segments) == [
        "yes", "yes", "yes", "-",
    ]  # fmt: skip


def test_one_side_of_a_connection_proves_nothing() -> None:
    talk = Told().handshake().tell(f"{SILENT}; > pingreq; ack server; +60; > pingreq; fin client")
    segments = [segment for segment in talk.tape.segments if segment.key == talk.keys["client"]]
    assert words(segments) == ["-"] * 3


def test_several_packets_in_a_segment_of_which_the_first_was_acknowledged() -> None:
    talk = Told().handshake().tell(f"{SILENT}; > pingreq & pingreq; old server; ack server; reset server")
    assert words(talk.tape.segments) == ["yes", "yes", "yes", "no"]


def test_in_a_websocket_the_acknowledgment_has_to_cover_the_whole_segment() -> None:
    talk = websocket()
    talk.ack("client")
    talk.client(frame(wire(PINGREQ, PINGREQ), key=MASK))
    talk.position["client"] -= 2
    talk.ack("server")
    assert words(talk.tape.segments) == ["yes", "yes", "-", "-"]
    talk.position["client"] += 2
    talk.ack("server")
    assert words(talk.tape.segments) == ["yes"] * 4
    talk.client(frame(wire(PINGREQ), key=MASK))
    talk.reset("client")
    talk.tape.segments[-1].acknowledgment = 0
    assert words(talk.tape.segments)[-1] == "no"


def test_inside_tls_the_record_counts() -> None:
    talk = secured()
    items: list[Segment | Plaintext] = [*contents(talk), *talk.tape.segments]
    assert words(items) == ["yes"] * 3


def test_a_selective_acknowledgment_counts() -> None:
    talk = Told().handshake().tell(f"{SILENT}; > pingreq; > pingreq; back client 2; old server; ack server")
    *_, last = talk.tape.segments
    assert words(talk.tape.segments)[2:] == ["no", "no"]
    edges = [1 + len(wire(connect())) + 1000 + 2 * count for count in (1, 2)]
    last.options = b"\1\1\5\12" + b"".join(edge.to_bytes(4) for edge in edges)
    assert list(selective(last.options)) == [tuple(edges)]
    assert words(talk.tape.segments)[2:] == ["no", "yes"]


def test_damaged_options_are_read_to_their_end() -> None:
    assert list(selective(b"\1\5\12\0\0\0\1\0\0\0\2")) == [(1, 2)], "after one byte of padding"
    assert list(selective(b"\5\0\5\1\5")) == []
    assert list(selective(b"\2\4\5\264\0\5\12")) == []


def test_a_payload_that_the_snap_length_cut_has_its_place() -> None:
    talk = Told().handshake().tell(SILENT)
    talk.client(bytes.fromhex("3010000161") + b"x" * 5, missing=8)
    talk.ack("server")
    talk.client(bytes.fromhex("3010000161") + b"x" * 5, missing=8)
    talk.reset("server")
    talk.tape.segments[-1].acknowledgment -= 8
    assert words(talk.tape.segments) == ["yes", "yes", "yes", "no"]


def test_a_packet_that_was_not_sent_to_its_end_has_no_answer() -> None:
    talk = Told().handshake().tell(f"{SILENT}; > raw 3010000161; ack server; fin client; ack server")
    assert words(talk.tape.segments) == ["yes", "yes", "-"]


def test_endpoints_that_are_used_again() -> None:
    talk = Told().handshake().tell(f"{SILENT}; > pingreq; again; > connect; ack server; > pingreq; ack server")
    assert words(talk.tape.segments) == ["yes", "yes", "-", "yes", "yes"]


def test_a_copy_of_an_acknowledgment_is_not_a_later_one() -> None:
    tape = Told().handshake().tell(f"{SILENT}; > pingreq; ack server; > pingreq").tape
    before, last = tape.segments[-2:]
    copy = replace(before, frame=last.frame + 1, timestamp_ns=before.timestamp_ns + 1)
    assert words([*tape.segments, copy])[2:] == ["yes", "-"]


def test_a_step_of_the_clock_is_no_silence() -> None:
    tape = Told().handshake().tell(f"{SILENT}; > pingreq; ack server; < pingresp; ack client; > pingreq").tape
    hour = 3_600 * SECOND
    later = [replace(segment, timestamp_ns=segment.timestamp_ns - hour) for segment in tape.segments]
    assert words([*later[:-2], *tape.segments[-2:]])[-1] == "-"


def test_captures_that_end_earlier_for_the_second_reader_prove_nothing() -> None:
    tape = Told().handshake().tell(f"{SILENT}; > pingreq; ack server").tape
    assert words(tape.segments, tape.segments[:-2]) == ["yes", "yes", "-"]


def test_it_reads_no_further_than_the_answer() -> None:
    tape = Tape()
    Told(tape).handshake().tell(f"{SILENT}; {'; '.join(['> pingreq; ack server'] * 100)}")
    count = 0

    def segments() -> Iterator[Segment]:
        nonlocal count
        for segment in tape.segments:
            count += 1
            yield segment

    acknowledgments = Acknowledgments(segments())
    first = next(event for event in acknowledgments.attach(read(tape)) if isinstance(event, PacketEvent))
    assert acknowledgments.of(first)
    assert 0 < count < 100
    assert not acknowledgments.is_done


def test_both_readers_put_every_flow_in_order_alike() -> None:
    tape = mixed_tape()
    acknowledgments = Acknowledgments(tape.segments)
    acknowledgments.read(len(tape.segments) + 1)
    for event in acknowledgments.attach(read(tape)):
        if isinstance(event, PacketEvent):
            assert acknowledgments._stream(event) is not None


def test_events_that_nobody_reads_ahead_for() -> None:
    assert [tcp_acknowledged(event) for event in Told().handshake().tell(SILENT).events()] == [None] * 4
