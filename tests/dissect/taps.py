"""Random captures of conforming connections as one or two taps show them, each with the truth about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from mqttscope.mqtt import Puback, Publish, Suback, Subscribe, Subscription
from mqttscope.net.segment import Segment, direction_key
from tests.dissect.talk import CONNACK, PINGREQ, PINGRESP, SECOND, Talk, Tape, connect, finish, wire

ENDS = ("fin by both", "fin by both, server first", "fin by the server", "reset by the client", "reset by the server",
        "outage", "outage with data under way")  # fmt: skip
GAPS = (0.01, 0.3, 1, 4, 20, 600)
SEGMENT = 40
"""Bytes of a message that fills several segments."""
LOST = Publish(topic_name="lost", payload=b"x", qos=1, packet_identifier=999)
"""What is under way where there is an outage."""


@dataclass
class Scene:
    """What happened on the wire, one list of segments per connection, and the topics that each one shows."""

    connections: list[list[Segment]] = field(default_factory=list)
    topics: list[list[str]] = field(default_factory=list)


def _pause(random: Random, tape: Tape, pace: float) -> None:
    tape.now_ns += int(random.expovariate(1 / pace) * SECOND)


def _exchange(random: Random, talk: Talk, topic: str, identifier: int) -> None:
    """One message, of either side, acknowledged or not, in one segment or several."""
    who, other = ("client", "server") if random.random() < 0.7 else ("server", "client")
    sender = talk.client if who == "client" else talk.server
    qos = random.randrange(2)
    payload = bytes(random.randrange(256) for _ in range(random.choice((4, 4, 4, 150))))
    message = Publish(topic_name=topic, payload=payload, qos=qos, packet_identifier=identifier if qos else None)
    data = wire(message)
    step = SEGMENT if random.random() < 0.5 else len(data)
    for at in range(0, len(data), step):
        sender(data[at : at + step])
    if qos:
        (talk.server if who == "client" else talk.client)(Puback(identifier))
    talk.ack(who if qos else other)


def _life(random: Random, talk: Talk, number: int, pace: float) -> list[str]:
    tape = talk.tape
    talk.client(connect())
    _pause(random, tape, pace)
    talk.server(CONNACK)
    talk.ack("client")
    talk.client(Subscribe(1, subscriptions=[Subscription("#", 1)]))
    talk.server(Suback(1, reason_codes=[1]))
    topics = []
    for at in range(random.choice((1, 3, 10, 40))):
        _pause(random, tape, pace)
        topics.append(f"{number}/{at}")
        _exchange(random, talk, topics[-1], at + 2)
        if random.random() < 0.1:
            talk.client(PINGREQ)
            talk.server(PINGRESP)
            talk.ack("client")
    return topics


def scene(
    random: Random,
    *,
    pace: float | None = None,
    gaps: tuple[float, ...] = GAPS,
    server: int | None = None,
    port: int = 50_000,
) -> Scene:
    """One device that connects one or more times from the same port; ``server``: the number that its server begins
    with each time."""
    made = Scene()
    tape = Tape()
    pace = pace or random.choice((0.002, 0.02, 0.2, 1.0))
    client = random.choice((1000, None))
    for number in range(random.randint(1, 3)):
        talk = Talk(tape, client_port=port)
        talk.position = {
            "client": random.randrange(1 << 32) if client is None else client,
            "server": random.randrange(1 << 32) if server is None else server,
        }
        first = len(tape.segments)
        talk.handshake()
        made.topics.append(_life(random, talk, number, pace))
        finish(talk, random.choice(ENDS), LOST)
        made.connections.append(tape.segments[first:])
        tape.now_ns += int(random.choice(gaps) * SECOND)
    return made


def numbered(segments: list[Segment]) -> list[Segment]:
    """Segments in the order of their times, as a capture has them."""
    ordered = sorted(segments, key=lambda one: one.timestamp_ns)
    return [replace(one, frame=number) for number, one in enumerate(ordered, 1)]


def seen(random: Random, segments: list[Segment], *, skew: float, jitter: float, tag: bytes = b"") -> list[Segment]:
    """What a tap shows whose clock differs, and whose times are a little wrong."""
    found = []
    last = -(1 << 62)
    for one in segments:
        # Jitter of a time stamp changes no order inside of one tap.
        last = max(last + 1000, one.timestamp_ns + int((skew + random.uniform(0, jitter)) * SECOND))
        key = one.key if not tag else direction_key(one.key[:8], one.key[8:12], tag)
        found.append(replace(one, timestamp_ns=last, key=key))
    return found


def two_taps(random: Random, made: Scene, *, skew: float, jitter: float = 0.002, tag: bytes = b"") -> list[Segment]:
    """Both taps show everything."""
    both = [one for segments in made.connections for one in segments]
    return numbered(both + seen(random, both, skew=skew, jitter=jitter, tag=tag))


def displaced(random: Random, made: Scene, jitter: float) -> list[Segment]:
    """One tap whose frames come out of order, and carry the time at which they came out."""
    return numbered([
        replace(one, timestamp_ns=one.timestamp_ns + int(random.uniform(0, jitter) * SECOND))
        for segments in made.connections
        for one in segments
    ])  # fmt: skip
