"""Causes that TCP shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import segments
from mqttscope.explain import Cause, Certainty, Explanation
from mqttscope.lint.examples import client, closes, on, opened, server
from mqttscope.mqtt.packets import Disconnect, Pingreq, Pingresp, Publish
from mqttscope.net.frame import Frame
from mqttscope.net.segment import ACK, FIN, RST, SYN, Segment
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.dissect.talk import CONNACK, Talk, Tape, connect
from tests.each import each
from tests.explain.running import capture, ending, explain, explained, of_segments, only
from tests.lint.lint_help import steps_of

LATE = Publish(topic_name="late", payload=b"1")


def test_the_lost_link_stands_after_the_keep_alive_that_ran_out() -> None:
    explanation = explain(capture("link-lost-keep-alive"))[0]

    assert [each.cause for each in explanation.candidates] == [Cause.KEEP_ALIVE, Cause.HALF_OPEN]
    assert explanation.first.headline.endswith("the client was out of reach.")
    assert any("were sent again" in reason.text for reason in explanation.first.reasons)


def test_a_half_open_connection_names_the_return_and_the_late_reset() -> None:
    explanation = explain(capture("half-open"))[0]
    texts = [each.text for each in explanation.first.reasons]

    assert any("7 times again" in text for text in texts)
    assert "the broker answered at last with RST: it did not know the connection any more" in texts
    assert any("came back from another port as #1" in text for text in texts)


@pytest.mark.parametrize("damaged", [[], [15], [15, 17]])
def test_what_was_damaged_while_nothing_was_acknowledged_is_evidence(damaged: list[int]) -> None:
    frames = [frame for frame in open_capture([str(capture("half-open"))]) if isinstance(frame, Frame)]
    for frame in frames:
        if frame.number in damaged:
            frame.data = frame.data[:-1] + bytes((frame.data[-1] ^ 1,))
    reasons = [each.text for each in of_segments(cast(Iterator[Segment], segments(frames)))[0].first.reasons]

    assert f"the client sent segments {7 - len(damaged)} times again" in " ".join(reasons)
    words = {1: "1 segment of", 2: "2 segments of"}
    expected = [f"{words[len(damaged)]} the client came damaged: the checksum is wrong"] if damaged else []
    assert [text for text in reasons if "damaged" in text] == expected


@pytest.mark.parametrize("ends", ["fin", "reset"])
@pytest.mark.parametrize(
    ("times", "acknowledges", "cause"),
    [(1, False, "closed"), (2, False, "lost"), (4, False, "lost"), (2, True, "closed")],
)
def test_what_had_not_arrived_when_the_other_side_closed_was_lost_on_the_way(
    times: int, acknowledges: bool, cause: str, ends: str
) -> None:
    """The FIN or RST does not acknowledge what was sent again, although a later segment may."""
    talk = Conversation().open().whole()
    talk.say(CLIENT, Pingreq())
    talk.ack(SERVER)
    (sent,) = talk.say(SERVER, Pingresp())
    before = talk.stacks[SERVER].next - len(sent.payload)
    for _ in range(times):
        talk.wait(1).repeat(sent)
    if acknowledges:
        talk.ack(CLIENT)
    heard = talk.stacks[SERVER].next if acknowledges else before
    talk.wait(1).put(CLIENT, (FIN if ends == "fin" else RST) | ACK, acknowledges=heard)
    talk.ack(SERVER)
    explanation = of_segments(numbered(talk.tape.segments))[0]

    plain = Cause.CLIENT_CLOSED if ends == "fin" else Cause.CLIENT_RESET
    assert explanation.cause is (Cause.HALF_OPEN if cause == "lost" else plain)
    if cause == "lost":
        assert "sent its PINGRESP again" in explanation.first.headline


@pytest.mark.parametrize("data", [b"", b"\0"], ids=["empty", "one byte"])
@pytest.mark.parametrize(
    ("count", "answered", "cause"),
    [(3, False, Cause.HALF_OPEN), (2, False, Cause.SERVER_RESET), (9, True, Cause.SERVER_RESET)],
)
def test_probes_without_an_answer_show_a_lost_path(count: int, answered: bool, cause: Cause, data: bytes) -> None:
    talk = Conversation().open().whole().ack(CLIENT)
    for _ in range(count):
        talk.wait(75).put(SERVER, ACK, data, sequence=talk.stacks[SERVER].next - 1)
        if answered:
            talk.ack(CLIENT)
    talk.wait(75).reset(SERVER)
    explanation = of_segments(numbered(talk.tape.segments))[0]

    assert explanation.cause is cause
    texts = [each.text for each in explanation.first.reasons if "probes" in each.text]
    expected = f"the broker sent {count} probes within 150.002 s, and nothing answered"
    assert texts == ([expected] if cause is Cause.HALF_OPEN else [])


def test_a_device_that_starts_again_is_told_in_both_its_forms() -> None:
    first, second = explain(capture("device-restarts"))

    assert "same port" in first.first.headline
    assert "answered the broker's segment with a RST" in second.first.headline
    assert second.first.doubts


@pytest.mark.parametrize("numbers", [(777_000_000, 888_000_000), (1000, 888_000_000)], ids=["other", "same"])
def test_a_device_that_connects_again_from_its_port_has_restarted(numbers: tuple[int, int]) -> None:
    """The broker, which sends into the void meanwhile, answers its SYN with where the old connection is."""
    talk = Conversation(clocks=(None, None)).open().whole().ack(CLIENT)
    (lost,) = talk.say(SERVER, LATE)
    for pause in (0.2, 0.4):
        talk.wait(pause).repeat(lost)
    second = Conversation(talk.tape, numbers, clocks=(None, None))
    second.wait(0.1).syn()
    talk.ack(SERVER)
    talk.put(CLIENT, RST)
    second.stacks[CLIENT].next = numbers[0]
    second.wait(1).open().whole().finish()
    first, _ = of_segments(numbered(talk.tape.segments))

    assert [each.cause for each in first.candidates] == [Cause.DEVICE_RESTART, Cause.HALF_OPEN]
    texts = [each.text for candidate in first.candidates for each in candidate.reasons]
    assert any("from the same port as #1" in text for text in texts)
    assert not any("another port" in text for text in texts)


def test_a_reset_from_between_is_told_by_its_ttl_and_never_certain() -> None:
    explanation = explain(capture("reset-by-middlebox"))[0]

    assert explanation.first.certainty is Certainty.LIKELY
    assert explanation.first.reasons[0].text == "the RST has TTL 63; all other segments of the broker have 52"
    assert any("IP identification" in each.text for each in explanation.first.reasons)
    assert [each.cause for each in explanation.candidates] == [Cause.MIDDLEBOX_RESET]


def test_a_reset_answers_no_bare_acknowledgment() -> None:
    talk = Conversation().open().whole().ack(CLIENT).wait(10).ack(CLIENT)
    talk.wait(0.1).put(SERVER, RST)

    assert [each.cause for each in of_segments(numbered(talk.tape.segments))[0].candidates] == [Cause.SERVER_RESET]


def test_a_reset_like_the_other_segments_is_the_clients_own() -> None:
    explanations = {explanation.connection: explanation for explanation in explain(capture("v311-will"))}

    assert explanations[2].cause is Cause.CLIENT_RESET
    assert Cause.MIDDLEBOX_RESET not in [each.cause for each in explanations[2].candidates]


def test_plain_ends() -> None:
    causes = {
        (by, how): only(*opened(), client(Publish(topic_name="a")), closes(by, how, after=3)).cause
        for by in ("client", "server")
        for how in ("fin", "reset")
    }

    assert causes == {
        ("client", "fin"): Cause.CLIENT_CLOSED,
        ("client", "reset"): Cause.CLIENT_RESET,
        ("server", "fin"): Cause.SERVER_CLOSED,
        ("server", "reset"): Cause.SERVER_RESET,
    }


@pytest.mark.parametrize(("opened_too", "cause"), [(True, Cause.NO_MQTT), (False, Cause.SERVER_CLOSED)])
def test_only_a_connection_that_was_captured_from_its_beginning_had_no_packets(opened_too: bool, cause: Cause) -> None:
    talk = Conversation().open() if opened_too else Conversation().join()
    talk.fin(SERVER)
    talk.ack(CLIENT).fin(CLIENT)
    talk.ack(SERVER)

    assert of_segments(numbered(talk.tape.segments))[0].cause is cause


def test_tls_that_is_not_decrypted_cannot_be_explained() -> None:
    assert {explanation.cause for explanation in explain(capture("tls-13"))} == {Cause.UNREADABLE}


def test_an_open_connection_with_a_client_that_is_silent_for_too_long_is_told() -> None:
    explanations = explained(
        *opened(client_identifier="quiet", keep_alive=10),
        *on(1, *opened(client_identifier="busy"), client(Pingreq(), after=40), server(Pingresp())),
    )

    assert (explanations[0].cause, explanations[0].first.certainty) == (Cause.HALF_OPEN, Certainty.HYPOTHESIS)
    assert explanations[1].cause is Cause.STILL_OPEN


def ended_together(*, reads_on: bool) -> list[Explanation]:
    """A server closes three connections at once; the clients send more, and a server that reads on acknowledges it."""
    tape = Tape()
    talks = [Conversation(tape) for _ in range(3)]
    for number, talk in enumerate(talks):
        talk.keys = Talk(client_port=50_000 + number).keys
        talk.open().begin(connect(client_identifier=f"dev-{number}"))
        talk.say(SERVER, CONNACK)
        talk.live().ack(CLIENT)
    tape.wait(1)
    for talk in talks:
        talk.fin(SERVER)
    for talk in talks:
        talk.ack(CLIENT).wait(0.1).say(CLIENT, LATE)
        if reads_on:
            talk.ack(SERVER).fin(CLIENT)
            talk.ack(SERVER)
        else:
            talk.reset(SERVER)
    return of_segments(numbered(tape.segments))


def test_a_server_that_reads_on_after_its_fin_did_not_stop() -> None:
    stopped, half_closed = ended_together(reads_on=False), ended_together(reads_on=True)

    assert [explanation.cause for explanation in stopped] == [Cause.SERVER_RESTART] * 3
    assert [explanation.cause for explanation in half_closed] == [Cause.SERVER_CLOSED] * 3
    texts = [each.text for each in half_closed[0].first.reasons]
    assert "the broker acknowledged 9 bytes that came after its FIN: it did not stop" in texts


def closed_and_repeated(*, before: bool) -> Explanation:
    """The client sends again and again until a reset comes; ``before``: the server had closed before that."""
    talk = Conversation().open().whole()
    if before:
        talk.ack(CLIENT).fin(SERVER)
    (sent,) = talk.ack(CLIENT).wait(3).say(CLIENT, LATE)
    for pause in (0.4, 0.8, 1.6, 3.2):
        talk.wait(pause).repeat(sent)
    talk.reset(SERVER)
    return of_segments(numbered(talk.tape.segments))[0]


def test_a_server_that_had_closed_is_no_lost_path() -> None:
    causes = [each.cause for each in closed_and_repeated(before=True).candidates]
    assert causes == [Cause.SERVER_CLOSED]
    assert Cause.HALF_OPEN in [each.cause for each in closed_and_repeated(before=False).candidates]


def waiting_for_ping(idle: float, last: str, by: str, waits: float = 1) -> Explanation:
    """The last packet is repeated until a side closes: the client's PINGREQ, its message, or the broker's PINGRESP."""
    talk = Conversation().open().whole().wait(idle)
    (sent,) = talk.say(CLIENT, LATE if last == "message" else Pingreq())
    if last == "PINGRESP":
        (sent,) = talk.ack(SERVER).say(SERVER, Pingresp())
    for pause in (0.2, 0.4, 0.8, 1.6):
        talk.wait(pause).repeat(sent)
    talk.wait(waits).fin(by, acknowledges=talk.stacks[SERVER].next - 2 if last == "PINGRESP" and by == CLIENT else None)
    return of_segments(numbered(talk.tape.segments))[0]


@each("last, what", [("PINGREQ", "it"), ("PINGRESP", "the answer"), ("message", "")])
@each("idle, first", [(40, "Choose a Keep Alive"), (2, "Look at the path")])
def test_advice_about_a_lost_path_contradicts_nothing(last: str, what: str, idle: int, first: str) -> None:
    hasty, patient = (waiting_for_ping(idle, last, by) for by in (CLIENT, SERVER))
    (lost,) = (cause for cause in hasty.candidates if cause.cause is Cause.HALF_OPEN)
    waits = [reason.text for reason in lost.reasons if "after its PINGREQ" in reason.text]

    assert [text.partition("TCP was sending ")[2] for text in waits] == [f"{what} again"] * bool(what)
    assert lost.advice[0].startswith("Let the client wait longer" if what else first)
    # The PINGREQ before a PINGRESP had arrived.
    assert lost.advice[-1].startswith("Look at the path" if last == "PINGRESP" else first)
    for cause in patient.candidates:
        assert not any("after its PINGREQ" in reason.text for reason in cause.reasons)


@each("idle, waits, first", [(40, 27, "Choose a Keep Alive"), (40, 26, "Let the client"), (20, 27, "Let the client")])
def test_patience_helps_little_once_a_path_was_idle_and_lost_for_long(idle: int, waits: int, first: str) -> None:
    """30 s after a PINGREQ that was repeated for 3 s, after a silence of 30 s."""
    lost = waiting_for_ping(idle, "PINGREQ", CLIENT, waits).first

    assert (lost.cause, len(lost.advice)) == (Cause.HALF_OPEN, 2)
    assert lost.advice[0].startswith(first)


@pytest.mark.parametrize("heard", [True, False])
def test_packets_behind_a_gap_came_before_the_end_if_its_sender_acknowledges_them(heard: bool) -> None:
    """A gap is waited for, so that a DISCONNECT behind it is complete after the FIN that answers it."""
    talk = Conversation().open().whole()
    talk.stacks[CLIENT].next += 4
    talk.say(CLIENT, Disconnect())
    reached = talk.stacks[CLIENT].next
    if not heard:
        talk.stacks[CLIENT].next = reached - 2
    talk.fin(SERVER)
    talk.stacks[CLIENT].next = reached
    talk.fin(CLIENT)
    talk.ack(SERVER)
    (explanation,) = of_segments(numbered(talk.tape.segments))

    assert explanation.cause is (Cause.NORMAL if heard else Cause.SERVER_CLOSED)


def test_packets_behind_a_gap_came_before_the_fin_of_their_sender() -> None:
    talk = Conversation().open().whole()
    talk.stacks[CLIENT].next += 4
    talk.say(CLIENT, Disconnect())
    talk.fin(CLIENT)
    talk.wait(0.02).fin(SERVER)
    talk.ack(CLIENT)
    (explanation,) = of_segments(numbered(talk.tape.segments))

    assert explanation.cause is Cause.NORMAL


def test_an_end_after_a_gap_is_not_said_to_lack_a_disconnect() -> None:
    talk = Conversation().open().whole()
    talk.stacks[CLIENT].next += 6
    talk.fin(CLIENT)
    talk.fin(SERVER)
    talk.ack(CLIENT)
    (explanation,) = of_segments(numbered(talk.tape.segments))

    assert explanation.first.headline == "The client closed the connection; no DISCONNECT was captured."
    assert explanation.first.certainty is Certainty.HYPOTHESIS


@pytest.mark.parametrize(
    ("bytes_are", "doubt"),
    [
        ("cut", []),
        ("lost", ["bytes of the client are missing in the capture: its DISCONNECT may be among them"]),
        ("other", ["bytes of the client are in doubt: its DISCONNECT may be among them"]),
    ],
)
def test_a_packet_that_the_reset_cut_is_not_missing(bytes_are: str, doubt: list[str]) -> None:
    """The number of the reset continues it; ``other``: bytes came again with other content."""
    talk = Conversation().open().whole()
    (sent,) = talk.say(CLIENT, LATE)
    talk.ack(SERVER)
    if bytes_are == "cut":
        talk.say(CLIENT, b"\x30\x20\0\1a")
    elif bytes_are == "lost":
        talk.stacks[CLIENT].next += 2
        talk.say(CLIENT, LATE)
    else:
        talk.repeat(replace(sent, payload=b"\x30\x07\0\4late2"))
    talk.put(CLIENT, RST | ACK)
    first = of_segments(numbered(talk.tape.segments))[0].first

    assert [each.text for each in first.doubts] == doubt
    ending = "; no DISCONNECT was captured." if doubt else " inside a PUBLISH: 5 of its 34 bytes were sent."
    assert first.headline == "The client reset the connection (RST)" + ending
    assert first.certainty is (Certainty.HYPOTHESIS if doubt else Certainty.LIKELY)


def test_ends_with_missing_bytes_are_no_restart() -> None:
    """With a short snap length each DISCONNECT is missing, and its answer looks like an end of the server."""
    tape = Tape()
    talks = [Conversation(tape) for _ in range(3)]
    for number, talk in enumerate(talks):
        talk.keys = Talk(client_port=50_000 + number).keys
        talk.open().begin(connect(client_identifier=f"dev-{number}"))
        talk.say(SERVER, CONNACK)
        talk.live().ack(CLIENT)
    for talk in talks:
        talk.stacks[CLIENT].next += 2
        talk.fin(SERVER)
        talk.fin(CLIENT)
        talk.ack(SERVER)
    explanations = of_segments(numbered(tape.segments))

    assert [[each.cause for each in explanation.candidates] for explanation in explanations] == [
        [Cause.SERVER_CLOSED]
    ] * 3
    assert explanations[0].first.doubts[-1].text.endswith("its DISCONNECT may be among them")


def test_a_fin_that_the_capture_lacks_came_first() -> None:
    """The FIN of the client acknowledges one more than the server's data."""
    talk = Conversation().open().whole()
    talk.stacks[SERVER].next += 1
    talk.fin(CLIENT)
    talk.ack(SERVER)
    (explanation,) = of_segments(numbered(talk.tape.segments))

    assert explanation.cause is Cause.SERVER_CLOSED
    texts = [each.text for each in explanation.first.reasons]
    assert "it acknowledges a FIN of the broker that the capture lacks" in texts


