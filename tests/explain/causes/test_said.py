"""Causes that a packet names."""

from __future__ import annotations

from mqttscope.explain import Cause, Certainty
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Connack
from tests.dissect.talk import Talk, Tape, connect
from tests.each import each
from tests.explain.running import ending, explained, of_segments
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
    one = ending(f"opened; < disconnect code={code}; < fin")

    assert (one.cause, one.first.certainty, one.first.reason_code) == (cause, Certainty.CERTAIN, code)
    assert f"0x{code:02X}" in one.first.headline


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
    found = [one.certainty for one in ending(text).candidates if one.cause is Cause.UNSUPPORTED_VERSION]

    assert found == ([] if certainty is None else [certainty])
    if certainty is Certainty.LIKELY:
        assert ending(text).cause is Cause.UNSUPPORTED_VERSION


@each(
    "text, said",
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
def test_who_has_exceeded_whose_limit(text: str, said: str) -> None:
    assert said in ending(text).first.headline


def test_a_message_that_the_client_refused_is_named_with_its_end() -> None:
    refused = (
        "the client refused a message of the broker: 0x97 Quota exceeded; the broker has exceeded a quota of the client"
    )
    for end in ("> reset", "> disconnect code=0x80; > fin"):
        one = ending(f"opened; < publish a 1 qos=2 id=1; > pubrec 1 code=0x97; {end}")
        assert any(reason.text.startswith(refused) for reason in one.first.reasons)


def test_a_client_names_its_reason_too() -> None:
    one = ending("opened; > disconnect code=0x95; > fin")

    assert one.first.headline.startswith("The client ended the connection with 0x95")


def test_the_arithmetic_of_the_keep_alive_is_told() -> None:
    one = ending("opened keep_alive=60 < server_keep_alive=10; +15 < disconnect code=0x8d; < fin")

    second, first, third, *_ = [told.text for told in one.first.reasons]
    assert first == (
        "Server Keep Alive 10 s in the CONNACK (the CONNECT asked for 60 s): the broker waits 1.5 × 10 s = 15 s for a"
        " packet of the client"
    )
    assert second.startswith("the client's last packet: CONNECT")
    assert third.startswith("the broker ended the connection 15.0")


@each("known, told", [("", True), ("user_name=ada password=x", False)])
def test_a_refusal_says_that_there_were_no_credentials(known: str, told: bool) -> None:
    one = ending(f"> connect {known}; < connack code=0x87; < fin")

    assert any("no user name" in reason.text for reason in one.first.reasons) is told


@each(
    "end, headline",
    [("+2 < fin", "The broker closed 2.0"), ("+30 > fin", "The client gave up 30.0")],
)
def test_a_connect_without_an_answer(end: str, headline: str) -> None:
    one = ending("> connect", end)

    assert one.cause is Cause.NO_CONNACK
    assert one.first.headline.startswith(headline)


def test_the_violation_stands_with_the_reason_code() -> None:
    one = ending("opened < maximum_qos=1; > publish a qos=2 id=1; < disconnect code=0x9b; < fin")

    assert one.first.broken[0].by == "client"
    assert one.first.broken[0].statements
    assert "Maximum QoS is 1" in one.first.headline


@each("version, code", [("5.0", 0x87), ("3.1.1", 5)])
def test_advice_for_a_refused_connect_is_about_credentials(version: str, code: int) -> None:
    one = ending(f"> connect {version} user_name=ada password=x; < connack code={code}; < fin")

    assert "user name, password" in one.first.advice[0]
    assert not any("topic" in told for told in one.first.advice)


def test_before_5_0_a_server_must_not_disconnect() -> None:
    one = ending("opened 3.1.1; < disconnect; < fin")

    assert (one.cause, one.first.reason_code) == (Cause.SERVER_DISCONNECT, None)
    assert "a server must not" in one.first.headline
    assert "Granted" not in repr(one)


def test_a_client_that_says_goodbye_after_a_refusal_was_refused() -> None:
    one = ending("> connect; < connack code=0x87; > disconnect; > fin")

    assert one.cause is Cause.NOT_AUTHORIZED


def test_a_client_that_got_too_large_a_packet_is_not_told_to_send_smaller_ones() -> None:
    one = ending("opened maximum_packet_size=100; < publish a 1; > disconnect code=0x95; > fin")

    assert one.cause is Cause.PACKET_TOO_LARGE
    assert "the broker must not send what exceeds it" in one.first.advice[0]


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
    one = ending(f"opened topic_alias_maximum=5; > subscribe 1 #:0; < suback 1 0; {text}; > fin")

    assert one.first.headline.endswith(headline)
    assert one.first.advice[0].startswith("Correct the broker, at its packet") is bool(one.first.broken)


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
    one = ending(text)

    assert one.cause == cause
    assert (one.first.certainty is Certainty.LIKELY) is (cause == "taken_over")
    assert ("5.0 has 0x8E for this" in repr(one.first.reasons)) is (cause == "taken_over")


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
    one = of_segments(tape.segments)[len(accepted)]

    assert ("it may not speak MQTT 5.0" in one.first.headline) is is_named


@each("before, code, is_known", [
    ("@1 opened 3.1.1 user_name=u password=p; @1 > disconnect; @1 > fin", 5, True),
    ("@1 opened 3.1.1 user_name=u password=q; @1 > disconnect; @1 > fin", 5, False),
    ("@1 opened 3.1.1 client=c9 user_name=u password=p; @1 > disconnect; @1 > fin", 5, False),
    ("@1 > connect 3.1.1 user_name=u password=p; @1 < connack code=5; @1 < fin", 5, False),
    ("@1 opened 3.1.1 user_name=u password=p; @1 > disconnect; @1 > fin", 4, False),
])  # fmt: skip
def test_a_refusal_of_what_was_accepted_before(before: str, code: int, is_known: bool) -> None:
    """Not with other credentials, of another client, or where the credentials themselves are refused."""
    found = explained(*steps_of(before, f"> connect 3.1.1 user_name=u password=p; < connack code={code}; < fin"))
    first = found[1].first

    assert ("had accepted this Client Identifier with the same user name" in first.headline) is is_known
    assert first.advice[0].startswith("Look in the broker for a ban") is is_known


def test_the_same_fault_on_each_connection_is_counted() -> None:
    opens = "opened resume topic_alias_maximum=5 < topic_alias_maximum=5"
    lines = [f"@{n} {opens}; @{n} > publish - qos=1 id=1 topic_alias=1; @{n} < disconnect code=0x82; @{n} < fin"
             for n in range(1, 4)]  # fmt: skip
    found = explained(*steps_of(f"{opens}; > publish a/b topic_alias=1; > reset", *lines))

    (headline,) = {end.first.headline for end in found[1:]}
    assert "stood for 'a/b' on an earlier connection" in headline
    assert headline.endswith(", the same on each of 3 connections.")
