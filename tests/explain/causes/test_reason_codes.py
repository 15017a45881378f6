"""Causes that a packet names."""

from __future__ import annotations

from mqttscope.explain import Cause, Certainty
from mqttscope.lint.examples import START_NS
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Connack, Disconnect, Publish
from tests.dissect.conversations import CLIENT, SERVER, Conversation, numbered
from tests.dissect.talk import Talk, Tape, connect, wire
from tests.each import each
from tests.explain.causes.test_listener import HEADER
from tests.explain.running import ending, explained, of_segments
from tests.explain.test_tokens import jwt
from tests.lint.lint_help import steps_of

V3_1, V3_1_1, V5 = ProtocolVersion.V3_1, ProtocolVersion.V3_1_1, ProtocolVersion.V5

DISCONNECTS = {
    0x8D: "keep_alive",
    0x8E: "taken_over",
    0x8B: "server_restart",
    0x87: "not_authorized",
    0x93: "receive_maximum",
    0x94: "topic_alias",
    0x95: "packet_too_large",
    0x96: "quota_exceeded",
    0x98: "administrative_action",
    0x9D: "use_another_server",
    0xA2: "not_supported",
    0x80: "server_disconnect",
}


@each("code, cause", DISCONNECTS.items())
def test_the_disconnect_of_the_server_is_certain(code: int, cause: str) -> None:
    explanation = ending(f"opened; < disconnect code={code}; < fin")

    assert (explanation.cause, explanation.first.certainty, explanation.first.reason_code) == (
        cause,
        Certainty.CERTAIN,
        code,
    )
    assert f"0x{code:02X}" in explanation.first.headline


@each(
    "code, way, is_lost",
    [
        (0x8D, "lost", True),
        (0x8E, "lost", True),
        (0x8D, "acknowledged", False),
        (0x8D, "acknowledged at last", False),
        (0x8D, "lost just before the end", False),
        (0x98, "lost", False),
    ],
)
def test_a_disconnect_of_a_client_whose_tcp_was_out_of_reach(code: int, way: str, is_lost: bool) -> None:
    talk = Conversation().open()
    talk.say(CLIENT, wire(connect(5), version=V5))
    talk.ack(SERVER)
    talk.say(SERVER, wire(Connack(reason_code=0), version=V5))
    talk.ack(CLIENT)
    if way == "lost just before the end":
        talk.wait(80)
    (sent,) = talk.wait(9).say(SERVER, wire(Publish(topic_name="late", payload=b"1"), version=V5))
    if way == "acknowledged":
        talk.ack(CLIENT)
    else:
        for pause in (0.5, 1, 2):
            talk.wait(pause).repeat(sent)
    if way != "lost just before the end":
        talk.wait(80)
    if way == "acknowledged at last":
        talk.ack(CLIENT)
    talk.say(SERVER, wire(Disconnect(reason_code=code), version=V5))
    talk.fin(SERVER)
    first = of_segments(numbered(talk.tape.segments))[0].first

    assert (first.certainty, first.reason_code) == (Certainty.CERTAIN, code)
    assert ("the client was out of reach: its TCP had acknowledged nothing for 83.5" in first.headline) is is_lost
    assert any("Let the client send PINGREQ" in text for text in first.advice) is (code == 0x8D and not is_lost)
    assert not any("copied" in text for text in first.advice)


CERTAIN = {
    # A goodbye is normal whoever closes.
    "opened; > disconnect; > reset": "normal",
    "opened; > disconnect; < reset": "normal",
    "opened; > disconnect code=4; > reset": "normal",
    "opened; > disconnect code=4; < reset": "normal",
    "opened; > disconnect code=0x95; > fin": "packet_too_large",
    "opened; > disconnect code=0x80; > fin": "client_disconnect",
    "> connect; < connack code=0x86; < fin": "bad_credentials",
    "> connect; < connack code=0x8a; < fin": "banned",
    "> connect; < connack code=0x80; < fin": "connect_refused",
    "> connect 3.1.1; < connack code=1; < fin": "unsupported_version",
    "> connect 3.1.1; < connack code=2; < fin": "client_identifier_rejected",
    "> connect 3.1.1; < connack code=3; < fin": "server_unavailable",
    "> connect 3.1.1; < connack code=4; < fin": "bad_credentials",
    "> connect 3.1.1; < connack code=5; < fin": "not_authorized",
}


