"""Rules that wait for a reaction, with a real broker: silent on a clean session, true where a side stalls."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.lint.catalogue import select
from mqttscope.lint.engine import Linter
from mqttscope.mqtt import Connect, Disconnect, ProtocolVersion, Publish, encode
from mqttscope.mqtt.packets import Pingreq, Puback, Pubrel, Subscribe
from mqttscope.mqtt.parts import Subscription
from tests.live import capturing
from tests.proxy.rig import mosquitto

pytestmark = pytest.mark.broker
V5 = ProtocolVersion.V5
SOON = {"timeout": 1}
RULES = (
    *("ACK515", "ACK516", "ACK517", "ACK518", "AUT507", "CON527", "CON528", "CON529", "CON530", "CON531"),
    *("DIS503", "DIS504", "ERR501", "ERR503", "FLW505", "KAL503", "KAL504", "KAL505", "SES510", "WSK504"),
)
Speak = Callable[..., None]


def talk(port: int, name: str, say: Callable[[Speak], None], before: float = 0) -> None:
    """A client that says something, reads what comes, and ends."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        time.sleep(before)

        def speak(packet: object, wait: float = 0.1) -> None:
            client.sendall(encode(packet, V5))  # type: ignore[arg-type]
            time.sleep(wait)

        speak(Connect(protocol_level=5, client_identifier=name, clean_start=True, keep_alive=60))
        say(speak)
        speak(Disconnect())


def clean(speak: Speak) -> None:
    speak(Subscribe(1, None, [Subscription("a", 1)]))
    speak(Publish(qos=2, topic_name="b", packet_identifier=2))
    speak(Pubrel(2))
    speak(Publish(qos=1, topic_name="a", packet_identifier=3))
    speak(Puback(1), 1.2)
    speak(Pingreq(), 0.1)


def stalls(speak: Speak) -> None:
    speak(Publish(qos=2, topic_name="b", packet_identifier=2), 1.6)


@pytest.mark.long
def test_a_broker_reacts_and_a_client_that_stalls_is_found(tmp_path: Path) -> None:
    target = tmp_path / "talk.pcapng"
    (tmp_path / "broker").mkdir()
    with mosquitto(tmp_path / "broker") as broker, capturing(broker.port, target):
        talk(broker.port, "clean", clean)
        talk(broker.port, "stalls", stalls)
        talk(broker.port, "late", clean, before=1.5)

    chosen = select(RULES)
    linter = Linter([rule(SOON if "timeout" in rule.settings else None) for rule in chosen.values()], strict=True)
    findings = [finding for event in dissect(open_capture([str(target)])) for finding in linter.feed(event)]

    # The broker closes connections without a CONNECT much later than after a second.
    assert [(finding.client_identifier, finding.rule) for finding in findings] == [
        ("stalls", "ACK516"),
        ("late", "CON530"),
    ]
