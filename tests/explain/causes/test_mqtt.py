"""Causes that other packets show."""

from __future__ import annotations

from mqttscope.explain import Cause, Certainty
from mqttscope.explain.model import Explanation
from mqttscope.lint.profile import parse, rules_of
from mqttscope.mqtt.packets import Connack, Connect, Publish
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.dissect.talk import Talk, Tape
from tests.each import each
from tests.explain.running import ending, explained, of_segments
from tests.lint.lint_help import steps_of

ASKS = "> subscribe 1 secret/#:1"


def test_a_takeover_without_a_word() -> None:
    explanation = ending("opened 3.1.1; @1 opened 3.1.1; < fin")

    assert (explanation.cause, explanation.first.certainty) == (Cause.TAKEN_OVER, Certainty.LIKELY)
    assert "connection #1" in explanation.first.reasons[0].text


def test_a_connect_after_the_end_is_a_return_and_no_takeover() -> None:
    explanation = ending("opened 3.1.1; < fin; @1 opened 3.1.1")

    assert explanation.cause is Cause.SERVER_CLOSED
    assert explanation.afterwards[0].text.startswith("the client came back")


def test_another_client_takes_nothing_over() -> None:
    assert ending("opened; @1 opened client=c2; < fin").cause is not Cause.TAKEN_OVER


@each(
    "text, cause",
    [
        ("opened; > publish a/+", Cause.PROTOCOL_VIOLATION),
        ("opened < topic_alias_maximum=2; > publish a topic_alias=9", Cause.TOPIC_ALIAS),
        ('opened < maximum_packet_size=100; > publish a "x"*200', Cause.PACKET_TOO_LARGE),
        ("opened < retain_available=0; > publish a retain", Cause.NOT_SUPPORTED),
    ],
)
def test_a_violation_that_the_other_side_closes_on(text: str, cause: Cause) -> None:
    explanation = ending(text, "< fin")

    assert (explanation.cause, explanation.first.certainty) == (cause, Certainty.LIKELY)
    assert explanation.first.broken[0].by == "client"
    assert explanation.first.advice[0].startswith("Instead, ")


PINGED = "opened 3.1.1; > pingreq; silent < raw d0 00"


@each(
    "text, certainty, expected",
    [
        (f"{PINGED} 00; > fin", Certainty.LIKELY, "1 byte (00)"),
        (f"{PINGED} 0d 0a; > reset", Certainty.LIKELY, "2 bytes (0d 0a)"),
        (f"{PINGED} 00 00; +5 > fin", Certainty.HYPOTHESIS, "2 bytes (00 00)"),
    ],
)
def test_bytes_after_a_packet_that_are_none(text: str, certainty: Certainty, expected: str) -> None:
    explanation = ending(text)

    assert (explanation.cause, explanation.first.certainty) == (Cause.PROTOCOL_VIOLATION, certainty)
    assert (
        f"after the broker had sent {expected} outside of any whole packet after its PINGRESP"
        in explanation.first.headline
    )


def test_bytes_after_a_packet_that_are_not_the_cause() -> None:
    for text in (f"{PINGED} 00; > pingreq; > fin", f"{PINGED} 00; < fin", f"{PINGED}; > fin", f"{PINGED} 90; > fin"):
        assert "outside of any" not in ending(text).first.headline
    assert "5 bytes (30 …)" in ending(f"{PINGED} 30 7f 00 01 61; > reset").candidates[1].headline


@each("raw, is_whole", [("31 07 0003 61ec8c 70 6c", True), ("31 07 0003 61ec8c 70", False), ("0a 00", False)])
def test_a_malformed_packet_of_whole_length_is_no_stray_byte(raw: str, is_whole: bool) -> None:
    explanation = ending(f"{PINGED} {raw}; > fin")

    assert ("the broker had broken the protocol: PUBLISH topic_name: not" in explanation.first.headline) is is_whole
    assert is_whole or any("outside of any" in candidate.headline for candidate in explanation.candidates)


UNREAD = "opened 3.1.1 keep_alive=30; +20 silent > raw 0a c0; < ack"