@each("text, cause", CERTAIN.items())
def test_what_a_client_says_and_a_refusal_are_certain(text: str, cause: str) -> None:
    assert (ending(text).cause, ending(text).first.certainty) == (cause, Certainty.CERTAIN)


@each("name, code, is_named", [("MQTT", 1, True), ("MQIsdp", 1, False), ("MQTT", 2, False)])
def test_a_protocol_name_that_does_not_go_with_the_level(name: str, code: int, is_named: bool) -> None:
    first = ending(f"> connect 3.1 protocol_name={name}; < connack code={code}; < fin; @1 opened 3.1.1").first

    assert ("protocol name is 'MQTT', must be 'MQIsdp' with protocol level 3." in first.headline) is is_named
    assert ("does not speak this version" in first.headline) is (code == 1 and not is_named)
    assert first.advice[0].startswith("Instead, send MQTT with") is is_named


@each(
    "text, certainty",
    [
        ("> connect 3.1.1; < fin; +1 @1 opened 3.1", Certainty.LIKELY),
        ("> connect 3.1; < reset; +1 @1 opened 3.1.1", Certainty.LIKELY),
        ("> connect; < fin; +1 @1 opened 3.1.1 client=c2", Certainty.LIKELY),
        # Something else of the CONNECT may be the reason.
        ("> connect 3.1.1 will=w will_retain; < fin; +1 @1 opened 3.1", Certainty.HYPOTHESIS),
        # The broker speaks both, waits, or the client closes; or no version was accepted.
        ("> connect 3.1.1; < fin; +1 @1 opened 3.1; @2 opened 3.1.1 client=c2", None),
        ("> connect 3.1.1; +2 < fin; +1 @1 opened 3.1", None),
        ("> connect 3.1.1; > fin; +1 @1 opened 3.1", None),
        ("> connect 3.1.1; < fin; +1 @1 > connect 3.1; @1 < fin", None),
        ("> connect 3.1.1; < fin; +121 @1 opened 3.1", None),
    ],
)
def test_a_version_that_is_not_accepted(text: str, certainty: Certainty | None) -> None:
    certainties = [
        candidate.certainty for candidate in ending(text).candidates if candidate.cause is Cause.UNSUPPORTED_VERSION
    ]

    assert certainties == ([] if certainty is None else [certainty])
    if certainty is Certainty.LIKELY:
        assert ending(text).cause is Cause.UNSUPPORTED_VERSION


@each(
    "text, expected",
    [
        ("opened receive_maximum=5; < publish a 1 qos=1 id=1; > disconnect code=0x93; > fin",
         "than the client's Receive Maximum of 5 allows, although the capture shows at most 1"),
        ("opened receive_maximum=1; < publish a 1 qos=1 id=1; < publish a 2 qos=1 id=2; > disconnect code=0x93; > fin",
         "server has 2 QoS 1 and 2 messages unacknowledged, the client's Receive Maximum is 1"),
        ("opened < receive_maximum=5; lost > publish a 1 qos=1 id=1; > pingreq; < disconnect code=0x93; < fin",
         "the client had more messages unacknowledged than the broker's Receive Maximum of 5 allows."),
        ("opened; < disconnect code=0x97; < fin", "a quota of the broker was used up."),
        ("opened; > disconnect code=0x97; > fin", "a quota of the client was used up."),
        ("opened; < publish a 1; > disconnect code=0x95; > fin", "broker sent a packet that is larger than the client"),
        ("opened < receive_maximum=9; > publish a 1 qos=2 id=1; < pubrec 1 code=0x97; > fin",
         "the client has exceeded a quota of the broker, with 1 message unacknowledged and a Receive Maximum of 9."),
    ],
)  # fmt: skip
def test_who_has_exceeded_whose_limit(text: str, expected: str) -> None:
    assert expected in ending(text).first.headline


