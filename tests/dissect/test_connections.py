"""Which connection segments belong to: each row of the table of evidence in docs/connections.md has a case here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import pytest

from mqttscope.dissect import Dissector, dissect_segments
from mqttscope.events import ConnectionClosed, ConnectionOpened, DiscardedEvent, GapEvent, PacketEvent
from mqttscope.mqtt import Disconnect, Publish, Subscribe, Subscription
from mqttscope.net.segment import ACK, FIN, PSH, RST, SYN
from tests.conftest import ROOT
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered, packets_of
from tests.dissect.talk import CONNACK, PINGREQ, PINGRESP, connect, wire

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
    """What is shown of the segments of a case."""

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


# A handshake.


@case
def syn_of_another_number() -> list[Conversation]:
    first = Conversation().open().whole().finish().wait(1)
    return [first, Conversation(first.tape, (2000, 5000)).open().whole("a/2").finish()]


@case
def syn_ack_for_another_syn() -> list[Conversation]:
    first = Conversation().open().whole().wait(1)
    again = Conversation(first.tape, (2000, 5000))
    again.stacks[CLIENT].next += 1
    again.syn_ack()
    return [first, again.ack(CLIENT).whole("a/2").finish()]


@case
def syn_answered() -> list[Conversation]:
    first = Conversation().open().whole().wait(1)
    return [first, Conversation(first.tape, (3_000_000_000, 7000)).open().whole("a/2").finish()]


@case
def syn_challenged() -> list[Conversation]:
    first = Conversation().open().whole().wait(1)
    Conversation(first.tape, (3_000_000_000, 5000)).syn()
    return [first.ack(SERVER).live("a/2").finish()]


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
def syn_again_other_clock() -> list[Conversation]:
    first = Conversation().open().whole().wait(2)
    return [first, Conversation(first.tape, clocks=(90_000, 7_000_000)).open().whole("a/1").finish()]


@case
def refused_and_tried_again() -> list[Conversation]:
    first = Conversation()
    first.syn()
    first.reset(SERVER)
    second = Conversation(first.tape).wait(0.5)
    return [first, second.open().whole().finish()]


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


# Sent again with a later clock.


@case
def connect_again_ack_lost() -> list[Conversation]:
    talk = Conversation().open()
    sent = talk.begin()
    talk.wait(0.2).repeat(sent)
    talk.say(SERVER, CONNACK)
    return [talk.live().finish()]


@case
def connack_again_ack_lost() -> list[Conversation]:
    talk = Conversation().open()
    talk.begin()
    (connack,) = talk.say(SERVER, CONNACK)
    talk.ack(CLIENT).wait(0.2).repeat(connack)
    return [talk.ack(CLIENT).live().finish()]


@case
def connect_and_connack_again() -> list[Conversation]:
    talk = Conversation().open()
    sent = talk.begin()
    (connack,) = talk.say(SERVER, CONNACK)
    talk.wait(0.2).repeat(sent, acknowledges=5001)
    talk.ack(SERVER).wait(0.02).repeat(connack)
    return [talk.live().finish()]


@case
def connack_again_subscribe_lost() -> list[Conversation]:
    talk = Conversation().open()
    talk.begin()
    (connack,) = talk.say(SERVER, CONNACK)
    (subscribe,) = talk.say(CLIENT, SUBSCRIBE)
    talk.wait(0.2).repeat(connack, acknowledges=subscribe.sequence)
    talk.repeat(subscribe)
    return [talk.ack(SERVER).live().finish()]


@case
def connect_again_after_subscribe() -> list[Conversation]:
    talk = Conversation().open()
    sent = talk.begin()
    talk.say(CLIENT, SUBSCRIBE, acknowledges=5001)
    talk.ack(SERVER).wait(0.2).repeat(sent, acknowledges=5001)
    talk.say(SERVER, CONNACK)
    return [talk.live().finish()]


@case
def connect_in_two_segments_again() -> list[Conversation]:
    talk = Conversation().open()
    sent = talk.say(CLIENT, connect(client_identifier="x" * 2000))
    talk.ack(SERVER).wait(0.2)
    for segment in sent:
        talk.repeat(segment)
    talk.say(SERVER, CONNACK)
    return [talk.live().finish()]


def back_off(clocks: tuple[int | None, int | None], first: float, times: int) -> list[Conversation]:
    talk = Conversation(clocks=clocks).open()
    sent = talk.begin()
    for number in range(times):
        talk.wait(first * 2**number).repeat(sent)
        talk.ack(SERVER)
    talk.say(SERVER, CONNACK)
    return [talk.live().finish()]


@case
def connect_again_backoff() -> list[Conversation]:
    return back_off((100_000, 7_000_000), 0.2, 7)


@case
def connect_again_two_minutes_later() -> list[Conversation]:
    return back_off((100_000, 7_000_000), 120.04, 1)


@case
def connect_again_equal_clock() -> list[Conversation]:
    talk = Conversation().open()
    sent = talk.begin()
    talk.wait(0.2).repeat(sent, stamp=100_004)
    talk.say(SERVER, CONNACK)
    return [talk.live().finish()]


@case
def connect_again_old_acknowledgment() -> list[Conversation]:
    talk = Conversation().open()
    sent = talk.begin()
    talk.say(SERVER, CONNACK)
    talk.live().wait(0.1).repeat(sent, acknowledges=5001)
    return [talk.ack(SERVER).live("a/2").finish()]


@case
def connect_again_clock_wraps() -> list[Conversation]:
    return back_off((2**32 - 100, 2**32 - 150), 0.2, 1)


@case
def connect_again_after_fins() -> list[Conversation]:
    talk = Conversation().open()
    sent = talk.begin()
    talk.say(SERVER, CONNACK)
    talk.wait(5).put(CLIENT, ACK, acknowledges=5001)
    talk.stacks[SERVER].next -= 4
    talk.fin(CLIENT)
    talk.stacks[SERVER].next += 4
    talk.fin(SERVER)
    for _ in range(2):
        talk.wait(0.4).repeat(sent, acknowledges=5001)
        talk.ack(SERVER)
    return [talk]


@case
def connect_again_after_reset() -> list[Conversation]:
    talk = Conversation().open()
    sent = talk.begin()
    talk.say(SERVER, CONNACK)
    talk.reset(SERVER)
    for _ in range(2):
        talk.wait(0.4).repeat(sent, acknowledges=5001)
        talk.reset(SERVER)
    return [talk]


@case
def connect_after_close_acknowledges_less() -> list[Conversation]:
    first = Conversation().open().whole().finish().wait(2)
    return [first, Conversation(first.tape).join().whole().finish()]


# The clock.


@case
def reboot_clock_restarts() -> list[Conversation]:
    first = Conversation().open().whole().wait(2)
    return [first, Conversation(first.tape, clocks=(3_000_000_000, 7_000_000)).join().whole().finish()]


@case
def reboot_clock_ahead() -> list[Conversation]:
    first = Conversation().open().whole().wait(2)
    return [first, Conversation(first.tape, clocks=(1_200_000_000, 7_000_000)).join().whole().finish()]


@case
def capture_clock_set_back() -> list[Conversation]:
    talk = Conversation().open().wait(2)
    sent = talk.begin()
    talk.say(SERVER, CONNACK)
    talk.ack(CLIENT).wait(2).live().set_capture_clock(-50).wait(60)
    talk.repeat(sent)
    return [talk.live("a/2").finish()]


def rebooted_at_step(seconds: float) -> list[Conversation]:
    first = Conversation().open().whole().wait(2).live().set_capture_clock(seconds)
    server = first.stacks[SERVER].clock
    return [first, Conversation(first.tape, clocks=(3_000_000_000, server)).join().whole().finish()]


@case
def reboot_and_capture_clock_set_back() -> list[Conversation]:
    return rebooted_at_step(-3600)


@case
def capture_clock_set_forward() -> list[Conversation]:
    talk = Conversation().open().wait(2)
    sent = talk.begin()
    talk.say(SERVER, CONNACK)
    talk.ack(CLIENT).wait(2).live().set_capture_clock(3600).wait(0.2)
    talk.repeat(sent)
    return [talk.live("a/2").finish()]


@case
def option_stripped() -> list[Conversation]:
    talk = Conversation().open()
    sent = talk.begin()
    talk.wait(0.2).repeat(sent)
    talk.tape.segments[-1].options = b""
    talk.say(SERVER, CONNACK)
    return [talk.live().finish()]


# Numbers and bytes.


@case
def no_handshake_other_server_number() -> list[Conversation]:
    first = Conversation(clocks=NO_CLOCK).open().whole().wait(2)
    return [first, Conversation(first.tape, (1000, 3_141_592_653), NO_CLOCK).join().whole().finish()]


@case
def no_clock_connect_again_late() -> list[Conversation]:
    talk = Conversation(clocks=NO_CLOCK).open().wait(15)
    sent = talk.begin()
    talk.wait(1.5).repeat(sent)
    talk.say(SERVER, CONNACK)
    return [talk.live().finish()]


@case
def no_clock_connect_again_backoff() -> list[Conversation]:
    return back_off(NO_CLOCK, 1.5, 5)


@case
def no_clock_connack_again_slow_login() -> list[Conversation]:
    talk = Conversation(clocks=NO_CLOCK).open()
    talk.begin()
    talk.wait(12)
    (connack,) = talk.say(SERVER, CONNACK)
    talk.ack(CLIENT).wait(1).repeat(connack)
    return [talk.ack(CLIENT).live().finish()]


@case
def no_clock_other_bytes() -> list[Conversation]:
    first = Conversation(clocks=NO_CLOCK).open().whole("a/1").wait(60)
    return [first, Conversation(first.tape, clocks=NO_CLOCK).join().whole("a/2").finish()]


@case
def no_clock_other_beginning() -> list[Conversation]:
    first = Conversation(clocks=NO_CLOCK).open().whole("a/1").wait(60)
    again = Conversation(first.tape, clocks=NO_CLOCK).join()
    again.begin(connect(client_identifier="device"))
    again.say(SERVER, CONNACK)
    return [first, again.live("a/2").finish()]


def changed_connect(clocks: tuple[int | None, int | None]) -> list[Conversation]:
    talk = Conversation(clocks=clocks).open()
    sent = talk.begin()
    talk.wait(1)
    sent.payload = sent.payload[:-1] + b"w"
    talk.repeat(sent)
    talk.say(SERVER, CONNACK)
    return [talk.live().finish()]


@case
def no_clock_damaged_beginning() -> list[Conversation]:
    return changed_connect(NO_CLOCK)


@case
def other_bytes_inside() -> list[Conversation]:
    talk = Conversation(clocks=NO_CLOCK).open()
    talk.begin()
    talk.say(SERVER, CONNACK)
    (sent,) = talk.say(CLIENT, Publish(topic_name="a/1", payload=b"21.5"))
    sent.payload = sent.payload[:-1] + b"6"
    talk.ack(SERVER).wait(0.2).repeat(sent)
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


def far(talk: Conversation, segments: int) -> Conversation:
    stranger = Conversation(talk.tape, (1_500_000_000, 2_500_000_000), NO_CLOCK)
    stranger.say(CLIENT, PINGREQ)
    if segments > 1:
        stranger.say(SERVER, PINGRESP)
    return stranger


@case
def numbers_of_nothing() -> list[Conversation]:
    talk = Conversation(clocks=NO_CLOCK).open().whole().wait(1)
    far(talk, 1)
    return [talk.live("a/2").finish()]


@case
def numbers_that_continue() -> list[Conversation]:
    talk = Conversation(clocks=NO_CLOCK).open().whole().wait(1)
    return [talk, far(talk, 2)]


@case
def reset_ignored() -> list[Conversation]:
    talk = Conversation().open().whole()
    talk.reset(SERVER)
    resumed = Conversation(talk.tape)
    resumed.stacks = talk.stacks
    resumed.say(CLIENT, PINGREQ)
    resumed.say(SERVER, PINGRESP)
    return [talk, resumed.ack(CLIENT)]


# Captured twice.


def seen_again(talk: Conversation) -> list[Conversation]:
    """A conversation whose segments were all captured a second time, 5 s later."""
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
    assert [name for name, _ in evidence()] == list(CASES)


@pytest.mark.parametrize("name", ["no-clock-damaged-beginning", "other-bytes-inside"])
def test_other_bytes_of_the_same_connection_are_an_overlap(name: str) -> None:
    assert show(CASES[name]()).overlaps == 1


def test_numbers_of_nothing_are_reported() -> None:
    assert show(CASES["numbers-of-nothing"]()).discarded == ["out_of_window"]


def test_a_segment_with_a_later_clock_was_sent_again() -> None:
    assert (show(CASES["sent-again-at-once"]()).repeated, show(CASES["sent-again-at-once"]()).copied) == (1, 0)
    assert (show(CASES["captured-twice"]()).repeated, show(CASES["captured-twice"]()).copied) == (0, 1)


@pytest.mark.parametrize("seconds", [-86_400, -3600, -50, 0, 50, 3600, 86_400])
def test_a_reboot_is_known_whatever_the_clock_of_the_capture_does(seconds: float) -> None:
    conversations = rebooted_at_step(seconds)

    assert show(conversations).packets == [talk.packets for talk in conversations]


@pytest.mark.parametrize("seconds", [-86_400, -3600, -50, 0, 50, 3600, 7000])
def test_a_step_of_the_capture_s_clock_ends_no_connection(seconds: float) -> None:
    talk = Conversation().open()
    sent = talk.begin()
    talk.say(SERVER, CONNACK)
    talk.ack(CLIENT).wait(2).live().set_capture_clock(seconds).wait(0.2)
    talk.repeat(sent)
    talk.live("a/2").finish()

    assert show([talk]).packets == [talk.packets]


def test_a_changed_connect_of_the_same_clock_begins_no_connection() -> None:
    talk = changed_connect((100_000, 7_000_000))

    assert show(talk).packets == [talk[0].packets]
    assert show(talk).overlaps == 1


@pytest.mark.parametrize("seconds", [11, 60, 7000])
def test_the_same_bytes_with_old_acknowledgments_are_another_connection(seconds: float) -> None:
    """No handshake, no clock, no other byte: but whoever repeats all that was said has forgotten it."""
    first = Conversation(clocks=NO_CLOCK).open().whole().wait(seconds)
    again = Conversation(first.tape, clocks=NO_CLOCK).join().whole()
    again.say(CLIENT, Disconnect())

    assert show([first, again]).packets == [first.packets, again.packets]