def test_data_from_before_a_reset_is_no_trace_of_a_device_between() -> None:
    """The network may deliver it later; data with numbers after the reset is one."""
    causes = []
    for behind in (0, 9):
        talk = Conversation().open().whole()
        sequence = talk.stacks[CLIENT].next
        talk.put(CLIENT, RST | ACK, sequence=sequence)
        talk.put(CLIENT, ACK, b"\xc0\0", sequence=sequence - 2 + behind)
        causes.append(of_segments(numbered(talk.tape.segments))[0].cause)

    assert causes == [Cause.CLIENT_RESET, Cause.MIDDLEBOX_RESET]


def test_a_reset_behind_lost_data_is_the_client_s_own() -> None:
    """At the server the last segment may be missing, and the reset comes with the number after it."""
    talk = Conversation().open().whole()
    talk.stacks[CLIENT].next += 10
    talk.put(CLIENT, RST | ACK)

    assert of_segments(numbered(talk.tape.segments))[0].cause is Cause.CLIENT_RESET


@pytest.mark.parametrize(("flags", "cause"), [(RST, Cause.CLIENT_RESET), (RST | ACK, Cause.MIDDLEBOX_RESET)])
def test_two_resets_are_of_a_device_between_unless_one_answers_what_came_late(flags: int, cause: Cause) -> None:
    talk = Conversation().open().whole().ack(CLIENT)
    talk.reset(CLIENT)
    talk.wait(0.1).put(SERVER, flags)

    assert of_segments(numbered(talk.tape.segments))[0].cause is cause


