"""A device that comes back on the same port: ways to end x gaps x what of the handshake was captured x which numbers
recur.  No case loses anything silently, the linter accuses nobody, and nearly all are told apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from mqttscope.mqtt import ControlPacket, Disconnect, Puback, Publish
from mqttscope.net.segment import ACK, RST, SYN, Segment
from tests.dissect.lives import ENDS, Outcome, framed, outcome, said
from tests.dissect.talk import CONNACK, SECOND, START, Talk, Tape, connect, finish, wire

GAPS = (0.001, 0.05, 0.5, 1.0, 60.0, 600.0, 7_100.0, 7_300.0)
CAPTURED = ("all", "SYN", "SYN-ACK", "neither", "nothing of the handshake")
RECUR = ("neither", "client", "server", "both")
FIRST, SECOND_TOPICS = ["one", "one/again"], ["two", "three"]


def is_right(actual_outcome: Outcome) -> bool:
    """Both connections, each with its CONNECT and its messages in their order."""
    return (
        actual_outcome.topics == [FIRST, SECOND_TOPICS]
        and actual_outcome.connects == [1, 1]
        and not actual_outcome.strange
    )


def message(topic: str, identifier: int) -> ControlPacket:
    return Publish(topic_name=topic, payload=b"21.5", qos=1, packet_identifier=identifier)


def life(talk: Talk, topics: list[str], keep_alive: int = 0) -> None:
    opening = connect()
    opening.keep_alive = keep_alive
    talk.client(opening)
    talk.tell("< connack; ack client; > subscribe 1 down/#; < suback 1 0")
    for number, topic in enumerate(topics, 2):
        talk.client(message(topic, number))
        talk.server(Puback(number))
    talk.ack("client")


def shown(segments: list[Segment], captured: str) -> Iterator[Segment]:
    """The captured segments of a connection."""
    handshake, rest = segments[:3], segments[3:]
    wanted = {"all": (SYN, SYN | ACK, ACK), "SYN": (SYN, ACK), "SYN-ACK": (SYN | ACK, ACK), "neither": (ACK,)}
    yield from (segment for segment in handshake if segment.flags in wanted.get(captured, ()))
    yield from rest


def stamped(segments: list[Segment], client: int, server: int) -> list[Segment]:
    """The segments with time stamps of two clocks with a tick a millisecond; SYN and SYN-ACK have other options too."""
    new_segments = []
    for segment in segments:
        clock = client if segment.key[10:12] == b"\x07\x5b" else server
        ticks = (clock + (segment.timestamp_ns - START) // 1_000_000) % 2**32
        option = b"\x08\x0a" + ticks.to_bytes(4, "big") + bytes(4)
        options = b"\x02\x04\x05\xb4\x04\x02" + option if segment.flags & SYN else b"\x01\x01" + option
        new_segments.append(replace(segment, options=options))
    return new_segments


def scene(
    end: str, gap: float, captured: str, recur: str, first_captured: str = "all", *, clocks: bool = False
) -> list[Segment]:
    """Two lives of a device; with ``clocks`` both stacks send time stamps, and the reboot sets the client's again."""
    tape = Tape()
    talk = Talk(tape).tell("handshake")
    life(talk, FIRST)
    finish(talk, end, message("one/lost", 9))
    before = list(shown(tape.segments, first_captured))
    count = len(tape.segments)
    tape.wait(gap)
    again = Talk(tape)
    again.position = {
        "client": 1000 if recur in ("client", "both") else 2_718_281_828,
        "server": 5000 if recur in ("server", "both") else 3_141_592_653,
    }
    again.handshake()
    life(again, SECOND_TOPICS)
    again.tell("> disconnect; close client")
    after = list(shown(tape.segments[count:], captured))
    if clocks:
        before, after = stamped(before, 1_000_000, 77), stamped(after, 3_000_000_000, 77)
    return framed([*before, *after])


@cache
def result(case: tuple[str, float, str, str], first_captured: str = "all") -> Outcome:
    return outcome(scene(*case, first_captured))