@each("text, is_named", [
    (f"{UNREAD}; +10 > reset", True),
    (f"{UNREAD}; +10 > fin", True),
    (f"{UNREAD}; +0.5 > fin", False),
    (f"{UNREAD}; +10 < fin", False),
    (f"{UNREAD}; < publish a; +10 > fin", False),
    ("opened 3.1.1 keep_alive=30; +20 silent > raw 0a c0; +10 > reset", False),
    ("opened 3.1.1 keep_alive=30; +20 silent > raw c0; < ack; +10 > reset", False),
])  # fmt: skip
def test_last_bytes_of_the_client_that_begin_no_packet(text: str, is_named: bool) -> None:
    """Not where the broker answered or closed, the client closed at once, or the bytes did not arrive."""
    explanation = ending(text)
    shown_text = (
        "sent 2 bytes (0a c0) that begin no packet, most probably meant as PINGREQ (c0 00): the broker cannot read"
    )

    assert (shown_text in explanation.first.headline) is is_named
    if is_named:
        assert "and the client gave up 10.010 s later" in explanation.first.headline


BIG = '< publish big "x"*2000'
ASKED = "> subscribe 1 big:0; < suback 1 0"
TWICE = "for 0..1: +1 @{{n}} opened 3.1.1 client=dev; @{{n}} {}; @{{n}} {}"


@each(
    "text, certainty, often",
    [
        (f"opened 3.1.1; {ASKED}; {BIG}; > reset", Certainty.HYPOTHESIS, ""),
        (TWICE.format(BIG, "> reset"), Certainty.HYPOTHESIS, ", the same on each of 2 connections"),
        (TWICE.format("silent < raw 30 d00f 0003 626967 78", "> reset"), Certainty.LIKELY, ", the same on each of 2"),
    ],
)
def test_a_client_that_has_no_room_for_a_message(text: str, certainty: Certainty, often: str) -> None:
    explanation = ending(text)

    assert (explanation.cause, explanation.first.certainty) == (Cause.PACKET_TOO_LARGE, certainty)
    assert f"bytes, by far the largest that it was sent{often}" in explanation.first.headline


@each(
    "text",
    [
        # It has taken one as large, here or on another connection, or has answered.
        f"opened 3.1.1; {BIG}; {BIG}; > reset",
        f"@1 opened 3.1.1; @1 {BIG}; @1 > pingreq; opened 3.1.1; {BIG}; > reset",
        f"opened 3.1.1; {BIG}; > pingreq; > reset",
        f"opened 3.1.1; {BIG} qos=1 id=1; > puback 1; > reset",
        f"opened 3.1.1; {BIG}; +0.3 > reset",
        f"opened 3.1.1; {BIG}; < fin",
        f"opened 3.1.1; {BIG}; > disconnect; > fin",
        "opened 3.1.1; < publish small x; > reset",
    ],
)
def test_a_client_that_had_room_for_a_message(text: str) -> None:
    assert all(
        Cause.PACKET_TOO_LARGE not in [candidate.cause for candidate in end.candidates]
        for end in explained(*steps_of(text))
    )


@each(
    "text, expected",
    [
        (
            TWICE.format("< publish q hello", "> fin"),
            "after PUBLISH q0 q (10 bytes), the same on each of 2 connections",
        ),
        (
            TWICE.format("> publish q hello", "< fin"),
            "after PUBLISH q0 q (10 bytes), the same on each of 2 connections",
        ),
        # Another payload, or an end that came later.
        (TWICE.format("< publish q h{n}", "> fin"), ""),
        (TWICE.format("< publish q hello", "> nothing; +1.1 @{n} > fin"), ""),
    ],
)
def test_the_same_message_before_each_end(text: str, expected: str) -> None:
    assert all(
        ((expected or "the same on") in end.first.headline) is bool(expected) for end in explained(*steps_of(text))
    )


def test_a_violation_that_was_answered_is_not_the_cause() -> None:
    explanation = ending("opened; > publish a/+; > pingreq; +1 < pingresp; +1 < fin")

    assert explanation.cause is Cause.SERVER_CLOSED
    assert [each.certainty for each in explanation.candidates[1:]] == [Certainty.HYPOTHESIS]


