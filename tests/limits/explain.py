"""Inputs at the limits of the package explain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from io import BytesIO

from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.dissect import segments as segments_of_frames
from mqttscope.explain import Cause, Explainer, Explanation
from mqttscope.explain.broker_log import BrokerLog, LogLine, iterate
from mqttscope.explain.broker_log import shown as shown
from mqttscope.explain.describe import name as name
from mqttscope.explain.segments import SegmentWatch
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import conversation
from mqttscope.lint.examples import segments as segments_of
from mqttscope.mqtt.packets import Pingreq, Pingresp, Publish
from mqttscope.net.segment import ACK, PSH, RST, SYN, Segment
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.dissect.talk import SECOND, Talk, Tape
from tests.explain.causes.test_encrypted import LARGE, PING, pinging, shaken
from tests.explain.causes.test_encrypted import decrypted as decrypted
from tests.explain.running import explained, traced
from tests.explain.test_segments import OPENED, TO_SERVER, client_of, facts_of, fed, segment
from tests.lint.lint_help import steps_of
from tests.net.hellos import record
from tests.net.octets import frame, ip4, tcp

MILLISECOND = 1_000_000
"""Between two frames of a `Tape`."""
FORGOTTEN = "limit: what is shown of clients may be wrong; forgotten subscriptions and connections: 1."
NOT_ALL = "limit: for some messages, not all clients with a matching or similar subscription are shown."


def talk(*lines: str) -> list[Segment]:
    """The segments of a conversation."""
    return segments_of(conversation("", *steps_of(*lines)))


def silent_survivor(seconds: str) -> tuple[str, ...]:
    """Three ends at once, and a fourth connection whose next packets come 5 s after a packet at this time."""
    opens = "for 0..3: @{n} opened 3.1.1 client=c{n} keep_alive=60000"
    return opens, "for 0..2: @{n} < fin", f"+{seconds} @4 > connect 3.1.1 client=t", "+5 @3 > pingreq; @3 < pingresp"


def after(nanoseconds: int, packets: int = 1) -> str:
    """The delay that puts a step so long after an earlier one; in between are so many packets of 1 µs each."""
    return f"+{nanoseconds / 1e9 - packets / 1e6:.9f}"


def run(explainer: Explainer, source: Iterable[Segment]) -> Iterator[Explanation]:
    for event in dissect_segments(explainer.watch.segments(numbered(list(source)))):
        yield from explainer.feed(event)
    yield from explainer.close()


def explanations(source: Iterable[Segment]) -> list[Explanation]:
    """Explanations by connection, without the linter."""
    return sorted(run(Explainer(), source), key=lambda explanation: explanation.connection)


def finished(source: Iterable[Segment]) -> Explainer:
    explainer = Explainer()
    list(run(explainer, source))
    return explainer


def dropped(source: Iterable[Segment]) -> dict[str, int]:
    """What had to be forgotten."""
    return finished(source).totals.dropped


def causes(source: Iterable[Segment]) -> list[str]:
    return [str(candidate.cause) for candidate in explanations(source)[0].candidates]


def judged(*lines: str) -> list[str]:
    """Causes with the findings of the linter."""
    return [str(candidate.cause) for candidate in explained(*steps_of(*lines))[0].candidates]


def verdict(source: Iterable[Segment]) -> str:
    first = explanations(source)[0].first
    return f"{first.cause} {first.certainty}"


def afterwards(*lines: str) -> int:
    """How many consequences of the first end are known."""
    return len(explanations(talk(*lines))[0].afterwards)


def together(source: Iterable[Segment], connection: int = 0) -> str:
    """How many connections ended together, as the explanation of one of them has it."""
    found = re.search("it ended .* together", explanations(source)[connection].first.headline)
    return "" if found is None else found[0]


def refused(*lines: str) -> str:
    """What the server refused, as the explanation has it."""
    found = re.search("had refused (.*?): ", explanations(talk(*lines))[0].first.headline)
    return "" if found is None else found[1]


def clients(count: int) -> str:
    return f"for 1..{count}: @{{n}} opened client=c{{n}}"


def resets(count: int, will: str = "") -> str:
    """Clients that reset their connections."""
    return f"{clients(count)} {will}; @{{n}} > reset"


def fins(count: int) -> str:
    """A server closes connections."""
    return f"for 1..{count}: @{{n}} < fin"


def servers(count: int) -> list[Segment]:
    """A connection to each of some servers."""
    steps = steps_of("opened; > fin")
    talks = [conversation("", *steps, server=f"10.0.1.{number}:1883") for number in range(count)]
    return [sent for talk in talks for sent in segments_of(talk)]


def oldest_connect(*lines: str) -> int:
    """Number of the first connection of a client whose CONNECT is remembered."""
    ((first, *_),) = finished(talk(*lines)).book.arrivals.values()
    return first.connection


def oldest_violation(count: int) -> int:
    """Frame of the first violation that is remembered of an open connection."""
    explainer, dissector = Explainer(), Dissector()
    linter = Linter(usual_rule(rule) for rule in select(("PUB",), (), ()).values())
    for sent in talk("opened", f"for 1..{count}: > publish a/+"):
        for event in dissector.feed(sent):
            explainer.feed(event, linter.feed(event))
    return explainer.stories[0].broken[0].frame


def whole() -> Conversation:
    """A connection on which the client has acknowledged all."""
    return Conversation().open().whole().ack(CLIENT)


def pause(talk: Conversation, nanoseconds: int) -> Conversation:
    """Let the next segment come so long after the last one."""
    talk.tape.now_ns += nanoseconds - MILLISECOND
    return talk


def answered_after(nanoseconds: int) -> list[Segment]:
    """A RST comes so long after a message of the client."""
    talk = whole().wait(10)
    talk.say(CLIENT, Publish(topic_name="late"))
    pause(talk, nanoseconds).put(SERVER, RST)
    return talk.tape.segments


def disowned_after(nanoseconds: int) -> list[Segment]:
    """The client answers with RST so long after its last segment."""
    talk = whole()
    talk.say(CLIENT, Pingreq())
    pause(talk, nanoseconds - MILLISECOND).say(SERVER, Pingresp())
    talk.put(CLIENT, RST)
    return talk.tape.segments


def both_reset(nanoseconds: int) -> list[Segment]:
    talk = whole()
    talk.reset(CLIENT)
    pause(talk, nanoseconds).reset(SERVER)
    return talk.tape.segments


def probed_for(nanoseconds: int) -> list[Segment]:
    """Three probes without an answer, the last so long after the first."""
    talk = whole().wait(75)
    for length in (SECOND, MILLISECOND, nanoseconds - MILLISECOND):
        pause(talk, length).put(SERVER, ACK, sequence=talk.stacks[SERVER].next - 1)
    talk.wait(75).reset(SERVER)
    return talk.tape.segments


def disowned_by_server(nanoseconds: int) -> list[Segment]:
    """The server answers with RST what the client sends after so long a silence."""
    talk = whole()
    pause(talk, nanoseconds - MILLISECOND).say(CLIENT, Pingreq())
    talk.put(SERVER, RST, acknowledges=0)
    return talk.tape.segments


def closed_on_odd(nanoseconds: int) -> bool:
    """Whether it is told that a client closed so long after an unusual packet."""
    end = explanations(talk(f"opened 3.1.1; < pubrec 5; {after(nanoseconds)} > fin"))[0]
    return "after a PUBREC" in end.first.headline


def idle_for(nanoseconds: int) -> list[Segment]:
    """A server closes three connections after so long a silence."""
    return talk(f"for 0..2: @{{n}} opened 3.1.1; {after(nanoseconds)} @{{n}} < fin")


def alike(nanoseconds: int) -> list[Segment]:
    """A server closes two connections, so far apart as they were opened."""
    opens = f"@0 opened 3.1.1 client=a; {after(nanoseconds, 4)} @1 opened 3.1.1 client=b"
    return talk(f"{opens}; +1 @0 < fin; {after(nanoseconds, 0)} @1 < fin")


def borne_beside(nanoseconds: int) -> str:
    """Why three connections ended after 20 seconds, while another one bore a silence that was longer by so much."""
    other = f"@9 opened 3.1.1; @9 > pingreq; {after(20_000_000_000 + nanoseconds)} @9 < pingresp; @9 > disconnect"
    ends = f"for 0..2: @{{n}} opened 3.1.1; {after(20_000_000_000)} @{{n}} < fin"
    return next(str(end.cause) for end in explanations(talk(f"{other}; @9 > fin", ends)) if end.connection)


def misread(count: int) -> bool:
    """Whether the length that was meant is found for a CONNECT of so many bytes."""
    identifier = b"c" * (count - 14)
    raw = bytes((0x10, count - 2)) + b"\0\4MQTT\4\0\0\x3c" + len(identifier).to_bytes(2, "big") + identifier
    end = explanations(talk(f"> raw {raw.hex()}; < fin"))[0]
    return "plain number" in end.first.headline + " ".join(evidence.text for evidence in end.first.reasons)


def stray_headline(count: int) -> str:
    """What is said of so many bytes after a PINGRESP."""
    return explanations(talk(f"opened; > pingreq; silent < raw d0 00 {'00' * count}; > fin"))[0].first.headline


def reason_read(length: int) -> str:
    """What is understood of a line of a log with so many bytes, of which the last ones have the reason."""
    line = "2026-01-02T03:04:05: Client c disconnected, {} idle"
    (found,) = BrokerLog.of(iterate(BytesIO(line.format("x" * (length - len(line) + 2)).encode()))).lines["c"]
    return str(found.about)


def port_again(nanoseconds: int) -> list[Segment]:
    """A new connection from the port of another one, so long after its last packet."""
    talk = whole()
    talk.say(CLIENT, Publish(topic_name="late"))
    talk.tape.now_ns += nanoseconds - MILLISECOND
    return Conversation(talk.tape, (900_000, 950_000)).open().tape.segments


def lines_left_out(count: int) -> int:
    return BrokerLog.of(["2026-01-02T03:04:05: Client c has exceeded timeout, disconnecting"] * count).left_out


def logged_after(nanoseconds: int) -> str:
    """What a line of a log so long after the end makes of its cause."""
    source = talk("opened 3.1.1; > publish a/b qos=1 id=1; < fin")
    ended_ns = explanations(source)[0].ended_ns
    line = LogLine(ended_ns + nanoseconds, "c1", "", Cause.PACKET_TOO_LARGE, "too large")
    (end,) = run(Explainer(log=BrokerLog({"c1": [line]})), source)
    return f"{end.first.cause} {end.first.certainty}"


def encrypted_end(talk: Talk, nanoseconds: int, by: str) -> list[Segment]:
    """The end of a connection so long after its last segment."""
    talk.tape.now_ns += nanoseconds - MILLISECOND
    talk.fin(by)
    talk.ack("client" if by == "server" else "server")
    return talk.tape.segments


def answered_with(length: int, after: int = 1) -> list[Segment]:
    """A server closes with a record of so many bytes, after as many of the client."""
    talk = shaken()
    for _ in range(after):
        talk.client(LARGE)
    talk.server(record(23, bytes(length - 5)))
    return encrypted_end(talk, SECOND // 10, "server")


def goodbyes(nanoseconds: int) -> str:
    """Why a server ended two connections, of which each client sent a record so long before."""
    tape = Tape()
    talks = [shaken(tape=tape, client_port=port) for port in (50_000, 50_001)]
    ends = [(step, talk) for talk in talks for step in ("client", "server")]
    for talk in talks:
        talk.client(LARGE)
        talk.server(PING)
    start_ns = tape.now_ns + SECOND
    for number, (step, talk) in enumerate(ends):
        offset_ns = nanoseconds if step == "server" else 0
        tape.now_ns = start_ns + (number // 2) * 1_000 + offset_ns - SECOND // 1000
        talk.fin("server") if step == "server" else talk.client(record(23, bytes(19)))
    tape.segments.sort(key=lambda segment: segment.timestamp_ns)
    return str(explanations(tape.segments)[0].cause)


def pings_of(length: int) -> list[Segment]:
    """A client sends records of one size in a rhythm, and stops."""
    return encrypted_end(pinging(30, 30, 30, ping=record(23, bytes(length - 5))), 45 * SECOND, "server")


def waited_for(nanoseconds: int) -> list[Segment]:
    """A client closes so long after a record in a rhythm without an answer."""
    return encrypted_end(pinging(30, 30, 30, answered=False), nanoseconds, "client")


def refused_after(nanoseconds: int) -> list[Segment]:
    """A server closes, and so long afterwards refuses a connection."""
    talk = whole()
    talk.fin(SERVER)
    ended_ns = talk.tape.now_ns
    talk.ack(CLIENT).fin(CLIENT)
    talk.ack(SERVER)
    talk.tape.now_ns = ended_ns + nanoseconds - 2 * MILLISECOND
    Talk(talk.tape, client_port=50_001).refused()
    return talk.tape.segments


def knocks(count: int) -> list[Segment]:
    """Refused connections to one server."""
    tape = Tape()
    for number in range(count):
        Talk(tape, client_port=50_000 + number).refused()
    return tape.segments


def limits(*lines: str) -> list[str]:
    """What the fate of messages says about limits."""
    return [line for line in traced("t", *steps_of(*lines)).told if line.startswith("limit: ")]


def forgotten_wills(count: int) -> list[str]:
    """What is said about limits when a reader gets so many wills with Will Retain 1."""
    opens = "@0 opened client=r; @0 > subscribe 1 #:0; @0 < suback 1 0"
    each = "@{n} opened client=c{n} will=w/{n} will_payload=x will_retain; @{n} > reset; @0 < publish w/{n} x"
    told = traced("#", *steps_of(opens, f"for 1..{count}: {each}")).told
    return [line for line in told if line.startswith("limit: ")]


def bridges(count: int) -> str:
    """So many bridges connect."""
    return f"for 1..{count}: @{{n}} opened 3.1.1 client=b{{n}} protocol_level=0x84"


def circulating(count: int) -> Iterator[str]:
    """A message comes back to each of so many bridges."""
    yield bridges(count)
    for number in range(1, count + 1):
        yield f"for 1..20: @{number} > publish t x; @{number} < publish t x"


def subscribes(count: int) -> str:
    """A client subscribes to so many filters and publishes what none of them matches."""
    filters = " ".join(f"f/{number}" for number in range(count))
    return f"opened; > subscribe 1 {filters}; < suback 1{' 0' * count}; > publish t x"


def readers(count: int) -> tuple[str, str]:
    """So many clients subscribe to a message that none of them gets."""
    return f"{clients(count)}; @{{n}} > subscribe 1 t; @{{n}} < suback 1 0", "opened client=writer; > publish t x"


def missed(count: int) -> tuple[str, str]:
    """A client misses so many messages."""
    return "opened client=r; > subscribe 1 t; < suback 1 0; @1 opened client=w", f"for 1..{count}: @1 > publish t {{n}}"


def near(length: int) -> list[str]:
    """What is said of a client whose filter differs in one letter from a topic of so many."""
    topic = "t" * length
    steps = steps_of(f"opened; > subscribe 1 {topic[1:]}x; < suback 1 0; @1 opened client=w; @1 > publish {topic} x")
    trace = traced(topic, *steps)
    fates = [str(delivery.fate) for message in trace.messages for delivery in message.deliveries]
    return fates + [line for line in trace.told if line.startswith("limit: ")]


def acknowledged(count: int) -> str:
    """What is said of the acknowledgement of the first of so many messages."""
    sent = f"for 1..{count}: > publish t {{n}} qos=1 id={{n}}"
    return traced("t", *steps_of("opened", sent, "< puback 1")).messages[0].evidence[1].text


def not_shown(*lines: str) -> list[str]:
    """What is said of messages and clients that are not shown."""
    trace = traced("t", *steps_of(*lines))
    texts = [*trace.told, *(evidence.text for message in trace.messages[:1] for evidence in message.evidence)]
    return [text for text in texts if "not shown" in text]


def repeated_syn(count: int) -> int:
    """How many times a SYN with data came again."""
    return client_of(segment(TO_SERVER, 100, 0, SYN, bytes(count)), segment(TO_SERVER, 100, 0, SYN)).repeats


def first_remains(count: int) -> bool:
    """Whether the first of so many connections of the same endpoints is known."""
    syns = [segment(TO_SERVER, 1000 * number, 0, SYN, at=number) for number in range(count)]
    return fed(*syns).facts(TO_SERVER, 0) is not None


def first_segment(count: int) -> int:
    """Sequence number of the first of so many segments that is remembered."""
    return client_of(*(segment(TO_SERVER, 2 * at, 0, PSH | ACK, b"\xc0\0") for at in range(count))).recent[0].sequence


def mixed(count: int) -> tuple[bool, bool]:
    """Whether the facts of two connections are mixed if so many segments may be of either."""
    watch = fed(*OPENED)
    for number in range(count):
        again = segment(TO_SERVER, 40, 70, PSH | ACK, b"\x10\0", 2 + number)
        again.frame = 2 + number
        watch.feed(again)
    before = facts_of(watch, until=(2, "a"))
    watch.begin(TO_SERVER, 2 * SECOND, 2, "a")
    return before.is_mixed, facts_of(watch, 2 * SECOND).is_mixed


def unknown_ttls(count: int, ahead: int = 1) -> int:
    """How many of so many segments, each with another TTL, are not counted; ``ahead``: frames that are read at once."""
    watch, header = SegmentWatch(), ip4(tcp())
    frames = [frame(header[:8] + bytes((64 + at,)) + header[9:], 228, number=1 + at) for at in range(count)]
    for start in range(0, count, ahead):
        for found in segments_of_frames(list(watch.frames(iter(frames[start : start + ahead])))):
            watch.feed(found)  # type: ignore[arg-type]
    (facts,) = next(iter(watch.flows.values()))
    watch.settle(facts)
    return count - sum(facts.halves[0].ttls.values())