@pytest.mark.parametrize(
    ("packet", "what"),
    [
        ("< pubrec 5", "PUBREC for identifier 5, which the client had not used on this connection"),
        ("< raw 20 8200 0000", "CONNACK with a Remaining Length in 2 bytes, which needs fewer"),
        ("< puback 5 code=0x10", "PUBACK of 5 bytes, with a Reason Code"),
        (r'< publish "a\u000eb"', "PUBLISH with a control character in its topic_name"),
        (r'< publish "a\uffff"', "PUBLISH with a code point that is not a character in its topic_name"),
    ],
)
@pytest.mark.parametrize(("waits", "is_named"), [("+0.2", True), ("+0.3", False)])
def test_a_client_that_closes_right_after_an_unusual_packet(packet: str, what: str, waits: str, is_named: bool) -> None:
    version = "5.0" if "code" in packet else "3.1.1"
    opens = f"opened {version}" if "raw" not in packet else "> connect 3.1.1"
    asks = "; > publish a qos=1 id=5" if "puback" in packet else ""
    explanation = ending(f"{opens}{asks}; {packet}; {waits} > fin")

    assert (f"after a {what}" in explanation.first.headline) is is_named


def test_the_same_unusual_packet_on_each_connection_is_told() -> None:
    again = "for 0..2: @{n} opened 3.1.1; @{n} < pubrec 5; @{n} > fin"
    explanations = explained(*steps_of(again))

    assert any("3 connections of the client ended after the same (#0, #1, #2)" in each.text
               for each in explanations[0].first.reasons)  # fmt: skip


