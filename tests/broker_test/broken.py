"""A small broker with faults that can be switched on: what a trial has to find.

Without a fault it closes for whatever is malformed, for a Topic Name with a wildcard, and for authentications (of the
method `METHOD`, with one challenge) that are none.  A fault shows when a client
does just that (or, for `Fault.REFUSE`, publishes to a topic with a space), so that others are served until then.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum

from mqttscope.mqtt import (
    Auth,
    Connack,
    Connect,
    ControlPacket,
    Disconnect,
    Malformed,
    Pingreq,
    Pingresp,
    Properties,
    ProtocolVersion,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    encode,
)
from mqttscope.mqtt.stream import PacketStream
from mqttscope.mqtt.topics import is_valid_topic_name, matches

V5 = ProtocolVersion.V5
LEAK_BYTES = 12 << 20
LATE_S = 0.3
SLOW_S = 0.09
"""More than a moment, and less than the tests wait."""
MOST = 3
METHOD = "EXAMPLE-1"


class Fault(StrEnum):
    """What goes wrong."""

    NONE = "none"
    TOLERATE = "tolerate"
    WRONG_REASON = "wrong-reason"
    NO_ANSWER = "no-answer"
    REFUSE = "refuse"
    CRASH = "crash"
    HANG = "hang"
    LEAK = "leak"
    COLLATERAL = "collateral"
    LOGIN = "login"
    """Whoever gives no User Name is refused."""
    LATE = "late"
    """It closes, but not at once."""
    GOOD_BYE = "good-bye"
    """It closes as if nothing had happened."""
    NO_ACKNOWLEDGEMENT = "no-acknowledgement"
    """It takes messages and acknowledges none, from the first one on."""
    OLD = "old"
    """It knows nothing of 5.0."""
    NO_SUBSCRIBE = "no-subscribe"
    """It lets nobody subscribe."""
    SILENT_SUBSCRIBE = "silent-subscribe"
    """It does not answer SUBSCRIBE."""
    MAXIMUM_QOS = "maximum-qos"
    """It takes no QoS 2, and says so."""
    MAXIMUM_QOS_0 = "maximum-qos-0"
    """It takes QoS 0 alone, and says so."""
    OF_NO_TABLE = "of-no-table"
    """It closes with a reason code that DISCONNECT does not have."""
    SHUT = "shut"
    """It answers no CONNECT any more, and serves those who are there."""
    FRAGILE = "fragile"
    """It tolerates everything once a client is connected, and crashes over anything odd before that."""
    DEAF = "deaf"
    """It delivers nothing any more, to nobody."""
    SECOND_CRASH = "second-crash"
    """It tolerates the first time, and crashes the second time."""
    LATE_CRASH = "late-crash"
    """It closes the first time, and crashes the second time."""
    LATE_HANG = "late-hang"
    """It tolerates the first time, and hangs from the second time on."""
    SLOW_CHALLENGE = "slow-challenge"
    """It takes its time in authentications."""
    NO_CHALLENGE = "no-challenge"
    """It says nothing to who wants to authenticate."""
    MORE_CHALLENGES = "more-challenges"
    """It never has enough of an authentication."""
    PICKY = "picky"
    """It closes without a word for clients that it does not know."""
    CHOOSY = "choosy"
    """It does so for all but the recorded client and our own."""
    FULL = "full"
    """It closes for whoever comes while it has `MOST` clients."""
    FRAIL = "frail"
    """It crashes when more than `MOST` clients are connected."""


MAXIMUM = {Fault.MAXIMUM_QOS: 1, Fault.MAXIMUM_QOS_0: 0}


class Broker:
    """Its state."""

    def __init__(self, fault: Fault, *, exits: bool = False) -> None:
        self.fault = fault
        self.exits = exits
        """A crash ends the process, not only the listener."""
        self.clients: set[Client] = set()
        self.hanging = False
        self.shut = False
        self.deaf = False
        self.leaked: list[bytearray] = []
        self.provocations = 0
        self.server: asyncio.Server | None = None
        self.port = 0
        self.stopped = False

    async def start(self, port: int = 0) -> None:
        """Listen on loopback."""
        await self.serve(socket.create_server(("127.0.0.1", port)))

    async def serve(self, listener: socket.socket) -> None:
        """Serve on a socket that listens."""
        self.port = int(listener.getsockname()[1])
        self.server = await asyncio.get_running_loop().create_server(lambda: Client(self), sock=listener)

    def stop(self) -> None:
        """End at once, as a crash does."""
        if self.exits:
            os._exit(11)
        self.stopped = True
        if self.server is not None:
            self.server.close()
        for client in list(self.clients):
            client.transport.abort()

    async def end(self) -> None:
        """Stop, and wait until every connection is gone."""
        self.stop()
        # A connection that has just been accepted is made two turns of the event loop later.
        for _ in range(3):
            await asyncio.sleep(0)
        while self.clients:
            await asyncio.sleep(0.001)

    def provoked(self, client: Client) -> None:
        """A client did what has to be answered with a close."""
        self.provocations += 1
        match self.fault:
            case Fault.TOLERATE:
                return
            case Fault.SECOND_CRASH | Fault.LATE_CRASH if self.provocations > 1:
                self.stop()
                return
            case Fault.LATE_HANG if self.provocations > 1:
                self.hanging = True
                return
            case Fault.SECOND_CRASH | Fault.LATE_HANG:
                return
            case Fault.NO_ANSWER:
                client.mute = True
                return
            case Fault.LATE:
                asyncio.get_running_loop().call_later(LATE_S, client.transport.close)
                return
            case Fault.FRAGILE if client.connected:
                return
            case Fault.CRASH | Fault.FRAGILE:
                self.stop()
                return
            case Fault.HANG:
                self.hanging = True
                return
            case Fault.SHUT:
                self.shut = True
            case Fault.DEAF:
                self.deaf = True
            case Fault.LEAK:
                self.leaked.append(bytearray(b"x" * LEAK_BYTES))
            case Fault.COLLATERAL:
                for other in self.clients - {client}:
                    other.transport.abort()
            case _:
                pass
        codes = {Fault.WRONG_REASON: 0x9B, Fault.GOOD_BYE: 0x00, Fault.OF_NO_TABLE: 0x84}
        client.dismiss(codes.get(self.fault, 0x81))


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.stream = PacketStream()
        self.version = ProtocolVersion.V3_1_1
        self.connected = False
        self.mute = False
        self.filters: dict[str, int] = {}
        self.method: str | None = None
        self.challenged = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        full = sum(client.connected for client in self.broker.clients) >= MOST
        self.broker.clients.add(self)
        if self.broker.stopped:
            transport.abort()
            return
        if full and self.broker.fault is Fault.FULL:
            self.mute = True
            transport.close()
        elif full and self.broker.fault is Fault.FRAIL:
            self.broker.stop()

    def connection_lost(self, exc: Exception | None) -> None:
        self.broker.clients.discard(self)

    def data_received(self, data: bytes) -> None:
        for item in self.stream.feed(data):
            if self.mute or self.broker.hanging or self.transport.is_closing():
                return
            if isinstance(item, ControlPacket):
                self.take(item)
            elif isinstance(item, Malformed):
                self.broker.provoked(self)

    def send(self, packet: ControlPacket) -> None:
        self.transport.write(encode(packet, self.version))

    def dismiss(self, code: int) -> None:
        """Close, in 5.0 with a reason."""
        if self.version == V5:
            self.send(Disconnect(reason_code=code) if self.connected else Connack(reason_code=code))
        self.transport.close()

    def take(self, packet: ControlPacket) -> None:
        block = Properties() if self.version == V5 else None
        if isinstance(packet, Connect) and not self.connected:
            self.connected = True
            self.version = self.stream.version = packet.version
            if self.broker.shut:
                self.mute = True
                return
            if self.broker.fault is Fault.OLD and self.version == V5:
                self.transport.write(b"\x20\x02\x00\x01")
                self.transport.close()
                return
            if self.broker.fault is Fault.LOGIN and packet.user_name is None:
                self.send(Connack(reason_code=0x87 if self.version == V5 else 5))
                self.transport.close()
                return
            known = packet.client_identifier.startswith("mqttscope-")
            known = known or (self.broker.fault is Fault.CHOOSY and packet.client_identifier == "device1")
            if self.broker.fault in (Fault.PICKY, Fault.CHOOSY) and not known:
                self.transport.close()
                return
            self.method = None if packet.properties is None else packet.properties.authentication_method
            if self.method is not None:
                self.connected = False
                self.challenge()
                return
            self.admit()
        elif isinstance(packet, Auth):
            self.authenticate(packet)
        elif not self.connected or isinstance(packet, Connect):
            self.broker.provoked(self)
        elif isinstance(packet, Publish):
            self.publish(packet)
        elif isinstance(packet, Pubrel):
            self.send(Pubcomp(packet_identifier=packet.packet_identifier))
        elif isinstance(packet, Subscribe) and self.broker.fault is not Fault.SILENT_SUBSCRIBE:
            codes = [subscription.maximum_qos for subscription in packet.subscriptions]
            if self.broker.fault is Fault.NO_SUBSCRIBE:
                codes = [0x87 if self.version == V5 else 0x80] * len(codes)
            else:
                self.filters.update(
                    (subscription.topic_filter, subscription.maximum_qos) for subscription in packet.subscriptions
                )
            self.send(Suback(packet_identifier=packet.packet_identifier, properties=block, reason_codes=codes))
        elif isinstance(packet, Unsubscribe):
            done = [0] * len(packet.topic_filters) if self.version == V5 else None
            self.send(Unsuback(packet_identifier=packet.packet_identifier, properties=block, reason_codes=done))
        elif isinstance(packet, Pingreq):
            self.send(Pingresp())
        elif isinstance(packet, Disconnect):
            self.transport.close()

    def admit(self) -> None:
        limits: dict[str, int | str] = {"receive_maximum": 20, "topic_alias_maximum": 5}
        if self.broker.fault in MAXIMUM:
            limits["maximum_qos"] = MAXIMUM[self.broker.fault]
        if self.method is not None:
            limits["authentication_method"] = self.method
        self.connected, self.challenged = True, False
        properties = Properties(**limits) if self.version == V5 else None
        self.send(Connack(session_present=False, properties=properties))

    def challenge(self) -> None:
        if self.method != METHOD:
            self.dismiss(0x8C)
            return
        if self.broker.fault is Fault.NO_CHALLENGE:
            return
        if self.broker.fault is Fault.SLOW_CHALLENGE:
            asyncio.get_running_loop().call_later(SLOW_S, self.ask)
        else:
            self.ask()

    def ask(self) -> None:
        if self.transport.is_closing():
            return
        self.challenged = True
        self.send(Auth(0x18, Properties(authentication_method=METHOD, authentication_data=b"?")))

    def authenticate(self, packet: Auth) -> None:
        method = None if packet.properties is None else packet.properties.authentication_method
        wanted = 0x18 if self.challenged else 0x19 if self.connected else None
        if self.method is None or method != self.method or packet.reason_code != wanted:
            self.broker.provoked(self)
        elif not self.challenged or self.broker.fault is Fault.MORE_CHALLENGES:
            self.challenge()
        elif self.connected:
            self.challenged = False
            self.send(Auth(0x00, Properties(authentication_method=METHOD)))
        else:
            self.admit()

    def publish(self, packet: Publish) -> None:
        if not is_valid_topic_name(packet.topic_name):
            self.broker.provoked(self)
            return
        if " " in packet.topic_name and self.broker.fault is Fault.REFUSE:
            self.dismiss(0x82)
            return
        if packet.qos > MAXIMUM.get(self.broker.fault, 2) and self.version == V5:
            self.dismiss(0x9B)
            return
        for client in () if self.broker.deaf else list(self.broker.clients):
            if client.connected and any(matches(text, packet.topic_name) for text in client.filters):
                block = Properties() if client.version == V5 else None
                client.send(Publish(topic_name=packet.topic_name, payload=packet.payload, properties=block))
        if packet.qos and self.broker.fault is not Fault.NO_ACKNOWLEDGEMENT:
            kind = Puback if packet.qos == 1 else Pubrec
            assert packet.packet_identifier is not None
            self.send(kind(packet_identifier=packet.packet_identifier))


@asynccontextmanager
async def broken(fault: Fault) -> AsyncIterator[Broker]:
    """A broker in this event loop."""
    broker = Broker(fault)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.end()


def broken_command(port: int, fault: str) -> str:
    """The command line that starts one as a program."""
    return shlex.join([sys.executable, __file__, str(port), fault])


async def _main(port: int, fault: Fault) -> None:
    broker = Broker(fault, exits=True)
    await broker.start(port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), Fault(sys.argv[2])))