def test_a_message_that_the_client_refused_is_named_with_its_end() -> None:
    refused = (
        "the client refused a message of the broker: 0x97 Quota exceeded; the broker has exceeded a quota of the client"
    )
    for end in ("> reset", "> disconnect code=0x80; > fin"):
        explanation = ending(f"opened; < publish a 1 qos=2 id=1; > pubrec 1 code=0x97; {end}")
        assert any(reason.text.startswith(refused) for reason in explanation.first.reasons)


def test_a_client_names_its_reason_too() -> None:
    explanation = ending("opened; > disconnect code=0x95; > fin")

    assert explanation.first.headline.startswith("The client ended the connection with 0x95")


def test_the_arithmetic_of_the_keep_alive_is_told() -> None:
    explanation = ending("opened keep_alive=60 < server_keep_alive=10; +15 < disconnect code=0x8d; < fin")

    second, first, third, *_ = [reason.text for reason in explanation.first.reasons]
    assert first == (
        "Server Keep Alive 10 s in the CONNACK (the CONNECT asked for 60 s): the broker waits 1.5 × 10 s = 15 s for a"
        " packet of the client"
    )
    assert second.startswith("the client's last packet: CONNECT")
    assert third.startswith("the broker ended the connection 15.0")


@each("known, expected", [("", True), ("user_name=ada password=x", False)])
def test_a_refusal_says_that_there_were_no_credentials(known: str, expected: bool) -> None:
    explanation = ending(f"> connect {known}; < connack code=0x87; < fin")

    assert any("no user name" in reason.text for reason in explanation.first.reasons) is expected


@each(
    "end, headline",
    [("+2 < fin", "The broker closed 2.0"), ("+30 > fin", "The client gave up 30.0")],
)
def test_a_connect_without_an_answer(end: str, headline: str) -> None:
    explanation = ending("> connect", end)

    assert explanation.cause is Cause.NO_CONNACK
    assert explanation.first.headline.startswith(headline)


def test_the_violation_stands_with_the_reason_code() -> None:
    explanation = ending("opened < maximum_qos=1; > publish a qos=2 id=1; < disconnect code=0x9b; < fin")

    assert explanation.first.broken[0].by == "client"
    assert explanation.first.broken[0].statements
    assert "Maximum QoS is 1" in explanation.first.headline


@each("version, code", [("5.0", 0x87), ("3.1.1", 5)])
def test_advice_for_a_refused_connect_is_about_credentials(version: str, code: int) -> None:
    explanation = ending(f"> connect {version} user_name=ada password=x; < connack code={code}; < fin")

    assert "user name, password" in explanation.first.advice[0]
    assert not any("topic" in text for text in explanation.first.advice)


def test_before_5_0_a_server_must_not_disconnect() -> None:
    explanation = ending("opened 3.1.1; < disconnect; < fin")

    assert (explanation.cause, explanation.first.reason_code) == (Cause.SERVER_DISCONNECT, None)
    assert "a server must not" in explanation.first.headline
    assert "Granted" not in repr(explanation)


def test_a_client_that_says_goodbye_after_a_refusal_was_refused() -> None:
    explanation = ending("> connect; < connack code=0x87; > disconnect; > fin")

    assert explanation.cause is Cause.NOT_AUTHORIZED


def test_a_client_that_got_too_large_a_packet_is_not_told_to_send_smaller_ones() -> None:
    explanation = ending("opened maximum_packet_size=100; < publish a 1; > disconnect code=0x95; > fin")

    assert explanation.cause is Cause.PACKET_TOO_LARGE
    assert "the broker must not send what exceeds it" in explanation.first.advice[0]


@each(
    "text, headline",
    [
        (
            "< publish a topic_alias=0; > disconnect code=0x94",
            "with 0x94 Topic Alias invalid: PUBLISH 'a' has Topic Alias 0.",
        ),
        (
            "< publish a; > disconnect code=0x94",
            "a Topic Alias of the broker was 0 or above the maximum of the client, 5.",
        ),
    ],
)
def test_a_client_that_names_its_reason_names_what_the_server_broke(text: str, headline: str) -> None:
    explanation = ending(f"opened topic_alias_maximum=5; > subscribe 1 #:0; < suback 1 0; {text}; > fin")

    assert explanation.first.headline.endswith(headline)
    assert explanation.first.advice[0].startswith("Correct the broker, at its packet") is bool(explanation.first.broken)


