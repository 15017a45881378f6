"""Inputs at the limits of the package explain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from io import BytesIO
from unittest.mock import patch

from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.dissect import segments as segments_of_frames
from mqttscope.events import ConnectionClosed, UnparsedEvent
from mqttscope.explain import Cause, Explainer, Explanation, lost_messages
from mqttscope.explain.broker_log import BrokerLog, LogLine, iterate
from mqttscope.explain.broker_log import shown as shown
from mqttscope.explain.describe import name as name
from mqttscope.explain.hushes import Voices
from mqttscope.explain.lookups import OUTAGE_NS, LookupWatch, unresolved
from mqttscope.explain.lost_messages import LostMessages
from mqttscope.explain.pauses import PauseWatch
from mqttscope.explain.segments import SegmentWatch
from mqttscope.explain.story import Story
from mqttscope.explain.tls_flights import FlightReader
from mqttscope.explain.tokens import token_of
from mqttscope.lint.catalogue import all_rules, select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import client, conversation, on, server, silent, upgrade_request, upgrade_response
from mqttscope.lint.examples import segments as segments_of
from mqttscope.mqtt.packets import Connect, Pingreq, Pingresp, Publish
from mqttscope.net.segment import ACK, PSH, RST, SYN, Segment
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.dissect.talk import CONNACK, SECOND, START, Talk, Tape, connect
from tests.explain.causes.test_encrypted import LARGE, PING, alerted, pinging, shaken
from tests.explain.causes.test_encrypted import decrypted as decrypted
from tests.explain.causes.test_handshake import on_the_web_port
from tests.explain.causes.test_listener import HELLO
from tests.explain.running import across, explained, of_segments, traced
from tests.explain.test_assigned_identifiers import session
from tests.explain.test_edge_nodes import ASKED, BORN, DEATH, DELIVERED, HOST, SEEN, answers, watched
from tests.explain.test_edge_nodes import unborn_metrics as unborn_metrics
from tests.explain.test_forwards import BRIDGE, OPENS, told
from tests.explain.test_forwards import on as over
from tests.explain.test_segments import OPENED, TO_CLIENT, TO_SERVER, client_of, facts_of, fed, segment
from tests.explain.test_surplus_copies import COPIES, LASTS, SENT, TWO, UNKNOWN, WITNESS, WITNESSED, said
from tests.explain.test_tokens import SAS, jwt
from tests.lint.lint_help import linted, steps_of
from tests.net.dns import query, received
from tests.net.hellos import client_hello, extension, message, record, server_hello
from tests.net.octets import frame, ip4, tcp

MILLISECOND = 1_000_000
"""Between two frames of a `Tape`."""
FORGOTTEN = "limit: the report about clients may be wrong; forgotten subscriptions and connections: 1."
NOT_ALL = "limit: for some messages, not all clients with a matching or similar subscription are shown."


def talk(*lines: str) -> list[Segment]:
    """The segments of a conversation."""
    return segments_of(conversation("", *steps_of(*lines)))


def silent_survivor(seconds: str) -> tuple[str, ...]:
    """Three ends at once, and a fourth connection whose next packets come 5 s after a packet at this time."""
    opens = "for 0..3: @{n} opened 3.1.1 client=c{n} keep_alive=60000"
    return opens, "for 0..2: @{n} < fin", f"+{seconds} @4 > connect 3.1.1 client=t", "+5 @3 > pingreq; @3 < pingresp"


def early(after_ns: int) -> int:
    """Early explanations so long after an end."""
    explainer, dissector, ended_ns = Explainer(), Dissector(), 0
    watched = explainer.watch.segments(talk("opened 3.1.1; > fin; < fin"))
    for event in dissect_segments(watched, dissector=dissector, more=True):
        explainer.feed(event)
        ended_ns = event.timestamp_ns if isinstance(event, ConnectionClosed) else ended_ns
    explainer.pass_time(ended_ns + after_ns)
    return len([*explainer.early()])


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
    result = re.search("it ended .* together", explanations(source)[connection].first.headline)
    return "" if result is None else result[0]


def refused(*lines: str) -> str:
    """What the server refused, as the explanation has it."""
    result = re.search("had refused (.*?): ", explanations(talk(*lines))[0].first.headline)
    return "" if result is None else result[1]


def assigned(sessions: int) -> str:
    """The identifiers that are named of a client with new sessions."""
    running = Explainer()
    explained(*steps_of(*map(session, range(1, sessions + 1))), explainer=running)
    return re.sub(r".*(\(.*?\)).*", r"\1", running.totals.remarks[0])


def assigned_again(users: int) -> int:
    """Number of sentences about a client with two sessions, if others had theirs between these."""
    explainer = finished(talk(*(session(number, user=f"u{number % users}") for number in range(users + 1))))
    return len([*explainer.assigned.sentences()])


def newest_method_is_known(count: int) -> bool:
    """Whether the last of the accepted Authentication Methods is remembered."""
    opens = f"for 1..{count}: @{{n}} opened client=c{{n}} authentication_method=m{{n}}"
    lines = opens, f"> connect authentication_method=m{count}; < connack code=0x8c; < fin"
    return any("although" in end.first.headline for end in explanations(talk(*lines)))


def without_alpn(nanoseconds: int) -> str:
    """Cause of an end on the port of the web after a time."""
    return str(on_the_web_port(lasted=(nanoseconds - 7 * MILLISECOND) / 1e9).cause)


def gives_tls_up(nanoseconds: int) -> str:
    """Cause of an end by a client after a time without an answer to its ClientHello."""
    return str(explanations(talk(f"silent > {HELLO}; {after(nanoseconds)} > fin"))[0].cause)


def foreign(length: int) -> int:
    """Number of bytes that are kept of a client of another protocol."""
    talking = Talk().handshake()
    talking.client(b"GET / HTTP/1.1".ljust(length))
    for event in dissect_segments(talking.tape.segments):
        if isinstance(event, UnparsedEvent):
            story = Story(event.connection)
            story.damaged(event)
            return len(story.foreign["client"].head)
    return 0


def lost(topics: int) -> str:
    """The sentence about messages of this many topics, without its first and last words."""
    messages = LostMessages()
    (finding,) = linted(*steps_of("opened; > publish a/+ x; > disconnect; > fin"), codes=("PUB103",))
    with patch.object(lost_messages, "RULES", ("PUB103",)):
        for number in range(1, topics + 1):
            messages.note(replace(finding, topic=f"a{number}"))
    return messages.sentence().removeprefix("likely: ").removesuffix(" Add --message TOPIC.")


def renamed(length: int, topics: int = 1) -> int:
    """Number of sentences about topics that a bridge may have changed, with payloads of a length."""
    forwards = [
        f"@1 > publish a{number} {str(number) * length}; @2 > publish x/a{number} {str(number) * length}"
        for number in range(1, topics + 1)
    ]
    return told(PLACES, OPENS, over(2, BRIDGE), *forwards, "+2 @0 > pingreq", topic="#").count("perhaps it forwards")


def unfinished(count: int) -> tuple[int, int]:
    """How many messages that were not sent whole are described, and how many sentences say that there are more."""
    remarks = traced(
        "t",
        *steps_of(
            *(f"@{n} opened 3.1.1 client=c{n}; @{n} > raw 30 40 0001 74 7879; @{n} > reset" for n in range(count))
        ),
    ).remarks
    return sum("7 of the 66 bytes" in line for line in remarks), sum("1 more unfinished" in line for line in remarks)


def surplus(copies: int) -> tuple[bool, bool]:
    """Whether so many copies beyond a subscription are counted, and whether others are of unseen clients."""
    lines = TWO.partition("; > subscribe 2")[0], WITNESS, SENT, *COPIES[: copies + 1], WITNESSED, LASTS
    trace = traced("a/b", *steps_of(*lines))
    return f", {copies + 1} times (frames " in said(trace), any(UNKNOWN in line for line in trace.remarks)


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


def unread_for(nanoseconds: int) -> bool:
    """Whether a client counts as one that does not read if its receive window was closed for so long at the end."""
    talk = whole()
    for length in (0, nanoseconds // 2 + MILLISECOND):
        pause(talk, length).ack(CLIENT)
        talk.tape.segments[-1].window = 0
    begin_ns = talk.tape.segments[-2].timestamp_ns
    pause(talk, begin_ns + nanoseconds - talk.tape.now_ns).fin(SERVER)
    return "did not read" in of_segments(numbered(talk.tape.segments))[0].first.headline


def unused_for(nanoseconds: int) -> str:
    """Cause of an end by the server, so long after the handshake, without a byte of either side."""
    talk = Conversation().open()
    begin_ns = talk.tape.segments[0].timestamp_ns
    pause(talk, begin_ns + nanoseconds - talk.tape.now_ns).fin(SERVER)
    return of_segments(numbered(talk.tape.segments))[0].cause


def attempted_after(nanoseconds: int) -> bool:
    """Whether a SYN without an answer, so long after the server closed two connections, belongs to its stop."""
    tape = Tape()
    served = [Conversation(tape) for _ in range(2)]
    for number, talk in enumerate(served):
        talk.keys = Talk(client_port=50_000 + number).keys
        talk.open().begin(connect(client_identifier=f"dev-{number}"))
        talk.say(SERVER, CONNACK)
    for talk in served:
        talk.fin(SERVER)
    attempt, back = Conversation(tape), Conversation(tape)
    attempt.keys, back.keys = Talk(client_port=50_100).keys, Talk(client_port=50_200).keys
    pause(attempt, nanoseconds).syn()
    back.wait(30).open()
    ends = of_segments(numbered(tape.segments))
    return next(end.of_stop for end in ends if end.client.endswith(":50100"))


def circulates(first: int, then: int, others: int = 0, *, own: bool = False) -> bool:
    """Whether a message circulates whose deliveries come so long after its publications, and the other way round.

    ``others``: so many other messages come before each publication; ``own``: the client published it first.
    """
    running, between = Explainer(), [f"for 1..{others}: < publish other {{n}}"] if others else []
    cycle = [f"{after(first)} < publish light on", *between, f"{after(then)} > publish light on"]
    explained(*steps_of("opened 3.1.1", *["> publish light on"] * own, *cycle * 20), explainer=running)
    return any("a loop through" in remark for remark in running.totals.remarks)


def refused_filters(granted: int) -> str:
    """What may not be allowed of two filters if so many others were granted, the first of them among those."""
    lines = ["@1 opened 3.1.1", f"for 1..{granted}: @1 > subscribe {{n}} t/{{n}}; @1 < suback {{n}} 0"]
    ends = explained(*steps_of(*lines, "@2 opened 3.1.1 client=c; @2 > subscribe 1 t/1 u; @2 < fin"))
    return next(end for end in ends if end.client_identifier == "c").first.headline.rpartition(": ")[2].split(" ")[0]


def narrowed_from(window: int) -> bool:
    """Whether a client does not read whose SYN has this receive window, and its later segments one of 500 bytes."""
    talk = whole()
    talk.tape.segments[0].window = window
    for seconds in (0, 5):
        talk.wait(seconds).ack(CLIENT)
        talk.tape.segments[-1].window = 500
    talk.fin(SERVER)
    return "did not read" in of_segments(numbered(talk.tape.segments))[0].first.headline


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


def refused_record(length: int) -> set[str]:
    """Causes of three ends, each after the second encrypted record, which has this length."""
    tape = Tape()
    for number in range(3):
        alerted(tape, 50_000 + number, 2, length)
    return {str(end.cause) for end in of_segments(tape.segments)}


def refused_handshake(records: int, further: int) -> str:
    """Cause of an end after a handshake of TLS 1.3 with this many encrypted records of the client, and flights."""
    talk = Talk(None, 8883).handshake()
    talk.client(record(22, message(1, client_hello())))
    talk.server(record(22, server_hello(extension(43, b"\x03\x04"))))
    talk.client(b"".join(record(23, bytes(100)) for _ in range(records - further)))
    if further:
        talk.server(record(23, bytes(200)))
        talk.client(record(23, bytes(60)))
    talk.server(record(23, bytes(19)))
    talk.reset("server")
    return str(of_segments(talk.tape.segments)[0].cause)


def ignored(nanoseconds: int) -> str:
    """Fate of a message that a client leaves unanswered while it sends other packets for 10 s and some more."""
    lines = (
        "@1 opened 3.1.1 client=r clean_start=0; @1 > subscribe 1 a:1; @1 < suback 1 1; opened 3.1.1 client=s",
        f"> publish a x; @1 < publish a x qos=1 id=7; {after(10 * SECOND + nanoseconds)} @1 > pingreq",
    )
    (message,) = traced("a", *steps_of(*lines)).messages
    return str(message.deliveries[0].fate)


def web_pings(count: int) -> str:
    """Certainty of an end after this number of WebSocket Ping frames without a Pong."""
    pings = "; silent < frame ping raw 61" * count
    (end,) = explained(*steps_of(f"upgraded; > frame connect; < frame connack{pings}; +5 < fin"))
    return str(end.first.certainty)


def stray_headline(count: int) -> str:
    """What is said of so many bytes after a PINGRESP."""
    return explanations(talk(f"opened; > pingreq; silent < raw d0 00 {'00' * count}; > fin"))[0].first.headline


def reason_read(length: int) -> str:
    """What is understood of a line of a log with so many bytes, of which the last ones have the reason."""
    line = "2026-01-02T03:04:05: Client c disconnected, {} idle"
    (log_line,) = BrokerLog.of(iterate(BytesIO(line.format("x" * (length - len(line) + 2)).encode()))).lines["c"]
    return str(log_line.about)


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
    return limits_of("t", *lines)


def limits_of(topic: str, *lines: str) -> list[str]:
    """What the fate of the messages of a topic says about limits."""
    return [line for line in traced(topic, *steps_of(*lines)).remarks if line.startswith("limit: ")]


def published_together(nanoseconds: int) -> bool:
    """Whether two clients count as publishers of one source if they publish three payloads, this far apart."""
    sent = "; ".join(f"@1 > publish t x{number}; {after(nanoseconds)} @2 > publish t x{number}" for number in range(3))
    remarks = traced("t", *steps_of("opened client=r; @1 opened client=a; @2 opened client=b", sent)).remarks
    return any("publish each payload" in line for line in remarks)


def changed_topics(nanoseconds: int, others: int = 0) -> bool:
    """Whether a broker counts as one that changes topics: it sends messages after a time, and after others."""
    between = f"for 1..{others}: @1 > publish o/{{n}} y{{n}}"
    lines = ["opened client=r; > subscribe 1 #:0; < suback 1 0; @1 opened client=w"]
    for number in (1, 2):
        lines += [f"@1 > publish a.b x{number}", *([between] if others else ())]
        lines.append(f"{after(nanoseconds)} < publish a/b x{number}")
    return any("changes topics" in line for line in traced("a.b", *steps_of(*lines)).remarks)


def limits_of_copies(count: int) -> list[str]:
    """The limits that are named if a reader gets retained messages of this number of topics of another broker."""
    sent = f"for 1..{count}: @2 > publish s/{{n}} x{{n}} retain"
    copies = f"for 1..{count}: @0 < publish s/{{n}} x{{n}} retain"
    texts = across("s/#", PLACES, AT_TWO, "@2 opened 3.1.1 client=far", sent, copies).remarks
    return [line for line in texts if line.startswith("limit: ")]


def first_prefix(count: int) -> bool:
    """Whether a prefix of live messages is known after messages of this number of topics."""
    each = "@2 > publish s/{n} x{n} retain; @0 < publish p/s/{n} x{n}"
    last = "@2 > publish s/1 y retain; +1 @0 < publish s/1 y retain"
    texts = across("s/#", PLACES, AT_TWO, "@2 opened 3.1.1 client=far", f"for 1..{count}: {each}", last).remarks
    return any("live as p/s/1" in line for line in texts)


def limits_of_system(count: int) -> list[str]:
    """The limits that are named if a reader gets messages of this number of topics of the broker itself."""
    reads = "opened; > subscribe 1 $SYS/#:0; < suback 1 0"
    return limits_of("$SYS/#", reads, f"for 1..{count}: < publish $SYS/{{n}} x")


def forgotten_wills(count: int) -> list[str]:
    """What is said about limits when a reader gets so many wills with Will Retain 1."""
    opens = "@0 opened client=r; @0 > subscribe 1 #:0; @0 < suback 1 0"
    each = "@{n} opened client=c{n} will=w/{n} will_payload=x will_retain; @{n} > reset; @0 < publish w/{n} x"
    texts = traced("#", *steps_of(opens, f"for 1..{count}: {each}")).remarks
    return [line for line in texts if line.startswith("limit: ")]


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


def unwanted(count: int) -> tuple[str, str]:
    """So many messages go to no client."""
    return "@1 opened client=w", f"for 1..{count}: @1 > publish t {{n}}"


def shown_beside(count: int) -> str:
    """How many messages of a cause are shown beside 20 of another one, if there are so many."""
    opens = "opened client=r; > subscribe 1 t; < suback 1 0; @2 opened client=s; @2 > subscribe 1 t; @2 < suback 1 0"
    both = "for 1..20: @1 > publish t {n}; < publish t {n}"
    message = f"for 101..{100 + count}: @1 > publish t {{n}}; @2 < publish t {{n}}"
    trace = traced("t", *steps_of(opens, "@1 opened client=w", both, message, "+2 > pingreq"))
    rows = [row for message in trace.messages for row in message.deliveries]
    return f"{sum(row.client == 'r' and row.is_trouble for row in rows)} of {count}"


def willed(count: int) -> str:
    """So many different wills to one topic."""
    return f"for 1..{count}: @{{n}} opened client=c{{n}} will=t will_payload={{n}}"


def pausing(count: int) -> tuple[str, str]:
    """A client pauses so often."""
    return "opened client=w", f"for 1..{count}: +1.1 > pingreq; < pingresp"


def paused_for(nanoseconds: int) -> int:
    """Number of pauses if the client sends so long after it was acknowledged."""
    watch = PauseWatch()
    sent = segment(TO_SERVER, 103, 501, PSH | ACK, b"\xc0\0")
    for piece in (
        *OPENED[:2], replace(sent, sequence=101, timestamp_ns=SECOND), segment(TO_CLIENT, 501, 103, ACK, at=1.1),
        replace(sent, timestamp_ns=SECOND + nanoseconds),
    ):  # fmt: skip
        watch.feed(piece)
    return len(watch._pauses)


def near(length: int) -> list[str]:
    """What is said of a client whose filter differs in one letter from a topic of so many."""
    topic = "t" * length
    steps = steps_of(f"opened; > subscribe 1 {topic[1:]}x; < suback 1 0; @1 opened client=w; @1 > publish {topic} x")
    trace = traced(topic, *steps)
    fates = [str(delivery.fate) for message in trace.messages for delivery in message.deliveries]
    return fates + [line for line in trace.remarks if line.startswith("limit: ")]


PLACES = {0: (20, 2), 1: (21, 2), **dict.fromkeys(range(2, 20), (22, 3))}
"""A reader and a writer at one broker, and further clients at another one."""
AT_TWO = "opened 3.1.1 client=r; > subscribe 1 #:0; < suback 1 0; @1 opened 3.1.1 client=w"


def forwarded(nanoseconds: int, topic: str, *payloads: str) -> bool:
    """Whether a bridge is named that got a message so long before its reader, and such other messages in between."""
    opens = "@2 opened 3.1.1 client=b protocol_level=0x84"
    others = [f"+0.000000001 @1 > publish x/y {payload}" for payload in payloads]
    pause = f"+{max(0, nanoseconds - 1_000) / 1e9:.9f}" if not payloads else "+0.000000001"
    texts = across(
        "#", PLACES, AT_TWO, opens, f"@2 < publish {topic} hot", *others, f"{pause} @0 < publish t hot"
    ).remarks
    return any("through b;" in line for line in texts)


def bridged(count: int) -> bool:
    """Whether the first of so many bridges is named."""
    opens = f"for 2..{count + 1}: @{{n}} opened 3.1.1 client=b{{n}} protocol_level=0x84"
    texts = across("#", PLACES, AT_TWO, opens, "@2 < publish t hot", "< publish t hot").remarks
    return any("through b2;" in line for line in texts)


def doubled(count: int) -> bool:
    """Whether the second copy of the first of so many messages is found, which came after their first copies."""
    opens = "@2 opened 3.1.1 client=b protocol_level=0x84"
    brought = f"for 1..{count}: @2 < publish t {{n}}; @0 < publish t {{n}}"
    texts = across("#", PLACES, AT_TWO, opens, brought, "@1 > publish t 1; @0 < publish t 1").remarks
    return any("twice" in line for line in texts)


def forwards_left_out(count: int) -> list[str]:
    """The limit that is named if so many bridges bring messages."""
    opens = f"for 2..{count + 1}: @{{n}} opened 3.1.1 client=b{{n}} protocol_level=0x84"
    brings = f"for 2..{count + 1}: @{{n}} < publish t {{n}}; @0 < publish t {{n}}"
    return [line for line in across("#", PLACES, AT_TWO, opens, brings).remarks if line.startswith("limit: ")]


def shown_of(count: int) -> int | str:
    """Number of messages that are shown if so many arrived: all, or ``2 of 3``."""
    opens = "opened client=r; > subscribe 1 t; < suback 1 0; @1 opened client=w"
    fates = traced("t", *steps_of(opens, f"for 1..{count}: @1 > publish t {{n}}; < publish t {{n}}")).messages
    return count if len(fates) == count else f"{len(fates)} of {count}"


def stocked(came: int, total: int, readers: int = 1) -> list[str]:
    """The lines about messages if readers get a part of the retained ones."""
    stock = f"for 1..{total}: @1 > publish s/{{n}} x qos=1 retain id={{n}}; @1 < puback {{n}}"
    lines = ["@1 opened 3.1.1 client=w", stock]
    for reader in range(2, 2 + readers):
        lines.append(f"@{reader} opened 3.1.1 client=r{reader}; @{reader} > subscribe 1 s/#; @{reader} < suback 1 0")
        lines.append(f"for 1..{came}: @{reader} < publish s/{{n}} x retain")
    pings = [f"@{reader} > pingreq" for reader in range(2, 2 + readers)]
    return traced("#", *steps_of(*lines, f"+1.1 {pings[0]}", *pings[1:])).remarks


def limits_of_answers(readers: int) -> list[str]:
    """The limits that are named if so many readers get 10 of 18 retained messages."""
    return [line for line in stocked(10, 18, readers) if line.startswith("limit: ")]


def acknowledged(count: int) -> str:
    """What is said of the acknowledgement of the first of so many messages."""
    sent = f"for 1..{count}: > publish t {{n}} qos=1 id={{n}}"
    return traced("t", *steps_of("opened", sent, "< puback 1")).messages[0].evidence[1].text


def not_shown(*lines: str) -> list[str]:
    """What is said of messages and clients that are not shown."""
    trace = traced("t", *steps_of(*lines))
    texts = [*trace.remarks, *(evidence.text for message in trace.messages[:1] for evidence in message.evidence)]
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
        for actual_segment in segments_of_frames(list(watch.frames(iter(frames[start : start + ahead])))):
            watch.feed(actual_segment)  # type: ignore[arg-type]
    (facts,) = next(iter(watch.flows.values()))
    watch.settle(facts)
    return count - sum(facts.halves[0].ttls.values())


def wills_published(readers: int) -> int:
    """Wills that are published by messages to so many readers, if the last one gets two, of two equal wills."""
    lines = [f"for 1..{readers}: @{{n}} opened client=r{{n}}", "@0 opened client=a will=w will_payload=x; @0 > reset"]
    lines += ["@9000 opened client=b will=w will_payload=x; @9000 > reset", f"for 1..{readers}: @{{n}} < publish w x"]
    lines += [f"@{readers} < publish w x"]
    return sum("the will" in afterward.text for end in explanations(talk(*lines)) for afterward in end.afterwards)


def is_back(filters: int) -> bool:
    """Whether a client with so many subscriptions is found under another Client Identifier."""
    subscribes = [f"for 1..{filters}: @{number} > subscribe 1 a/{{n}}:0" for number in (0, 1)]
    lines = ("@0 opened 3.1.1 keep_alive=10 client=a", subscribes[0], "+3 @1 opened 3.1.1 client=b", subscribes[1])
    return "was back as b" in explanations(talk(*lines, f"{after(12_000_000_000)} @0 < fin"))[0].first.headline


def left_at_once(clients: int) -> tuple[int, int]:
    """Remarks about so many clients that leave at once, and those without room."""
    running = Explainer()
    again = (f"@{{n}}0{number} opened client=c{{n}}; @{{n}}0{number}" for number in range(3))
    lines = [f"for 1..{clients}: {opens} > disconnect; {opens.partition(' ')[0]} > fin" for opens in again]
    explained(*steps_of(*lines), explainer=running, rules=[usual_rule(all_rules()["OPS331"])])
    return len(running.totals.remarks), running.totals.dropped.get("remarks", 0)


def lost_after(idle: int) -> str:
    """The beginning of the advice about a path that was lost so long after the last packet."""
    talk = whole()
    talk.tape.now_ns += idle - 2 * MILLISECOND
    (sent,) = talk.say(CLIENT, Publish(topic_name="a", payload=b"x"))
    for pause in (1, 2, 4, 8):
        talk.wait(pause).repeat(sent)
    return of_segments(numbered(talk.tape.segments))[0].first.advice[0][:16]


def held_back(acknowledged: int = 40 * MILLISECOND, held: int = MILLISECOND, size: int = 100) -> int:
    """Remarks about a client that sends ten segments of so many bytes, each so long after a late acknowledgment."""
    talk, running = whole(), Explainer()
    for _ in range(11):
        talk.tape.now_ns += held - MILLISECOND
        talk.say(CLIENT, Publish(topic_name="a", payload=bytes(size - 5 - (size > 129))))
        talk.tape.now_ns += acknowledged - MILLISECOND
        talk.ack(SERVER)
    of_segments(numbered(talk.tape.segments), running)
    return len(running.totals.remarks)


def closed_after(nanoseconds: int) -> list[Segment]:
    """A server that closes so long after its SYN-ACK, before the CONNECT comes."""
    talk = Talk().handshake()
    talk.tape.now_ns += nanoseconds - 2 * MILLISECOND
    talk.fin("server")
    talk.position["server"] -= 1
    talk.client(connect())
    return talk.tape.segments


def reset_at_arrival(nanoseconds: int) -> list[Segment]:
    """Three clients, each reset so long after its CONNECT, while the server serves another one."""
    tape = Tape()
    talks = [Talk(tape, client_port=50_000 + number, client="192.0.2.9").handshake() for number in range(4)]
    other = talks.pop()
    for talk in talks:
        talk.client(connect(client_identifier="late"))
        tape.now_ns += nanoseconds - MILLISECOND
        talk.reset("server")
    other.client(connect())
    other.server(CONNACK)
    return tape.segments


def voices(*pauses: int) -> Voices:
    """The packets of a server with these pauses between them."""
    heard, now_ns = Voices(), 1
    heard.spoke("192.0.2.2:1883", now_ns, 1)
    for number, pause in enumerate(pauses, 2):
        now_ns += pause
        heard.spoke("192.0.2.2:1883", now_ns, number)
    return heard


def hushes(*pauses: int) -> int:
    return len(voices(*pauses).servers["192.0.2.2:1883"].hushes)


def oldest_hush(count: int) -> int:
    """The frame at the beginning of the oldest remembered interval."""
    return voices(*[5 * SECOND] * count).servers["192.0.2.2:1883"].hushes[0].from_frame


def unheard_servers(count: int) -> dict[str, int]:
    heard = Voices()
    for number in range(count):
        heard.spoke(f"192.0.2.{number}:1883", 1, 1)
    return dict(heard.dropped)


def aged(nanoseconds: int) -> list[Segment]:
    """Three connections that the server ends at this age, 10 s after a packet."""
    tape = Tape()
    for number in range(3):
        tape.wait(1 + 5 * number)
        talk = Talk(tape, client_port=50_000 + number).handshake()
        began_ns = tape.now_ns - 2 * MILLISECOND
        talk.client(connect())
        talk.server(CONNACK)
        tape.wait(49)
        talk.client(Pingreq())
        talk.server(Pingresp())
        tape.now_ns = began_ns + nanoseconds - MILLISECOND
        talk.close("server")
    return tape.segments


def token_expired(nanoseconds: int) -> str:
    """How sure it is that a token which had expired so long before an end is its cause; empty if it is not."""
    tape = Tape()
    talk, token = Talk(tape).handshake(), jwt({"exp": START // SECOND + 60})
    talk.client(Connect(protocol_level=4, client_identifier="dev", keep_alive=0, user_name="u", password=token))
    talk.server(CONNACK)
    tape.wait(30)
    talk.client(Pingreq())
    talk.server(Pingresp())
    tape.now_ns = START + 60 * SECOND + nanoseconds - MILLISECOND
    talk.close("server")
    candidates = explanations(tape.segments)[0].candidates
    return next((str(each.certainty) for each in candidates if each.cause is Cause.BAD_CREDENTIALS), "")


def is_token(size: int = 0, expires_s: int = 1) -> bool:
    """Whether a password is read as a token; ``size``: bytes of one of Azure, else one with this expiry time."""
    text = SAS.replace(b"sig=", b"sig=" + b"a" * (size - len(SAS))) if size else jwt({"exp": expires_s})
    return token_of(Connect(password=text)) is not None


def timed_out(nanoseconds: int) -> list[Segment]:
    """Three connections that the client ends at this age."""
    tape = Tape()
    for number in range(3):
        talk = Talk(tape, client_port=50_000 + number).handshake()
        began_ns = tape.now_ns - 2 * MILLISECOND
        talk.client(connect())
        talk.server(CONNACK)
        tape.now_ns = began_ns + nanoseconds - MILLISECOND
        talk.close("client")
    return tape.segments


def failed_lookups(clients: int, nanoseconds: int = OUTAGE_NS) -> list[str]:
    """Sentences about clients of which each asked for a name, so long before the end of the capture."""
    watch = LookupWatch()
    for number in range(clients):
        for _ in range(2):
            watch.feed(received(query("broker.example"), f"10.0.{number // 256}.{number % 256}", number + 1))
    return [row.sentence for row in unresolved(watch, [], [], [], nanoseconds)] + watch.limits


def stale_wills(nanoseconds: int) -> list[str]:
    """Sentences about the will of a client that was back for so long at the end of the capture."""
    device = "opened 3.1.1 client=dev will=st will_payload=off will_retain"
    lines = [f"{device}; > publish st on retain; @1 opened 3.1.1 client=ha; @1 > subscribe 1 st:0; @1 < suback 1 0"]
    lines += [f"> reset; @1 < publish st off; +1 @2 {device}; {after(nanoseconds)} @1 > pingreq"]
    return [line for line in traced("st", *steps_of(*lines)).remarks if "The retained message of st is" in line]


def flight(size: int) -> int | None:
    """Bytes of certificates in an empty Certificate message at the end of so many bytes."""
    end = record(22, message(11, bytes(3)))
    left, data = size - len(end), b""
    while left:
        length = left if left <= 16_000 else 10_000
        data, left = data + record(22, message(4, bytes(length - 9))), left - length
    reader = FlightReader()
    reader.feed(data, 1)
    reader.feed(end, 1 + len(data))
    return reader.certificates


def newest_path_is_known(count: int) -> bool:
    """Whether the last one of so many paths of WebSockets is remembered."""
    steps = [
        step
        for number in range(count)
        for step in on(
            number,
            silent(client(upgrade_request(path=f"/{number}"))),
            silent(server(upgrade_response())),
            *steps_of("> frame connect; < frame connack"),
        )
    ]
    (known,) = finished(segments_of(conversation("", *steps))).book.servers.values()
    return f"/{count - 1}" in known.web_paths


# Edge nodes of Sparkplug


def early_will(seconds: str) -> int:
    """Number of connections named for a will that was delivered before the end of its connection."""
    rows = answers(HOST, BORN, SEEN, f"@1 < publish {DEATH.format(0)}; +{seconds} > reset")
    return sum(answer.headline.count("#1") for answer in rows)


def requested_again(seconds: str) -> int:
    """Rebirth requests of equal deliveries so much later."""
    headline, *_ = (row.headline for row in answers(BORN, DELIVERED, f"+{seconds} {DELIVERED}"))
    return 2 if "2 of 2" in headline else 1


def requests_left_out(count: int) -> int:
    """Sentences about rebirth requests that are not remembered."""
    return len(list(watched(HOST, BORN, SEEN, *[ASKED] * count).remarks()))


def node_connections(count: int) -> int:
    """Number of connections of an edge node that are not explained, of some that ended."""
    lines = (f"{BORN}; > reset".replace("; ", f"; @{number} ") for number in range(count))
    return count - len(answers(*(f"@{number} {line}" for number, line in enumerate(lines))))


def deaths_not_named(count: int) -> int:
    """Number of hosts that received an NDEATH and are not evidence of it."""
    hosts = [HOST.replace("@1", f"@{number}").replace("=h", f"=h{number}") for number in range(1, count + 1)]
    deaths = (f"@{number} < publish {DEATH.format(0)}" for number in range(1, count + 1))
    return count - len(answers(*hosts, *deaths)[0].reasons)


def explained_nodes(count: int) -> list[str]:
    """What is reported of the deaths of edge nodes."""
    deaths = (f"@1 < publish {DEATH.format(0)}".replace("/e", f"/e{number}") for number in range(count))
    return list(watched(HOST, *deaths).remarks())
