"""Random captures of one or two taps with different clocks, and of frames out of order: events are reported once."""

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
"""Segments that are under way during an outage."""


@dataclass
class Scene:
    """The traffic on the wire: one list of segments per connection, and the topics of each."""

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
    new_scene = Scene()
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
        new_scene.topics.append(_life(random, talk, number, pace))
        finish(talk, random.choice(ENDS), LOST)
        new_scene.connections.append(tape.segments[first:])
        tape.now_ns += int(random.choice(gaps) * SECOND)
    return new_scene


def numbered(segments: list[Segment]) -> list[Segment]:
    """Segments in the order of their times, as a capture has them."""
    ordered = sorted(segments, key=lambda segment: segment.timestamp_ns)
    return [replace(segment, frame=number) for number, segment in enumerate(ordered, 1)]


def seen(random: Random, segments: list[Segment], *, skew: float, jitter: float, tag: bytes = b"") -> list[Segment]:
    """Segments of a tap with another clock and slightly wrong times."""
    actual_segments = []
    last = -(1 << 62)
    for segment in segments:
        # Jitter of a time stamp changes no order inside of one tap.
        last = max(last + 1000, segment.timestamp_ns + int((skew + random.uniform(0, jitter)) * SECOND))
        key = segment.key if not tag else direction_key(segment.key[:8], segment.key[8:12], tag)
        actual_segments.append(replace(segment, timestamp_ns=last, key=key))
    return actual_segments


def two_taps(
    random: Random, new_scene: Scene, *, skew: float, jitter: float = 0.002, tag: bytes = b""
) -> list[Segment]:
    """Both taps show everything."""
    both = [segment for segments in new_scene.connections for segment in segments]
    return numbered(both + seen(random, both, skew=skew, jitter=jitter, tag=tag))


def displaced(random: Random, new_scene: Scene, jitter: float) -> list[Segment]:
    """One tap with frames out of order, at the times when they came out."""
    return numbered([
        replace(segment, timestamp_ns=segment.timestamp_ns + int(random.uniform(0, jitter) * SECOND))
        for segments in new_scene.connections
        for segment in segments
    ])  # fmt: skip


TRIALS = 2_000 if EXHAUSTIVE else 60
SKEWS = (0.25, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0)
TAGS = (b"", b"\0\x05")


def test_one_tap_shows_what_happened() -> None:
    for seed in range(TRIALS):
        new_scene = scene(Random(seed))
        actual_outcome = outcome(numbered([segment for segments in new_scene.connections for segment in segments]))

        assert (actual_outcome.topics, actual_outcome.errors, actual_outcome.copied) == (new_scene.topics, [], 0), seed


@pytest.mark.parametrize("tag", some(TAGS, 3))
@pytest.mark.parametrize("server", some([None, 5000]))
def test_two_taps_whose_clocks_differ_show_it_once(tag: bytes, server: int | None) -> None:
    """Servers choose their numbers at random; if one does not, nearly all results are right nevertheless."""
    wrong = []
    for seed in range(TRIALS):
        random = Random(seed)
        new_scene = scene(random, server=server)
        skew = random.choice((-1, 1)) * random.choice(SKEWS)
        actual_outcome = outcome(two_taps(random, new_scene, skew=skew, tag=tag))
        shown = actual_outcome.topics if tag else _without_repeats(actual_outcome.topics)
        if shown != new_scene.topics or actual_outcome.errors:
            wrong.append((seed, skew, actual_outcome))

    assert len(wrong) <= TRIALS * (0.01 if server is None else 0.1), wrong


def _without_repeats(topics: list[list[str | None]]) -> list[list[str | None]]:
    """Without tags, a repetition after the end of a connection is another connection with the same packets."""
    text_lists: list[list[str | None]] = []
    for row in topics:
        if all(row != known[: len(row)] for known in text_lists):
            text_lists.append(row)
    return text_lists


@pytest.mark.parametrize("skew", [0.0, 0.0001, 0.01, 0.1, 0.19])
@pytest.mark.long
def test_two_taps_whose_clocks_are_right_show_it_once(skew: float) -> None:
    wrong = []
    for seed in range(TRIALS):
        random = Random(seed)
        new_scene = scene(random, server=None)
        actual_outcome = outcome(two_taps(random, new_scene, skew=skew, jitter=0.0005, tag=random.choice(TAGS)))
        if actual_outcome.topics != new_scene.topics or actual_outcome.errors:
            wrong.append((seed, actual_outcome))

    assert len(wrong) <= TRIALS * 0.01, wrong


@pytest.mark.parametrize("jitter", [0.005, 0.02, 0.05, 0.15])
@pytest.mark.long
def test_frames_out_of_order_are_said_once_or_said_to_be_missing(jitter: float) -> None:
    """Disordered segments may be missing, but never silently; nothing is reported twice."""
    accused = []
    for seed in range(TRIALS):
        random = Random(seed)
        new_scene = scene(random, pace=random.choice((0.02, 0.2, 1.0)), gaps=(1, 20, 600))
        actual_outcome = outcome(displaced(random, new_scene, jitter))
        topics = sorted(str(topic) for row in actual_outcome.topics for topic in row)
        wanted = sorted(topic for row in new_scene.topics for topic in row)
        if actual_outcome.errors:
            accused.append((seed, actual_outcome.errors))

        assert len(topics) <= len(wanted), seed
        assert topics == wanted or actual_outcome.incomplete, seed

    assert len(accused) <= TRIALS * 0.03, accused


