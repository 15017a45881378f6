"""What a rule may take for known of a side: packets in pieces, lost beginnings, packets that were read late."""

from __future__ import annotations

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Finding
from mqttscope.mqtt import Connack, Properties, Pubcomp, Publish, Pubrec, Pubrel
from tests.dissect.talk import PINGREQ, V5, Talk, connect, wire


def findings(talk: Talk, *codes: str) -> list[Finding]:
    """What the rules of these codes find, or all."""
    linter = Linter([rule() for code, rule in all_rules().items() if not codes or code in codes], strict=True)
    return [found for event in dissect_segments(talk.tape.segments) for found in linter.feed(event)]


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
    assert [found.message for found in findings(talk, "KAL201")] == [
        "client was silent for 12.0 s before PUBLISH, its Keep Alive is 10 s"
    ]


def test_who_began_a_packet_before_the_limits_came_is_not_to_blame() -> None:
    talk = Talk().handshake()
    talk.client(connect(5), version=V5)
    raw = wire(Publish(topic_name="a", qos=2, packet_identifier=1, payload=b"x"), version=V5)
    talk.client(raw[:4])
    talk.server(Connack(properties=Properties(maximum_qos=1)), version=V5)
    talk.client(raw[4:])

    assert [found.severity for found in findings(talk, "PUB209")] == ["info"]


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

    assert [found.rule for found in findings(talk) if found.severity == "error"] == []


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

    assert [found.rule for found in findings(talk) if found.severity == "error"] == []
