"""Which connection segments belong to: each row of the table of evidence in docs/connections.md has a case here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pytest

from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.events import ConnectionClosed, ConnectionOpened, DiscardedEvent, GapEvent, PacketEvent
from mqttscope.mqtt import Disconnect, Publish, Subscribe, Subscription
from mqttscope.net.segment import ACK, FIN, PSH, RST, SYN
from tests.conftest import ROOT
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered, packets_of, played
from tests.dissect.talk import CONNACK, connect, wire
from tests.tables import titled

SAME, NEW, COPY, STRAY = "same", "new", "copy", "stray"
NO_CLOCK: Final = (None, None)
SUBSCRIBE: Final = Subscribe(1, subscriptions=[Subscription("cmd/#", 0)])
EARLY: Final = wire(connect())
RATE: Final = 1000
"""Ticks of a clock in a second."""

Case = Callable[[], list[Conversation]]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Register a case under its name in the table."""
    CASES[function.__name__.replace("_", "-")] = function
    return function


@dataclass
class Shown:
    """Events for the segments of a case."""

    packets: list[Counter[str]] = field(default_factory=list)
    copied: int = 0
    repeated: int = 0
    overlaps: int = 0
    discarded: list[str] = field(default_factory=list)
    gaps: int = 0


def show(conversations: list[Conversation]) -> Shown:
    shown = Shown()
    dissector = Dissector()
    for event in dissect_segments(numbered(conversations[0].tape.segments), dissector=dissector):
        if isinstance(event, ConnectionOpened):
            shown.packets.append(Counter())
        elif isinstance(event, PacketEvent):
            shown.packets[event.connection.number][type(event.packet).__name__.lower()] += 1
        elif isinstance(event, ConnectionClosed):
            shown.copied += event.connection.copied_segments
            sides = event.connection.details["tcp"]
            assert isinstance(sides, dict)
            shown.repeated += sum(side["retransmitted_segments"] for side in sides.values())
        elif isinstance(event, DiscardedEvent):
            shown.discarded.append(event.reason)
        elif isinstance(event, GapEvent):
            shown.gaps += 1
    shown.overlaps = dissector.overlaps
    return shown


def evidence() -> list[tuple[str, str]]:
    """Names and verdicts of the table of evidence."""
    text = (ROOT / "docs" / "connections.md").read_text(encoding="utf-8").partition("\n## Clocks\n")[0]
    return re.findall(r"^\| `([a-z0-9-]+)` \| .+ \| (\w+) \|$", text, re.MULTILINE)


STORIES = """
# A handshake.
syn-of-another-number
    open; whole; finish; +1; new 2000 5000; open; whole a/2; finish
syn-ack-for-another-syn
    open; whole; +1; new 2000 5000; skip client; syn_ack; ack client; whole a/2; finish
syn-answered
    open; whole; +1; new 3000000000 7000; open; whole a/2; finish
syn-challenged
    open; whole; +1; stranger 3000000000 5000; syn; at 0; ack server; live a/2; finish
syn-again-other-clock
    open; whole; +2; new clocks=90000,7000000; open; whole a/1; finish
refused-and-tried-again
    syn; reset server; new; +0.5; open; whole; finish
# Sent again with a later clock.
connect-again-ack-lost
    open; begin; +0.2; again connect; < connack; live; finish
connack-again-ack-lost
    open; begin; < connack; ack client; +0.2; again connack; ack client; live; finish
connect-and-connack-again
    open; begin; < connack; +0.2; again connect acknowledges=5001; ack server; +0.02; again connack; live; finish
connack-again-subscribe-lost
    open; begin; < connack; > subscribe 1 cmd/#; +0.2; again connack acknowledges=1018; again subscribe; ack server;
    live; finish
connect-again-after-subscribe
    open; begin; > subscribe 1 cmd/# acknowledges=5001; ack server; +0.2; again connect acknowledges=5001; < connack;
    live; finish
connect-in-two-segments-again
    open; > connect client="x"*2000; ack server; +0.2; again connect; < connack; live; finish
connect-again-backoff
    open; begin; back_off 0.2 7; < connack; live; finish
connect-again-two-minutes-later
    open; begin; back_off 120.04 1; < connack; live; finish
connect-again-equal-clock
    open; begin; +0.2; again connect stamp=100004; < connack; live; finish
connect-again-old-acknowledgment
    open; begin; < connack; live; +0.1; again connect acknowledges=5001; ack server; live a/2; finish
connect-again-clock-wraps
    new clocks=4294967196,4294967146; open; begin; back_off 0.2 1; < connack; live; finish
connect-again-after-fins
    open; begin; < connack; +5; ack client acknowledges=5001; fin client acknowledges=5001; fin server;
    +0.4; again connect acknowledges=5001; ack server; +0.4; again connect acknowledges=5001; ack server
connect-again-after-reset
    open; begin; < connack; reset server;
    +0.4; again connect acknowledges=5001; reset server; +0.4; again connect acknowledges=5001; reset server
connect-after-close-acknowledges-less
    open; whole; finish; +2; new; join; whole; finish
# The clock.
reboot-clock-restarts
    open; whole; +2; new clocks=3000000000,7000000; join; whole; finish
reboot-clock-ahead
    open; whole; +2; new clocks=1200000000,7000000; join; whole; finish
capture-clock-set-back
    open; +2; begin; < connack; ack client; +2; live; set_capture_clock -50; +60; again connect; live a/2; finish
reboot-and-capture-clock-set-back
    open; whole; +2; live; set_capture_clock -3600; new clocks=3000000000,10600000; join; whole; finish
capture-clock-set-forward
    open; +2; begin; < connack; ack client; +2; live; set_capture_clock 3600; +0.2; again connect; live a/2; finish
# Numbers and bytes.
no-handshake-other-server-number
    new clocks=none; open; whole; +2; new 1000 3141592653 clocks=none; join; whole; finish
no-clock-connect-again-late
    new clocks=none; open; +15; begin; +1.5; again connect; < connack; live; finish
no-clock-connect-again-backoff
    new clocks=none; open; begin; back_off 1.5 5; < connack; live; finish
no-clock-connack-again-slow-login
    new clocks=none; open; begin; +12; < connack; ack client; +1; again connack; ack client; live; finish
no-clock-other-bytes
    new clocks=none; open; whole a/1; +60; new clocks=none; join; whole a/2; finish
no-clock-other-beginning
    new clocks=none; open; whole a/1; +60; new clocks=none; join; > connect client=device; ack server;
    < connack; live a/2; finish
no-clock-damaged-beginning
    new clocks=none; open; begin; +1; again connect last=w; < connack; live; finish
other-bytes-inside
    new clocks=none; open; begin; < connack; > publish a/1 21.5; ack server; +0.2; again publish last=6; live; finish
numbers-of-nothing
    new clocks=none; open; whole; +1; stranger 1500000000 2500000000 clocks=none; > pingreq; at 0; live a/2; finish
numbers-that-continue
    new clocks=none; open; whole; +1; new 1500000000 2500000000 clocks=none; > pingreq; < pingresp
reset-ignored
    open; whole; reset server; resume; > pingreq; < pingresp; ack client
"""
CASES.update({name: partial(played, " ".join(lines)) for name, lines in titled(STORIES)})