@each(
    "text, cause",
    [
        ("opened; @1 opened; < disconnect; < fin", "taken_over"),
        ("opened; @1 opened; < disconnect code=0x80; < fin", "taken_over"),
        ("opened; @1 opened; < disconnect code=0x98; < fin", "administrative_action"),
        ("opened; < disconnect; @1 opened; < fin", "server_disconnect"),
        ("opened; @1 opened < code=0x87; < disconnect; < fin", "server_disconnect"),
        ("opened; @1 opened; +1.1 < disconnect; < fin", "server_disconnect"),
        ("opened; @1 opened; > pingreq; < pingresp; < disconnect; < fin", "server_disconnect"),
        ("opened; @1 opened client=c2; < disconnect; < fin", "server_disconnect"),
    ],
)
def test_a_disconnect_that_names_no_reason_may_be_that_of_a_takeover(text: str, cause: str) -> None:
    explanation = ending(text)

    assert explanation.cause == cause
    assert (explanation.first.certainty is Certainty.LIKELY) is (cause == "taken_over")
    assert ("5.0 has 0x8E for this" in repr(explanation.first.reasons)) is (cause == "taken_over")


@each(
    "accepted, closes, is_named",
    [
        ((V3_1_1,), "server", True),
        ((V3_1,), "server", True),
        ((V5, V3_1_1), "server", False),
        ((V3_1_1,), "client", False),
        ((), "server", False),
    ],
)
def test_a_version_that_the_broker_accepted_from_nobody(
    accepted: tuple[ProtocolVersion, ...], closes: str, is_named: bool
) -> None:
    tape = Tape()
    for number, version in enumerate(accepted):
        other = Talk(tape, client_port=50_001 + number, client=f"192.0.2.{9 + number}").handshake()
        other.client(connect(version, f"c{number}"), version=version)
        other.server(Connack(reason_code=0), version=version)
    talk = Talk(tape).handshake()
    talk.client(connect(V5), version=V5)
    talk.fin(closes)
    explanation = of_segments(tape.segments)[len(accepted)]

    assert ("it may not speak MQTT 5.0" in explanation.first.headline) is is_named


@each("before, code, is_known", [
    ("@1 opened 3.1.1 user_name=u password=p; @1 > disconnect; @1 > fin", 5, True),
    ("@1 opened 3.1.1 user_name=u password=q; @1 > disconnect; @1 > fin", 5, False),
    ("@1 opened 3.1.1 client=c9 user_name=u password=p; @1 > disconnect; @1 > fin", 5, False),
    ("@1 opened 3.1.1 client=c9 user_name=u password=q; @1 > disconnect; @1 > fin", 5, False),
    ("@1 > connect 3.1.1 user_name=u password=p; @1 < connack code=5; @1 < fin", 5, False),
    ("@1 opened 3.1.1 user_name=u password=p; @1 > disconnect; @1 > fin", 4, False),
])  # fmt: skip
def test_a_refusal_of_what_was_accepted_before(before: str, code: int, is_known: bool) -> None:
    """Not with other credentials, of another client, or where the credentials themselves are refused."""
    explanations = explained(*steps_of(before, f"> connect 3.1.1 user_name=u password=p; < connack code={code}; < fin"))
    first = explanations[1].first

    assert ("had accepted this Client Identifier with the same user name" in first.headline) is is_known
    assert first.advice[0].startswith("Look in the broker for a ban") is is_known


def test_the_same_fault_on_each_connection_is_counted() -> None:
    opens = "opened resume topic_alias_maximum=5 < topic_alias_maximum=5"
    lines = [f"@{n} {opens}; @{n} > publish - qos=1 id=1 topic_alias=1; @{n} < disconnect code=0x82; @{n} < fin"
             for n in range(1, 4)]  # fmt: skip
    explanations = explained(*steps_of(f"{opens}; > publish a/b topic_alias=1; > reset", *lines))

    (headline,) = {end.first.headline for end in explanations[1:]}
    assert "meant 'a/b' on an earlier connection" in headline
    assert headline.endswith(", the same on each of 3 connections.")