CASES = list(product(ENDS, GAPS, CAPTURED, RECUR))


def name(case: tuple[object, ...]) -> str:
    return ", ".join(map(str, case))


@pytest.mark.parametrize("first_captured", ["all", "nothing of the handshake"])
@pytest.mark.long
def test_what_was_captured_of_a_handshake_tells_connections_apart(first_captured: str) -> None:
    seen = [case for case in CASES if case[2] in ("all", "SYN", "SYN-ACK")]
    wrong = [name(case) for case in seen if not is_right(result(case, first_captured))]

    assert len(wrong) <= len(seen) * 0.03, wrong


@pytest.mark.long
@pytest.mark.parametrize("first_captured", ["all", "nothing of the handshake"])
def test_nothing_is_lost_silently_whatever_was_captured(first_captured: str) -> None:
    silent = []
    for case in CASES:
        actual_outcome = result(case, first_captured)
        topics = [topic for row in actual_outcome.topics for topic in row]
        if topics != FIRST + SECOND_TOPICS and not actual_outcome.discarded and not actual_outcome.strange:
            silent.append((name(case), topics))

    assert silent == []


@pytest.mark.long
@pytest.mark.parametrize("first_captured", ["all", "nothing of the handshake"])
def test_the_linter_accuses_nobody_who_comes_back(first_captured: str) -> None:
    accused = [(name(case), outcome.errors) for case in CASES if (outcome := result(case, first_captured)).errors]

    assert accused == []


@pytest.mark.long
@pytest.mark.parametrize("first_captured", ["all", "nothing of the handshake"])
def test_nothing_is_mistaken_where_stacks_send_time_stamps(first_captured: str) -> None:
    wrong = [name(case) for case in CASES if not is_right(outcome(scene(*case, first_captured, clocks=True)))]

    assert wrong == []


def test_most_are_told_apart_even_without_a_handshake() -> None:
    unseen = [case for case in CASES if case[2] not in ("all", "SYN", "SYN-ACK")]
    wrong = [name(case) for case in unseen if not is_right(result(case))]

    assert len(wrong) <= len(unseen) * 0.1, wrong


def boot(
    tape: Tape, client_isn: int, server_isn: int, topic: str, *, fast_open: bool = False, handshake: bool = True
) -> None:
    """One life of a device that is cut off at its end."""
    talk = Talk(tape)
    talk.position = {"client": client_isn, "server": server_isn}
    count = len(tape.segments)
    if fast_open:
        talk._send("client", SYN, wire(connect()))
        talk._send("server", SYN | ACK)
        talk.ack("client")
    else:
        talk.tell("handshake; > connect")
    talk.server(CONNACK)
    talk.client(message(topic, 2))
    talk.server(Puback(2))
    if not handshake:
        del tape.segments[count : count + 3]


FAST, HEADLESS = {"fast_open": True}, {"handshake": False}
Boot = tuple[int, int, dict[str, bool]]


@pytest.mark.parametrize(
    ("first", "seconds", "second"),
    [
        pytest.param((1000, 5000, FAST), 60, (1000, 77_777_777, FAST), id="a CONNECT inside a SYN, and a power cut"),
        # The CONNECT is at an offset where the connection before had other bytes.
        pytest.param((1000, 5000, {}), 3600, (1001, 5000, HEADLESS), id="numbers inside of what was sent before"),
        pytest.param((1000, 5000, {}), 3600, (1002, 5000, HEADLESS), id="numbers inside of it, one further"),
        pytest.param((1000, 5000, {}), 3600, (1020, 5000, HEADLESS), id="numbers inside of it, much further"),
        # Both ends choose the same numbers at each boot.
        pytest.param((1000, 5000, {}), -3600, (1000, 5000, {}), id="a clock that is set back"),
        # Nothing comes before the first byte of a connection.
        *(
            pytest.param(
                (100_000, 200_000, options), 9, (100_000 - below, 200_000 + below, HEADLESS), id=f"{below} below"
            )
            for options in ({}, HEADLESS)
            for below in (1, 300, 60_000)
        ),
    ],
)
def test_a_device_that_boots_again_has_another_connection(first: Boot, seconds: float, second: Boot) -> None:
    tape = Tape()
    boot(tape, *first[:2], "one", **first[2])
    tape.wait(seconds)
    boot(tape, *second[:2], "two", **second[2])

    assert said(tape.segments) == ([["one"], ["two"]], [1, 1], [])