@each(
    "text, named",
    [
        (f"opened; {ASKS}; < suback 1 0x87; > fin", "the subscription to secret/#"),
        (f"opened 3.1.1; {ASKS}; < suback 1 0x80; > fin", "the subscription to secret/#"),
        ("opened; > publish admin/x qos=1 id=1; < puback 1 code=0x87; < fin", "the message to admin/x"),
    ],
)
def test_an_end_after_a_refusal(text: str, named: str) -> None:
    explanation = ending(text)

    assert (explanation.cause, explanation.first.certainty) == (Cause.NOT_AUTHORIZED, Certainty.LIKELY)
    assert named in explanation.first.headline


def test_a_server_that_closes_on_the_largest_packet() -> None:
    message = '> publish {} "x"*{} qos=1 id=1'
    asked = ("opened 3.1.1", "< puback 1", message.format("a", 5000), "< fin")
    other, same = (ending(asked[0], message.format(topic, 20), *asked[1:]) for topic in ("b", "a"))

    assert (other.cause, other.first.certainty) == (Cause.PACKET_TOO_LARGE, Certainty.LIKELY)
    assert other.candidates[1].cause is Cause.NOT_AUTHORIZED
    # What it took before on this topic is allowed.
    assert causes(same) == [Cause.PACKET_TOO_LARGE]


def test_a_server_that_ends_everything_at_once() -> None:
    explanations = explained(*steps_of("for 0..2: @{n} opened client=c{n}", "for 0..2: @{n} < fin"))

    assert {(explanation.cause, explanation.first.certainty) for explanation in explanations} == {
        (Cause.SERVER_RESTART, Certainty.LIKELY)
    }


def test_ends_with_reasons_of_their_own_are_no_restart() -> None:
    ends = "for 0..2: @{n} < disconnect code=0x98; @{n} < fin"
    explanations = explained(*steps_of("for 0..3: @{n} opened client=c{n}", ends, "@3 < fin"))

    assert explanations[3].cause is Cause.SERVER_CLOSED


def ended_together(between: str = "", after: str = "", asks: str = "") -> list[Explanation]:
    """Three of four connections of a server are ended by it."""
    opens = "for 0..3: @{n} opened 3.1.1 client=c{n}"
    return explained(
        *steps_of(opens, f"{asks}; < fin", between, f"for 1..2: {asks and '@{n} ' + asks}; @{{n}} < fin", after)
    )


def causes(explanation: Explanation) -> list[Cause]:
    return [each.cause for each in explanation.candidates]


PINGS = "@3 > pingreq; @3 < pingresp"


@each("between, after", [(PINGS, ""), ("", PINGS), ("", f"{PINGS}; @3 > disconnect; @3 > fin")])
def test_a_server_that_sends_to_others_has_not_restarted(between: str, after: str) -> None:
    explanations = ended_together(between, after)[:3]

    assert [explanation.cause for explanation in explanations] == [Cause.SERVER_CLOSED] * 3
    assert all(Cause.SERVER_RESTART not in causes(explanation) for explanation in explanations)
    texts = [each.text for each in explanations[1].first.reasons]
    assert any(text.endswith("this one and #0, #2") for text in texts)
    assert "the broker kept sending on connection #3, which was open before: it did not restart" in texts


def test_a_server_that_accepts_a_client_meanwhile_has_not_restarted() -> None:
    explanations = ended_together("@4 opened 3.1.1 client=new")

    assert [explanation.cause for explanation in explanations[:3]] == [Cause.SERVER_CLOSED] * 3
    assert any("accepted connection #4 in that time" in each.text for each in explanations[0].first.reasons)


def test_a_connection_that_began_after_the_first_end_was_not_ended_by_a_stop() -> None:
    explanation, two = explained(
        *steps_of("opened 3.1.1 client=one; < fin", "+0.5 @1 opened 3.1.1 client=two; @1 < fin")
    )

    assert [explanation.cause, two.cause] == [Cause.SERVER_CLOSED] * 2
    assert Cause.SERVER_RESTART not in causes(explanation) + causes(two)


