"""Messages that their sender sends again with the same Packet Identifier: on the same connection, or on a later one."""

from __future__ import annotations

from dataclasses import dataclass

from mqttscope.events import PacketEvent
from mqttscope.explain import describe
from mqttscope.session.connection import C2S, Connection


@dataclass(slots=True)
class Resend:
    """The further times that a PUBLISH was sent."""

    count: int = 0
    further_connections: int = 0
    """Number of later connections that carried it."""
    connection: int = -1
    """Number of the last connection that carried it."""
    first_ns: int = 0
    first_frame: int = 0
    last_ns: int = 0
    last_frame: int = 0
    has_dup: bool = True
    """Whether each of them has DUP 1."""
    is_unaware: bool = False
    """Whether TCP shows for one of them that an answer was under way, and had not reached the sender."""
    is_released: bool = False
    """Whether one of them came after the PUBREL of its sender."""

    def add(self, event: PacketEvent, *, connection: int, is_unaware: bool, is_released: bool = False) -> None:
        """Count a PUBLISH; ``connection``: the number of the connection that carried it before."""
        if not self.count:
            self.first_ns, self.first_frame, self.connection = event.timestamp_ns, event.frame, connection
        self.count += 1
        self.further_connections += event.connection.number != self.connection
        self.connection, self.last_ns, self.last_frame = event.connection.number, event.timestamp_ns, event.frame
        self.has_dup = self.has_dup and bool(getattr(event.packet, "dup", False))
        self.is_unaware = self.is_unaware or is_unaware
        self.is_released = self.is_released or is_released

    @property
    def times(self) -> str:
        """How often: ``once``, ``3 times``."""
        return "once" if self.count == 1 else f"{self.count:,} times"

    def by_publisher(self, name: str, since_ns: int, answered_ns: int = 0) -> str:
        """A sentence about a client that published the message first at a time.

        ``answered_ns``: time of the first acknowledgment of the broker; 0 without one.
        """
        where, dup = "", "" if self.has_dup else " and without DUP"
        if self.further_connections:
            where = " on a later connection" if self.further_connections == 1 else (
                f" on {self.further_connections:,} later connections"
            )  # fmt: skip
        why = "no acknowledgment of the broker had come"
        if self.is_released:
            why = "it had sent PUBREL before, so that the broker may take it as a new message (4.3.3)"
        elif self.is_unaware:
            why = "TCP shows that the acknowledgment of the broker had not reached it"
        elif 0 < answered_ns < self.first_ns:
            why = f"the broker had acknowledged it {describe.span(answered_ns - since_ns)} after the first time"
        return (
            f"{name} sent it again {self.times}{where}, with the same Packet Identifier{dup}: {why}; the last time"
            f" {describe.span(self.last_ns - since_ns)} after the first"
        )

    def by_broker(self, since_ns: int, answered_ns: int) -> str:
        """Words about a broker that sent the message first at a time; ``answered_ns``: 0 if the client did not."""
        often = "" if self.count == 1 else f" {self.times}"
        dup = "DUP" if self.has_dup else "the same Packet Identifier, without DUP"
        after = describe.span(self.first_ns - since_ns)
        if not answered_ns:
            why = "the client had not acknowledged it"
        elif answered_ns < self.first_ns and not self.is_unaware:
            why = f"the client had acknowledged it {describe.span(answered_ns - since_ns)} after the first time"
        else:
            answer = describe.span(answered_ns - since_ns)
            why = f"the broker did not wait for the acknowledgment of the client, which came {answer} after the first"
        return f", and again{often} {after} after that with {dup} (frame {self.first_frame}): {why}"


def has_answer(connection: Connection, position: int, *, from_client: bool) -> bool | None:
    """Whether a side had an answer that ends at a position of the other side's TCP stream when it sent this packet.

    The acknowledgment number of the segment shows it: a host acknowledges bytes before its program reads them, and
    a segment that is sent again has the number of its last sending.  A proxy that ends TCP acknowledges for its
    client, so that only a lower number proves anything.  ``None`` where the capture does not prove the number.
    """
    history = connection.history
    if history is None or position <= 0:
        return None
    party = history.client if from_client else history.server
    acknowledged = party.acknowledged if party.begun is None else party.begun[0]
    return None if acknowledged < 0 else acknowledged >= position


def answer_position(event: PacketEvent) -> int:
    """Position in the TCP stream of its sender after the segment that carries an answer; 0 where it is unknown."""
    history = event.connection.history
    if history is None:
        return 0
    return history.client.position if event.direction is C2S else history.server.position
