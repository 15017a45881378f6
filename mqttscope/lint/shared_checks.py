"""Code that several rules share: bases for rules of several areas, checks, and durations as statistics and words.

The checks find out whether a damaged packet is well formed in another version's layout (the encoder used the wrong
one), who can read a connection's traffic, and what is wrong with the WebSocket below a connection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from mqttscope.lint.context import RuleContext
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import Needs, Rule
from mqttscope.mqtt import Malformed, MalformedReason, PacketType, ProtocolVersion, Publish, decode
from mqttscope.session.connection import Connection, host_of

V3_1_1, V5 = ProtocolVersion.V3_1_1, ProtocolVersion.V5

REFUSAL_OF_3_1_1 = b"\x20\x02\x00\x01"
"""The CONNACK of a server that supports only 3.1.1, for any other protocol level (3.1.1 MQTT-3.1.2-2)."""


def other_layout(packet: Malformed, version: ProtocolVersion) -> ProtocolVersion | None:
    """The other version, if a damaged packet is well formed in its layout and that cannot be chance.

    3.1 and 3.1.1 share a layout; the result is 3.1.1 for both.  A CONNECT contains its own version.
    """
    other = V3_1_1 if version == V5 else V5
    if packet.packet_type == PacketType.CONNECT or any(
        _says_nothing(fault.reason, fault.field) for fault in packet.faults
    ):
        return None
    read = decode(packet.raw, other)
    if isinstance(read, Malformed):
        return None
    if isinstance(read, Publish) and other == V3_1_1 and not _lacks_properties(packet, read.payload):
        return None
    return other


def _says_nothing(reason: MalformedReason, field: str) -> bool:
    """Faults that 3.1.1 does not define, and bytes that are not a packet in any version."""
    if reason is MalformedReason.VARIABLE_BYTE_INTEGER_NOT_MINIMAL:
        return field == "remaining_length"
    return reason in (MalformedReason.TRUNCATED, MalformedReason.REMAINING_LENGTH_TOO_LONG)


def _lacks_properties(packet: Malformed, payload: bytes) -> bool:
    """Whether a PUBLISH has its payload in the place of its properties.

    A broken property block can look like a payload, since a payload can be any bytes.  Text cannot be a property block:
    every property of a PUBLISH but one contains a byte below 0x20.
    """
    if packet.reason is MalformedReason.PROPERTY_LENGTH_MISSING:
        return True
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character in "\t\r\n" for character in text)


class MalformedRule(Rule):
    """A fault that the decoder describes and that makes the receiver close the connection."""

    severity = Severity.ERROR
    reason_code = 0x81


class AnnouncedLimitRule(Rule):
    """A limit from the CONNACK that a client ignores, perhaps before the CONNACK has reached it."""

    severities = (Severity.ERROR, Severity.INFO)
    versions = (V5,)
    needs = Needs.OPENING

    def ignored(self, field: str, message: str, at: RuleContext) -> Report:
        """The report, with the certainty that the client had received the CONNACK."""
        severity, confidence = at.awareness()
        return self.report(field, message, severity=severity, confidence=confidence)


def is_plain(connection: Connection) -> bool:
    """Whether the packets crossed the wire in the clear, not inside TLS that was decrypted for the capture."""
    return connection.transport in ("tcp", "websocket")


def is_loopback(endpoint: str) -> bool:
    """Whether an endpoint (``127.0.0.1:1883``, ``[::1]:1883``) is the local host."""
    host = host_of(endpoint).strip("[]")
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


NOT_OFFERED = ("subprotocol_not_offered", "subprotocol_old", "subprotocol_foreign")
"""Reasons of a request without the MQTT subprotocol."""


def problems(connection: Connection) -> list[dict[str, Any]]:
    """The problems of a WebSocket in their order, each with ``from_client``, ``reason``, ``detail`` and ``frame``."""
    rows = (connection.websocket or {}).get("problems")
    return rows if isinstance(rows, list) else []


def problem(connection: Connection, *reasons: str) -> tuple[str, str] | None:
    """Reason and detail of the first problem with one of these reasons; ``None`` without any."""
    for row in problems(connection):
        if row["reason"] in reasons:
            return row["reason"], row["detail"]
    return None


@dataclass(slots=True)
class DurationHistogram:
    """Histogram of durations in nanoseconds, in steps of an eighth of a power of two: at most 13 % off."""

    counts: dict[int, int] = field(default_factory=dict)
    """Counts by step, at most a few hundred."""
    number: int = 0
    worst_ns: int = 0
    worst: int = 0
    """Owner of the longest duration: a packet identifier, for example."""

    def add(self, duration_ns: int, owner: int = 0) -> None:
        """Count one duration; a negative one counts as 0."""
        duration_ns = max(0, duration_ns)
        step = _step(duration_ns)
        self.counts[step] = self.counts.get(step, 0) + 1
        self.number += 1
        if duration_ns >= self.worst_ns:
            self.worst_ns, self.worst = duration_ns, owner

    def percentile(self, share: float) -> int:
        """The duration that this share of all durations does not exceed; 0 without any."""
        left = share * self.number
        for step in sorted(self.counts):
            left -= self.counts[step]
            if left <= 0:
                return min(_end(step), self.worst_ns)
        return self.worst_ns


def _step(duration_ns: int) -> int:
    if duration_ns < 16:
        return duration_ns
    power = duration_ns.bit_length()
    return power << 3 | duration_ns >> (power - 4) & 7


def _end(step: int) -> int:
    """The longest duration of a step."""
    if step < 16:
        return step
    power, eighth = step >> 3, step & 7
    return ((8 + eighth + 1) << (power - 4)) - 1


def duration(nanoseconds: int) -> str:
    """A duration for people: ``40 ms``, ``4.2 s``, ``3 min 20 s``."""
    if nanoseconds < 1_000_000:
        return f"{nanoseconds / 1_000:.3g} µs"
    if nanoseconds < 1_000_000_000:
        return f"{nanoseconds / 1_000_000:.3g} ms"
    seconds = nanoseconds / 1_000_000_000
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def count(number: int, noun: str) -> str:
    """``1 message``, ``1,200 messages``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