@each(
    "message, cause, certainty",
    [
        ('publish a "x"*1500', Cause.PACKET_TOO_LARGE, Certainty.LIKELY),
        ('publish a "x"*900', Cause.SERVER_CLOSED, Certainty.HYPOTHESIS),
        ("publish a qos=1 id=1", Cause.NOT_AUTHORIZED, Certainty.HYPOTHESIS),
        ("publish a qos=2 id=1", Cause.NOT_SUPPORTED, Certainty.HYPOTHESIS),
        (f"publish {'/'.join('a' * 201)}", Cause.SERVER_CLOSED, Certainty.HYPOTHESIS),
        (f"publish {'/'.join('a' * 202)}", Cause.NOT_SUPPORTED, Certainty.LIKELY),
    ],
)
def test_a_server_that_closes_on_a_message_before_5_0(message: str, cause: Cause, certainty: Certainty) -> None:
    explanation = ending("opened 3.1.1", f"> {message}", "< fin")

    assert (explanation.cause, explanation.first.certainty) == (cause, certainty)


def test_what_the_server_has_acknowledged_is_supported() -> None:
    text = "> publish a qos=2 id=1; < pubrec 1; > pubrel 1; < pubcomp 1"

    assert ending("opened 3.1.1", text, "> publish b qos=2 id=2; < fin").cause is Cause.NOT_AUTHORIZED


def test_the_same_message_on_each_connection_is_told() -> None:
    again = "@{n} opened 3.1.1; @{n} > publish a/b qos=1 id=1; @{n} < fin"
    explanations = explained(*steps_of(f"for 0..2: {again}"))

    assert any("on 3 connections (#0, #1, #2)" in reason.text for reason in explanations[0].first.reasons)


def test_a_length_that_another_one_repairs_comes_before_what_was_read_out_of_its_bytes() -> None:
    topic = "0001 61"
    explanation = ending("opened 3.1.1", f"> raw 30 c8 {topic}" + " 44" * 197, "< fin")

    assert explanation.cause is Cause.PROTOCOL_VIOLATION
    assert "it is written as a plain number: C8 in the place of C8 01 (200)" in explanation.first.headline


def test_a_server_may_send_to_some_while_it_stops() -> None:
    explanations = ended_together(PINGS.replace("3", "2"), "+0.5 @3 < fin")

    assert {explanation.cause for explanation in explanations} == {Cause.SERVER_RESTART}


@each(
    "between, after, asks, cause",
    [
        # A client that leaves a server that stops is no survivor.
        ("@3 < publish w", "+0.1 @3 > fin", "", Cause.SERVER_RESTART),
        ("", "", '> publish a "x"*5000 qos=1 id=1', Cause.PACKET_TOO_LARGE),
    ],
)
def test_the_cause_of_ends_together(between: str, after: str, asks: str, cause: Cause) -> None:
    assert [explanation.cause for explanation in ended_together(between, after, asks)[:3]] == [cause] * 3


@each(
    "before, size, first",
    [
        ('publish a "x"*16000', 16_400, Cause.PACKET_TOO_LARGE),
        ('publish a "x"*16000', 16_300, Cause.SERVER_CLOSED),
        ('publish a "x"*20000', 19_000, Cause.SERVER_CLOSED),
    ],
)
def test_the_largest_message_may_be_too_large_and_its_topic_was_borne(before: str, size: int, first: Cause) -> None:
    explanation = ending(f'opened 3.1.1; > {before}; +2 > publish a 1; +2 > publish a "x"*{size}; < fin')

    assert explanation.cause is first
    assert Cause.NOT_AUTHORIZED not in causes(explanation)


@each("waits, is_candidate", [(0.9, True), (1.1, False)])
def test_a_topic_after_which_the_client_sent_more_was_not_refused(waits: float, is_candidate: bool) -> None:
    explanation = ending(f"opened 3.1.1; > publish a 1; +{waits} > publish a 2; < fin")

    assert (Cause.NOT_AUTHORIZED in causes(explanation)) is is_candidate


def test_a_fault_of_the_connect_says_more_than_that_it_had_no_answer() -> None:
    explanation = explained(*steps_of('> connect 3.1.1 password="x"; < fin'))[0]

    assert (explanation.cause, explanation.first.broken[0].rule) == (Cause.PROTOCOL_VIOLATION, "CON105")


