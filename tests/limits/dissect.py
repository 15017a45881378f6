"""Inputs at the limits of the package dissect."""

from __future__ import annotations

from mqttscope.cli import advice
from mqttscope.dissect import CaptureOrder, Dissector, Options, clock_watch, dissect_segments
from mqttscope.dissect.acknowledgments import Acknowledgments
from mqttscope.events import ClockStep, ConnectionClosed, DiscardedEvent, PacketEvent
from mqttscope.mqtt import Pingreq, Pingresp
from mqttscope.net.frame import Plaintext, UndecryptedSession
from mqttscope.net.segment import ACK, RST, SYN, Segment
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.dissect.scenes import HELLO, MASK, types, websocket
from tests.dissect.talk import PINGREQ, PINGRESP, SECOND, START, Talk, Tape, connect, only, read, wire
from tests.dissect.test_clock_watch import ASKED, HOUR, NO_CLOCKS, SENT, steps_of, tape_of
from tests.dissect.test_plaintexts import contents, secured
from tests.dissect.test_plaintexts import read as read_plaintexts
from tests.net.framing import frame
from tests.net.hellos import record, server_hello


def acknowledged(tape: Tape) -> list[bool | None]:
    """What is known of the packets of a tape, by a reader that has read everything."""
    acknowledgments = Acknowledgments(tape.segments)
    acknowledgments.read(len(tape.segments) + 1)
    return [acknowledgments.known_answer(event) for event in read(tape) if isinstance(event, PacketEvent)]


def acknowledged_flows(count: int) -> list[bool | None]:
    """Of connections with a CONNECT each."""
    tape = Tape()
    for number in range(count):
        Talk(tape, client_port=40_000 + number).handshake().tell("> connect; ack server")
    return acknowledged(tape)


def waiting(count: int) -> list[bool | None]:
    """Of packets in frames of their own, none of which is acknowledged."""
    talk = Talk().handshake().tell("; ".join(["> connect", *["> pingreq"] * (count - 1)]))
    talk.position["client"] = 1001
    talk.reset("server")
    return acknowledged(talk.tape)


def silent_for(silence_ns: int) -> list[bool | None]:
    """Of a PINGREQ, if the server is silent and the client sends a segment that long after it."""
    talk = Talk().handshake().tell("> connect; ack server; > pingreq; ack client")
    *_, asked, last = talk.tape.segments
    last.timestamp_ns = asked.timestamp_ns + silence_ns
    return acknowledged(talk.tape)[1:]


def certain(segments: list[Segment]) -> list[bool]:
    """Whether each step of the clock is certain."""
    return [step.by_ns != 0 for step in steps_of(segments)]


def acknowledged_after(gap_ns: int, story: str = f"{ASKED}; ack server") -> list[bool]:
    """Steps if the last segment, an acknowledgment, comes ``gap_ns`` after a request."""
    *_, asked, last = segments = tape_of(story).segments
    last.timestamp_ns = asked.timestamp_ns + gap_ns
    return certain(segments)


def answered_after(gap_ns: int) -> list[bool]:
    """Steps if the server answers ``gap_ns`` after it acknowledged a request."""
    return acknowledged_after(gap_ns, f"{SENT}; < puback 9")


def asked_before(gap_ns: int) -> list[bool]:
    """Steps if a request was sent ``gap_ns`` before an interval of an hour, and acknowledged after it."""
    segments = tape_of(f"{ASKED}; new client=192.0.2.9 clocks=none; quiet 0; at 0; ack server").segments
    opened = max(index for index, segment in enumerate(segments) if segment.flags & (SYN | ACK) == SYN)
    segments[-2].timestamp_ns = segments[opened - 1].timestamp_ns + gap_ns
    segments[-1].timestamp_ns = segments[-2].timestamp_ns + HOUR * SECOND
    return certain(segments)


def contradicted_by(place: int, after_ns: int = 0) -> list[bool]:
    """Steps if the clock of a second host contradicts in the segment at ``place`` after the interval."""
    talk = Conversation().quiet(3).set_capture_clock(HOUR)
    tape, begin_ns = talk.tape, talk.tape.now_ns
    talk.say(CLIENT, Pingreq())
    other = Conversation(tape, client="192.0.2.9", clocks=NO_CLOCKS)
    for index in range(1, place):
        if after_ns:
            tape.now_ns = begin_ns + after_ns * index // (place - 1)
        if index < place - 1:
            other.put(CLIENT, SYN)
    talk.say(SERVER, Pingresp())
    return certain(tape.segments)


def contradicted_after(after_ns: int) -> list[bool]:
    """Steps if the clock of a second host contradicts ``after_ns`` after the first one."""
    return contradicted_by(4, after_ns)


def comes_back_after(after_ns: int) -> list[bool]:
    """Steps if the time comes back in the segment that follows one ``after_ns`` after the interval."""
    talk = Conversation().quiet(3)
    begin, before_ns = len(talk.tape.segments), talk.tape.segments[-1].timestamp_ns
    talk.set_capture_clock(HOUR).ping()
    for number in (8, 9):
        Conversation(talk.tape, client=f"192.0.2.{number}", clocks=NO_CLOCKS).put(CLIENT, SYN)
    *_, late, back = segments = talk.tape.segments
    late.timestamp_ns, back.timestamp_ns = segments[begin].timestamp_ns + after_ns, before_ns + SECOND // 1000
    return certain(segments)


