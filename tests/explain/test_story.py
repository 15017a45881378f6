"""What is remembered of a connection."""

from __future__ import annotations

import pytest

from mqttscope.explain import Explainer
from mqttscope.explain.story import MAX_PACKETS, announced
from mqttscope.lint.examples import client, closes, opened, server
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Disconnect, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.mqtt.properties import Properties
from tests.explain.running import explained, only

V311 = ProtocolVersion.V3_1_1


def test_the_last_packets_of_both_sides_are_kept_and_the_others_counted() -> None:
    pings = [step for _ in range(20) for step in (client(Pingreq()), server(Pingresp()))]
    one = only(*opened(), *pings, client(Disconnect()), closes("client"))

    assert len(one.timeline) == 2 * MAX_PACKETS + 2
    assert one.left_out == 43 - 2 * MAX_PACKETS
    assert [each.what for each in one.timeline[-3:]] == ["DISCONNECT 0x00 Normal disconnection", "TCP FIN", "TCP FIN"]


def test_packets_are_told_with_what_matters() -> None:
    wanted = Subscribe(packet_identifier=1, subscriptions=[Subscription("a/#", maximum_qos=1)])
    one = only(
        *opened(V311, keep_alive=30),
        client(wanted),
        server(Suback(packet_identifier=1, reason_codes=[0x80])),
        client(Publish(topic_name="a/b", qos=1, packet_identifier=2, payload=b"xyz")),
        server(Puback(packet_identifier=2)),
        closes("client"),
    )

    assert [each.what for each in one.timeline] == [
        "CONNECT 3.1.1, clean session, keep alive 30 s",
        "CONNACK 0 Connection Accepted",
        "SUBSCRIBE id=1 a/# (q1)",
        "SUBACK id=1 0x80 Failure",
        "PUBLISH q1 id=2 a/b (12 bytes)",
        "PUBACK id=2",
        "TCP FIN",
        "TCP FIN",
    ]


def test_reason_strings_are_told_without_secrets() -> None:
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJwdW1wIn0.abcdef0123456789"
    said = Disconnect(reason_code=0x98, properties=Properties(reason_string=f"sold, token={token}"))
    one = only(*opened(), server(said), closes("server"))

    told = repr(one)
    assert "sold" in told
    assert token not in told


def test_secrets_in_names_are_not_told() -> None:
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJwdW1wIn0.abcdef0123456789"
    found = explained(
        *opened(client_identifier=token, user_name="u", password=b"s3cretPlantPw"),
        client(Publish(topic_name=f"a/{token}", qos=1, packet_identifier=1)),
        closes("server"),
        explainer=Explainer(),
    )

    assert token not in repr(found)
    assert "s3cretPlantPw" not in repr(found)


@pytest.mark.parametrize(
    ("raw", "length"), [(b"\x30\x05", 7), (b"\x30\x80\x01", 131), (b"\x30", 0), (b"\x30\xff\xff\xff\xff\xff", 0)]
)
def test_the_length_that_a_packet_says_to_have(raw: bytes, length: int) -> None:
    assert announced(raw) == length
