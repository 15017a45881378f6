"""Wills of the topics in question that no client was sent, or that no broker kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from mqttscope.events import PacketEvent
from mqttscope.explain import describe
from mqttscope.explain.fates import NEVER, SECOND, Subscriber, Wanted
from mqttscope.explain.model import Evidence
from mqttscope.mqtt import packets
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.topics import matches
from mqttscope.session.connection import C2S, REFUSED, Connection
from mqttscope.session.matching import FAILURE

MAX_WILLS = 1_000
"""Maximum number of topics with a will that is to be retained, and of subscriptions that are remembered for one."""


@dataclass(slots=True)
class AnnouncedWill:
    """A will that no client was sent."""

    place: Evidence
    """Its CONNECT."""
    connection: Connection
    end: int = 0
    """Offset of the last byte and one of the DISCONNECT that discards it (3.14.4), in what its client sent."""
    frame: int = 0
    """Frame of that DISCONNECT."""

    def disconnect(self, event: PacketEvent, packet: packets.Disconnect) -> None:
        """Take a DISCONNECT of any connection; after the end that the broker made it discards nothing."""
        ended = self.connection.disconnect_by or self.connection.closed_by == "server"
        if event.connection is self.connection and event.direction is C2S and not packet.reason_code and not ended:
            self.frame, self.end = event.frame, event.stream_offset + len(packet.raw)

    @property
    def outcome(self) -> str:
        """Its fate as a sentence."""
        announced, source = f"{self.place.text} (frame {self.place.frame})", self.connection
        if self.frame and self.end <= source.client_side.stream_offset - source.client_unacknowledged:
            return f"{announced}; it sent DISCONNECT (frame {self.frame}), which discards the will."
        return f"{announced}, and no client was sent it in this capture."


@dataclass(slots=True)
class PublishedWill:
    """A will with Will Retain 1 that the broker has published."""

    outcome: str
    """Who announced it, and who got it."""
    checksum: int
    until_ns: int
    """When it expires."""
    asked: list[tuple[Subscriber, Connection, Wanted]] = field(default_factory=list)

    def missed(self, now_ns: int) -> Iterator[tuple[Subscriber, Wanted]]:
        """Who should have got it as a retained message within a second."""
        for client, reader, wanted in self.asked:
            over_ns = min(now_ns, reader.closed_ns or now_ns, wanted.ended_ns or now_ns, self.until_ns)
            is_whole = not (reader.one_sided or reader.server_side.gapped or reader.closed_how == "reset")
            is_granted = wanted.granted_ns is not None and (wanted.code or 0) < FAILURE
            if is_whole and is_granted and wanted.asked_ns + SECOND <= over_ns:
                yield client, wanted


@dataclass(slots=True)
class RetainedWills:
    """Wills with Will Retain 1 that were published, nothing has replaced since, and nothing shows to be retained."""

    topics: OrderedDict[tuple[str, str], PublishedWill] = field(default_factory=OrderedDict)
    """Wills by host of the server and topic."""
    dropped: int = 0
    """Wills and subscriptions beyond `MAX_WILLS`."""

    def publish(self, place: tuple[str, str], will: Will, checksum: int, ended: Connection, event: PacketEvent) -> None:
        """A client got a message that is like the will of a connection that has ended."""
        block, is_retained = will.properties, getattr(event.packet, "retain", False)
        delay, expiry = (0, None) if block is None else (block.will_delay_interval or 0, block.message_expiry_interval)
        if not will.will_retain or not will.will_payload or is_retained or place in self.topics:
            return
        if event.timestamp_ns < ended.closed_ns + delay * SECOND:
            return
        if len(self.topics) >= MAX_WILLS:
            self.topics.popitem(last=False)
            self.dropped += 1
        name, reader = (describe.name(side.client_identifier) or side.client for side in (ended, event.connection))
        until_ns = NEVER if expiry is None else event.timestamp_ns + expiry * SECOND
        text = f"{name} had announced the will to {describe.name(place[1])} with Will Retain 1, and {reader} got it"
        self.topics[place] = PublishedWill(f"{text} in frame {event.frame}", checksum, until_ns)

    def replace(self, place: tuple[str, str], checksum: int | None = None) -> None:
        """Another message may be the retained one of a topic now, or a client that subscribed got this content."""
        known = self.topics.get(place)
        if known is not None and (known.checksum != checksum or known.asked):
            del self.topics[place]

    def ask(self, client: Subscriber, reader: Connection, row: Subscription, wanted: Wanted, *, existed: bool) -> None:
        """A client subscribes."""
        if wanted.share or row.retain_handling == 2 or (row.retain_handling == 1 and existed):
            return
        for (server, topic), will in self.topics.items():
            if server == client.server and matches(wanted.plain_filter, topic, shared=False):
                will.asked.append((client, reader, wanted))
                self.dropped += len(will.asked) > MAX_WILLS
                del will.asked[MAX_WILLS:]

    def remarks(self, now_ns: int) -> Iterator[str]:
        """A sentence about each will that a client should have got."""
        for will in self.topics.values():
            missed = next(will.missed(now_ns), None)
            if missed is not None:
                client, wanted = missed
                yield (
                    f"{will.outcome}; {client.name} subscribed afterwards (frame {wanted.frame}) and got no retained"
                    " message of the topic: look whether the broker retains wills, and lets this client read the topic."
                )
        if self.dropped:
            yield f"limit: {MAX_WILLS:,} wills are followed that are to be retained; forgotten: {self.dropped:,}."


def said_goodbye(connection: Connection) -> bool:
    """Whether its client sent DISCONNECT, which discards the will."""
    return connection.disconnect_by == "client" and not connection.disconnect_reason


def due_time(connection: Connection, will: Will, client: Subscriber | None) -> int:
    """Time when a broker has to publish the will of a connection of a client; `NEVER` if that is not certain.

    Only an accepted connection has a will.  A Will Delay Interval ends with the session at the latest.  A client may
    resume its session before that, and then no will is due (5.0 3.1.3.2.2).
    """
    is_accepted = connection.connack_packet is not None and connection.phase is not REFUSED
    if not is_accepted or said_goodbye(connection) or connection.closed_how in (None, "capture_end"):
        return NEVER
    delay = 0 if will.properties is None else will.properties.will_delay_interval or 0
    delay = min(delay, connection.session_expiry_interval or 0)
    due_ns = connection.closed_ns + delay * SECOND
    returns = () if client is None else client.returns
    is_back = any(row[3] != connection.number and connection.opened_ns < row[0] <= due_ns for row in returns)
    return NEVER if delay and (is_back or client is None) else due_ns