@pytest.mark.parametrize("start", [0, 1, 3, 5, 9])
def test_captures_that_overlap_say_everything_once(start: int) -> None:
    """Two taps of one connection, read one after the other: time goes back where the second one begins."""
    tape = Tape()
    talk = Talk(tape).handshake()
    tape.wait(3)
    life(talk, FIRST)
    tape.wait(3)
    talk.tell("> publish two 21.5 qos=1 id=7; close")
    again = [replace(segment, capture="b.pcap") for segment in tape.segments[start:]]

    assert said(tape.segments[:-5] + again) == ([[*FIRST, "two"]], [1], [])


@pytest.mark.parametrize("challenged", [True, False])
def test_a_stranger_s_syn_ends_no_connection(challenged: bool) -> None:
    """A port scan, or a forged SYN: the server acknowledges the live connection, and both sides continue."""
    tape = Tape()
    talk = Talk(tape).handshake()
    life(talk, FIRST)
    stranger = Talk(tape)
    stranger.position["client"] = 3_000_000_000
    stranger.client_opens()
    if challenged:
        talk.ack("server")
    tape.wait(2)
    talk.tell(
        "> publish two 21.5 qos=1 id=8; < puback 8; > publish three 21.5 qos=1 id=9; < puback 9; > disconnect; close"
    )

    assert said(tape.segments) == ([[*FIRST, *SECOND_TOPICS]], [1], [])


NUMBERS = {"same": 1000, "random": 3_000_000_000, "within the window": 6000, "below": 500}


def rebooted(captured: str, number: int, gap: float, *, first_server: int = 5000, flags: int = RST) -> list[Segment]:
    """A device loses power and comes back on the same port; its server still has the connection and says so.

    RFC 5961 section 4: the server answers the SYN with where the connection stands, the device resets that, and its
    next SYN a second later is taken.
    """
    tape = Tape()
    old = Talk(tape).handshake()
    life(old, FIRST, keep_alive=10)
    tape.wait(gap)
    new = Talk(tape)
    new.position = {"client": number, "server": first_server}
    new.client_opens()
    old.ack("server")
    tape.add(old.keys["client"], old.position["client"], old.position["server"] if flags & ACK else 0, flags, b"", 0)
    tape.wait(1)
    new.position["client"] = number
    new.handshake()
    life(new, SECOND_TOPICS)
    new.tell("> disconnect; close")
    unseen = {"all": (), "SYN": (SYN | ACK,), "SYN-ACK": (SYN,), "none": (SYN, SYN | ACK)}[captured]
    segments = [segment for at, segment in enumerate(tape.segments) if at < 3 or segment.flags not in unseen]
    return framed(segments)


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("captured", ["all", "SYN", "SYN-ACK", "none"])
@pytest.mark.parametrize("gap", [70, 3000, 7_300])
def test_a_rebooted_device_that_was_challenged_was_not_silent(gap: float, captured: str, number: int) -> None:
    """It has no power, so no Keep Alive binds it; later it resets a connection that it does not know."""
    actual_outcome = outcome(rebooted(captured, number, gap, first_server=70_000_000))

    assert is_right(actual_outcome)
    assert actual_outcome.errors == []


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
def test_a_stack_that_acknowledges_with_its_reset_is_rebooted_all_the_same(number: int) -> None:
    assert said(rebooted("all", number, 70, first_server=70_000_000, flags=RST | ACK)) == (
        [FIRST, SECOND_TOPICS],
        [1, 1],
        [],
    )