def test_a_proven_violation_leaves_no_room_for_a_guess_about_rights() -> None:
    assert causes(ending("opened 3.1.1; > raw 36 05 00 01 61 00 01; < fin")) == [Cause.PROTOCOL_VIOLATION]


@each("arrow", "<>")
def test_a_packet_that_the_end_cut_is_no_reason_for_the_end(arrow: str) -> None:
    """The client sent the rest no more because the broker had closed; who closes inside a packet has cut it."""
    explanation = ending(f"opened 3.1.1; > raw 30 11 00 01 61; +1 {arrow} fin")

    assert not {Cause.PROTOCOL_VIOLATION, Cause.NOT_AUTHORIZED} & set(causes(explanation))
    assert [broken for candidate in explanation.candidates for broken in candidate.broken] == []


def test_a_violation_before_the_end_is_named_where_the_end_cut_a_packet() -> None:
    explanation = ending("opened 3.1.1; > raw c4 00; > raw 30 11 00 01 61; +0.5 < fin")

    assert (explanation.cause, explanation.first.broken[0].slug) == (Cause.PROTOCOL_VIOLATION, "fixed-header-flags")
    assert "ms after the client had broken the protocol" in explanation.first.headline


@each(
    "limits, text, cause",
    [
        ("maximum_qos = 1", "publish a/b qos=2 id=1", Cause.NOT_SUPPORTED),
        ("maximum_payload_bytes = 3", "publish a/b 1234", Cause.PACKET_TOO_LARGE),
        ("maximum_payload_bytes = 4", "publish a/b 1234", Cause.SERVER_CLOSED),
        ("maximum_topic_levels = 1", "publish a/b", Cause.NOT_SUPPORTED),
        # The broker has borne the same before.
        ("maximum_topic_levels = 1", "publish a/b qos=1 id=1; +1 < puback 1; +1 > publish a/b", Cause.SERVER_CLOSED),
    ],
)
def test_a_limit_of_the_profile_is_likely_and_no_more(limits: str, text: str, cause: Cause) -> None:
    profile = parse(f"dated = 2026-11-29\n[limits]\n{limits}", "ours", "")
    explanation = explained(*steps_of(f"opened 3.1.1; > {text}; < fin"), rules=rules_of(profile))[0]

    assert explanation.cause is cause
    assert explanation.first.certainty is (Certainty.HYPOTHESIS if cause is Cause.SERVER_CLOSED else Certainty.LIKELY)


def test_an_older_connection_that_is_served_beside_the_newer_was_not_taken_over() -> None:
    served = "+0.1 > publish a/b x qos=1 id=5; < puback 5; +0.5 < fin"

    assert ending(f"opened 3.1.1; @1 opened 3.1.1; {served}").cause is not Cause.TAKEN_OVER


@each(
    "text, cause",
    [
        ('publish {} "x"*5000 qos=1 id=1', Cause.PACKET_TOO_LARGE),
        ("publish {} x qos=1 id=1".replace("{}", "/" * 300), Cause.NOT_SUPPORTED),
    ],
)
@each("borne", [False, True])
def test_what_a_broker_has_acknowledged_to_others_is_not_beyond_its_limits(
    text: str, cause: Cause, borne: bool
) -> None:
    sent = text.format("a")
    other = f"; @1 > {sent}; @1 < puback 1" if borne else ""
    explanation = explained(*steps_of(f"opened 3.1.1; @1 opened 3.1.1 client=c2{other}; > {sent}; < fin"))[0]

    likely = [each.cause for each in explanation.candidates if each.certainty is Certainty.LIKELY]
    assert (cause in likely) is not borne


def test_what_a_broker_has_borne_before_is_no_reason_to_close() -> None:
    wrong = "> publish a/+ x qos=1 id={n}; +0.2 < puback {n}"
    explanation = ending("opened", f"for 1..3: {wrong}", "+1 > publish a/+ x qos=1 id=9; < fin")

    assert [each.certainty for each in explanation.candidates if each.cause is Cause.PROTOCOL_VIOLATION] == [
        Certainty.HYPOTHESIS
    ]


