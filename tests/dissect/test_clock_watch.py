"""Steps of a capture's clock: each row of the table of evidence in docs/clock.md has a case here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Final

import pytest

from mqttscope.dissect import Dissector, clock_watch, dissect_segments
from mqttscope.dissect.clock_watch import (
    ENOUGH_AHEAD,
    JUST_BEFORE_NS,
    REPLY_NS,
    SENT_AGAIN_NS,
    STEP_NS,
    CaptureClock,
    ClockWatch,
    clock_of,
)
from mqttscope.events import ClockStep, ConnectionClosed, ConnectionOpened, Event, PacketEvent
from mqttscope.mqtt import Pingreq, Publish
from mqttscope.net.flows import FlowTable
from mqttscope.net.frame import CaptureError
from mqttscope.net.segment import ACK, PSH, SYN, Segment
from mqttscope.session.capture_time import CaptureTime, captured
from tests.conftest import ROOT
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered, played
from tests.dissect.talk import SECOND, Tape
from tests.tables import titled

STEP, POSSIBLE = "step", "possible"
NO_CLOCKS: Final = (None, None)
HOUR: Final = 3600

Case = Callable[[], Tape]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Register a case under its name in the table."""
    CASES[function.__name__.replace("_", "-")] = function
    return function


def evidence() -> list[tuple[str, str]]:
    """Names and verdicts of the table of evidence."""
    text = (ROOT / "docs" / "clock.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `([a-z0-9-]+)` \| .+ \| ([\w ]+) \|$", text, re.MULTILINE)


def steps_of(segments: list[Segment]) -> list[ClockStep]:
    return [event for event in dissect_segments(numbered(segments)) if isinstance(event, ClockStep)]


ASKED = "new clocks=none; quiet; > publish a/1 1"
SENT = "new clocks=none; quiet; > publish a/1 1 qos=1 id=9; ack server"
STORIES = f"""
# Clocks.
clocks-stand
    quiet 3; set_capture_clock 3600; ping
clocks-of-two-hosts-stand
    quiet; new client=192.0.2.9 clocks=500,600000; quiet; set_back client 3600; set_back server 3600;
    at 0; set_capture_clock 3600; > pingreq; at 1; > pingreq
clocks-advance-less
    quiet 3; +20; set_capture_clock 3600; ping
microsecond-clocks
    new rate=1000000; quiet 3; +20; set_capture_clock 3600; ping
coarse-clocks
    new rate=2; quiet 3; +20; set_capture_clock 3600; ping
clocks-wrap
    new clocks=4294947296,7000000; quiet 3; +20; set_capture_clock 3600; ping
clocks-of-unknown-rate
    open; begin; set_capture_clock 3600; ping
clocks-agree
    quiet 3; +3600; ping
one-clock-agrees
    quiet 3; set_back client 3600; +3600; ping
one-clock-stands-other-unsure
    open; begin; set_back client 3600; +3600; ping
clock-too-unsure
    open; begin; +20; set_capture_clock 3600; ping
new-connection
    quiet; finish; +1; set_capture_clock 3600; new 2000 9000 clocks=1,2; open; whole
# Answers.
request-acknowledged
    {ASKED}; +{SENT_AGAIN_NS / SECOND}; ack server
made-capture
    new clocks=none; open; > connect; < connack; live; > pingreq; +3600; < pingresp
request-acknowledged-early
    {ASKED}; +{SENT_AGAIN_NS / SECOND - 0.01}; ack server
request-sent-again
    {ASKED}; +3600; again publish; ack server
request-long-before
    {ASKED}; +{JUST_BEFORE_NS / SECOND}; new client=192.0.2.9 clocks=none; quiet 0; at 0; +3600; ack server
request-answered
    {SENT}; +{REPLY_NS / SECOND}; < puback 9
request-answered-early
    {SENT}; +{REPLY_NS / SECOND - 0.01}; < puback 9
other-message
    {SENT}; +3600; < raw 30050003636d64
connection-opens
    new clocks=none; syn; +3600; syn_ack; ack client; whole
connection-closes
    new clocks=none; quiet; fin client; +3600; ack server
# Back, and no step at all.
set-back
    quiet 3; set_capture_clock -3600; ping
set-back-no-clocks
    new clocks=none; quiet 3; set_capture_clock -3600; ping
set-back-new-connections
    new clocks=none; quiet; set_capture_clock -3600; new clocks=none; quiet
small-step
    quiet 3; set_capture_clock 0.99; ping
"""
"""In ``request-long-before`` another flow shows that time passes."""


def tape_of(text: str) -> Tape:
    return played(text)[0].tape


CASES.update({name: partial(tape_of, " ".join(lines)) for name, lines in titled(STORIES)})


