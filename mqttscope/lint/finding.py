"""Findings: the reports of rules, and the fingerprint that identifies a finding in a later run."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

from mqttscope.mqtt.constants import Direction


class Severity(StrEnum):
    """How serious a finding is."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        return _SEVERITIES[self]


class Confidence(StrEnum):
    """How certain a finding is."""

    CERTAIN = "certain"
    LIKELY = "likely"
    HEURISTIC = "heuristic"

    @property
    def rank(self) -> int:
        return _CONFIDENCES[self]


_SEVERITIES = {Severity.INFO: 0, Severity.WARNING: 1, Severity.ERROR: 2}
_CONFIDENCES = {Confidence.HEURISTIC: 0, Confidence.LIKELY: 1, Confidence.CERTAIN: 2}


class Scope(StrEnum):
    """How much a rule has to see; also the key of its memory."""

    PACKET = "packet"
    CONNECTION = "connection"
    SESSION = "session"
    """Server and Client Identifier."""
    BROKER = "broker"
    """Server."""


class PacketReference(Protocol):
    """Anything with the number, frame and time of a packet."""

    packet: int
    frame: int
    timestamp_ns: int


@dataclass(slots=True)
class Related:
    """Another packet that explains a finding."""

    message: str
    packet: int
    frame: int
    timestamp_ns: int

    @classmethod
    def to(cls, message: str, packet: PacketReference) -> Related:
        return cls(message, packet.packet, packet.frame, packet.timestamp_ns)


MAX_PLACES = 8
"""Maximum number of positions kept of a finding, its own included; further ones are only counted."""


@dataclass(slots=True)
class FieldPlace:
    """One of several positions in a packet that a finding covers."""

    field: str
    offset: int | None
    length: int | None


@dataclass(slots=True)
class Report:
    """The report of a rule about the current event; the engine turns it into a `Finding`."""

    field: str
    """Path of the field to blame, empty for the complete packet."""
    message: str
    severity: Severity | None = None
    """If it differs from the rule's severity."""
    confidence: Confidence | None = None
    related: tuple[Related, ...] = ()
    sender: Direction | None = None
    """Direction of the side to blame, if it is not the sender of the packet."""
    reason_code: int | None = None
    """If it differs from the rule's reason code."""
    statements: tuple[str, ...] | None = None
    """If they do not follow from the rule's table."""
    span: tuple[int, int] | None = None
    """Offset and length in the packet, if the field alone does not locate it."""
    overdue: bool = False
    """Whether it is about a packet that never came: the finding blames the connection, not the current packet."""
    topic: str | None = None
    """Topic of the packet that never came."""


@dataclass(slots=True)
class Finding:
    """One report of a rule.  The attributes up to the fingerprint are the keys of its JSON form."""

    rule: str
    slug: str
    severity: Severity
    confidence: Confidence
    message: str
    statements: tuple[str, ...]
    """Identifiers with the version: ``5.0 MQTT-3.3.1-4``."""
    version: str
    capture: str
    frame: int
    timestamp_ns: int
    connection: int
    client: str
    server: str
    client_identifier: str | None
    direction: str | None
    """Direction of the side to blame: ``client_to_server`` blames the client."""
    packet: int | None
    """Number of the packet; ``None`` when the finding is about the end of a connection."""
    packet_type: str | None
    field: str
    offset: int | None
    """Offset of the field in the packet, in bytes."""
    length: int | None
    reason_code: int | None
    """Reason code of MQTT 5.0 that the specification gives to this violation."""
    fingerprint: str = ""
    topic: str | None = None
    related: tuple[Related, ...] = ()
    raw: bytes = dataclasses.field(default=b"", repr=False)
    missing: int = 0
    """Bytes of the packet that are missing from the capture."""
    sender: str | None = None
    """Direction of the packet, which may differ from the direction of the side to blame."""
    clients: int = 1
    """Number of clients it is about; its position is in the packet of the first."""
    count: int = 1
    """Number of positions in the packet; field, offset, length and message describe the first one."""
    places: tuple[FieldPlace, ...] = ()
    """The first `MAX_PLACES` positions, if there is more than one."""
    doubt: int = dataclasses.field(default=0, compare=False)
    """Suspicion that its bytes belong to a secret, as a level (`secrets.packets`)."""
    withheld: tuple[bytes, ...] = dataclasses.field(default=(), repr=False, compare=False)
    """Possible secrets in damaged packets of its connection: rules may quote them in other messages."""

    @property
    def blamed(self) -> str:
        """``client`` or ``server``."""
        return "server" if self.direction == Direction.SERVER_TO_CLIENT else "client"


