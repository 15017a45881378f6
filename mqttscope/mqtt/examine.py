"""The slow walk over one packet: spans of all fields, all faults, continuing wherever the next field is known.

It goes through the same declaration as the decoder.  It runs for packets that the decoder refused, and where somebody
asks for byte spans: hexdumps, findings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mqttscope.mqtt.constants import MalformedReason, ProtocolVersion
from mqttscope.mqtt.declare import (
    ControlPacket,
    Declared,
    FaultReport,
    Read,
    Span,
    flags_fault,
    qos_fault,
)
from mqttscope.mqtt.wire import Fault, counted, read_variable_byte_integer


class Examination:
    """A slow walk over one packet: spans of all fields, all faults, continuing wherever the next field is known."""

    def __init__(self, raw: bytes, cls: type[ControlPacket], version: ProtocolVersion) -> None:
        self.raw = raw
        self.cls = cls
        self.version = version
        self.spans: list[Span] = []
        self.faults: list[FaultReport] = []
        self.prefix = ""

    def span(self, name: str, start: int, end: int) -> None:
        """Record the bytes of a field."""
        self.spans.append(Span(self.prefix + name, start, end))

    def fault(self, fault: Fault, name: str = "") -> None:
        """Record a fault."""
        path = self.prefix + name if name else fault.field
        self.faults.append(FaultReport(fault.reason, fault.offset, path, fault.detail))

    def tolerate(
        self, read: Read, buffer: bytes, position: int, end: int, name: str, *, span: bool = True
    ) -> tuple[Any, int]:
        """Read a field; a fault that leaves the next field known is recorded and its value taken."""
        try:
            value, after = read(buffer, position, end)
        except Fault as error:
            if error.resume is None:
                error.field = error.field or self.prefix + name
                raise
            self.fault(error, name)
            value, after = error.value, error.resume
        if span:
            self.span(name, position, after)
        return value, after

    def header(self) -> int:
        """Fixed header; returns where the body starts."""
        raw, version = self.raw, self.version
        self.span("header_flags" if self.cls.fixed_flags or not self._has_flags() else "flags", 0, 1)
        try:
            _, body = read_variable_byte_integer(raw, 1, len(raw))
        except Fault as error:
            if version == ProtocolVersion.V5:  # older versions do not demand the shortest form
                self.fault(error, "remaining_length")
            body = error.resume or len(raw)
        self.span("remaining_length", 1, body)
        return body

    def _has_flags(self) -> bool:
        return any(row.kind == "flag" for row in self.cls.declaration)

    def run(self) -> tuple[ControlPacket, tuple[str, ...], bool]:
        """Walk the packet; returns it as far as it could be read, the names read, and whether that is all."""
        raw, version, cls = self.raw, self.version, self.cls
        end = len(raw)
        position = self.header()
        values: dict[str, Any] = {}
        has_flags = self._has_flags()
        if not has_flags and version != ProtocolVersion.V3_1 and raw[0] & 15 != cls.fixed_flags:
            self.fault(flags_fault(raw[0] & 15, cls.fixed_flags))
        read_names: list[str] = []
        complete = True
        for row in cls.declaration:
            name = row.name
            if row.kind == "flag":
                bits = raw[0] >> row.shift & ((1 << row.width) - 1)
                if bits == 3:
                    self.fault(qos_fault())
                values[name] = bits == 1 if row.boolean else bits
            elif row.kind == "computed" or not complete or not row.exists_in(version):
                values[name] = None
                continue
            elif (row.when and not (values[row.when] or 0) & row.mask) or (row.tail >= version and position == end):
                values[name] = None
            else:
                try:
                    values[name], position = self._field(row, position, end)
                except Fault as error:
                    self.fault(error, "" if error.field else name)
                    values[name] = error.value
                    if error.resume is None:
                        complete = False
                        continue
                    position = error.resume
            read_names.append(name)
        make: Callable[..., ControlPacket] = cls
        made = make(**values)
        made.raw = raw
        if raw[0] & 15 != cls.fixed_flags and not has_flags:
            made.header_flags = raw[0] & 15
        if complete and position != end:
            detail = f"{counted(end - position, 'byte')} after the last field"
            self.faults.append(FaultReport(MalformedReason.TRAILING_BYTES, position, "", detail))
            self.span("trailing_bytes", position, end)
        for fault in made.settle(version):
            at = next((one.start for one in self.spans if one.field == fault.field), 0)
            fault.offset = at
            self.fault(fault)
        read_names.extend(
            row.name for row in cls.declaration if row.kind == "computed" and cls.byte_of[row.name] in read_names
        )
        return made, tuple(read_names), complete

    def _field(self, row: Declared, position: int, end: int) -> tuple[Any, int]:
        read: Read = row.wire_in(self.version).read
        if getattr(read, "composite", False):
            before = self.prefix
            self.prefix = f"{before}{row.name}."
            try:
                return read(self.raw, position, end, self)
            finally:
                self.prefix = before
        return self.tolerate(read, self.raw, position, end, row.name)