@pytest.mark.parametrize("pause", [0.5, 1.5])
def test_an_unusual_packet_that_the_client_took_before_is_no_reason(pause: float) -> None:
    odd = r'< publish "a\u000eb"'
    explanation = ending(f"opened 3.1.1; > subscribe 1 #:0; < suback 1 0; {odd}; +{pause} {odd}; > fin")

    assert ("after a PUBLISH with a control character" in explanation.first.headline) is (pause < 1)


@pytest.mark.parametrize(
    ("silence", "causes"), [(59, [Cause.SERVER_RESTART]), (61, [Cause.IDLE_TIMEOUT, Cause.SERVER_RESTART])]
)
def test_a_forgotten_connection_is_as_likely_as_a_restart_after_a_long_silence(
    silence: int, causes: list[Cause]
) -> None:
    talk = Conversation().open().whole()
    talk.wait(silence).say(CLIENT, Pingreq())
    talk.wait(0.01).put(SERVER, RST, acknowledges=0)
    explanation = of_segments(numbered(talk.tape.segments))[0]

    assert [each.cause for each in explanation.candidates] == causes


@pytest.mark.parametrize("serves", [False, True])
def test_a_server_that_serves_others_has_not_restarted(serves: bool) -> None:
    tape = Tape()
    other, talk = Conversation(tape, client="192.0.2.9").open().whole(), Conversation(tape).open().whole()
    talk.wait(1).say(CLIENT, Pingreq())
    talk.wait(0.01).put(SERVER, RST, acknowledges=0)
    if serves:
        other.wait(1).say(CLIENT, Pingreq())
        other.say(SERVER, Pingresp())
    explanation = of_segments(numbered(tape.segments))[1]

    assert (Cause.SERVER_RESTART in [each.cause for each in explanation.candidates]) is not serves