def set_by(step_ns: int) -> list[bool]:
    """Steps if only the clock of the machine says that it was set."""
    talk = Conversation(clocks=NO_CLOCKS).quiet()
    dissector = Dissector()
    dissector.clock.machine = lambda: step_ns
    events = dissect_segments(numbered(talk.tape.segments), dissector=dissector)
    return [step.by_ns == step_ns for step in only(events, ClockStep)]


def rates(ticks: int, span_ns: int) -> tuple[int, int]:
    """The lowest and the highest possible rate of a clock."""
    return clock_watch._rates(1, 0, 1 + ticks, span_ns)


def how_known(span_ns: int) -> str:
    """How the rate of a clock is known that counted three ticks."""
    return ("measured", "guessed", "assumed")[clock_watch._elapsed(1, 0, 4, span_ns, 100)[0]]


def compared(count: int) -> list[int]:
    """Senders whose clocks are compared after a step in ``count`` connections: last bytes of their addresses."""
    tape = Tape()
    talks = [Conversation(tape, client=f"192.0.2.{10 + number}", rate=600).open().whole() for number in range(count)]
    tape.wait(24)
    for talk in talks:
        talk.set_back(CLIENT, HOUR)
        talk.set_back(SERVER, HOUR)
    tape.wait(HOUR)
    for talk in talks:
        talk.ping()
    dissector = Dissector()
    list(dissect_segments(numbered(tape.segments), dissector=dissector))
    return sorted(key[3] for key in dissector.clock._references)


def undecrypted(count: int) -> tuple[int, str]:
    """Number of connections named in the message about TLS that was not decrypted, and the end of the message."""
    dissector = Dissector(Options(decrypting=True))
    items: list[Segment | Plaintext | UndecryptedSession] = []
    for number in range(count):
        talk = secured(client_port=50_000 + number)
        reason = UndecryptedSession(contents(talk)[0].flow, "no keys", has_keys=False)
        items += [*talk.tape.segments[:8], reason, *talk.tape.segments[8:]]
    read_plaintexts(items, dissector)
    (text,) = advice.undecrypted(dissector)
    return text.count("connection "), text.rpartition(")")[2]


def other_end(count: int) -> str:
    """How the server ended after the client's FIN: by a reset that is read after ``count - 1`` other resets."""
    talk = Talk().tell("handshake; > connect; < connack; fin client; lose server 2; reset server")
    reset = talk.tape.segments[-1]
    stranger = Talk(talk.tape, client_port=51_000)
    for _ in range(count - 1):
        stranger.reset("client")
    # The bytes before the reset come last, so that it is kept until then.
    talk.position["server"] -= 2
    talk.server(PINGRESP)
    for segment in talk.tape.segments[reset.frame :]:
        segment.timestamp_ns = reset.timestamp_ns
    (closed,) = only(talk.events(), ConnectionClosed)
    return closed.connection.also_closed.how if closed.connection.also_closed else "not known"


def overlapping(by_ns: int) -> list[str]:
    """Captures that overlap, if the second one begins ``by_ns`` before the end of the first."""
    order = CaptureOrder()
    for capture, timestamp_ns in (("a", START), ("b", START - by_ns)):
        order.see(capture, timestamp_ns)
    return order.overlapping


def discarded(count: int) -> tuple[int, int, int]:
    """Events, segments and bytes, if one-byte segments are discarded before the connection is known."""
    talk = Talk().handshake()
    for _ in range(count):
        talk.tape.add(talk.keys["client"], 1 << 31, 0, RST, b"x", 0)
    talk.tell("> connect; < connack")
    dissector = Dissector()
    events = only(read(talk.tape, dissector=dissector), DiscardedEvent)
    return len(events), dissector.discarded_segments, dissector.discarded_bytes


def after_unknown_bytes(size: int) -> list[str]:
    """Packets after the server has sent bytes that are not MQTT; a piece counts 16 bytes more than it has."""
    talk = Talk(port=9999).handshake()
    talk.server(b"x" * (size - 16))
    talk.client(connect())
    return types(talk)


def held(count: int) -> tuple[int, int]:
    """Number of packets before and after the end of the capture, while the server may have sent something first."""
    talk = Talk()
    talk.server(b"\x32")
    for _ in range(count):
        talk.client(PINGREQ)
    dissector = Dissector()
    events = [event for segment in talk.tape.segments for event in dissector.feed(segment)]
    return len(only(events, PacketEvent)), len(only([*events, *dissector.close()], PacketEvent))


def other_servers(count: int) -> tuple[int, int]:
    """Number of named TLS servers, and of flows, if each server has one flow."""
    tape = Tape()
    for number in range(count):
        talk = Talk(tape, port=400 + number).handshake()
        talk.client(HELLO)
        talk.server(record(22, server_hello()))
    dissector = Dissector()
    read(tape, dissector=dissector)
    return len(dissector.other_tls), dissector.other_flows


def problems(count: int) -> tuple[int, list[str]]:
    """Number of text frames without a problem on record, and the other problems of the WebSocket."""
    talk = websocket()
    for _ in range(count):
        talk.client(frame(wire(PINGREQ), 0x81, key=MASK))
    talk.server(frame(wire(PINGRESP), key=MASK))
    (closed,) = only(talk.events(), ConnectionClosed)
    reasons = [problem["reason"] for problem in closed.connection.details["problems"]]  # type: ignore[attr-defined]
    return count - reasons.count("text_frame"), [reason for reason in reasons if reason != "text_frame"]