def test_all_that_two_taps_show_of_a_device_goes_to_one_place() -> None:
    """A cluster groups segments by this key: each group alone gives the result of all together."""
    random = Random(7)
    segments: list[Segment] = []
    for port in (50_000, 50_001):
        new_scene = scene(random, server=None, port=port)
        segments += two_taps(random, new_scene, skew=3.0, tag=TAGS[1])
    segments = numbered(segments)
    groups: dict[bytes, list[Segment]] = {}
    for segment in segments:
        groups.setdefault(group_key(segment.key), []).append(segment)

    together = outcome(segments)
    apart = [outcome(group) for group in groups.values()]

    assert len(groups) == 2
    assert sorted(map(str, together.topics)) == sorted(str(row) for outcome in apart for row in outcome.topics)
    assert together.copied == sum(outcome.copied for outcome in apart)


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
    tape.segments += [replace(segment, timestamp_ns=segment.timestamp_ns + 2_000_000_000) for segment in first]
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
    """Far ahead of the server's position: nothing is lost by it."""
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
    """The device never acknowledges the server's data, and comes back with the same numbers."""
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

    assert all(not segment.flags & SYN for segment in tape.segments[3:])
    assert said(tape.segments) == ([["one"], ["two"]], [1, 1], [])


def skewed(segments: list[Segment], skew: float, capture: str = "") -> list[Segment]:
    return [
        replace(segment, timestamp_ns=segment.timestamp_ns + int(skew * 1e9), capture=capture or segment.capture)
        for segment in segments
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
        # There is no sign of a second tap: a device has come back, and has sent the same packets.
        assert [event.connection.copied_segments for event in events if isinstance(event, ConnectionClosed)] == [0, 0]
        assert not dissector.copied_segments
        return

    assert [event.connection.copied_segments for event in events if isinstance(event, ConnectionClosed)] == [0]
    assert dissector.copied_segments == sum(bool(segment.payload) for segment in segments)
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
        whole = [segment for segments in scene(random, server=None).connections for segment in segments]
        first = [segment for segment in whole if random.random() >= loss]
        second = skewed(whole, 0.0005, "b.pcap")
        _, events = read(framed([*first, *second]))

        assert unsaid([*first, *second], events) == [], seed


@pytest.mark.parametrize("delay", some([1.0, 0.05, 3.0]))
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_segments_that_come_late_are_read_or_said(loss: float, delay: float) -> None:
    for seed in range(TRIALS):
        random = Random(seed)
        whole = [segment for segments in scene(random, server=None).connections for segment in segments]
        left_segments = [segment for segment in whole if random.random() >= loss]
        late = numbered([
            replace(segment, timestamp_ns=segment.timestamp_ns + int(random.random() * delay * 1e9))
            if random.random() < 0.1 else segment
            for segment in left_segments
        ])  # fmt: skip

        assert unsaid(late, read(late)[1]) == [], seed


def unsaid(segments: list[Segment], events: list[Event]) -> list[str]:
    """Messages that fill a segment of their own and are neither packets nor bytes that were reported."""
    read = {event.topic for event in events if isinstance(event, PacketEvent)}
    pairs = {(event.capture, event.frame) for event in events if isinstance(event, DiscardedEvent | UnparsedEvent)}
    frames: dict[str, set[tuple[str, int]]] = {}
    for segment in segments:
        if (
            segment.payload[:1] in (b"\x30", b"\x32")
            and len(segment.payload) > 4
            and len(segment.payload) == 2 + segment.payload[1]
        ):
            topic = segment.payload[4 : 4 + segment.payload[3]].decode(errors="replace")
            frames.setdefault(topic, set()).add((segment.capture, segment.frame))
    return [topic for topic, at in frames.items() if "/" in topic and topic not in read and not at & pairs]


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
        new_scene = scene(random, server=None, gaps=(1, 20, 600))
        whole = [segment for segments in new_scene.connections for segment in segments]
        again = [skewed([segment], random.random() * delay)[0] for segment in whole if random.random() < 0.4]
        actual_outcome = outcome(numbered(whole + again))
        if actual_outcome.topics != new_scene.topics or actual_outcome.errors:
            wrong.append((seed, actual_outcome))

    assert len(wrong) <= TRIALS * most, wrong


@pytest.mark.parametrize("gap", [0.3, 3.0, 9.0])
def test_a_device_that_says_the_same_after_each_boot_is_heard_each_time(gap: float) -> None:
    """Only the handshake after an end shows that these are connections: numbers and bytes are alike."""
    boots = [skewed(short(), gap * number) for number in range(4)]
    actual_outcome = outcome(numbered([segment for boot in boots for segment in boot]))

    assert len(actual_outcome.topics) == 4
    assert (actual_outcome.topics, actual_outcome.errors, actual_outcome.copied) == (
        [actual_outcome.topics[0]] * 4,
        [],
        0,
    )


def test_a_device_that_starts_again_from_its_port_is_no_second_tap() -> None:
    """The broker answers the SYN with an acknowledgment for the old connection, and the device resets it."""
    talk = Conversation(clocks=(None, None)).quiet().ack(CLIENT).ack(SERVER).wait(9)
    talk.put(CLIENT, SYN, sequence=700_000)
    talk.ack(SERVER)
    talk.put(CLIENT, RST)
    dissector, events = read(numbered(talk.tape.segments))

    assert [event.connection.one_sided for event in events if isinstance(event, ConnectionClosed)] == [None, None]
    assert (dissector.copied_segments, dissector.one_sided) == (0, 0)