@pytest.mark.parametrize("serves", [False, True])
def test_a_refused_connection_beside_one_that_is_served(serves: bool) -> None:
    tape = Tape()
    other = Conversation(tape).open().whole()
    Talk(tape, client_port=50_001).refused()
    if serves:
        other.wait(1).say(CLIENT, Pingreq())
        other.say(SERVER, Pingresp())
    explanation = of_segments(numbered(tape.segments))[1]

    assert explanation.cause is (Cause.UNREACHABLE if serves else Cause.NOT_LISTENING)


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("has_server", [False, True])
def test_an_attempt_where_the_capture_may_lack_the_answer(has_server: bool, is_closed: bool) -> None:
    tape = Tape()
    other = Conversation(tape).open().whole()
    if is_closed:
        other.put(CLIENT, FIN | ACK)
        other.put(SERVER, FIN | ACK)
    Conversation(tape, client="192.0.2.9").put(CLIENT, SYN)
    shown = [segment for segment in tape.segments if has_server or segment.key != other.keys[SERVER]]
    explanation = of_segments(numbered(shown))[1]

    assert explanation.cause is (Cause.UNREACHABLE if has_server else Cause.STILL_OPEN)
    assert ("what came of it is unknown" in explanation.first.headline) is not has_server


@pytest.mark.parametrize("lost", [0, 30])
def test_bytes_that_the_capture_lacks_are_no_silence(lost: int) -> None:
    talk = Talk().handshake()
    if lost:
        talk.lose("client", lost)
        talk.lose("server", 4)
    talk.fin("server")
    talk.fin("client")
    talk.ack("server")
    (explanation,) = of_segments(talk.tape.segments)

    assert (explanation.cause is Cause.NO_MQTT) is (lost == 0)


