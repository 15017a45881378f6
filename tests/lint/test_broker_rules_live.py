"""Rules about a whole server on a real mosquitto: wills and retained messages."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import Linter
from mqttscope.lint.examples import make_connect
from mqttscope.lint.rule import V3_1_1, V5
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Disconnect, Pingreq, Publish, Subscribe
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import Properties
from tests.each import some
from tests.live import capturing
from tests.proxy.rig import mosquitto

pytestmark = pytest.mark.broker
CODES = ("WIL", "RET", "CON426", "CON432", "OPS426")
PATIENCE_S = 1
OPEN: list[socket.socket] = []
"""What a scenario has opened."""


class Client:
    """A client that says what it is told."""

    def __init__(self, port: int, version: ProtocolVersion, name: str, **connect: Any) -> None:
        self.version = version
        self.socket = socket.create_connection(("127.0.0.1", port))
        OPEN.append(self.socket)
        self.say(make_connect(version, client_identifier=name, **connect))

    def say(self, *packets: ControlPacket) -> None:
        """Send packets and wait for what comes back."""
        for packet in packets:
            self.socket.sendall(encode(packet, self.version))
            self.hear()

    def hear(self) -> None:
        """Take what has come."""
        self.socket.settimeout(0.1)
        with suppress(TimeoutError):
            self.socket.recv(65_536)

    def vanish(self) -> None:
        """End with a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def leave(self) -> None:
        """End in good order."""
        self.say(Disconnect())
        self.socket.close()


def found(folder: Path, scenario: Callable[[int], None]) -> list[tuple[str, str]]:
    path = folder / "capture.pcapng"
    with mosquitto(folder) as broker, capturing(broker.port, path):
        scenario(broker.port)
    while OPEN:
        OPEN.pop().close()
    rules = [rule for code, rule in all_rules().items() if code.startswith(CODES)]
    patient = {"timeout": PATIENCE_S}
    linter = Linter([rule(patient if "timeout" in rule.settings else None) for rule in rules], strict=True)
    return [
        (finding.rule, finding.message)
        for event in dissect(open_capture([str(path)]))
        for finding in linter.feed(event)
    ]


def subscribe(port: int, version: ProtocolVersion, topic_filter: str, **options: Any) -> Client:
    client = Client(port, version, "reader")
    client.say(Subscribe(1, subscriptions=[Subscription(topic_filter, 1, **options)]))
    return client


@pytest.mark.parametrize("version", some([V5, V3_1_1]), ids=["5.0", "3.1.1"])
def test_clean_sessions_with_wills_give_no_finding(version: ProtocolVersion, tmp_path: Path) -> None:
    def wills(port: int) -> None:
        reader = subscribe(port, version, "w/#")
        for name in ("gone", "left", "said", "taken"):
            client = Client(port, version, name, will=Will(f"w/{name}", b"gone", 1))
            client.say(Publish(topic_name=f"w/{name}", payload=b"here"))
            if name == "gone":
                client.vanish()
            elif name == "taken":
                Client(port, version, name).leave()
            else:
                client.say(*[Publish(topic_name=f"w/{name}", payload=b"gone")] * (name == "said"))
                client.leave()
            reader.hear()
        time.sleep(PATIENCE_S)
        reader.say(Pingreq())
        time.sleep(0.3)
        reader.leave()

    assert found(tmp_path, wills) == []


@pytest.mark.parametrize("version", some([V5, V3_1_1]), ids=["5.0", "3.1.1"])
def test_clean_sessions_with_retained_messages_give_no_finding(version: ProtocolVersion, tmp_path: Path) -> None:
    def retained(port: int) -> None:
        copies = subscribe(port, version, "a", retain_as_published=version is V5)
        for name in ("p", "q"):
            writer = Client(port, version, name)
            for value in (b"20", b"21"):
                writer.say(Publish(qos=1, retain=True, topic_name="a", packet_identifier=1, payload=value))
                copies.hear()
            writer.say(Publish(topic_name="a", payload=b"22"))
            writer.leave()
        for _ in range(2):
            Client(port, version, "").say(Subscribe(1, subscriptions=[Subscription("+", 0)]))
        time.sleep(PATIENCE_S)
        copies.say(Pingreq())

    assert found(tmp_path, retained) == []


@pytest.mark.long
def test_a_delayed_will_comes_unless_the_client_is_back(tmp_path: Path) -> None:
    """For a client that is back with a new session mosquitto 2.0.11 publishes none, as it may."""
    will = {"properties": Properties(will_delay_interval=1, user_property=[("a", "1"), ("a", "2")], content_type="x")}
    lasts = {"properties": Properties(session_expiry_interval=60)}

    def delays(port: int) -> None:
        reader = subscribe(port, V5, "w/#", retain_as_published=True)
        for name, back, clean in (("w/late", False, False), ("w/back", True, False), ("w/new", True, True)):
            client = Client(port, V5, name, will=Will(name, b"gone", 1, True, **will), **lasts)
            client.say(Publish(topic_name=name, payload=b"here"))
            reader.hear()
            client.vanish()
            if back:
                Client(port, V5, name, clean_start=clean, **lasts)
        time.sleep(1.5)
        reader.hear()
        time.sleep(PATIENCE_S)
        reader.say(Pingreq())
        time.sleep(0.3)
        reader.leave()

    assert found(tmp_path, delays) == []
