"""From the bytes of one direction to packets: framing, gaps, resynchronisation.

`PacketStream` takes a stream in any chunks.  The packets that it gives depend on the bytes alone.  Laws:

* A string that overruns its packet is malformed, not "wait for more"; so is a fifth length byte, which loses framing.
* A gap that fits inside a packet of known length keeps framing; after any other the stream looks for the next
  plausible packet, and the bytes between are one `Unparsed`.
* Nothing is left out: the lengths of the items, lost bytes included, add up to the bytes fed and the gaps told.
* Memory is bounded by ``max_packet_bytes`` and `MAX_SEARCH_BYTES`; what exceeds them is said.
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
    packet_end,
    read_publish,
    reserved,
    short_acknowledgement,
    too_long,
    truncated,
    unbelieved,
)
from mqttscope.mqtt.constants import V5, MalformedReason, PacketType, ProtocolVersion
from mqttscope.mqtt.declare import PACKETS, ControlPacket, Malformed
from mqttscope.mqtt.packets import FIXED_LENGTHS, Connect, Publish
from mqttscope.mqtt.resync import evidence, find_packets
from mqttscope.mqtt.wire import Fault

MAX_PACKET_BYTES: Final = 268_435_460
"""Longest packet of the protocol: five bytes of fixed header and the largest Remaining Length."""
MAX_SEARCH_BYTES: Final = 65_536
"""How many bytes are kept of those passed over while looking for the next packet; further ones are only counted."""
MAX_SUSPECT_BYTES: Final = 65_536
"""Headers of packets that are longer are looked at before their end is waited for."""
MAX_ACKNOWLEDGEMENT_BYTES: Final = 1 << 20
"""Acknowledgements may have properties without end; with a longer Remaining Length than this framing is lost."""
MAX_AFTER_BYTES: Final = 1_024
"""Bytes after a malformed packet that are kept with it."""
MAX_RESERVED: Final = 16
"""After so many packets of a reserved type framing is not believed any more."""
MAX_TOO_LARGE_BYTES: Final = 64
"""How many bytes are kept of a packet above ``max_packet_bytes``."""


@dataclass(slots=True)
class Unparsed:
    """Bytes that belong to no packet that could be read."""

    reason: str
    """``resynchronised``: skipped while looking for a packet; ``gap``: lost bytes alone, or a packet that lost bytes in
    a place that cannot be done without; ``too_large``: a packet above the limit; ``no_room``: the budget of all
    connections was used up."""
    length: int
    """How many bytes of the stream, lost ones included."""
    raw: bytes = b""
    """Those bytes that were captured, or their beginning."""
    missing: int = 0
    """How many of ``length`` the capture does not have."""
    packet_type: int | None = None
    """Type of the packet they belong to, when that is known."""


_PUBLISH: Final = 3
_SHORT_LENGTH: Final = 2
"""Bytes before and after the fixed header of an acknowledgement with nothing but a Packet Identifier."""
_UNKNOWN: Final[tuple[None, ...]] = (None,) * 16
"""No fast decoders: while the version is unknown every packet is looked at for evidence."""

StreamItem = ControlPacket | Malformed | Unparsed


@dataclass(slots=True)
class PacketStream:
    """One direction of a connection, from bytes to packets.  Plain data: it can be written down and taken up again."""

    version: ProtocolVersion = ProtocolVersion.V3_1_1
    """Version to decode with; a CONNECT sets it."""
    version_source: str = "given"
    """What said the version: ``given``, ``CONNECT``, or the evidence it was assumed on; empty while nothing did."""
    max_packet_bytes: int = MAX_PACKET_BYTES
    chunks: list[bytes] = field(default_factory=list)
    """Bytes of the packet that is not complete yet."""
    held: int = 0
    """How many bytes ``chunks`` holds."""
    wanted: int = 0
    """How many bytes the packet at the front needs in all, 0 while its fixed header is incomplete; in a search, how
    many must be held before another look can tell more."""
    skip: int = 0
    """Bytes still to come of a packet that is being passed over."""
    skipped: Unparsed | None = None
    searching: bool = False
    """Framing is lost; looking for the next plausible packet."""
    passed: int = 0
    """Bytes passed over since framing was lost."""
    passed_chunks: list[bytes] = field(default_factory=list)
    """Those bytes, at most `MAX_SEARCH_BYTES` of them."""
    lost: int = 0
    """Bytes that gaps took while framing was lost."""
    reserved: int = 0
    """Packets of a reserved type since framing was last found."""
    closed: bool = False
    foreign: bool = False
    """Whether it is no MQTT: nothing of it is read any more."""
    budget: Budget | None = field(default=None, compare=False, repr=False)
    """Of all streams together; a packet that does not fit into it is passed over."""

    @property
    def busy(self) -> bool:
        """Whether it holds bytes, or passes over some, of which nothing was said yet."""
        return bool(self.held or self.searching or self.skip)

    def beginning(self, data: bytes, length: int) -> bytes:
        """The first bytes of a stream of which no packet is complete, and of ``data``, which comes next."""
        head = b"".join(self.chunks)[:length] if self.held else b""
        return head + data[: length - len(head)]

    def hold(self, data: bytes) -> None:
        """Keep bytes of which more has to be known before packets are read."""
        self.chunks.append(data)
        self._hold(len(data))

    def refuse(self) -> None:
        """Read nothing of what it holds and of what comes: it is no MQTT."""
        self.foreign, self.skip = True, 1  # `whole` looks at what is passed over

    def whole(self, data: bytes, into: Publish | None = None) -> ControlPacket | None:
        """Take bytes that are exactly one well-formed packet, as they nearly always are.

        ``None`` where they are not, or where the stream is not between two packets: then nothing was taken, and `feed`
        has to.  ``into`` is as in `codec.read_publish`.
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
        except Fault:
            return None

    def feed(self, data: bytes) -> list[StreamItem]:
        """Take the next bytes; returns what they complete."""
        found = self.whole(data)
        if found is not None:
            return [found]
        out: list[StreamItem] = []
        if self.foreign:
            data = self._take() + data if self.held else data
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
            self._frame(self._take(), out)
        return self._settle(out)

    def gap(self, length: int) -> list[StreamItem]:
        """The capture lost ``length`` bytes here; returns what that ends."""
        out: list[StreamItem] = []
        if length <= 0 or self.foreign:
            return out
        self._settle(out, final=True)
        if self.skip:
            taken = min(self.skip, length)
            self.skip -= taken
            length -= taken
            if self.skipped is not None:
                self.skipped.missing += taken
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
        """The stream ended; returns what was left.  A second call returns nothing."""
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
                rest = self._take()
                inner = self._inner(rest)
                if inner:
                    out.append(unbelieved(rest[:inner], self.version))
                    self._frame(rest[inner:], out)
                    continue
                out.append(truncated(rest, self.version))
            return out

    def lose_framing(self) -> None:
        """Start by looking for a packet: for a capture that joins a connection in the middle."""
        self.searching = True

    def _frame(self, data: bytes, out: list[StreamItem]) -> list[StreamItem]:
        """Take packets off the front of ``data``, keep the rest."""
        position, end = 0, len(data)
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
                    out.append(too_long(data[position : position + 5]))
                    return self._resume_search(data[position + 5 :], out)
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
                except Fault:
                    pass
            position += self._unusual(raw, body - position, out)
            made = out[-1]
            if isinstance(made, Malformed):
                made.after = data[position : position + MAX_AFTER_BYTES]
            if self.reserved >= MAX_RESERVED:
                self.reserved = 0
                return self._resume_search(data[position:], out)
            decoders = FAST[self.version] if self.version_source else _UNKNOWN
        if position < end:
            rest = data[position:] if position else data
            self.chunks = [rest]
            self._hold(len(rest))
        return self._keep_room(out)

    def _hold(self, size: int) -> None:
        self.held += size
        if self.budget is not None:
            self.budget.take(size)

    def _keep_room(self, out: list[StreamItem]) -> list[StreamItem]:
        """Pass over the packet at the front if there is no room for more of it."""
        if self.budget is None or not self.wanted or not self.budget.is_exceeded:
            return out
        head, held, wanted = b"".join(self.chunks[:2])[:MAX_TOO_LARGE_BYTES], self.held, self.wanted
        self._hold(-held)
        self.chunks, self.wanted = [], 0
        self.skipped, self.skip = Unparsed("no_room", wanted, head, 0, head[0] >> 4), wanted - held
        self._end_skip(out)
        return out

    def _unusual(self, raw: bytes, body: int, out: list[StreamItem]) -> int:
        """A CONNECT, a packet without a body, or one that the fast way refused; returns how many bytes it took."""
        kind = raw[0] >> 4
        if not self.version_source and kind != PacketType.CONNECT:
            self._assume(raw)
        inner = self._inner(raw)
        if inner:
            out.append(unbelieved(raw[:inner], self.version))
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
        """A packet above a limit; returns whether it is to be read all the same."""
        kind = data[position] >> 4
        if self._suspect(data[position], kind, stop - body):
            made = unbelieved(data[position:body], self.version)
            made.after = data[body : body + MAX_AFTER_BYTES]
            out.append(made)
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
        made = item.packet if isinstance(item, Malformed) else item
        if isinstance(made, Connect) and made.known("protocol_level") is not None:
            self.version, self.version_source = made.version, "CONNECT"

    def _assume(self, raw: bytes) -> bool:
        """Take the version from what one packet says; returns whether it says anything."""
        found = evidence(raw)
        if found is None:
            return False
        self.version, self.version_source = found
        return True

    def versions(self) -> tuple[ProtocolVersion, ...]:
        if self.version_source:
            return (self.version,)
        return (ProtocolVersion.V5, ProtocolVersion.V3_1_1)

    def _suspect(self, first: int, kind: int, length: int) -> int:
        """Whether a header does not go with its type, so that framing may be lost already.

        2 when the type or the length is impossible, 1 when it is the flags, 0 when all is well.
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
        """Where other packets begin inside of one whose header is suspect; 0 when there are none."""
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

    def _take(self) -> bytes:
        whole = b"".join(self.chunks)
        self._hold(-self.held)
        self.chunks, self.wanted = [], 0
        return whole

    def _pass_over(self, data: bytes, out: list[StreamItem]) -> bytes:
        """Leave out what belongs to a packet that is being passed over; returns the bytes after it."""
        taken = data[: self.skip]
        self.skip -= len(taken)
        skipped = self.skipped
        if skipped is not None and skipped.reason == "too_large" and not skipped.missing:
            skipped.raw += taken[: MAX_TOO_LARGE_BYTES - len(skipped.raw)]
        self._end_skip(out)
        return data[len(taken) :]

    def _end_skip(self, out: list[StreamItem]) -> None:
        if self.skipped is not None and not self.skip:
            out.append(self.skipped)
            self.skipped = None

    def _end_lossy(self, out: list[StreamItem], lost: int) -> None:
        """The packet at the front lost bytes; say what is known of it and pass over its rest.

        Once bytes are lost the rest of the packet cannot be placed, but framing stays.
        """
        wanted, rest = self.wanted, self.wanted - self.held - lost
        head = self._take()
        made = self._cut_packet(head)
        self.skip = rest
        if made is not None:
            made.missing = wanted - len(head)
            out.append(made)
        else:
            self.skipped = Unparsed("gap", wanted, head, lost, head[0] >> 4)
            self._end_skip(out)

    def _end_cut(self, out: list[StreamItem]) -> int:
        """A gap runs over the end of the packet at the front; returns how many of its bytes belong to the packet."""
        missing = self.wanted - self.held if self.wanted else 0
        head = self._take()
        made = self._cut_packet(head) if missing else None
        if made is not None:
            made.missing = missing
            out.append(made)
        else:
            out.append(Unparsed("gap", len(head) + missing, head, missing, head[0] >> 4))
        return missing

    def _cut_packet(self, head: bytes) -> ControlPacket | None:
        """A PUBLISH whose payload alone lost bytes is a packet all the same."""
        if head[0] >> 4 != PacketType.PUBLISH:
            return None
        found = truncated(head, self.version)
        made = found.packet
        if isinstance(made, Publish) and made.known("payload") is not None and len(found.faults) == 1:
            return made
        return None

    def _resume_search(self, rest: bytes, out: list[StreamItem]) -> list[StreamItem]:
        self.searching = True
        self.chunks, self.wanted = [rest], 0
        self._hold(len(rest))
        return out

    def _settle(self, out: list[StreamItem], *, final: bool = False) -> list[StreamItem]:
        """Search and continue framing, for as long as what is held allows."""
        while self.searching and self.held and (final or self.held >= self.wanted):
            whole = self._take()
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
        """Framing is back, or there is nothing left to search: say what was passed over."""
        self.searching = False
        if self.passed or self.lost:
            reason = "resynchronised" if self.passed else "gap"
            out.append(Unparsed(reason, self.passed + self.lost, b"".join(self.passed_chunks), self.lost))
        self.passed, self.passed_chunks, self.lost = 0, [], 0
