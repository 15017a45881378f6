"""Random captures of one or two taps whose clocks differ, and of frames out of order: what happened is said once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

import pytest

from mqttscope.cli.advice import counted_of_connections
from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.events import ConnectionClosed, DiscardedEvent, Event, PacketEvent, UnparsedEvent
from mqttscope.mqtt import Puback, Publish
from mqttscope.net.segment import RST, SYN, Segment, direction_key, group_key
from tests.conftest import EXHAUSTIVE
from tests.dissect.conversations import CLIENT, SERVER, Conversation
from tests.dissect.lives import ENDS, framed, outcome, said
from tests.dissect.talk import SECOND, Talk, Tape, connect, finish, wire
from tests.each import some

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
    talk.tell("< connack; ack client; > subscribe 1 #:1; < suback 1 1")
    topics = []
    for at in range(random.choice((1, 3, 10, 40))):
        _pause(random, tape, pace)
        topics.append(f"{number}/{at}")
        _exchange(random, talk, topics[-1], at + 2)
        if random.random() < 0.1:
            talk.tell("> pingreq; < pingresp; ack client")
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


TRIALS = 2_000 if EXHAUSTIVE else 60
SKEWS = (0.25, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0)
TAGS = (b"", b"\0\x05")


def test_one_tap_shows_what_happened() -> None:
    for seed in range(TRIALS):
        made = scene(Random(seed))
        found = outcome(numbered([one for segments in made.connections for one in segments]))

        assert (found.topics, found.errors, found.copied) == (made.topics, [], 0), seed


@pytest.mark.parametrize("tag", some(TAGS, 3))
@pytest.mark.parametrize("server", some([None, 5000]))
def test_two_taps_whose_clocks_differ_show_it_once(tag: bytes, server: int | None) -> None:
    """Servers choose their numbers at random; where one does not, nearly all is right all the same."""
    wrong = []
    for seed in range(TRIALS):
        random = Random(seed)
        made = scene(random, server=server)
        skew = random.choice((-1, 1)) * random.choice(SKEWS)
        found = outcome(two_taps(random, made, skew=skew, tag=tag))
        shown = found.topics if tag else _without_repeats(found.topics)
        if shown != made.topics or found.errors:
            wrong.append((seed, skew, found))

    assert len(wrong) <= TRIALS * (0.01 if server is None else 0.1), wrong


def _without_repeats(topics: list[list[str | None]]) -> list[list[str | None]]:
    """Without tags, what comes again after the end of a connection is another one that says the same."""
    made: list[list[str | None]] = []
    for row in topics:
        if all(row != known[: len(row)] for known in made):
            made.append(row)
    return made


@pytest.mark.parametrize("skew", [0.0, 0.0001, 0.01, 0.1, 0.19])
@pytest.mark.long
def test_two_taps_whose_clocks_are_right_show_it_once(skew: float) -> None:
    wrong = []
    for seed in range(TRIALS):
        random = Random(seed)
        made = scene(random, server=None)
        found = outcome(two_taps(random, made, skew=skew, jitter=0.0005, tag=random.choice(TAGS)))
        if found.topics != made.topics or found.errors:
            wrong.append((seed, found))

    assert len(wrong) <= TRIALS * 0.01, wrong


@pytest.mark.parametrize("jitter", [0.005, 0.02, 0.05, 0.15])
@pytest.mark.long
def test_frames_out_of_order_are_said_once_or_said_to_be_missing(jitter: float) -> None:
    """What has no order any more may be missing, but not without a word; nothing is said twice."""
    accused = []
    for seed in range(TRIALS):
        random = Random(seed)
        made = scene(random, pace=random.choice((0.02, 0.2, 1.0)), gaps=(1, 20, 600))
        found = outcome(displaced(random, made, jitter))
        topics = sorted(str(topic) for row in found.topics for topic in row)
        wanted = sorted(topic for row in made.topics for topic in row)
        if found.errors:
            accused.append((seed, found.errors))

        assert len(topics) <= len(wanted), seed
        assert topics == wanted or found.incomplete, seed

    assert len(accused) <= TRIALS * 0.03, accused


def test_all_that_two_taps_show_of_a_device_goes_to_one_place() -> None:
    """A cluster groups segments by this key: each group alone says what all together say."""
    random = Random(7)
    segments: list[Segment] = []
    for port in (50_000, 50_001):
        made = scene(random, server=None, port=port)
        segments += two_taps(random, made, skew=3.0, tag=TAGS[1])
    segments = numbered(segments)
    groups: dict[bytes, list[Segment]] = {}
    for one in segments:
        groups.setdefault(group_key(one.key), []).append(one)

    together = outcome(segments)
    apart = [outcome(group) for group in groups.values()]

    assert len(groups) == 2
    assert sorted(map(str, together.topics)) == sorted(str(row) for one in apart for row in one.topics)
    assert together.copied == sum(one.copied for one in apart)


def life(talk: Talk, topic: str) -> None:
    talk.tell("handshake; > connect; < connack")
    talk.client(Publish(topic_name=topic, payload=b"1", qos=1, packet_identifier=2))
    talk.tell("< puback 2; ack client")


def test_a_device_with_all_the_same_numbers_is_told_by_what_it_says() -> None:
    """Within the time in which it could be the second view of another tap."""
    tape = Tape()
    life(Talk(tape), "one")
    tape.wait(2)
    life(Talk(tape), "two")

    assert said(tape.segments) == ([["one"], ["two"]], [1, 1], [])


def test_a_view_of_a_connection_that_is_over_begins_no_other() -> None:
    tape = Tape()
    talk = Talk(tape)
    life(talk, "one")
    talk.reset("client")
    first = list(tape.segments)
    tape.wait(0.5)
    again = Talk(tape)
    again.position["server"] = 3_000_000_000
    life(again, "two")
    tape.segments += [replace(one, timestamp_ns=one.timestamp_ns + 2_000_000_000) for one in first]
    tape.now_ns += 2_000_000_000
    again.client(Publish(topic_name="three", payload=b"1"))

    assert said(tape.segments) == ([["one"], ["two", "three"]], [1, 1], [])


def test_a_reset_waits_for_what_was_sent_before_it() -> None:
    tape = Tape()
    talk = Talk(tape)
    life(talk, "one")
    talk.tell("> publish two 1; reset client")
    tape.segments[-2], tape.segments[-1] = (
        replace(tape.segments[-1], timestamp_ns=tape.segments[-2].timestamp_ns),
        replace(tape.segments[-2], timestamp_ns=tape.segments[-1].timestamp_ns),
    )

    assert said(tape.segments) == ([["one", "two"]], [1], [])


def test_an_old_acknowledgment_of_another_connection_says_nothing() -> None:
    """Far after where the server stands: nothing is lost by it."""
    tape = Tape()
    talk = Talk(tape)
    life(talk, "one")
    client, server = talk.position["client"], talk.position["server"]
    talk.position = {"client": client + 100, "server": server - 300_000_000}
    talk.ack("server")
    talk.position = {"client": client, "server": server}
    talk.tell("> publish two 1; close")

    assert outcome(tape.segments).incomplete == 0


def test_a_connect_behind_a_hole_begins_a_connection() -> None:
    """No handshake was captured, and the numbers go on a little after where they were."""
    tape = Tape()
    talk = Talk(tape)
    life(talk, "one")
    tape.wait(60)
    again = Talk(tape)
    again.position = {who: at + 200 for who, at in talk.position.items()}
    before = len(tape.segments)
    life(again, "two")
    del tape.segments[before : before + 3]

    assert said(tape.segments) == ([["one"], ["two"]], [1, 1], [])


def test_a_connect_that_was_acknowledged_before_begins_a_connection() -> None:
    """The device never acknowledges what the server says, and comes back with all the same numbers."""
    tape = Tape()
    for topic in ("one", "two"):
        talk = Talk(tape)
        before = len(tape.segments)
        talk.tell("handshake; > connect; < connack")
        talk.position["server"] = 5001
        talk.client(Publish(topic_name=topic, payload=b"1"))
        if before:
            del tape.segments[before : before + 3]
        tape.wait(60)

    assert all(not one.flags & SYN for one in tape.segments[3:])
    assert said(tape.segments) == ([["one"], ["two"]], [1, 1], [])


def skewed(segments: list[Segment], skew: float, capture: str = "") -> list[Segment]:
    return [
        replace(one, timestamp_ns=one.timestamp_ns + int(skew * 1e9), capture=capture or one.capture)
        for one in segments
    ]


def read(segments: list[Segment]) -> tuple[Dissector, list[Event]]:
    dissector = Dissector()
    return dissector, list(dissect_segments(segments, dissector=dissector))


def short() -> list[Segment]:
    tape = Tape()
    talk = Talk(tape)
    life(talk, "one")
    talk.close()
    return tape.segments


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("skew", [0.3, 5.0])
def test_copies_of_a_connection_that_is_over_are_counted(tag: bytes, skew: float) -> None:
    """The connection was summed up before its second view began."""
    segments = short()
    view = seen(Random(1), segments, skew=skew, jitter=0, tag=tag)
    dissector, events = read(numbered(segments + view))
    if not tag:
        # Nothing says that there is a second tap: a device has come back, and has said the same.
        assert [one.connection.copied_segments for one in events if isinstance(one, ConnectionClosed)] == [0, 0]
        assert not dissector.copied_segments
        return

    assert [one.connection.copied_segments for one in events if isinstance(one, ConnectionClosed)] == [0]
    assert dissector.copied_segments == sum(bool(one.payload) for one in segments)
    assert "4 segments were captured twice (two taps or a mirrored port?)" in list(counted_of_connections(dissector))


def test_copies_of_what_is_no_mqtt_are_no_copies_of_connections() -> None:
    tape = Tape()
    talk = Talk(tape, port=80).handshake()
    talk.client(b"GET / HTTP/1.1\r\n\r\n")
    talk.server(b"HTTP/1.1 200 OK\r\n\r\n")
    talk.close()

    assert read(numbered(tape.segments + skewed(tape.segments, 5.0)))[0].copied_segments == 0


@pytest.mark.parametrize("loss", some([0.05, 0.15, 0.3], 3))
def test_what_one_of_two_captures_lost_is_in_the_other_or_said(loss: float) -> None:
    """Captures are read one after the other, so that the second one cannot fill all holes of the first."""
    for seed in range(TRIALS):
        random = Random(seed)
        whole = [one for segments in scene(random, server=None).connections for one in segments]
        first = [one for one in whole if random.random() >= loss]
        second = skewed(whole, 0.0005, "b.pcap")
        _, events = read(framed([*first, *second]))

        assert unsaid([*first, *second], events) == [], seed


@pytest.mark.parametrize("delay", some([1.0, 0.05, 3.0]))
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_segments_that_come_late_are_read_or_said(loss: float, delay: float) -> None:
    for seed in range(TRIALS):
        random = Random(seed)
        whole = [one for segments in scene(random, server=None).connections for one in segments]
        kept = [one for one in whole if random.random() >= loss]
        late = numbered([
            replace(one, timestamp_ns=one.timestamp_ns + int(random.random() * delay * 1e9))
            if random.random() < 0.1 else one
            for one in kept
        ])  # fmt: skip

        assert unsaid(late, read(late)[1]) == [], seed


def unsaid(segments: list[Segment], events: list[Event]) -> list[str]:
    """Messages that fill a segment of their own and are neither packets nor bytes that were reported."""
    read = {one.topic for one in events if isinstance(one, PacketEvent)}
    said = {(one.capture, one.frame) for one in events if isinstance(one, DiscardedEvent | UnparsedEvent)}
    frames: dict[str, set[tuple[str, int]]] = {}
    for one in segments:
        if one.payload[:1] in (b"\x30", b"\x32") and len(one.payload) > 4 and len(one.payload) == 2 + one.payload[1]:
            topic = one.payload[4 : 4 + one.payload[3]].decode(errors="replace")
            frames.setdefault(topic, set()).add((one.capture, one.frame))
    return [topic for topic, at in frames.items() if "/" in topic and topic not in read and not at & said]


def test_a_syn_that_wanders_is_no_second_tap() -> None:
    """It comes within a millisecond of whatever was sent last, and long after the connection began."""
    tape = Tape()
    talk = Talk(tape)
    life(talk, "one")
    syn = tape.segments[0]
    tape.segments.append(replace(syn, timestamp_ns=tape.now_ns + 900_000))
    tape.wait(0.17)
    talk.tell("ack server; > publish two 1 qos=1 id=3; < puback; close")
    dissector, _ = read(numbered(tape.segments))

    assert dissector.copied_segments == 0
    assert said(tape.segments) == ([["one", "two"]], [1], [])


@pytest.mark.parametrize(("delay", "most"), [(0.1, 0.0), (0.3, 0.05), (3.0, 0.3)])
@pytest.mark.long
def test_frames_that_wander_are_said_once(delay: float, most: float) -> None:
    """Single frames come a second time, each later by a time of its own: no tap, and no connection."""
    wrong = []
    for seed in range(TRIALS):
        random = Random(seed)
        made = scene(random, server=None, gaps=(1, 20, 600))
        whole = [one for segments in made.connections for one in segments]
        again = [skewed([one], random.random() * delay)[0] for one in whole if random.random() < 0.4]
        found = outcome(numbered(whole + again))
        if found.topics != made.topics or found.errors:
            wrong.append((seed, found))

    assert len(wrong) <= TRIALS * most, wrong


@pytest.mark.parametrize("gap", [0.3, 3.0, 9.0])
def test_a_device_that_says_the_same_after_each_boot_is_heard_each_time(gap: float) -> None:
    """Nothing but the handshake after an end says that these are connections: numbers and bytes are alike."""
    boots = [skewed(short(), gap * number) for number in range(4)]
    found = outcome(numbered([one for boot in boots for one in boot]))

    assert len(found.topics) == 4
    assert (found.topics, found.errors, found.copied) == ([found.topics[0]] * 4, [], 0)


def test_a_device_that_starts_again_from_its_port_is_no_second_tap() -> None:
    """The broker answers its SYN with where the old connection stands, and the device answers that with RST."""
    talk = Conversation(clocks=(None, None)).quiet().ack(CLIENT).ack(SERVER).wait(9)
    talk.put(CLIENT, SYN, sequence=700_000)
    talk.ack(SERVER)
    talk.put(CLIENT, RST)
    dissector, events = read(numbered(talk.tape.segments))

    assert [one.connection.one_sided for one in events if isinstance(one, ConnectionClosed)] == [None, None]
    assert (dissector.copied_segments, dissector.one_sided) == (0, 0)