@case
def syn_again_around_early_data() -> list[Conversation]:
    talk = Conversation()
    talk.syn(EARLY)
    talk.stacks[SERVER].next += 1
    (connack,) = talk.say(SERVER, CONNACK)
    talk.wait(1)
    for _ in range(2):
        talk.put(CLIENT, SYN, sequence=1000)
        talk.put(SERVER, SYN | ACK, sequence=5000)
        talk.put(CLIENT, ACK, acknowledges=5001)
    talk.wait(0.5).repeat(connack)
    return [talk.ack(CLIENT).live().finish()]


@case
def old_fin_before_the_answer() -> list[Conversation]:
    first = Conversation().open().whole()
    first.say(CLIENT, Disconnect())
    first.fin(CLIENT)
    first.fin(SERVER)
    second = Conversation(first.wait(0.2).tape, (70_000, 900_000))
    second.syn()
    first.ack(SERVER)
    first.put(SERVER, FIN | ACK, sequence=first.stacks[SERVER].next - 1)
    first.put(CLIENT, RST, sequence=first.stacks[CLIENT].next)
    second.wait(0.05).put(CLIENT, SYN, sequence=70_000)
    second.syn_ack()
    return [first, second.ack(CLIENT).whole("a/2").finish()]


@case
def option_stripped() -> list[Conversation]:
    talk = Conversation().open()
    sent = talk.begin()
    talk.wait(0.2).repeat(sent)
    talk.tape.segments[-1].options = b""
    talk.say(SERVER, CONNACK)
    return [talk.live().finish()]


def samples(clocks: tuple[int | None, int | None]) -> list[Conversation]:
    talk = Conversation(clocks=clocks).open()
    talk.begin()
    talk.say(SERVER, CONNACK)
    talk.ack(CLIENT).wait(11)
    head = len(wire(Publish(topic_name="wave/1", payload=bytes(4000)))) - 4000
    payload = bytes(-head % 4) + (20_000).to_bytes(4, "little") * 1000
    sent = talk.say(CLIENT, Publish(topic_name="wave/1", payload=payload))
    assert sent[1].payload.startswith(b"\x20\x4e\0\0")
    talk.ack(SERVER).wait(0.2).repeat(sent[1])
    return [talk.ack(SERVER).live().finish()]


@case
def samples_like_a_connack() -> list[Conversation]:
    return samples((100_000, 7_000_000))


@case
def samples_like_a_connack_no_clock() -> list[Conversation]:
    return samples(NO_CLOCK)