def test_a_client_that_resets_its_connection_itself_was_there() -> None:
    talk = Talk().handshake()
    life(talk, FIRST, keep_alive=10)
    talk.tell("+60; reset client")

    assert outcome(talk.tape.segments).errors == ["KAL201"]


@pytest.mark.parametrize("number", [6000, 500, 3_000_000_000])
@pytest.mark.parametrize("end", ["outage", "fin by the server", "fin by the client alone"])
@pytest.mark.parametrize("gap", [0.3, 5, 70])
def test_a_syn_ack_for_another_syn_begins_a_connection(gap: float, end: str, number: int) -> None:
    """Servers that choose the same number each time are distinguished by what they acknowledge."""
    tape = Tape()
    talk = Talk(tape).handshake()
    life(talk, FIRST)
    if end == "fin by the client alone":
        talk.fin("client")
    else:
        finish(talk, end, message("one/lost", 9))
    tape.wait(gap)
    before = len(tape.segments)
    talk.position = {"client": number, "server": 5000}
    talk.handshake()
    life(talk, SECOND_TOPICS)
    del tape.segments[before], tape.segments[before + 1]

    actual_outcome = outcome(framed(tape.segments))
    assert is_right(actual_outcome)
    assert actual_outcome.errors == []


@pytest.mark.parametrize("handshake", [True, False])
@pytest.mark.parametrize("gap", [0.05, 1, 5, 60])
def test_the_clock_tells_lives_apart_that_are_alike_in_all_else(gap: float, handshake: bool) -> None:
    """Power cuts without an end, the same numbers on both sides, the same bytes: only time stamps differ."""
    tape, segments = Tape(), []
    for number in range(4):
        count = len(tape.segments)
        boot(tape, 1000, 5000, "one", handshake=handshake)
        segments += stamped(tape.segments[count:], number * 1_234_567_891, 77)
        tape.wait(gap)

    assert said(segments) == ([["one"]] * 4, [1] * 4, [])


@pytest.mark.parametrize("gap", [0.001, 0.3, 3, 8])
def test_a_connection_that_is_captured_once_more_after_its_end_has_the_same_clock(gap: float) -> None:
    talk = Talk().handshake()
    life(talk, FIRST)
    talk.tell("> disconnect; close")
    once = stamped(talk.tape.segments, 1_000_000, 77)
    later = talk.tape.now_ns - START + int(gap * SECOND)
    twice = [*once, *(replace(segment, timestamp_ns=segment.timestamp_ns + later) for segment in once)]

    assert said(twice) == ([FIRST], [1], [])


def test_a_segment_with_a_later_time_stamp_is_no_copy() -> None:
    """The same numbers and bytes after an end, without a handshake: the clocks have continued."""
    tape = Tape()
    for _ in range(2):
        talk = Talk(tape)
        count = len(tape.segments)
        talk.handshake()
        life(talk, FIRST)
        talk.close()
        tape.wait(2)
    del tape.segments[count : count + 3]
    segments = stamped(tape.segments, 1_000_000, 77)

    assert said(segments) == ([FIRST, FIRST], [1, 1], [])


def test_what_follows_on_seeming_copies_is_spliced_to_nothing() -> None:
    """Three lives with the same numbers and no end; only the last one continues."""
    tape = Tape()
    for number in range(3):
        boot(tape, 1000, 5000, "one")
        talk = Talk(tape)
        talk.position = {"client": tape.segments[-1].acknowledgment, "server": tape.segments[-1].sequence + 4}
        if number == 2:
            tape.wait(20)
            talk.tell("> publish two 21.5 qos=1 id=3; > publish three 21.5 qos=1 id=4")
        talk.client(Disconnect())
        tape.wait(1)

    actual_outcome = outcome(framed(tape.segments))
    assert actual_outcome.topics == [["one"], ["two", "three"]]
    assert (actual_outcome.connects, actual_outcome.errors, actual_outcome.strange) == ([1, 0], [], [])
