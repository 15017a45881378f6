"""Findings: what a rule reports, and the fingerprint that recognises it in a later run."""

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
    """How bad it is."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        return _SEVERITIES[self]


class Confidence(StrEnum):
    """How sure it is."""

    CERTAIN = "certain"
    LIKELY = "likely"
    HEURISTIC = "heuristic"

    @property
    def rank(self) -> int:
        return _CONFIDENCES[self]


_SEVERITIES = {Severity.INFO: 0, Severity.WARNING: 1, Severity.ERROR: 2}
_CONFIDENCES = {Confidence.HEURISTIC: 0, Confidence.LIKELY: 1, Confidence.CERTAIN: 2}


class Scope(StrEnum):
    """How far a rule has to look, which is also the key that its memory belongs to."""

    PACKET = "packet"
    CONNECTION = "connection"
    SESSION = "session"
    """Server and Client Identifier."""
    BROKER = "broker"
    """Server."""


class Placed(Protocol):
    """Anything that says which packet it was."""

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
    def to(cls, message: str, one: Placed) -> Related:
        return cls(message, one.packet, one.frame, one.timestamp_ns)


MAX_PLACES = 8
"""Places of a finding that are kept, its own among them; what it stands for beyond these is only counted."""


@dataclass(slots=True)
class Place:
    """One of several places in a packet that a finding stands for."""

    field: str
    offset: int | None
    length: int | None


@dataclass(slots=True)
class Report:
    """What a rule reports about the event it looks at; the engine makes a `Finding` of it."""

    field: str
    """Path of the field to blame, empty for the complete packet."""
    message: str
    severity: Severity | None = None
    """Where it differs from the rule's."""
    confidence: Confidence | None = None
    related: tuple[Related, ...] = ()
    sender: Direction | None = None
    """Whose fault it is, where that is not the sender of the packet; its direction."""
    reason_code: int | None = None
    """Where it differs from the rule's."""
    statements: tuple[str, ...] | None = None
    """Where they do not follow from the rule's table."""
    span: tuple[int, int] | None = None
    """Offset and length in the packet, where the field alone does not locate it."""
    overdue: bool = False
    """What never came, so that the packet at hand is not to blame, nor shown: the finding is about the connection."""
    topic: str | None = None
    """What did not come, by its topic."""


@dataclass(slots=True)
class Finding:
    """One report of a rule.  Up to the fingerprint the attributes are the keys of its JSON form."""

    rule: str
    slug: str
    severity: Severity
    confidence: Confidence
    message: str
    statements: tuple[str, ...]
    """With their version: ``5.0 MQTT-3.3.1-4``."""
    version: str
    capture: str
    frame: int
    timestamp_ns: int
    connection: int
    client: str
    server: str
    client_identifier: str | None
    direction: str | None
    """Whose fault it is: ``client_to_server`` blames the client."""
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
    """Bytes of the packet that the capture does not have."""
    sender: str | None = None
    """Direction of the packet, which need not be that of the one to blame."""
    clients: int = 1
    """How many clients it is about; its place is that of the first."""
    count: int = 1
    """For how many places of the packet it stands; field, offset, length and message are of the first one."""
    places: tuple[Place, ...] = ()
    """The first `MAX_PLACES` of them, where they are more than one."""
    doubt: int = dataclasses.field(default=0, compare=False)
    """How little its bytes are trusted not to be of a secret (`redact.packets`)."""
    withheld: tuple[bytes, ...] = dataclasses.field(default=(), repr=False, compare=False)
    """What may be of a secret in damaged packets of its connection: rules may quote it in messages about others."""

    @property
    def blamed(self) -> str:
        """``client`` or ``server``."""
        return "server" if self.direction == Direction.SERVER_TO_CLIENT else "client"


_INDEX = re.compile(r"\[\d+\]")
_UUID = r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}"
_HEX = r"(?=[a-fA-F]{0,40}\d)[0-9a-fA-F]{8,}"
"""Words are no hex strings: a digit is looked for among its first letters, never further, since names may be long."""
_TOPIC_PARTS = re.compile(rf"{_UUID}|{_HEX}|\d+")
_CLIENT_PARTS = re.compile(rf"{_UUID}|{_HEX}|\d{{6,}}")
MAX_SHAPED = 512
"""Characters of the longest topic whose shape is kept, and of the names in a fingerprint that is: they recur."""
_RANDOM_CLIENTS = re.compile(
    r"(?P<keep>mosq-|auto-|paho|mqttjs_|mqtt-explorer-|MQTT_FX_Client|gen-|sub\||pub\||mosqpub\|)[\w|./-]*"
)


def topic_shape(topic: str | None) -> str:
    """A topic without what changes from message to message: UUIDs, long hex strings and numbers become ``*``."""
    if topic is None:
        return ""
    return _shaped(topic) if len(topic) <= MAX_SHAPED else _TOPIC_PARTS.sub("*", topic)


@lru_cache(4_096)
def _shaped(topic: str) -> str:
    return _TOPIC_PARTS.sub("*", topic)


def client_shape(client_identifier: str | None) -> str:
    """A Client Identifier without what a library makes up for each connection.

    ``dev1`` and ``dev2`` stay apart: only UUIDs, long hex strings and long numbers become ``*``, and what follows the
    prefixes that well-known libraries put before random characters.
    """
    if client_identifier is None:
        return ""
    known = _RANDOM_CLIENTS.match(client_identifier)
    if known is not None:
        return known["keep"] + "*"
    return _CLIENT_PARTS.sub("*", client_identifier)


def fingerprint(
    rule: str,
    direction: str | None,
    client_identifier: str | None,
    packet_type: str | None,
    field_path: str,
    topic: str | None,
) -> str:
    """What stays the same when the same device is captured again: 32 hexadecimal digits.

    Made of the rule, who is to blame, the shapes of Client Identifier and topic, the packet type and the field without
    indexes: no times, no numbers, no addresses.
    """
    if len(topic or "") + len(client_identifier or "") + len(field_path) > MAX_SHAPED:
        return _fingerprint(rule, direction, client_identifier, packet_type, field_path, topic)
    # Devices do the same wrong thing again and again.
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
