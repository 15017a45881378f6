"""What a rule may take for known of a side: pieces, lost beginnings, late reading, signs of life until the end."""

from __future__ import annotations

from collections.abc import Callable

from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.finding import Finding
from mqttscope.mqtt import Connack, Disconnect, Properties, ProtocolVersion, Pubcomp, Publish, Pubrec, Pubrel
from mqttscope.net.segment import RST
from tests.dissect.talk import PINGREQ, PUBLISH_1, V3_1_1, V5, Talk, connect, wire
from tests.each import each
from tests.lint.lint_help import lint


def findings(talk: Talk, *codes: str) -> list[Finding]:
    """What the rules of these codes find, or all."""
    return lint(
        [usual_rule(rule) for code, rule in all_rules().items() if not codes or code in codes], talk.tape.segments
    )


def test_the_keep_alive_runs_until_a_packet_begins() -> None:
    talk = Talk().handshake()
    greeting = connect()
    greeting.keep_alive = 10
    talk.client(greeting)
    talk.server(Connack())
    raw = wire(Publish(topic_name="a", payload=b"x" * 40))
    for start in range(0, len(raw), 10):
        talk.tape.wait(8)
        talk.client(raw[start : start + 10])
    talk.tape.wait(8)
    talk.client(PINGREQ)
    assert findings(talk, "KAL201") == []

    talk.tape.wait(12)
    talk.client(raw[:5])
    talk.client(raw[5:])
    assert [finding.message for finding in findings(talk, "KAL201")] == [
        "client was silent for 12.0 s before PUBLISH, its Keep Alive is 10 s"
    ]


def test_who_began_a_packet_before_the_limits_came_is_not_to_blame() -> None:
    talk = Talk().handshake()
    talk.client(connect(5), version=V5)
    raw = wire(Publish(topic_name="a", qos=2, packet_identifier=1, payload=b"x"), version=V5)
    talk.client(raw[:4])
    talk.server(Connack(properties=Properties(maximum_qos=1)), version=V5)
    talk.client(raw[4:])

    assert [finding.severity for finding in findings(talk, "PUB209")] == ["info"]


def test_who_is_heard_alone_is_not_blamed_for_what_the_other_may_have_said() -> None:
    """The server's direction of a delivery of QoS 2: its PUBREL answers a PUBREC that was not captured."""
    talk = Talk()
    talk.position["client"] += 1
    talk.server_opens()
    talk.lose("client", 20)
    talk.ack("server")
    talk.server(Connack())
    talk.server(Publish(topic_name="a", qos=2, packet_identifier=1, payload=b"x"))
    talk.lose("client", 4)
    talk.ack("server")
    talk.server(Pubrel(1))
    talk.lose("client", 4)
    talk.ack("server")

    assert [finding.rule for finding in findings(talk) if finding.severity == "error"] == []


def test_answers_that_are_read_before_what_waits_behind_a_hole_are_not_wrong() -> None:
    talk = Talk().handshake()
    talk.lose("client", 20)  # the CONNECT
    talk.ack("server")
    talk.server(Connack())
    talk.ack("client")
    for number in range(1, 6):
        talk.server(Publish(topic_name="a", qos=2, packet_identifier=number, payload=b"x"))
        talk.client(Pubrec(number))
        talk.server(Pubrel(number))
        talk.client(Pubcomp(number))
    talk.ack("server")

    assert [finding.rule for finding in findings(talk) if finding.severity == "error"] == []


def silent(version: ProtocolVersion) -> Talk:
    """A client that has said all it will say, with a Keep Alive of 60 s, for a minute and a half."""
    talk = Talk().handshake()
    greeting = connect(version.value)
    greeting.keep_alive = 60
    talk.client(greeting, version=version)
    talk.server(Connack(), version=version)
    talk.client(PUBLISH_1, version=version)
    talk.tape.wait(90)
    return talk


def forgotten(talk: Talk) -> None:
    """A stack that was started again answers what it knows nothing of: a reset without acknowledgment."""
    sequence = talk.position["client"]
    talk.tape.add(talk.keys["client"], sequence, 0, RST, b"", 0)


def nobody(talk: Talk) -> None:
    """Nothing more comes, however often the server repeats itself."""
    for seconds in (0.2, 0.4, 0.8, 1.6):
        talk.tape.wait(seconds)
        talk.position["server"] -= 1
        talk.fin("server")


STEPS: dict[str, Callable[[Talk, ProtocolVersion], object]] = {
    "taken over": lambda talk, version: talk.server(Disconnect(reason_code=0x8E), version=version),
    "timed out": lambda talk, version: talk.server(Disconnect(reason_code=0x8D), version=version),
    "message": lambda talk, version: talk.server(PUBLISH_1, version=version),
    "fin": lambda talk, _: talk.fin("server"),
    "reset": lambda talk, _: talk.reset("server"),
    "acknowledgment": lambda talk, _: talk.ack("client"),
    "fin of the client": lambda talk, _: talk.fin("client"),
    "nobody": lambda talk, _: nobody(talk),
    "forgotten": lambda talk, _: forgotten(talk),
}
"""What happens to a silent client; the first two are of MQTT 5.0."""
SURE = {"nobody": [], "forgotten": [], "acknowledgment": ["certain"], "fin of the client": ["certain"]}
"""How sure it is that the client was there, by what is answered to the end of the server."""


@each(
    "steps, sure",
    [
        *((("fin", answer), sure) for answer, sure in SURE.items()),
        *(((end, "fin", answer), sure) for end in ("taken over", "timed out") for answer, sure in SURE.items()),
        (("timed out",), []),
        (("timed out", "acknowledgment"), ["certain"]),
        (("message",), []),
        (("message", "acknowledgment"), ["certain"]),
        (("message", "forgotten"), []),
        (("reset",), ["likely"]),
        (("message", "reset"), []),
    ],
)
def test_what_happens_to_a_silent_client_shows_whether_it_was_there(steps: tuple[str, ...], sure: list[str]) -> None:
    for version in (V5,) if steps[0].startswith("t") else (V3_1_1, V5):
        talk = silent(version)
        for step in steps:
            STEPS[step](talk, version)

        assert [finding.confidence for finding in findings(talk, "KAL201")] == sure, version
