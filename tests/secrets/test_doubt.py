"""What comes before or after a damaged packet, and what is said of it elsewhere."""

from __future__ import annotations

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.events import PacketEvent
from mqttscope.lint.engine import Linter
from mqttscope.mqtt import Auth, Connack, Connect, Pingreq, Properties, Publish, encode
from mqttscope.report.jsonl import EventJsonLines
from mqttscope.secrets.findings import HidingOptions, conceal
from mqttscope.secrets.packets import BROKEN, CLEAR, SUSPECT
from tests.dissect.talk import Talk
from tests.secrets.mutants import V3_1_1, V5
from tests.secrets.sinks import Text, rules

PUBLISH = Publish(topic_name="plant/a", payload=b"Xyzzy-Plugh")


def shown(talk: Talk) -> str:
    sink = Text()
    reporter = EventJsonLines(sink)
    for event in dissect_segments(talk.tape.segments):
        reporter.feed(event)
    reporter.close()
    return sink.whole().decode()


def doubts(talk: Talk) -> list[int]:
    """How little each packet of the client was trusted when it came."""
    return [
        dissect_segment.connection.client_side.doubt
        for dissect_segment in dissect_segments(talk.tape.segments)
        if isinstance(dissect_segment, PacketEvent) and dissect_segment.direction == "client_to_server"
    ]


def test_a_client_whose_handshake_was_seen_begins_with_connect() -> None:
    talk = Talk().handshake()
    talk.client(PUBLISH, PUBLISH, Pingreq(), Pingreq())
    assert doubts(talk) == [BROKEN, SUSPECT, CLEAR, CLEAR]
    assert shown(talk).count("Xyzzy-Plugh") == 1


def test_after_its_connect_it_is_trusted() -> None:
    talk = Talk().handshake()
    talk.client(Connect(client_identifier="a"))
    talk.client(PUBLISH)
    talk.server(Connack(reason_code=0))
    talk.client(PUBLISH)
    assert doubts(talk) == [BROKEN, SUSPECT, CLEAR]
    assert shown(talk).count("Xyzzy-Plugh") == 2


def test_a_connection_that_was_joined_is_not_in_doubt() -> None:
    talk = Talk()
    for _ in range(3):
        talk.client(PUBLISH, Pingreq())
    assert shown(talk).count("Xyzzy-Plugh") == 3


def test_one_packet_in_the_rest_of_a_connect_does_not_open_it() -> None:
    talk = Talk().handshake()
    talk.client(b"\xc0\x00" + encode(PUBLISH, V3_1_1))
    assert doubts(talk) == [BROKEN, SUSPECT]


@pytest.mark.parametrize("length", [20, 24])
def test_no_message_quotes_what_is_hidden_in_another_packet(length: int) -> None:
    """A wrong length puts Authentication Data into the Authentication Method that later packets are compared with."""
    properties = Properties(authentication_method="SCRAM", authentication_data=b"Frumious-Bandersnatch")
    raw = encode(Connect(protocol_level=5, client_identifier="a", properties=properties), V5)
    raw = raw.replace(b"\x00\x05SCRAM", bytes((0, length)) + b"SCRAM")
    talk = Talk().handshake()
    talk.client(raw)
    talk.server(encode(Auth(0x18, Properties(authentication_method="SCRAM", authentication_data=b"x")), V5))
    linter = Linter(rules())
    findings = [finding for event in dissect_segments(talk.tape.segments) for finding in linter.feed(event)]
    assert any(finding.withheld for finding in findings)
    for finding in findings:
        message = conceal(finding, HidingOptions()).message
        assert not any(b"Frumious-Bandersnatch"[at : at + 6].decode() in message for at in range(16)), message
