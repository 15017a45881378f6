"""What a conversation may have left on a broker."""

from __future__ import annotations

from mqttscope.mqtt import Connack, Connect, ControlPacket, Properties, Publish, encode
from mqttscope.mqtt.parts import Will
from mqttscope.trial.conversation import Conversation
from mqttscope.trial.leavings import leavings
from tests.trial.flows import V3_1_1, V5


def talk(*packets: ControlPacket | bytes, version: int = 5) -> Conversation:
    spoken = V5 if version == 5 else V3_1_1
    made = Conversation(spoken)
    for number, one in enumerate(packets):
        from_client = not isinstance(one, Connack)
        made.add(from_client, one if isinstance(one, bytes) else encode(one, spoken), number)
    return made


def connect(name: str, **more: object) -> Connect:
    return Connect(protocol_level=5, client_identifier=name, properties=Properties(), **more)  # type: ignore[arg-type]


def test_sessions_and_retained_messages() -> None:
    found = leavings(
        talk(
            connect("dev"),
            Publish(topic_name="kept", payload=b"x", retain=True, properties=Properties()),
            Publish(topic_name="passing", payload=b"x", properties=Properties()),
            Publish(topic_name="deleted", payload=b"", retain=True, properties=Properties()),
        )
    )

    assert found.sessions == [(V5, "dev")]
    assert found.topics == ["kept"]


def test_topics_behind_aliases_and_of_wills() -> None:
    aliased = Properties(topic_alias=1)
    found = leavings(
        talk(
            connect("dev", will=Will("last/words", b"x", will_retain=True, properties=Properties())),
            Publish(topic_name="named", payload=b"x", properties=aliased),
            Publish(topic_name="", payload=b"x", retain=True, properties=aliased),
        )
    )

    assert found.topics == ["last/words", "named"]


def test_what_is_malformed_may_have_been_tolerated() -> None:
    found = leavings(talk(Connect(client_identifier="dev"), b"\x37\x06\x00\x01a\x00\x01x", version=4))

    assert found.topics == ["a"]


def test_identifiers_that_the_broker_assigned() -> None:
    told = Connack(session_present=False, properties=Properties(assigned_client_identifier="auto-1"))
    found = leavings(talk(connect(""), told))

    assert found.sessions == [(V5, "auto-1")]