@each("others, code, is_known", [
    ("@1 opened 3.1.1 client=c9 user_name=u password=p", 4, True),
    ("@1 opened 3.1.1 client=c9 user_name=u password=p", 5, True),
    ("@1 opened 3.1.1 client=c9 user_name=u password=q", 4, False),
    ("@1 opened 3.1.1 client=c9", 4, False),
    ("@1 > connect 3.1.1 client=c9 user_name=u password=p; @1 < connack code=5", 4, False),
    ("@1 opened 3.1.1 client=c9 user_name=u password=p", 3, False),
])  # fmt: skip
def test_a_refusal_of_credentials_that_another_client_has(others: str, code: int, is_known: bool) -> None:
    explanations = explained(*steps_of(others, f"> connect 3.1.1 user_name=u password=p; < connack code={code}; < fin"))
    first = next(end.first for end in explanations if end.connection == 1)

    assert ("accepted the same user name and password as connection #0" in first.headline) is is_known
    assert any("as connection #0" in reason.text for reason in first.reasons) is is_known


@each("accepted, asked, is_named", [
    ((60, 30), 0, True), ((60, 30), 61, True), ((60, 30), 60, False), ((60, 0), 0, False), ((60, 0), 61, False),
    ((), 0, False),
])  # fmt: skip
@each("code", [2, 4])
def test_a_keep_alive_that_no_accepted_client_has(
    accepted: tuple[int, ...], asked: int, is_named: bool, code: int
) -> None:
    opened = [f"@{n} opened 3.1.1 client=x{n} keep_alive={each_one}" for n, each_one in enumerate(accepted, 1)]
    explanations = explained(*steps_of(*opened, f"> connect 3.1.1 keep_alive={asked}; < connack code={code}; < fin"))
    (first,) = [end.first for end in explanations if end.connection == len(accepted)]

    assert ("no accepted client has 0 s or more than 60 s" in first.headline) is (is_named and code == 2)


@each("earlier, later, certainty", [
    ("@1 opened client=c; @1 > fin", "@3 > connect client=d; @3 < fin", Certainty.LIKELY),
    ("", "@1 > connect client=d; @1 < fin; @3 opened client=c", Certainty.LIKELY),
    ("@1 opened client=c; @1 > fin", "+121 @3 > connect client=d; @3 < fin", Certainty.HYPOTHESIS),
    ("@1 opened client=c; @1 > fin", "@3 > connect client=c; @3 < fin", Certainty.HYPOTHESIS),
    # Other credentials, another version, another client; nothing was accepted.
    ("@1 opened client=c user_name=u password=p; @1 > fin", "@3 > connect client=d; @3 < fin", None),
    ("@1 opened 3.1.1 client=c; @1 > fin", "@3 > connect 5.0 client=d; @3 < fin", None),
    ("@1 opened client=e; @1 > fin", "@3 > connect client=d; @3 < fin", None),
    ("@1 > connect client=c; @1 < fin", "@3 > connect client=d; @3 < fin", None),
])  # fmt: skip
def test_a_connect_without_an_answer_that_is_accepted_at_other_times(
    earlier: str, later: str, certainty: Certainty | None
) -> None:
    explanations = explained(*steps_of(*filter(None, [earlier, "+1 @2 > connect 5.0 client=c; @2 < fin", later])))
    end = next(end for end in explanations if "closed" in end.first.headline and end.first.cause in (
        Cause.SERVER_UNAVAILABLE, Cause.NO_CONNACK, Cause.UNSUPPORTED_VERSION, Cause.SERVER_RESTART
    ))  # fmt: skip
    ready = [candidate for candidate in end.candidates if candidate.cause is Cause.SERVER_UNAVAILABLE]

    assert [candidate.certainty for candidate in ready] == ([] if certainty is None else [certainty])