@pytest.mark.parametrize(
    ("acknowledges", "expected"), [(True, "its TCP was alive"), (False, "the device had lost the connection")]
)
def test_a_reset_after_the_end_was_acknowledged_is_one_of_the_program(acknowledges: bool, expected: str) -> None:
    talk = Talk().handshake()
    talk.client(replace(connect(), keep_alive=10))
    talk.server(CONNACK)
    talk.ack("client")
    talk.tape.wait(15)
    talk.fin("server")
    if acknowledges:
        talk.ack("client")
        talk.tape.wait(40)
    talk.reset("client")
    explanation = of_segments(talk.tape.segments)[0]

    assert (explanation.cause, expected in explanation.first.headline) == (Cause.KEEP_ALIVE, True)


BULKY = Publish(topic_name="a", payload=bytes(1300))


@pytest.mark.parametrize(
    ("answers", "carries", "cause", "expected"),
    [
        ("duplicate", False, Cause.HALF_OPEN, "The path loses large segments: the client sent one of 1,306 bytes 4"),
        ("duplicate", True, Cause.HALF_OPEN, "The path from the client to the broker was lost"),
        ("full", False, Cause.SERVER_CLOSED, "nothing in the capture says why"),
        ("new", False, Cause.SERVER_CLOSED, "nothing in the capture says why"),
    ],
)  # fmt: skip
def test_a_segment_that_is_too_large_for_the_path(answers: str, carries: bool, cause: Cause, expected: str) -> None:
    """The other side answers what is shorter; it has no room for more (``full``), or acknowledges all in the end."""
    talk = Conversation().open().whole()
    if carries:
        talk.say(CLIENT, BULKY)
    talk.ack(SERVER)
    before = talk.stacks[CLIENT].next
    (sent,) = talk.wait(1).say(CLIENT, BULKY)
    for pause in (0.3, 0.6, 1.2):
        talk.wait(pause).repeat(sent)
    talk.say(CLIENT, Pingreq())
    talk.ack(SERVER, acknowledges=before)
    if answers == "full":
        talk.tape.segments[-1].window = 0
    talk.wait(5).fin(SERVER, acknowledges=None if answers == "new" else before)
    talk.ack(CLIENT)
    first = of_segments(numbered(talk.tape.segments))[0].first

    assert first.cause is cause
    assert expected in first.headline
    assert any("do not fragment" in text for text in first.advice) is (answers == "duplicate" and not carries)