@each("acknowledges", [False, True])
def test_a_host_that_acknowledges_has_not_stopped(acknowledges: bool) -> None:
    """Another client publishes at QoS 0: of MQTT the capture has nothing from the server."""
    tape = Tape()
    stays, *others = (Conversation(tape, client=f"192.0.2.{number}").open() for number in range(9, 13))
    for number, conversation in enumerate((stays, *others)):
        conversation.say(CLIENT, Connect(client_identifier=f"c{number}"))
        conversation.say(SERVER, Connack(reason_code=0))
    for other in others:
        other.fin(SERVER)
    stays.wait(1).say(CLIENT, Publish(topic_name="a"))
    if acknowledges:
        stays.ack(SERVER)
    actual_causes = [end.cause for end in of_segments(numbered(tape.segments))]

    assert (Cause.SERVER_RESTART in actual_causes) is not acknowledges


HALF = '> raw 32 e0 5d 00 01 61 00 05 "{x}"'
"""The beginning of a PUBLISH of 12,003 bytes to the topic a."""


@each("end", ["< fin", "< reset"])
@each(
    "count, before, waits, certainty",
    [
        (3, "", "", Certainty.LIKELY),
        (1, "", "", Certainty.HYPOTHESIS),
        # The broker takes messages of this size, the client stopped in the middle, or its Keep Alive had passed.
        (3, '@9 opened 3.1.1 client=c9; @9 > publish b "x"*13000 qos=1 id=1; @9 < puback 1', "", None),
        (3, "", "+2", None),
        (3, "", "+7", None),
    ],
)
def test_a_server_that_closes_inside_the_largest_packet(
    end: str, count: int, before: str, waits: str, certainty: Certainty | None
) -> None:
    ends = f"@{{n}} opened 3.1.1; @{{n}} {HALF.replace('{x}', 'x' * 60)}; {waits} @{{n}} {end}"
    explanations = explained(*steps_of(before, f"for 0..{count - 1}: {ends}"))
    explanation = next(each for each in explanations if each.client_identifier == "c1")

    first = explanation.first if explanation.cause is Cause.PACKET_TOO_LARGE else None
    assert (None if first is None else first.certainty) is certainty
    assert first is None or "inside a PUBLISH of 12,003 bytes" in first.headline
    assert Cause.NOT_AUTHORIZED not in causes(explanation)


TAKES = '@{n} > publish a "x"*{size} qos=1 id={id}; @{n} < puback {id}'
LARGER = '@{n} > publish a "x"*{size} qos=1 id=9'


@each(
    "change, certainty",
    [
        ("", Certainty.LIKELY),
        ("reset", Certainty.LIKELY),
        ("cut", Certainty.LIKELY),
        ("only two ends", None),
        ("the same size each time", None),
        ("one end with a small message", None),
        ("another client may send as much", None),
        ("another client sent as much with QoS 0", None),
        ("another topic", None),
        ("with RETAIN", None),
        ("later", None),
        ("one message taken on each connection", Certainty.HYPOTHESIS),
    ],
)
def test_ends_with_messages_that_are_larger_than_all_that_the_broker_took(
    change: str, certainty: Certainty | None
) -> None:
    lines = ["@9 opened 3.1.1 client=c9"]
    if change.startswith("another client"):
        lines.append('@9 > publish a "x"*9500 ' + ("" if "QoS 0" in change else "qos=1 id=1; @9 < puback 1"))
        lines.append("@9 > pingreq; @9 < pingresp")
    for number in range(2 if change == "only two ends" else 3):
        lines.append(f"@{number} opened 3.1.1")
        count = 1 if change.startswith("one message taken") else 3
        lines += [TAKES.format(n=number, size=7_000 + number, id=at + 1) for at in range(count)]
        size = 9_000 + (0 if change == "the same size each time" else 100 * number)
        size = 50 if number == 1 and change == "one end with a small message" else size
        last = LARGER.format(n=number, size=size) + " retain" * (change == "with RETAIN")
        last = last.replace("publish a", "publish b") if change == "another topic" else last
        if change == "cut":
            last = f'@{number} > raw 32 {0x80 | (size & 0x7F):02x} {size >> 7:02x} 0001 "a" 0009 "{"x" * 60}"'
        lines.append(last)
        lines.append(
            f"{'+2 ' if change == 'later' else ''}@{number} < {'reset' if change in ('reset', 'cut') else 'fin'}"
        )
    explanations = [each for each in explained(*steps_of(*lines)) if each.client_identifier == "c1"]

    named = [
        each.first.certainty for each in explanations if "most probably its limit is between" in each.first.headline
    ]
    assert named == ([] if certainty is None else [certainty] * 3)
    if certainty is not None:
        assert explanations[0].cause is Cause.PACKET_TOO_LARGE
        assert "between 7,0" in explanations[0].first.headline
        assert Cause.NOT_AUTHORIZED not in causes(explanations[0])


