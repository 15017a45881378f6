"""The 27 properties of MQTT 5.0 (section 2.2.2): identifiers, types, where each is allowed, reading and writing.

A property block keeps order and repetition: it is a tuple of ``(identifier, value)``.  Attributes read it by the name
of the specification: ``properties.topic_alias`` is the first value or ``None``, ``user_property`` and
``subscription_identifier`` are always lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from mqttscope.mqtt import wire
from mqttscope.mqtt.constants import MalformedReason, PacketType
from mqttscope.mqtt.declare import Examination
from mqttscope.mqtt.wire import LayoutFault, WireType, counted

WILL: Final = 0
"""Owner of the Will Properties, used like a packet type; packet type 0 itself never has properties."""

_C, _CA, _P = PacketType.CONNECT, PacketType.CONNACK, PacketType.PUBLISH
_ACKS: Final = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP)
_S, _SA, _U, _UA = PacketType.SUBSCRIBE, PacketType.SUBACK, PacketType.UNSUBSCRIBE, PacketType.UNSUBACK
_D, _A = PacketType.DISCONNECT, PacketType.AUTH


@dataclass(slots=True)
class Property:
    """One row of table 2-4."""

    identifier: int
    name: str
    wire: WireType[Any]
    packets: tuple[int, ...]
    """Packet types that may carry it; ``WILL`` for the Will Properties."""
    default: int | None = None
    """Value of a packet without it (5.0 3.1.2.11, 3.1.3.2, 3.2.2.3, 3.3.2.3); ``None`` without a default."""
    inherited: tuple[int, ...] = ()
    """Packet types that inherit the value of the CONNECT if it is omitted (5.0 3.2.2.3.2, 3.14.2.2.2)."""
    secret: bool = False
    """Whether no output may show it."""


PROPERTIES: Final[tuple[Property, ...]] = (
    Property(0x01, "payload_format_indicator", wire.U8, (_P, WILL), default=0),
    Property(0x02, "message_expiry_interval", wire.U32, (_P, WILL)),
    Property(0x03, "content_type", wire.UTF8, (_P, WILL)),
    Property(0x08, "response_topic", wire.UTF8, (_P, WILL)),
    Property(0x09, "correlation_data", wire.BINARY, (_P, WILL)),
    Property(0x0B, "subscription_identifier", wire.VARIABLE_BYTE_INTEGER, (_P, _S)),
    Property(0x11, "session_expiry_interval", wire.U32, (_C, _CA, _D), default=0, inherited=(_CA, _D)),
    Property(0x12, "assigned_client_identifier", wire.UTF8, (_CA,)),
    Property(0x13, "server_keep_alive", wire.U16, (_CA,)),
    Property(0x15, "authentication_method", wire.UTF8, (_C, _CA, _A)),
    Property(0x16, "authentication_data", wire.BINARY, (_C, _CA, _A), secret=True),
    Property(0x17, "request_problem_information", wire.U8, (_C,), default=1),
    Property(0x18, "will_delay_interval", wire.U32, (WILL,), default=0),
    Property(0x19, "request_response_information", wire.U8, (_C,), default=0),
    Property(0x1A, "response_information", wire.UTF8, (_CA,)),
    Property(0x1C, "server_reference", wire.UTF8, (_CA, _D)),
    Property(0x1F, "reason_string", wire.UTF8, (_CA, *_ACKS, _SA, _UA, _D, _A)),
    Property(0x21, "receive_maximum", wire.U16, (_C, _CA), default=65_535),
    Property(0x22, "topic_alias_maximum", wire.U16, (_C, _CA), default=0),
    Property(0x23, "topic_alias", wire.U16, (_P,)),
    Property(0x24, "maximum_qos", wire.U8, (_CA,), default=2),
    Property(0x25, "retain_available", wire.U8, (_CA,), default=1),
    Property(0x26, "user_property", wire.UTF8_PAIR, (_C, _CA, _P, WILL, *_ACKS, _S, _SA, _U, _UA, _D, _A)),
    Property(0x27, "maximum_packet_size", wire.U32, (_C, _CA)),
    Property(0x28, "wildcard_subscription_available", wire.U8, (_CA,), default=1),
    Property(0x29, "subscription_identifier_available", wire.U8, (_CA,), default=1),
    Property(0x2A, "shared_subscription_available", wire.U8, (_CA,), default=1),
)
"""Table 2-4 of MQTT 5.0."""

BY_IDENTIFIER: Final[dict[int, Property]] = {row.identifier: row for row in PROPERTIES}
BY_NAME: Final[dict[str, Property]] = {row.name: row for row in PROPERTIES}
MESSAGE_EXPIRY_INTERVAL: Final = BY_NAME["message_expiry_interval"].identifier
SUBSCRIPTION_IDENTIFIER: Final = BY_NAME["subscription_identifier"].identifier
TOPIC_ALIAS: Final = BY_NAME["topic_alias"].identifier
USER_PROPERTY: Final = BY_NAME["user_property"].identifier
LISTS: Final = frozenset({"user_property", "subscription_identifier"})
"""Properties that are always lists, since the specification allows them to repeat."""


def property_name(identifier: int) -> str:
    """Name of a property, ``unknown_0x7e`` for an identifier outside the table."""
    row = BY_IDENTIFIER.get(identifier)
    return row.name if row else f"unknown_0x{identifier:02x}"


def property_default(identifier: int, owner: int) -> int | None:
    """The value of a property that a packet type (or ``WILL``) omits; ``None`` without a fixed default."""
    row = BY_IDENTIFIER.get(identifier)
    return None if row is None or owner in row.inherited else row.default


class Properties:
    """A property block: order, repetition and unknown identifiers survive.

    Built from keywords (``Properties(topic_alias=1, user_property=[("k", "v")])``), or exactly with ``of``.
    """

    __slots__ = ("items",)

    items: tuple[tuple[int, Any], ...]
    """``(identifier, value)`` in the order of the wire.  Values are int, str, bytes or a pair of str; for an unknown
    identifier the bytes from after it to the end of the block."""

    def __init__(self, **values: Any) -> None:
        items: list[tuple[int, Any]] = []
        for name, value in values.items():
            row = BY_NAME.get(name)
            if row is None:
                raise TypeError(f"MQTT has no property {name!r}")
            if name in LISTS and isinstance(value, list):
                items.extend(
                    (row.identifier, tuple(element) if isinstance(element, list) else element) for element in value
                )
            else:
                items.append((row.identifier, value))
        self.items = tuple(items)

    @classmethod
    def of(cls, items: Iterable[tuple[int, Any]]) -> Properties:
        """A block of these ``(identifier, value)`` pairs, in this order."""
        block = _new(cls)
        block.items = tuple(items)
        return block

    def first(self, identifier: int) -> Any:
        """First value of a property, ``None`` when it is absent."""
        for number, value in self.items:
            if number == identifier:
                return value
        return None

    def all(self, identifier: int) -> list[Any]:
        return [value for number, value in self.items if number == identifier]

    def without(self, *identifiers: int) -> Properties:
        return Properties.of(item for item in self.items if item[0] not in identifiers)

    def __getattr__(self, name: str) -> Any:
        # Every MQTT property is an attribute of this class.
        raise AttributeError(f"MQTT has no property {name!r}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Properties) and self.items == other.items

    def __hash__(self) -> int:
        return hash(self.items)

    def __bool__(self) -> bool:
        return bool(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"Properties.of({[(property_name(number), value) for number, value in self.items]})"


_new = Properties.__new__


def _accessor(row: Property) -> property:
    number = row.identifier

    def first(self: Properties) -> Any:
        for identifier, value in self.items:  # as `Properties.first`, without a second call
            if identifier == number:
                return value
        return None

    if row.name in LISTS:
        return property(lambda self: self.all(number), doc=f"{row.name}: all values, in order")
    return property(first, doc=f"{row.name}: the first value, or None")


for _row in PROPERTIES:
    setattr(Properties, _row.name, _accessor(_row))

EMPTY: Final = Properties()
MAX_CACHED_BLOCKS: Final = 4_096
"""Maximum number of cached property blocks of each packet type, since most blocks repeat."""
MAX_CACHED_BLOCK_BYTES: Final = 256
"""Maximum length of a cached property block in bytes."""

Reader = Callable[[bytes, int, int], tuple[Properties, int]]


def reader(owner: int) -> Callable[..., tuple[Properties, int]]:
    """The function that reads the property block of a packet type (or of ``WILL``).

    With an `Examination` it records the span of every property and continues after faults; without one the first fault
    is raised.
    """
    reads: list[Callable[[bytes, int, int], tuple[Any, int]] | None] = [None] * 128
    for row in PROPERTIES:
        if owner in row.packets:
            reads[row.identifier] = row.wire.read
    blocks: dict[bytes, Properties] = {}

    def read(buffer: bytes, position: int, end: int, examine: Examination | None = None) -> tuple[Properties, int]:
        if position >= end:
            raise LayoutFault(
                MalformedReason.PROPERTY_LENGTH_MISSING,
                position,
                "the packet ends where the Property Length should be",
                value=None,
                resume=position,
            )
        if examine is not None:
            return _examine(buffer, position, end, owner, examine)
        stop = buffer[position] + 1 + position
        at = position + 1
        if stop - at >= 128:
            length, at = wire.read_variable_byte_integer(buffer, position, end)
            stop = at + length
        if stop == at:
            return EMPTY, at
        if stop > end:
            raise _too_long(position, stop - at, end - at)
        raw = buffer[at:stop]
        known = blocks.get(raw)
        if known is not None:
            return known, stop
        items: list[tuple[int, Any]] = []
        while at < stop:
            number = buffer[at]
            get = reads[number] if number < 128 else None
            if get is None:
                raise LayoutFault(MalformedReason.PROPERTY_UNKNOWN, at, "")  # the examination finds the exact fault
            value, at = get(buffer, at + 1, stop)
            items.append((number, value))
        block = _new(Properties)
        block.items = tuple(items)
        if len(raw) <= MAX_CACHED_BLOCK_BYTES:
            if len(blocks) >= MAX_CACHED_BLOCKS:
                blocks.clear()
            blocks[raw] = block
        return block, at

    return read


def _too_long(position: int, length: int, left: int) -> LayoutFault:
    return LayoutFault(
        MalformedReason.PROPERTY_LENGTH_OVERRUN, position, f"Property Length is {length}, {counted(left, 'byte')} left"
    )


def _examine(buffer: bytes, position: int, end: int, owner: int, examine: Examination) -> tuple[Properties, int]:
    """Read a block with spans; after a fault inside the block, reading continues at the end of the block."""
    length, at = examine.tolerate(wire.read_variable_byte_integer, buffer, position, end, "property_length")
    stop = at + length
    if stop > end:
        raise _too_long(position, length, end - at)
    items: list[tuple[int, Any]] = []
    while at < stop:
        start, name = at, "property_identifier"
        try:
            number, at = examine.tolerate(wire.read_variable_byte_integer, buffer, at, stop, name, span=False)
            name = property_name(number)
            row = BY_IDENTIFIER.get(number)
            if row is None:
                detail = f"property identifier 0x{number:02x} is not in table 2-4"
                examine.fault(LayoutFault(MalformedReason.PROPERTY_UNKNOWN, start, detail), name)
                items.append((number, buffer[at:stop]))
                examine.span(name, start, stop)
                return Properties.of(items), stop
            if owner not in row.packets:
                where = "the Will Properties" if owner == WILL else PacketType(owner).name
                detail = f"{name} is not allowed in {where}"
                examine.fault(LayoutFault(MalformedReason.PROPERTY_NOT_ALLOWED, start, detail), name)
            value, at = examine.tolerate(row.wire.read, buffer, at, stop, name, span=False)
        except LayoutFault as error:
            if error.reason is MalformedReason.FIELD_OVERRUN:
                error.reason = MalformedReason.PROPERTY_LENGTH_OVERRUN
                error.detail = f"{name} crosses the end of the property block: {error.detail}"
            error.value, error.resume = Properties.of(items), stop
            examine.span(name, start, stop)
            raise
        items.append((number, value))
        examine.span(name, start, at)
    return Properties.of(items), at


def write_properties(block: Properties | None) -> bytes:
    """A property block with its length; ``None`` is an empty block."""
    if block is None:
        return b"\0"
    body = b"".join(_write_one(number, value) for number, value in block.items)
    return wire.write_variable_byte_integer(len(body)) + body


def _write_one(number: int, value: Any) -> bytes:
    row = BY_IDENTIFIER.get(number)
    head = wire.write_variable_byte_integer(number)
    if row is None or isinstance(value, bytes) != (row.wire is wire.BINARY):
        return head + bytes(value)  # unknown identifiers, and values that the caller encoded itself
    return head + row.wire.write(value)