@each("offered, other, is_named", [
    ("none", "@2 upgraded; @2 > frame connect; @2 < frame connack", True),
    ("none", "@2 upgraded offered=none selected=none; @2 > frame connect; @2 < frame connack", False),
    ("none", "@2 upgraded; @2 > frame connect", False),
    ("mqtt", "@2 upgraded; @2 > frame connect; @2 < frame connack", False),
])  # fmt: skip
def test_a_websocket_without_a_subprotocol_that_gets_no_connack(offered: str, other: str, is_named: bool) -> None:
    selected = "none" if offered == "none" else offered
    text = f"@1 upgraded offered={offered} selected={selected}; @1 > frame connect client=c; +9 @1 > fin"
    end = next(end for end in explained(*steps_of(other, text)) if end.client_identifier == "c")

    assert ("its request for a WebSocket does not offer mqtt" in end.first.headline) is is_named


@each(
    "lines, cause",
    [
        (["> connect 3.1.1 protocol_level=0x84; < connack code=1; < fin"], Cause.UNSUPPORTED_VERSION),
        (
            ["@1 opened 3.1.1", "> connect 3.1.1 protocol_level=0x84; < connack code=1; < fin"],
            Cause.CONNECT_REFUSED,
        ),
        (["@1 opened 5.0", "> connect 3.1.1 protocol_level=0x84; < fin"], Cause.NO_CONNACK),
    ],
)
def test_a_bridge_bit_that_is_refused(lines: list[str], cause: Cause) -> None:
    end = next(end for end in explained(*steps_of(*lines)) if end.connection == len(lines) - 1)

    assert end.cause is cause
    assert end.first.advice[0] == "Switch the bridge bit off (mosquitto: try_private false)."
    assert any("bridge bit" in reason.text for reason in end.first.reasons)
    assert "may not speak" not in end.first.headline


def test_a_refused_version_without_the_bridge_bit() -> None:
    assert "try_private" not in " ".join(ending("> connect 3.1.1; < connack code=1; < fin").first.advice)


@each("others, code, says", [
    ("@1 opened 3.1.1 client=c9 user_name=u password=p", 5, "accepted only clients with one"),
    ("@1 opened 3.1.1 client=c9 user_name=u password=p", 4, "accepted only clients with one"),
    ("@1 opened 3.1.1 client=c9 user_name=u password=p; @2 opened 3.1.1 client=c8", 5, "connection #1 without one"),
    ("@1 > connect 3.1.1 client=c9; @1 < connack code=5", 5, "may not allow anonymous clients"),
])  # fmt: skip
def test_a_refused_connect_without_a_user_name(others: str, code: int, says: str) -> None:
    explanations = explained(*steps_of(others, f"> connect 3.1.1; < connack code={code}; < fin"))
    first = explanations[-1].first

    assert first.reason_code == code
    assert says in repr((first.headline, first.reasons))
    assert ("only clients with one" in first.headline) is ("only" in says)


