"""From the bytes of one direction to packets: framing, gaps, resynchronisation.

`PacketStream` takes a stream in any chunks.  The packets that it returns depend on the bytes alone.  Laws:

* A string that overruns its packet is malformed, not "wait for more"; so is a fifth length byte, which loses framing.
* A gap that fits inside a packet of known length keeps framing; after any other gap the stream looks for the next
  plausible packet, and the bytes between are one `Unparsed`.
* Nothing is omitted: the lengths of the items, lost bytes included, add up to the bytes and gaps passed in.
* Memory is bounded by ``max_packet_bytes`` and `MAX_SEARCH_BYTES`; excess bytes are reported as `Unparsed`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mqttscope.budget import Budget
from mqttscope.mqtt.codec import (
    FAST,
    NEED_MORE,
    SHORT,
    decode_framed,
    implausible_length,
    packet_end,
    read_publish,
    reserved,
    short_acknowledgement,
    too_long,
    truncated,
)
from mqttscope.mqtt.constants import V5, MalformedReason, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import PACKETS, ControlPacket, Malformed
from mqttscope.mqtt.packets import FIXED_LENGTHS, Connect, Publish
from mqttscope.mqtt.resync import evidence, find_packets
from mqttscope.mqtt.wire import LayoutFault

MAX_PACKET_BYTES: Final = 268_435_460
"""Longest packet of the protocol: five bytes of fixed header and the largest Remaining Length."""
MAX_SEARCH_BYTES: Final = 65_536
"""Maximum number of skipped bytes kept while looking for the next packet; further bytes are only counted."""
MAX_SUSPECT_BYTES: Final = 65_536
"""Maximum length of a packet that is awaited without a check of its header."""
MAX_ACKNOWLEDGEMENT_BYTES: Final = 1 << 20
"""Maximum Remaining Length of an acknowledgement, which may have many properties; beyond it, framing is lost."""
MAX_AFTER_BYTES: Final = 1_024
"""Bytes after a malformed packet that are kept with it."""
MAX_BEFORE_BYTES: Final = 16_384
"""Bytes of a PUBLISH that is kept with a malformed packet after it."""
MAX_RESERVED: Final = 16
"""Number of packets of a reserved type that make framing count as lost."""
MAX_TOO_LARGE_BYTES: Final = 64
"""Number of bytes kept of a packet above ``max_packet_bytes``."""


@dataclass(slots=True)
class Unparsed:
    """Bytes that belong to no readable packet."""

    reason: str
    """``resynchronised``: skipped while looking for a packet; ``gap``: lost bytes alone, or a packet that lost
    indispensable bytes; ``too_large``: a packet above the limit; ``no_room``: the memory budget of all
    connections was used up."""
    length: int
    """Number of bytes of the stream, lost bytes included."""
    raw: bytes = b""
    """The captured bytes, or their beginning."""
    missing: int = 0
    """How many of the ``length`` bytes were not captured."""
    packet_type: int | None = None
    """Type of the packet that the bytes belong to, if known."""


_PUBLISH: Final = 3
_SHORT_LENGTH: Final = 2
"""Length of the fixed header, and of the body, of an acknowledgement with a Packet Identifier alone."""
_UNKNOWN: Final[tuple[None, ...]] = (None,) * 16
"""No fast decoders: while the version is unknown, every packet is searched for evidence of it."""

StreamItem = ControlPacket | Malformed | Unparsed


@dataclass(slots=True)
class PacketStream:
    """One direction of a connection, from bytes to packets.  Plain data: it can be stored and continued."""

    version: ProtocolVersion = ProtocolVersion.V3_1_1
    """Version to decode with; a CONNECT sets it."""
    version_source: str = "given"
    """Source of the version: ``given``, ``CONNECT``, or the evidence for it; empty while the version is unknown."""
    max_packet_bytes: int = MAX_PACKET_BYTES
    chunks: list[bytes] = field(default_factory=list)
    """Bytes of the incomplete packet."""
    held: int = 0
    """Number of bytes in ``chunks``."""
    wanted: int = 0
    """Length of the packet at the front, 0 while its fixed header is incomplete; in a search, the number of bytes
    that the next step of the search needs."""
    skip: int = 0
    """Bytes still to come of a packet that is being skipped."""
    skipped: Unparsed | None = None
    searching: bool = False
    """Framing is lost; looking for the next plausible packet."""
    passed: int = 0
    """Bytes skipped since framing was lost."""
    passed_chunks: list[bytes] = field(default_factory=list)
    """The bytes skipped since framing was lost, at most `MAX_SEARCH_BYTES`."""
    lost: int = 0
    """Bytes lost in gaps since framing was lost."""
    reserved: int = 0
    """Number of packets of a reserved type since framing was last found."""
    closed: bool = False
    foreign: bool = False
    """Whether the stream is not MQTT: the rest of it is skipped."""
    before: bytes = field(default=b"", compare=False, repr=False)
    """The PUBLISH right before the bytes that are held; empty without one."""
    budget: Budget | None = field(default=None, compare=False, repr=False)
    """Memory budget of all streams together; a packet that does not fit into it is skipped."""

    @property
    def busy(self) -> bool:
        """Whether it holds, or is skipping, bytes that were not reported yet."""
        return bool(self.held or self.searching or self.skip)

    def beginning(self, data: bytes, length: int) -> bytes:
        """The first bytes of a stream without a complete packet; ``data`` are the next bytes."""
        head = b"".join(self.chunks)[:length] if self.held else b""
        return head + data[: length - len(head)]

    def hold(self, data: bytes) -> None:
        """Keep bytes until more is known; no packets are read from them yet."""
        self.chunks.append(data)
        self._hold(len(data))

    def refuse(self) -> None:
        """Treat the stream as foreign: read nothing of its bytes, held or still to come."""
        self.foreign, self.skip = True, 1  # `whole` tests ``skip``, not ``foreign``

    def whole(self, data: bytes, into: Publish | None = None) -> ControlPacket | None:
        """Decode bytes that are exactly one well-formed packet, which is nearly always so.

        Otherwise, or if the stream is inside a packet, returns ``None`` and changes nothing: the caller uses `feed`.
        ``into`` is as in `codec.read_publish`.
        """
        if self.held or self.searching or self.skip or len(data) < 2:
            return None
        length = data[1]
        if length < 0x80:
            body = 2
        elif len(data) > 2 and 0 < data[2] < 0x80:
            body, length = 3, (length & 0x7F) + (data[2] << 7)
        else:
            return None
        if body + length != len(data) or not self.version_source or length > self.max_packet_bytes - body:
            return None
        kind = data[0] >> 4
        try:
            if kind == _PUBLISH:
                return read_publish(data, body, five=self.version is V5, into=into)
            if length == _SHORT_LENGTH and body == _SHORT_LENGTH:
                make = SHORT.get(data[0])
                if make is not None:
                    return short_acknowledgement(make, data)
            decoder = FAST[self.version][kind]
            return None if decoder is None else decoder(data, body)
        except LayoutFault:
            return None

    def feed(self, data: bytes) -> list[StreamItem]:
        """Take the next bytes; returns the packets that they complete."""
        packet = self.whole(data)
        if packet is not None:
            return [packet]
        out: list[StreamItem] = []
        if self.foreign:
            data = self._take_held() + data if self.held else data
            return [Unparsed("not_mqtt", len(data), data[:MAX_SEARCH_BYTES])]
        if not (self.held or self.searching or self.skip):
            self._frame(data, out)
            return self._settle(out) if self.searching else out
        if self.skip:
            data = self._pass_over(data, out)
            if not data:
                return out
        self.chunks.append(data)
        self._hold(len(data))
        if not self.searching:
            if self.held < self.wanted:
                return self._keep_room(out)
            self._frame(self._take_held(), out)
        return self._settle(out)

    def gap(self, length: int) -> list[StreamItem]:
        """Take a gap of ``length`` bytes; returns the items that it ends."""
        out: list[StreamItem] = []
        if length <= 0 or self.foreign:
            return out
        if self.before:
            self._keep_before(b"")
        self._settle(out, final=True)
        if self.skip:
            count = min(self.skip, length)
            self.skip -= count
            length -= count
            if self.skipped is not None:
                self.skipped.missing += count
            self._end_skip(out)
        elif self.held and self.wanted and self.held + length <= self.wanted:
            self._end_lossy(out, length)
            return out
        elif self.held:
            length -= self._end_cut(out)
        if length:
            if self.passed:
                self._end_search(out)
            self.searching = True
            self.lost += length
        return out

    def close(self) -> list[StreamItem]:
        """End the stream; returns the rest of it.  A second call returns nothing."""
        out: list[StreamItem] = []
        if self.closed:
            return out
        self.closed = True
        while True:
            self._settle(out, final=True)
            if self.skip:
                if self.skipped is not None:
                    self.skipped.length -= self.skip
                self.skip = 0
                self._end_skip(out)
            elif self.searching:
                self._end_search(out)
            elif self.held:
                rest, before = self._take_held(), self.before
                if before:
                    self._keep_before(b"")
                inner = self._inner(rest)
                if inner:
                    out.append(self._beside(implausible_length(rest[:inner], self.version), rest[inner:], before))
                    self._frame(rest[inner:], out)
                    continue
                # An AUTH is not reserved in a version that is only assumed.
                version = V5 if not self.version_source and rest[0] >> 4 == PacketType.AUTH else self.version
                out.append(self._beside(truncated(rest, version), b"", before))
            return out

    def lose_framing(self) -> None:
        """Start by looking for a packet: for a capture that begins inside a connection."""
        self.searching = True

    def _frame(self, data: bytes, out: list[StreamItem]) -> list[StreamItem]:
        """Decode the complete packets at the front of ``data``, and keep the rest."""
        position, end = 0, len(data)
        before = self.before
        if before:
            self._keep_before(b"")
        decoders = FAST[self.version] if self.version_source else _UNKNOWN
        limit = min(self.max_packet_bytes, MAX_SUSPECT_BYTES)
        while position < end:
            if end - position >= 2 and data[position + 1] < 0x80:
                body = position + 2
                stop = body + data[position + 1]
            else:
                body, stop = packet_end(data, position, end)
                if body <= 0:
                    if body == NEED_MORE:
                        break
                    rest = data[position + 5 :]
                    before = _last_publish(out) if position else before
                    out.append(self._beside(too_long(data[position : position + 5]), rest, before))
                    return self._resume_search(rest, out)
            if stop - position > limit and not self._large(data, position, body, stop, out):
                position = stop
                continue
            if self.searching:
                return self._resume_search(data[body:], out)
            if stop > end:
                self.wanted = stop - position
                break
            raw = data[position:stop]
            decoder = decoders[raw[0] >> 4]
            if decoder is not None and (data[body - 1] or body - position == 2):
                try:
                    out.append(decoder(raw, body - position))
                    position = stop
                    continue
                except LayoutFault:
                    pass
            before = _last_publish(out) if position else before
            position += self._unusual(raw, body - position, out)
            last = out[-1]
            if isinstance(last, Malformed):
                self._beside(last, data[position : position + MAX_AFTER_BYTES], before)
            if self.reserved >= MAX_RESERVED:
                self.reserved = 0
                return self._resume_search(data[position:], out)
            decoders = FAST[self.version] if self.version_source else _UNKNOWN
        if position < end:
            rest = data[position:] if position else data
            self.chunks = [rest]
            self._hold(len(rest))
            before = _last_publish(out) if position else before
            if before:
                self._keep_before(before)
        return self._keep_room(out)

    def _keep_before(self, raw: bytes) -> None:
        """Keep the PUBLISH before the bytes that are held in place of another one."""
        if self.budget is not None:
            self.budget.take(len(raw) - len(self.before))
        self.before = raw

    @staticmethod
    def _beside(packet: Malformed, after: bytes, before: bytes) -> Malformed:
        """A malformed packet with the bytes around it."""
        packet.after, packet.before = after[:MAX_AFTER_BYTES], before
        return packet

    def _hold(self, size: int) -> None:
        self.held += size
        if self.budget is not None:
            self.budget.take(size)

    def _keep_room(self, out: list[StreamItem]) -> list[StreamItem]:
        """Skip the packet at the front if the memory budget is used up."""
        if self.budget is None or not self.wanted or not self.budget.is_exceeded:
            return out
        head, held, wanted = b"".join(self.chunks[:2])[:MAX_TOO_LARGE_BYTES], self.held, self.wanted
        self._hold(-held)
        self._keep_before(b"")
        self.chunks, self.wanted = [], 0
        self.skipped, self.skip = Unparsed("no_room", wanted, head, 0, head[0] >> 4), wanted - held
        self._end_skip(out)
        return out

    def _unusual(self, raw: bytes, body: int, out: list[StreamItem]) -> int:
        """Decode a packet that the fast decoders do not take, such as CONNECT; returns the number of bytes used."""
        kind = raw[0] >> 4
        if not self.version_source and kind != PacketType.CONNECT:
            self._assume(raw)
        inner = self._inner(raw)
        if inner:
            out.append(implausible_length(raw[:inner], self.version))
            return inner
        item = decode_framed(raw, body, self.version)
        if isinstance(item, Malformed) and self.version_source not in ("given", "CONNECT") and self._assume(raw):
            item = decode_framed(raw, body, self.version)
        out.append(item)
        if kind == PacketType.CONNECT:
            self._learn(item)
        elif isinstance(item, Malformed) and item.reason is MalformedReason.PACKET_TYPE_RESERVED:
            self.reserved += 1
        return len(raw)

    def _large(self, data: bytes, position: int, body: int, stop: int, out: list[StreamItem]) -> bool:
        """Handle a packet above a limit; returns whether to read it nevertheless."""
        kind = data[position] >> 4
        if self._suspect(data[position], kind, stop - body):
            malformed = implausible_length(data[position:body], self.version)
            malformed.after = data[body : body + MAX_AFTER_BYTES]
            out.append(malformed)
            self.searching = True
            return True
        if stop - position <= self.max_packet_bytes:
            return True
        head = data[position : min(stop, position + MAX_TOO_LARGE_BYTES)]
        self.skipped = Unparsed("too_large", stop - position, head, 0, kind)
        self.skip = max(0, stop - len(data))
        self._end_skip(out)
        return False

    def _learn(self, item: StreamItem) -> None:
        packet = item.packet if isinstance(item, Malformed) else item
        if isinstance(packet, Connect) and packet.known("protocol_level") is not None:
            self.version, self.version_source = packet.version, "CONNECT"

    def _assume(self, raw: bytes) -> bool:
        """Take the version from the evidence of one packet; returns whether there is any."""
        version_evidence = evidence(raw)
        if version_evidence is None:
            return False
        self.version, self.version_source = version_evidence
        return True

    def versions(self) -> tuple[ProtocolVersion, ...]:
        if self.version_source:
            return (self.version,)
        return (ProtocolVersion.V5, ProtocolVersion.V3_1_1)

    def _suspect(self, first: int, kind: int, length: int) -> int:
        """Whether a header does not fit its packet type, so that framing may be lost already.

        2 when the type or the length is impossible, 1 when the flags are, 0 otherwise.
        """
        if reserved(kind, self.version):
            return 2 if length > 2 else 0
        if kind == PacketType.PUBLISH:
            return int(first & 6 == 6)
        limits = FIXED_LENGTHS.get((kind, self.version))
        if limits is not None and not limits[0] <= length <= min(limits[1], MAX_ACKNOWLEDGEMENT_BYTES):
            return 2
        return int(self.version != ProtocolVersion.V3_1 and first & 15 != PACKETS[kind].fixed_flags)

    def _inner(self, raw: bytes) -> int:
        """Offset of plausible packets inside a packet with a suspect header; 0 without them."""
        body, stop = packet_end(raw, 0, len(raw))
        if body == NEED_MORE:
            return 0
        suspect = self._suspect(raw[0], raw[0] >> 4, stop - body)
        if raw[0] >> 4 == PacketType.PUBLISH and int.from_bytes(raw[body : body + 2], "big") > stop - body - 2:
            suspect = 1  # the topic does not fit
        if not suspect:
            return 0
        position, needed = find_packets(raw[:MAX_SEARCH_BYTES], 1, self.versions(), final=True, alone=suspect == 2)
        return 0 if needed else position

    def _take_held(self) -> bytes:
        whole = b"".join(self.chunks)
        self._hold(-self.held)
        self.chunks, self.wanted = [], 0
        return whole

    def _pass_over(self, data: bytes, out: list[StreamItem]) -> bytes:
        """Drop the bytes of a packet that is being skipped; returns the bytes after it."""
        passed = data[: self.skip]
        self.skip -= len(passed)
        skipped = self.skipped
        if skipped is not None and skipped.reason == "too_large" and not skipped.missing:
            skipped.raw += passed[: MAX_TOO_LARGE_BYTES - len(skipped.raw)]
        self._end_skip(out)
        return data[len(passed) :]

    def _end_skip(self, out: list[StreamItem]) -> None:
        if self.skipped is not None and not self.skip:
            out.append(self.skipped)
            self.skipped = None

    def _end_lossy(self, out: list[StreamItem], lost: int) -> None:
        """The packet at the front lost bytes: report its readable part, and skip the rest.

        Once bytes are lost, the rest of the packet cannot be interpreted, but framing is kept.
        """
        wanted, rest = self.wanted, self.wanted - self.held - lost
        head = self._take_held()
        packet = self._cut_packet(head)
        self.skip = rest
        if packet is not None:
            packet.missing = wanted - len(head)
            out.append(packet)
        else:
            self.skipped = Unparsed("gap", wanted, head, lost, head[0] >> 4)
            self._end_skip(out)

    def _end_cut(self, out: list[StreamItem]) -> int:
        """A gap crosses the end of the packet at the front; returns how many lost bytes belong to the packet."""
        missing = self.wanted - self.held if self.wanted else 0
        head = self._take_held()
        packet = self._cut_packet(head) if missing else None
        if packet is not None:
            packet.missing = missing
            out.append(packet)
        else:
            out.append(Unparsed("gap", len(head) + missing, head, missing, head[0] >> 4))
        return missing

    def _cut_packet(self, head: bytes) -> ControlPacket | None:
        """The packet, if it is a PUBLISH that lost bytes of its payload only."""
        if head[0] >> 4 != PacketType.PUBLISH:
            return None
        malformed = truncated(head, self.version)
        packet = malformed.packet
        if isinstance(packet, Publish) and packet.known("payload") is not None and len(malformed.faults) == 1:
            return packet
        return None

    def _resume_search(self, rest: bytes, out: list[StreamItem]) -> list[StreamItem]:
        self.searching = True
        self.chunks, self.wanted = [rest], 0
        self._hold(len(rest))
        return out

    def _settle(self, out: list[StreamItem], *, final: bool = False) -> list[StreamItem]:
        """Search and continue framing as far as the bytes held allow."""
        while self.searching and self.held and (final or self.held >= self.wanted):
            whole = self._take_held()
            start, needed = find_packets(whole, 0, self.versions(), final=final)
            self._pass_by(whole[:start])
            rest = whole[start:]
            if needed:
                self.chunks, self.wanted = [rest], needed - start
                self._hold(len(rest))
            else:
                self._end_search(out)
                self._frame(rest, out)
        return out

    def _pass_by(self, raw: bytes) -> None:
        if raw and self.passed < MAX_SEARCH_BYTES:
            self.passed_chunks.append(raw[: MAX_SEARCH_BYTES - self.passed])
        self.passed += len(raw)

    def _end_search(self, out: list[StreamItem]) -> None:
        """End the search, and report the skipped bytes."""
        self.searching = False
        if self.passed or self.lost:
            reason = "resynchronised" if self.passed else "gap"
            out.append(Unparsed(reason, self.passed + self.lost, b"".join(self.passed_chunks), self.lost))
        self.passed, self.passed_chunks, self.lost = 0, [], 0


def _last_publish(items: list[StreamItem]) -> bytes:
    """The last item, if it is a PUBLISH that may be kept."""
    last = items[-1] if items else None
    return last.raw if type(last) is Publish and not last.missing and len(last.raw) <= MAX_BEFORE_BYTES else b""