_INDEX = re.compile(r"\[\d+\]")
_UUID = r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}"
_HEX = r"(?=[a-fA-F]{0,40}\d)[0-9a-fA-F]{8,}"
"""Words are not hex strings: a digit must be among the first letters; no further, since names may be long."""
_TOPIC_PARTS = re.compile(rf"{_UUID}|{_HEX}|\d+")
_CLIENT_PARTS = re.compile(rf"{_UUID}|{_HEX}|\d{{6,}}")
MAX_SHAPED = 512
"""Maximum length of a topic with a cached shape, and of the names in a cached fingerprint."""
_RANDOM_CLIENTS = re.compile(
    r"(?P<keep>mosq-|auto-|paho|mqttjs_|mqtt-explorer-|MQTT_FX_Client|gen-|sub\||pub\||mosqpub\|)[\w|./-]*"
)


def topic_shape(topic: str | None) -> str:
    """A topic without its variable parts: UUIDs, long hex strings and numbers become ``*``."""
    if topic is None:
        return ""
    return _shaped(topic) if len(topic) <= MAX_SHAPED else _TOPIC_PARTS.sub("*", topic)


@lru_cache(16_384)
def _shaped(topic: str) -> str:
    return _TOPIC_PARTS.sub("*", topic)


def client_shape(client_identifier: str | None) -> str:
    """A Client Identifier without the part that a library generates for each connection.

    ``dev1`` and ``dev2`` stay different: only UUIDs, long hex strings and long numbers become ``*``, and the random
    characters after the prefixes of well-known libraries.
    """
    if client_identifier is None:
        return ""
    return _client_shaped(client_identifier) if len(client_identifier) <= MAX_SHAPED else _shape_of(client_identifier)


def _shape_of(client_identifier: str) -> str:
    known = _RANDOM_CLIENTS.match(client_identifier)
    if known is not None:
        return known["keep"] + "*"
    return _CLIENT_PARTS.sub("*", client_identifier)


_client_shaped = lru_cache(4_096)(_shape_of)


def fingerprint(
    rule: str,
    direction: str | None,
    client_identifier: str | None,
    packet_type: str | None,
    field_path: str,
    topic: str | None,
) -> str:
    """Identity of a finding in every capture of the same device: 32 hexadecimal digits.

    Built from the rule, the side to blame, the shapes of Client Identifier and topic, the packet type and the field
    without indexes.  Times, numbers and addresses are left out.
    """
    if len(topic or "") + len(client_identifier or "") + len(field_path) > MAX_SHAPED:
        return _fingerprint(rule, direction, client_identifier, packet_type, field_path, topic)
    # Devices repeat the same mistake.
    return _known_fingerprint(rule, direction, client_identifier, packet_type, field_path, topic)


def _fingerprint(
    rule: str,
    direction: str | None,
    client_identifier: str | None,
    packet_type: str | None,
    field_path: str,
    topic: str | None,
) -> str:
    parts = (
        rule,
        direction or "",
        client_shape(client_identifier),
        packet_type or "",
        _INDEX.sub("[]", field_path) if "[" in field_path else field_path,
        topic_shape(topic),
    )
    text = "\0".join(parts).encode("utf-8", "surrogateescape")
    return hashlib.sha256(text).hexdigest()[:32]


_known_fingerprint = lru_cache(8_192)(_fingerprint)