@case
def log_lines_like_a_request() -> list[Conversation]:
    talk = Conversation(clocks=NO_CLOCK).open()
    talk.begin()
    talk.say(SERVER, CONNACK)
    head = len(wire(Publish(topic_name="log/1", payload=bytes(3000)))) - 3000
    data = wire(Publish(topic_name="log/1", payload=b"-" * (1000 - head) + b"GET /index 200 1234\n" * 150))
    begin = talk.stacks[CLIENT].next
    talk.packets += packets_of(data)
    for at in (0, 2000, 1000, 3000):
        talk.put(CLIENT, PSH | ACK, data[at : at + 1000], sequence=begin + at)
    talk.stacks[CLIENT].next += len(data)
    return [talk.ack(SERVER).live().finish()]


def seen_again(talk: Conversation) -> list[Conversation]:
    """A conversation with all segments captured a second time, 5 s later."""
    talk.tape.segments += [
        replace(segment, timestamp_ns=segment.timestamp_ns + 5_000_000_000) for segment in talk.tape.segments
    ]
    return [talk]


@case
def captured_by_two_taps() -> list[Conversation]:
    return seen_again(Conversation().open().whole().finish())


@case
def no_clock_captured_by_two_taps() -> list[Conversation]:
    return seen_again(Conversation(clocks=NO_CLOCK).join().whole())


def once_more(ticks: int) -> list[Conversation]:
    talk = Conversation().open()
    talk.begin()
    talk.say(SERVER, CONNACK)
    (sent,) = talk.say(CLIENT, Publish(topic_name="a/1", payload=b"1"))
    stamp = 100_000 + (talk.tape.now_ns - Conversation().tape.now_ns) // 1_000_000
    talk.wait(-0.00098)
    talk.repeat(sent, stamp=stamp + ticks)
    return [talk.wait(0.001).live().finish()]


@case
def captured_twice() -> list[Conversation]:
    return once_more(0)


@case
def sent_again_at_once() -> list[Conversation]:
    return once_more(12)


CONNECTIONS: Final = {SAME: 1, COPY: 1, STRAY: 1, NEW: 2}


@pytest.mark.parametrize(("name", "verdict"), evidence())
def test_evidence(name: str, verdict: str) -> None:
    """Each conversation is one connection with its packets, and nothing is missing."""
    conversations = CASES[name]()
    shown = show(conversations)

    assert shown.packets == [talk.packets for talk in conversations]
    assert shown.gaps == 0
    assert len(conversations) == CONNECTIONS[verdict] + (name == "reset-ignored")
    assert bool(shown.copied) is (verdict == COPY and name != "captured-by-two-taps")


def test_the_table_has_all_cases() -> None:
    assert sorted(name for name, _ in evidence()) == sorted(CASES)


@pytest.mark.parametrize("name", ["no-clock-damaged-beginning", "other-bytes-inside"])
def test_other_bytes_of_the_same_connection_are_an_overlap(name: str) -> None:
    assert show(CASES[name]()).overlaps == 1


def test_numbers_of_nothing_are_reported() -> None:
    assert show(CASES["numbers-of-nothing"]()).discarded == ["out_of_window"]


def test_a_segment_with_a_later_clock_was_sent_again() -> None:
    assert (show(CASES["sent-again-at-once"]()).repeated, show(CASES["sent-again-at-once"]()).copied) == (1, 0)
    assert (show(CASES["captured-twice"]()).repeated, show(CASES["captured-twice"]()).copied) == (0, 1)


@pytest.mark.parametrize("seconds", [-86_400, -3600, -50, 0, 50, 3600, 86_400])
def test_a_reboot_is_known_whatever_the_clock_of_the_capture_does(seconds: int) -> None:
    clocks = f"clocks=3000000000,{7_000_000 - seconds * RATE}"
    conversations = played(f"open; whole; +2; live; set_capture_clock {seconds}; new {clocks}; join; whole; finish")

    assert show(conversations).packets == [talk.packets for talk in conversations]


@pytest.mark.parametrize("seconds", [-86_400, -3600, -50, 0, 50, 3600, 7000])
def test_a_step_of_the_capture_s_clock_ends_no_connection(seconds: float) -> None:
    (talk,) = played("open; begin; < connack; ack client; +2; live")
    talk.set_capture_clock(seconds).play("+0.2; again connect; live a/2; finish")

    assert show([talk]).packets == [talk.packets]


def test_a_changed_connect_of_the_same_clock_begins_no_connection() -> None:
    talk = played("open; begin; +1; again connect last=w; < connack; live; finish")

    assert show(talk).packets == [talk[0].packets]
    assert show(talk).overlaps == 1


@pytest.mark.parametrize("seconds", [11, 60, 7000])
def test_the_same_bytes_with_old_acknowledgments_are_another_connection(seconds: float) -> None:
    """No handshake, no clock, no other byte: but a side that repeats everything has forgotten it."""
    conversations = played(f"new clocks=none; open; whole; +{seconds}; new clocks=none; join; whole; > disconnect")

    assert show(conversations).packets == [talk.packets for talk in conversations]