@case
def one_clock_stands() -> Tape:
    talk = Conversation().quiet(3).set_capture_clock(HOUR)
    talk.say(CLIENT, Pingreq())
    talk.tape.segments = [segment for segment in talk.tape.segments if segment.key == talk.keys[CLIENT]]
    return talk.tape


@case
def set_back_clocks_agree() -> Tape:
    """The last segments were captured before the rest."""
    talk = Conversation().quiet(3)
    segments = talk.tape.segments
    at = len(segments) - 6
    talk.tape.segments = [*segments[:at], *segments[-2:], *segments[at:-2]]
    return talk.tape


@case
def two_clocks() -> Tape:
    talk = Conversation().quiet(3)
    for segment in talk.tape.segments:
        if segment.key == talk.keys[SERVER]:
            segment.timestamp_ns += HOUR * SECOND
    return talk.tape


def late_frame(late_ns: int) -> Tape:
    talk = Conversation().quiet(3)
    segment = talk.tape.segments[-1]
    talk.tape.segments.append(replace(segment, timestamp_ns=segment.timestamp_ns - late_ns))
    return talk.tape


@case
def out_of_order() -> Tape:
    return late_frame(STEP_NS - 1)


@case
def slow_drift() -> Tape:
    talk = Conversation().quiet(HOUR // 5)
    first = talk.tape.segments[0].timestamp_ns
    for segment in talk.tape.segments:
        segment.timestamp_ns += (segment.timestamp_ns - first) * 500 // 1_000_000
    return talk.tape


@pytest.mark.parametrize(("name", "verdict"), evidence())
def test_evidence(name: str, verdict: str) -> None:
    steps = steps_of(CASES[name]().segments)

    assert [bool(step.by_ns) for step in steps] == {STEP: [True], POSSIBLE: [False]}.get(verdict, [])


def test_the_table_has_all_cases() -> None:
    assert sorted(name for name, _ in evidence()) == sorted(CASES)


@pytest.mark.parametrize(
    ("name", "seconds"), [("clocks-advance-less", 3600), ("coarse-clocks", 3600), ("set-back", -3600)]
)
def test_a_step_is_as_long_as_the_clocks_say(name: str, seconds: int) -> None:
    (step,) = steps_of(CASES[name]().segments)

    assert abs(step.by_ns - seconds * SECOND) < SECOND // 2
    assert captured(step.timestamp_ns) - int(step.timestamp_ns) == step.by_ns
    assert step.message == f"the clock was set {'forward' if seconds > 0 else 'back'} by 3,600 s at frame {step.frame}"


def test_a_possible_step_changes_no_time() -> None:
    segments = numbered(CASES["one-clock-stands"]().segments)
    events = list(dissect_segments(segments))
    (step,) = (event for event in events if isinstance(event, ClockStep))
    clock = clock_of(segments, ["a.pcap"])

    assert step.message == (
        f"the clock may have been set forward at frame {step.frame}, according to the TCP timestamps of one host; no"
        " other host confirms or refutes it"
    )
    last = [event for event in events if isinstance(event, PacketEvent)][-1]
    assert type(last.timestamp_ns) is int
    assert last.timestamp_ns == segments[-1].timestamp_ns
    assert [(change.frame, change.shift_ns, change.step) for change in clock.changes] == [(step.frame, 0, step)]


def test_the_clock_of_the_machine_disproves_a_possible_step() -> None:
    dissector = Dissector()
    dissector.clock.machine = lambda: 0
    segments = numbered(CASES["one-clock-stands"]().segments)

    assert not [
        dissect_segment
        for dissect_segment in dissect_segments(segments, dissector=dissector)
        if isinstance(dissect_segment, ClockStep)
    ]


def test_a_short_step_has_a_digit_more() -> None:
    assert ClockStep("a.pcap", 1_000, 0, -1_460_000_000).message == "the clock was set back by 1.5 s at frame 1,000"


@pytest.mark.parametrize("by", [1.3, 2, 30, HOUR, 50 * 365 * 86_400, -1.1, -HOUR])
def test_times_after_a_step_go_on_and_are_shown_as_captured(by: float) -> None:
    talk = Conversation().quiet(3).set_capture_clock(by)
    talk.ping().finish()
    shown = [segment.timestamp_ns for segment in talk.tape.segments]

    dissector, seen = Dissector(), []
    for event in dissect_segments(numbered(talk.tape.segments), dissector=dissector):
        if isinstance(event, PacketEvent):
            seen.append(event.timestamp_ns)
            assert captured(event.timestamp_ns) == shown[event.frame - 1]
    apart = [later - earlier for earlier, later in pairwise(seen)]
    assert min(apart) >= 0
    assert max(apart) < 6 * SECOND
    assert isinstance(seen[-1], CaptureTime)
    # The caller's object is unchanged.
    assert [segment.timestamp_ns for segment in talk.tape.segments] == shown
    assert abs(dissector.clock.shift_ns - by * SECOND) < SECOND // 10


@pytest.mark.parametrize("rate", [100, 250, 1000, 7, 50, 600, 100_000])
def test_a_step_soon_after_the_beginning_is_one_step(rate: int) -> None:
    """How long the interval was is an estimate; no silence after it is a step because of that."""
    begin = f"new rate={rate}; open; whole; +24; set_capture_clock 3600"
    (step,) = steps_of(tape_of(f"{begin}; ping; +5; ping; +30; ping; +7; ping; +60; ping").segments)

    assert step.by_ns // SECOND == HOUR or rate not in (100, 250, 1000)


@pytest.mark.parametrize(
    ("ticks", "span_ns", "doubt", "passed_ns"),
    [
        (10, SECOND, clock_watch._MEASURED, 10 * SECOND),
        (9, SECOND, clock_watch._GUESSED, 10 * SECOND),
        (100, SECOND - 1, clock_watch._GUESSED, SECOND),
        (3, SECOND // 100, clock_watch._GUESSED, SECOND * 100 // 250),
        (3, SECOND // 100 - 1, clock_watch._ASSUMED, SECOND // 10),
    ],
)
def test_how_a_rate_is_known(ticks: int, span_ns: int, doubt: int, passed_ns: int) -> None:
    assert clock_watch._elapsed(50, 0, 50 + ticks, span_ns, 100) == (doubt, passed_ns)


def test_an_estimate_says_nothing_about_a_capture_beside_it() -> None:
    """Another capture of the same time has a clock of its own, and a step of its own."""
    first = Conversation(rate=600).open().whole().wait(60).set_capture_clock(HOUR)
    for _ in range(3):
        first.ping().wait(1.5)
    steps = first.ping().tape.segments
    beside = Conversation(client="192.0.2.9").quiet(3).wait(3).set_capture_clock(HOUR)
    others = [replace(segment, capture="b.pcap") for segment in beside.ping().tape.segments]
    clock_steps = steps_of([*steps, *others])

    assert [step.capture for step in clock_steps] == ["a.pcap", "b.pcap"]


def test_several_steps() -> None:
    talk = Conversation().quiet(3)
    for seconds in (HOUR, -2 * HOUR, 100, 50 * 365 * 86_400):
        talk.set_capture_clock(seconds).ping().wait(5)
    steps = steps_of(talk.tape.segments)

    assert [round(step.by_ns / SECOND) for step in steps] == [HOUR, -2 * HOUR, 100, 50 * 365 * 86_400]


def test_a_step_at_the_edge_of_two_files_stays_in_effect() -> None:
    talk = Conversation().quiet(3)
    before = len(talk.tape.segments)
    talk.set_capture_clock(HOUR).ping().wait(3)
    talk.ping()
    segments = numbered(talk.tape.segments)
    files = [replace(segment, capture="a.pcap" if at < before else "b.pcap") for at, segment in enumerate(segments)]
    (step,) = steps_of(files)

    assert (step.capture, step.frame, round(step.by_ns / SECOND)) == ("b.pcap", before + 1, HOUR)


def test_a_capture_that_was_recorded_beside_a_set_one_has_its_own_clock() -> None:
    talk = Conversation().quiet(3).set_capture_clock(HOUR).ping()
    beside = Conversation(Tape("b.pcap"), client="192.0.2.9").quiet()
    events = list(dissect_segments([*numbered(talk.tape.segments), *numbered(beside.tape.segments)]))
    times = [event.timestamp_ns for event in events if isinstance(event, PacketEvent) and event.capture == "b.pcap"]

    assert times
    assert not any(isinstance(time, CaptureTime) for time in times)


def test_a_reboot_and_a_step_at_one_time() -> None:
    """The step is proved by another connection; the clock of the device has started again, so its connection is new."""
    first = Conversation().quiet()
    other = Conversation(first.tape, client="192.0.2.9", clocks=(500, 600_000)).quiet(2)
    other.set_capture_clock(HOUR)
    server = (first.stacks[SERVER].clock or 0) - HOUR * 1000
    other.ping()
    again = Conversation(first.tape, clocks=(3_000_000_000, server)).join().whole().finish()
    other.finish()
    events = list(dissect_segments(numbered(first.tape.segments)))

    assert [round(event.by_ns / SECOND) for event in events if isinstance(event, ClockStep)] == [HOUR]
    assert sum(isinstance(event, ConnectionOpened) for event in events) == 3
    packets = [event.connection.number for event in events if isinstance(event, PacketEvent)]
    assert packets.count(2) == again.packets.total()
    closed = [event for event in events if isinstance(event, ConnectionClosed)]
    assert (
        max(connection_closed.timestamp_ns - connection_closed.connection.opened_ns for connection_closed in closed)
        < 60 * SECOND
    )


@pytest.mark.parametrize(("count", "expected"), [(ENOUGH_AHEAD - 2, 1), (ENOUGH_AHEAD, 0)])
def test_what_contradicts_has_to_come_soon(count: int, expected: int) -> None:
    """After this many segments of a new connection, the watch decides."""
    talk = Conversation().quiet(3)
    other = Conversation(talk.tape, client="192.0.2.9", clocks=NO_CLOCKS)
    talk.set_capture_clock(HOUR)
    for _ in range(count):
        other.put(CLIENT, SYN)
    talk.ping()

    assert len(steps_of(talk.tape.segments)) == expected


def test_the_clock_of_the_machine_is_a_proof() -> None:
    """A message of a connection without clocks, an hour later: only the clock of the machine shows the step."""
    talk = Conversation(clocks=NO_CLOCKS).quiet()
    talk.wait(HOUR).say(CLIENT, Publish(topic_name="a/1", payload=b"1"))
    dissector = Dissector()
    dissector.clock.machine = lambda: HOUR * SECOND

    events = list(dissect_segments(numbered(talk.tape.segments), dissector=dissector))
    assert [round(event.by_ns / SECOND) for event in events if isinstance(event, ClockStep)] == [HOUR]
    assert steps_of(talk.tape.segments) == []


def test_nothing_waits_while_an_interface_is_silent() -> None:
    """Segments read ahead are decided without further ones, and the rest goes on as before."""
    talk = Conversation().quiet(3).set_capture_clock(HOUR)
    before = len(talk.tape.segments)
    talk.ping().wait(3)
    talk.ping()
    segments = numbered(talk.tape.segments)
    dissector, events = Dissector(), list[Event]()

    def source() -> Iterator[Segment]:
        for at, segment in enumerate(segments):
            if at == before + 2:
                for item in dissector.clock.release():
                    events.extend(dissector.take(item))
            yield segment

    events.extend(dissect_segments(source(), dissector=dissector))
    frames = [event.frame for event in events if isinstance(event, PacketEvent)]
    assert frames == sorted(frames)
    assert len(frames) == talk.packets.total()
    assert sum(isinstance(event, ClockStep) for event in events) == 1


def test_the_clock_of_captures_that_are_read_apart() -> None:
    talk = Conversation().quiet(3)
    before = len(talk.tape.segments)
    talk.set_capture_clock(HOUR).ping().wait(2)
    talk.set_capture_clock(-2 * HOUR).ping()
    clock = clock_of(numbered(talk.tape.segments), ["a.pcap"])

    assert [(change.file, change.frame) for change in clock.changes] == [(0, before + 1), (0, before + 3)]
    assert [clock.changes_before(0, frame) for frame in (1, before, before + 1, before + 3)] == [0, 0, 1, 2]
    assert [clock.is_set_back(count, 0) for count in (0, 1, 2)] == [False, False, True]
    assert not clock.is_set_back(2, 1)
    assert clock_of(Conversation().quiet(3).tape.segments, ["a.pcap"]) == CaptureClock()


@pytest.mark.parametrize("seconds", [HOUR, 0.5])
def test_a_side_that_has_sent_its_fin_answers_too(seconds: float) -> None:
    """The acknowledgment of a half-closed side has the number behind its FIN."""
    tape = tape_of(f"new clocks=none; quiet; fin client; ack server; < publish a/1 1; +{seconds}; ack client")

    assert len(steps_of(tape.segments)) == (seconds == HOUR)


def test_a_segment_that_no_one_sent_before_has_no_influence() -> None:
    """A stray with a stamp of its own does not disprove what the connection shows."""
    talk = Conversation().quiet(3).set_capture_clock(HOUR)
    talk.put(CLIENT, PSH | ACK, b"stray", sequence=3_000_000_000, stamp=1)

    assert len(steps_of(talk.ping().tape.segments)) == 1


def test_what_comes_beside_the_source_comes_after_what_was_read_ahead() -> None:
    clock = ClockWatch(FlowTable())
    clock.resume(5_000, None)
    first, second = (Segment(b"key", 1, 1, ACK, 1, b"", 0, frame, frame * 10_000, "a.pcapng") for frame in (1, 2))
    clock._ahead.append(first)
    notice = CaptureError("a.pcapng", "is cut off")

    passed = [*clock.interleave(second), *clock.interleave(notice)]

    assert passed[2] is notice
    assert [(each.frame, each.timestamp_ns, captured(each.timestamp_ns)) for each in passed[:2]] == [
        (1, 5_000, 10_000),
        (2, 15_000, 20_000),
    ]