def token(seconds: int) -> str:
    """A token that expires so long after the beginning of a conversation."""
    return jwt({"exp": START_NS // 1_000_000_000 + seconds}).decode()


@each("expires, is_named", [(8, True), (11, False)])
@each("code, is_about", [(4, True), (5, True), (3, False)])
def test_a_refusal_of_a_token_that_had_expired(expires: int, is_named: bool, code: int, is_about: bool) -> None:
    end = ending(f"+10 > connect 3.1.1 user_name=u password={token(expires)}; < connack code={code}; < fin")

    assert (end.first.certainty, end.first.reason_code) == (Certainty.CERTAIN, code)
    assert ("the JSON Web Token in the CONNECT had expired 2." in end.first.headline) is (is_named and is_about)


@each("client", ["c", "d"])
def test_a_broker_that_accepts_an_expired_token_refuses_for_another_reason(client: str) -> None:
    word = f"user_name=u password={token(8)}"
    before = f"+10 @1 opened 3.1.1 client={client} {word}; @1 > disconnect; @1 > fin; @1 < fin"
    end = explained(*steps_of(before, f"> connect 3.1.1 client=c {word}; < connack code=5; < fin"))[-1]

    assert end.first.reason_code == 5
    assert "expired" not in end.first.headline


@each("code, is_about", [("0x87", True), ("0xa0", True), ("0x8b", False)])
def test_a_disconnect_for_a_token_that_had_expired(code: str, is_about: bool) -> None:
    end = ending(f"opened user_name=u password={token(8)}; +10 < disconnect code={code}; < fin")

    assert ("in the CONNECT had expired 2." in end.first.headline) is is_about


TWIN = "@9 opened 3.1.1 client=c user_name=u"


@each(
    "before, code, is_named",
    [
        (TWIN, 3, True),
        (TWIN, 2, True),
        (TWIN, 5, True),
        (TWIN, 4, False),
        (TWIN.replace("=u", "=v"), 3, True),
        (TWIN.replace("=u", "=v"), 5, False),  # the credentials are the likelier reason
        (f"{TWIN}; @9 > disconnect; @9 > fin", 3, False),
        (TWIN.replace("=c", "=d"), 3, False),
    ],
)
def test_a_refused_client_identifier_that_is_in_use(before: str, code: int, is_named: bool) -> None:
    lines = [before, f"@1 > connect 3.1.1 client=c user_name=u; @1 < connack code={code}; @1 < fin"]
    end = next(end for end in explained(*steps_of(*lines)) if end.first.reason_code == code)

    assert ("the same Client Identifier was connected then, as #" in end.first.headline) is is_named
    assert any("why it does not end the older connection" in advice for advice in end.first.advice) is is_named


@each("others, is_named", [("", True), ("@9 {header}; @9 opened 3.1.1 client=d", False)])
def test_a_proxy_header_before_a_connect_without_an_answer(others: str, is_named: bool) -> None:
    lines = [others.format(header=HEADER)] if others else []
    end = next(end for end in explained(*steps_of(*lines, f"@1 {HEADER}; @1 > connect 3.1.1 client=c; @1 < fin"))
               if end.client_identifier == "c")  # fmt: skip

    assert (": a PROXY protocol header came before it, which the broker may not" in end.first.headline) is is_named
    assert end.first.advice[0].startswith("Let both agree on the PROXY protocol") is is_named


REFUSED_TWIN = "opened 3.1.1; @1 > connect 3.1.1; @1 < connack code=2; @1 < fin; > pingreq; < pingresp"


@each(
    "text, is_named",
    [
        (REFUSED_TWIN, True),
        # This broker takes sessions over: before the refusal, or after it.
        (f"@2 opened 3.1.1; +9 opened 3.1.1; @2 < fin; {REFUSED_TWIN.partition('; ')[2]}", False),
        (f"{REFUSED_TWIN}; +9 @2 opened 3.1.1; < fin", False),
        (f"{REFUSED_TWIN}; > disconnect; > fin; +9 @2 opened 3.1.1", True),
    ],
)
def test_a_broker_that_takes_sessions_over_does_not_refuse_for_them(text: str, is_named: bool) -> None:
    (headline,) = [end.first.headline for end in explained(*steps_of(text)) if "refused" in end.first.headline]

    assert ("the same Client Identifier was connected then" in headline) is is_named


@each(
    "others, cause, says",
    [
        ("opened; @1 > connect; @1 < fin; > pingreq; < pingresp", Cause.NO_CONNACK, "was connected then, as #0"),
        ("opened client=c2; @2 opened; @2 > disconnect; @2 > fin; @1 > connect; @1 < fin; > pingreq; < pingresp",
         Cause.NO_CONNACK, "without a CONNACK."),
        ("opened client=c2; @1 > connect; @1 < connack code=0x88; @1 < fin; > pingreq; < pingresp",
         Cause.SERVER_UNAVAILABLE, "0x88 Server unavailable: it served others at that time"),
        ("opened client=c2; > disconnect; > fin; @1 > connect; @1 < connack code=0x88; @1 < fin",
         Cause.SERVER_UNAVAILABLE, "its cluster is not ready"),
        # The broker served nobody before and after.
        ("@2 opened; @2 > disconnect; @2 > fin; @1 > connect; @1 < fin", Cause.SERVER_UNAVAILABLE, "was not ready"),
    ],
)  # fmt: skip
def test_a_broker_that_serves_others_is_not_unavailable(others: str, cause: Cause, says: str) -> None:
    (end,) = [end for end in explained(*steps_of(others)) if end.client.endswith(":51235")]

    assert end.cause is cause
    assert says in end.first.headline


@each(
    "text, is_named",
    [
        ('> connect 3.1.1 user_name="" password=x; < connack code=4; < fin', True),
        ('> connect user_name="" password=x; < connack code=0x87; < fin', True),
        ('> connect 3.1.1 user_name="" password=x; < fin', True),
        ('> connect user_name="" password=x; < connack code=0x8a; < fin', False),
        ("> connect 3.1.1 user_name=u password=x; < connack code=4; < fin", False),
        # The broker accepts an empty user name.
        ('@1 opened client=c2 user_name=""; > connect user_name="" password=x; < connack code=0x86; < fin', False),
        ('@1 opened client=c2 user_name=""; > connect user_name="" password=x; < fin', False),
    ],
)
def test_an_empty_user_name(text: str, is_named: bool) -> None:
    (first,) = [end.first for end in explained(*steps_of(text)) if end.ended_how == "fin"]

    assert any(reason.text == "the user name in the CONNECT is empty" for reason in first.reasons) is is_named
    assert any("Set the user name" in line for line in first.advice) is is_named


@each("packet", ["> connect; < connack code={}; < fin", "opened; < disconnect code={}; < fin"])
@each("code, says", [("0x9c", "sends the client to"), ("0x9d", "has moved")])
def test_another_server_is_named(packet: str, code: str, says: str) -> None:
    named = ending(packet.format(f"{code} server_reference=b2.example:1883")).first
    nameless = ending(packet.format(code)).first

    assert says in named.headline
    assert "b2.example:1883" in named.headline
    assert named.advice == ("Let the client connect to b2.example:1883, the Server Reference of the packet.",)
    assert nameless.advice == ("Ask who operates the broker for the address: the packet has no Server Reference.",)


METHOD = "authentication_method=SCRAM-SHA-1"
EXCHANGE = f"> connect {METHOD}; < auth code=0x18 {METHOD}; > auth code=0x18 {METHOD} authentication_data=x"


@each(
    "text, says",
    [
        (f"> connect {METHOD}; < connack code=0x8c; < fin", "does not offer the Authentication Method SCRAM-SHA-1."),
        (f"@1 opened client=c2 {METHOD}; > connect {METHOD}; < connack code=0x8c; < fin",
         "it refused the Authentication Method SCRAM-SHA-1, although the broker accepted"),
        ("> connect; < connack code=0x8c; < fin", "the CONNECT has no Authentication Method"),
        (f"{EXCHANGE}; < connack code=0x87; < fin", "or did not accept the authentication with SCRAM-SHA-1."),
        (f"opened {METHOD}; > auth code=0x19 {METHOD}; < disconnect code=0x87; < fin",
         "most probably did not accept the authentication with SCRAM-SHA-1."),
        (f"opened {METHOD}; > auth code=0x19 {METHOD}; < auth {METHOD}; > publish a x; < disconnect code=0x87; < fin",
         "something that was sent is not allowed"),
        (f"{EXCHANGE}; < fin", "it may not have accepted the authentication with SCRAM-SHA-1."),
        (f"{EXCHANGE}; +9 < fin", "nothing in the capture says why."),
        (f"{EXCHANGE}; > fin", "The client closed"),
    ],
)  # fmt: skip
def test_an_authentication_that_is_refused(text: str, says: str) -> None:
    (first,) = [end.first for end in explained(*steps_of(text)) if end.ended_how == "fin"]

    assert says in first.headline
    assert not any("no user name" in reason.text for reason in first.reasons) or METHOD not in text


@each("version, is_told", [("3.1", True), ("3.1.1", True), ("5.0", False)])
def test_only_a_connection_before_5_0_is_told_to_use_it(version: str, is_told: bool) -> None:
    assert any("Use MQTT 5.0" in line for line in ending(f"opened {version}; +3 < fin").first.advice) is is_told


def test_the_headline_names_the_reason_code_of_a_client_without_a_user_name() -> None:
    ends = explained(*steps_of("opened 3.1.1 client=c2; @1 > connect 3.1.1; @1 < connack code=5; @1 < fin"))

    assert ends[1].first.headline.startswith("The broker refused the CONNECT with 5 not authorized: ")