@pytest.mark.parametrize(("arrives", "waits"), [(False, 8), (True, 8), (False, 2)])
def test_bytes_that_never_came_to_the_broker(arrives: bool, waits: float) -> None:
    """Where the capture is at the broker, it lacks them as well: its TCP acknowledges what came before them alone."""
    talk = Conversation().open()
    talk.begin(replace(connect(), keep_alive=10))
    talk.say(SERVER, CONNACK)
    talk.live().ack(CLIENT).ack(SERVER)
    before = talk.stacks[CLIENT].next
    talk.skip(CLIENT, 1300).wait(15 - waits).say(CLIENT, Pingreq())
    talk.ack(SERVER, acknowledges=None if arrives else before)
    talk.wait(waits).fin(SERVER, acknowledges=None if arrives else before)
    talk.ack(CLIENT)
    explanation = of_segments(numbered(talk.tape.segments))[0]

    is_lost = not arrives and waits > 3
    assert (explanation.first.headline.startswith("The path lost 1,300 bytes of the client")) is is_lost
    if is_lost:
        assert [each.cause for each in explanation.candidates] == [Cause.HALF_OPEN, Cause.KEEP_ALIVE]
        assert "nothing of the client arrived for 15.0" in explanation.candidates[1].headline
        assert any("1.5 × the Keep Alive of 10 s" in each.text for each in explanation.first.reasons)


@pytest.mark.parametrize("changed", ["", "sequence", "acknowledges", "host"])
def test_a_nat_that_gives_a_connection_another_port(changed: str) -> None:
    """The next segment of the client comes from a port that the broker has never seen."""
    talk = Conversation().quiet().ack(CLIENT).ack(SERVER)
    (sent,) = talk.wait(300).say(SERVER, LATE)
    for pause in (1, 2, 4):
        talk.wait(pause).repeat(sent)
    moved = Conversation(talk.tape, client="192.0.2.9" if changed == "host" else "192.0.2.4")
    moved.keys = Talk(client_port=50_007, client=moved.client).keys
    moved.stacks[CLIENT].next = talk.stacks[CLIENT].next + (changed == "sequence")
    # It has not got what the broker sent since.
    heard = sent.sequence - (changed == "acknowledges")
    moved.wait(60).say(CLIENT, Pingreq(), acknowledges=heard)
    moved.put(SERVER, RST, sequence=heard)
    back = Conversation(talk.tape, (70_000, 90_000))
    back.keys = Talk(client_port=50_008).keys
    back.wait(2).open().whole()
    talk.fin(SERVER)
    old, new, _ = of_segments(numbered(talk.tape.segments))

    is_moved = new.cause is Cause.HALF_OPEN
    assert is_moved is (changed == "")
    assert any("continued from another port as #1" in each.text for each in old.first.reasons) is is_moved
    assert old.cause is Cause.HALF_OPEN
    assert "through another port" in new.first.headline or not is_moved


@pytest.mark.parametrize("lost", [True, False])
def test_a_takeover_after_a_lost_path_is_its_consequence(lost: bool) -> None:
    talk = Conversation().quiet().ack(CLIENT)
    (sent,) = talk.wait(20).say(SERVER, LATE)
    if lost:
        for pause in (1, 2, 4):
            talk.wait(pause).repeat(sent)
    else:
        talk.ack(CLIENT)
    back = Conversation(talk.tape, (70_000, 90_000))
    back.keys = Talk(client_port=50_008).keys
    back.wait(2).open().whole()
    talk.fin(SERVER)
    causes = [each.cause for each in of_segments(numbered(talk.tape.segments))[0].candidates]
    first = of_segments(numbered(talk.tape.segments))[0]

    assert causes == ([Cause.HALF_OPEN, Cause.TAKEN_OVER] if lost else [Cause.TAKEN_OVER])
    assert any("copied" in text for each in first.candidates for text in each.advice) is not lost


