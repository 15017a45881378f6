"""Inputs at the limits of the package explain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.dissect import segments as segments_of_frames
from mqttscope.explain import Explainer, Explanation
from mqttscope.explain.describe import name
from mqttscope.explain.segments import SegmentWatch
from mqttscope.lint.catalogue import select, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import conversation
from mqttscope.lint.examples import segments as segments_of
from mqttscope.mqtt.packets import Pingreq, Pingresp, Publish
from mqttscope.net.segment import ACK, PSH, RST, SYN, Segment
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.dissect.talk import SECOND, Talk, Tape
from tests.explain.running import explained, traced
from tests.explain.test_segments import OPENED, TO_SERVER, client_of, facts_of, fed, segment
from tests.lint.lint_help import steps_of
from tests.net.octets import frame, ip4, tcp

__all__ = ["name"]

MILLISECOND = 1_000_000
"""Between two frames of a `Tape`."""
FORGOTTEN = "limit: what is shown of clients may be wrong; forgotten subscriptions and connections: 1."
NOT_ALL = "limit: for some messages, not all clients with a matching or similar subscription are shown."


def talk(*lines: str) -> list[Segment]:
    """The segments of a conversation."""
    return segments_of(conversation("", *steps_of(*lines)))


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