RAW = bytes.fromhex("32e05d000161 0005") + b"x" * 11_995


def test_a_client_closes_inside_a_message_of_which_more_is_on_its_way() -> None:
    tape = Tape()
    for number in range(2):
        talk = Talk(tape, client_port=50_001 + number).handshake()
        talk.client(Connect(client_identifier="c"))
        talk.server(Connack(reason_code=0))
        talk.server(RAW[:8_000])
        talk.fin("client")
        talk.server(RAW[8_000:9_000])
    explanation = of_segments(tape.segments)[0]

    assert (explanation.cause, explanation.first.certainty) == (Cause.PACKET_TOO_LARGE, Certainty.LIKELY)
    assert explanation.first.headline.startswith("The client closed inside a PUBLISH of 12,003 bytes")


def test_what_was_on_its_way_at_the_end_is_told_from_what_had_arrived() -> None:
    tape = Tape()
    for number in range(2):
        talk = Talk(tape, client_port=50_001 + number).handshake()
        talk.client(Connect(client_identifier="c"))
        talk.server(Connack(reason_code=0))
        talk.client(RAW[:8_000])
        talk.fin("server")
        talk.client(RAW[8_000:])
        talk.fin("client")
    explanation = of_segments(tape.segments)[0]

    assert (explanation.cause, explanation.first.certainty) == (Cause.PACKET_TOO_LARGE, Certainty.LIKELY)
    assert any(
        "the broker closed when 8,000 bytes of it had come" in reason.text for reason in explanation.first.reasons
    )


HEAD = '30 13 0003 612f62 "12345678901234"'


@each(
    "sent, headline",
    [
        (f'> raw 30 13 0003 612f62 "1234" {HEAD}', "after 11 of its 21 bytes a PUBLISH begins"),
        (f'> raw 30 13 0003 612f62 "1234" 4002 0007 "5678901234" {HEAD}', "a PUBACK for identifier 7, which it owed,"),
        (f'> raw 30 13 0003 612f62 "1234" 4002 0008 "5678901234" {HEAD}', "wrote a PUBACK into the middle"),
        (f'> raw {HEAD} 30 13 0003 61 40020007 2f62 "12345678901234"', "after 5 of its bytes"),
    ],
)
def test_a_packet_inside_another_comes_before_what_was_read_out_of_its_bytes(sent: str, headline: str) -> None:
    before = "opened 3.1.1; > subscribe 1 x:1; < suback 1 1; < publish x q qos=1 id=7"
    explanation, other = (ending(before, f"{sent}{rest}", "< fin") for rest in ("", " ff ff"))

    assert (explanation.cause, explanation.first.certainty) == (Cause.PROTOCOL_VIOLATION, Certainty.LIKELY)
    assert [broken.rule for broken in explanation.first.broken] == ["ENC107"]
    assert headline in explanation.first.headline
    # Of these bytes nothing is proven.
    assert not any(headline in candidate.headline for candidate in other.candidates)


@each(
    "version, doubt",
    [("3.1", "in 3.1 a broker cannot"), ("3.1.1", "a SUBACK could have"), ("5.0", "a SUBACK could have")],
)
def test_a_subscription_can_be_refused_where_a_message_cannot(version: str, doubt: str) -> None:
    explanation = ending(f"opened {version}; > subscribe 1 a:0; < fin")

    (authorized,) = (each for each in explanation.candidates if each.cause is Cause.NOT_AUTHORIZED)
    assert doubt in authorized.doubts[0].text