@pytest.mark.parametrize(
    ("way", "cause", "sentence"),
    [
        ("lost", Cause.HALF_OPEN, "Look at the path between the two"),
        ("silent", Cause.TAKEN_OVER, "one device with a new address"),
        ("reset", Cause.TAKEN_OVER, "one device with a new address"),
        ("alive", Cause.TAKEN_OVER, "Two hosts use one Client Identifier"),
        ("lost, and speaks again", Cause.TAKEN_OVER, "Two hosts use one Client Identifier"),
        ("lost, and comes back", Cause.TAKEN_OVER, "Two hosts use one Client Identifier"),
    ],
)
def test_a_takeover_from_another_address_is_by_two_hosts_only_if_the_old_one_is_alive(
    way: str, cause: Cause, sentence: str
) -> None:
    talk = Conversation().quiet().ack(CLIENT)
    if way.startswith("lost"):
        (sent,) = talk.wait(20).say(SERVER, LATE)
        for pause in (1, 2, 4):
            talk.wait(pause).repeat(sent)
    before = talk.stacks[SERVER].next
    other = Conversation(talk.tape, (70_000, 90_000), client="192.0.2.9")
    other.keys = Talk(client_port=50_008, client=other.client).keys
    other.wait(2).open().whole()
    talk.fin(SERVER)
    if way in ("alive", "lost, and speaks again"):
        talk.ack(CLIENT)
    elif way == "reset":
        talk.put(CLIENT, RST, sequence=before)
    elif way == "lost, and comes back":
        back = Conversation(talk.tape, (110_000, 130_000))
        back.keys = Talk(client_port=50_009).keys
        back.wait(2).open().whole()
    first = of_segments(numbered(talk.tape.segments))[0].first

    assert (first.cause, first.certainty) == (cause, Certainty.LIKELY)
    assert sentence in first.advice[0]
    assert ("another host" in first.headline) is sentence.startswith("Two hosts")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("opened 3.1.1 resume; > pubrel 7; < fin", "most probably because of it"),
        ("opened 3.1.1; > subscribe 1 a; < suback 1 0; < publish b; > fin", "perhaps because of it"),
        # What was answered, later, borne before, or may have been all that the client wanted.
        ("opened 3.1.1 resume; > pubrel 7; < pubcomp 7; < fin", ""),
        ("opened 3.1.1 resume; > pubrel 7; +0.3 < fin", ""),
        ("opened 3.1.1 resume < present; < pubrel 7; > fin", "perhaps because of it"),
        ("opened 3.1.1 resume < present; < pubrel 7; > pubcomp 7; > fin", ""),
        ("opened 3.1.1 resume; > pubrel 7; > pubrel 7; < fin", ""),
        ("opened 3.1.1; > subscribe 1 a; < suback 1 0; > fin", ""),
        ("opened 3.1.1; > publish a qos=1 id=1; < puback 1; > fin", ""),
        ("opened 3.1.1 resume; > pubrel {n}; < fin", ""),
    ],
)
def test_the_same_packet_before_the_end_of_each_connection(line: str, named: str) -> None:
    text = "@{n} " + line.replace("; ", "; @{n} ").replace("@{n} +0.3", "+0.3 @{n}")
    first, *_ = explained(*steps_of(f"for 1..3: {text}"))

    assert ("as each of 3 connections" in first.first.headline) is bool(named)
    assert named in first.first.headline


@pytest.mark.parametrize(("count", "certainty"), [(1, Certainty.HYPOTHESIS), (3, Certainty.LIKELY)])
def test_a_violation_that_was_the_last_packet_comes_before_the_bare_end(count: int, certainty: Certainty) -> None:
    again = "; ".join(
        f"@{n} opened 3.1.1 resume < present; @{n} < publish a qos=1 id=3; @{n} > fin" for n in range(count)
    )
    explanations = explained(*steps_of("@9 opened 3.1.1 resume; @9 < publish a qos=1 id=3; @9 > fin", again))[1:]

    assert [(explanation.cause, explanation.first.certainty) for explanation in explanations] == [
        (Cause.PROTOCOL_VIOLATION, certainty)
    ] * count
    assert {explanation.first.broken[0].rule for explanation in explanations} == {"PUB311"}


def test_a_fin_that_nothing_acknowledges_is_named_as_such() -> None:
    talk = Conversation().quiet().ack(CLIENT).ack(SERVER)
    talk.wait(30).fin(SERVER)
    for pause in (1, 2, 4, 8):
        talk.wait(pause).put(SERVER, FIN | ACK, sequence=talk.stacks[SERVER].next - 1)
    candidates = of_segments(numbered(talk.tape.segments))[0].candidates

    (lost,) = (candidate for candidate in candidates if candidate.cause is Cause.HALF_OPEN)
    assert any(each.text.endswith("nothing acknowledged its FIN") for each in lost.reasons)


@each("selective, is_named", [(1, True), (0, False), (-1, False)])
def test_a_selective_acknowledgment_shows_at_once_what_is_missing(selective: int, is_named: bool) -> None:
    """A block below the acknowledgment (``-1``) reports a copy (RFC 2883)."""
    talk = Conversation().open().whole().ack(SERVER)
    before = talk.stacks[CLIENT].next
    (sent,) = talk.wait(1).say(CLIENT, BULKY)
    talk.say(CLIENT, Pingreq())
    talk.ack(SERVER, acknowledges=before)
    edges = {1: (sent.sequence + 1_306, sent.sequence + 1_308), -1: (before - 2, before), 0: ()}[selective]
    block = b"".join(edge.to_bytes(4, "big") for edge in edges)
    talk.tape.segments[-1].options = bytes((1, 1, 5, 2 + len(block))) + block
    for pause in (0.3, 0.6, 1.2):
        talk.wait(pause).repeat(sent)
    talk.wait(5).fin(SERVER, acknowledges=before)
    talk.ack(CLIENT)

    first = of_segments(numbered(talk.tape.segments))[0].first
    assert ("loses large segments" in first.headline) is is_named
