"""From the bytes of one direction to packets: framing, gaps, resynchronisation.

`PacketStream` takes a stream in any chunks and gives the packets that each chunk completes.  What it says depends on
the bytes alone, never on how they were cut.  Laws:

* A string that overruns its packet is malformed, not "wait for more"; a Remaining Length that asks for a fifth byte is
  malformed at that byte, and framing is lost.
* A gap that fits inside a packet of known length keeps framing; after any other the stream looks for the next
  plausible packet, and the bytes between are one `Unparsed`.
* Memory is bounded by ``max_packet_bytes`` and `MAX_SEARCH_BYTES`; what exceeds them is said, never dropped silently.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mqttscope.mqtt.codec import (
    FAST,
    NEED_MORE,
    decode_framed,
    examine,
    packet_end,
    too_long,
    truncated,
    unbelieved,
)
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import ControlPacket, Malformed
from mqttscope.mqtt.packets import FIXED_LENGTHS, Connect, Publish
from mqttscope.mqtt.resync import evidence, find_packets
from mqttscope.mqtt.wire import Fault

MAX_PACKET_BYTES = 268_435_460
"""Longest packet of the protocol: five bytes of fixed header and the largest Remaining Length."""
MAX_SEARCH_BYTES = 65_536
"""How many bytes are kept while looking for the next packet; what is pushed out is reported as unparsed."""
MAX_SUSPECT_BYTES = 65_536
"""A header that breaks the table of its type is not trusted with a longer Remaining Length than this."""


@dataclass(slots=True)
class Unparsed:
    """Bytes that belong to no packet that could be read."""

    reason: str
    """``resynchronised``: skipped while looking for a packet; ``gap``: a packet that lost bytes in a place that
    cannot be done without; ``too_large``: a packet above the limit; ``not_mqtt``: nothing plausible was found."""
    length: int
    """How many bytes of the stream, lost ones included."""
    raw: bytes = b""
    """The bytes, or their beginning."""
    missing: int = 0
    """How many of ``length`` the capture does not have."""
    packet_type: int | None = None
    """Type of the packet they belong to, when that is known."""


_UNKNOWN: tuple[None, ...] = (None,) * 16
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
    """How many bytes the packet at the front needs in all; 0 while its fixed header is incomplete."""
    lost: int = 0
    """Bytes at the end of the packet at the front that a gap took."""
    skip: int = 0
    """Bytes still to come of a packet that is being passed over."""
    skipped: Unparsed | None = None
    searching: bool = False
    """Framing is lost; looking for the next plausible packet."""
    passed: int = 0
    """Bytes passed over since framing was lost that are no longer held."""
    closed: bool = False

    def feed(self, data: bytes) -> list[StreamItem]:
        """Take the next bytes; returns what they complete."""
        if self.held == 0 and not self.searching and not self.skip:
            return self._frame(data, [])
        out: list[StreamItem] = []
        if self.skip:
            taken = min(self.skip, len(data))
            self.skip -= taken
            data = data[taken:]
            if self.skip:
                return out
            self._end_skip(out)
            if not data:
                return out
        self.chunks.append(data)
        self.held += len(data)
        if self.searching:
            return self._search(out, final=False)
        if self.held + self.lost < self.wanted:
            return out
        if self.lost:
            return self._end_lossy(out)
        whole = b"".join(self.chunks)
        self.chunks, self.held, self.wanted = [], 0, 0
        return self._frame(whole, out)

    def gap(self, length: int) -> list[StreamItem]:
        """The capture lost ``length`` bytes here; returns what that ends."""
        out: list[StreamItem] = []
        if self.skip:
            taken = min(self.skip, length)
            if self.skipped is not None:
                self.skipped.missing += taken
            self.skip -= taken
            length -= taken
            if not self.skip:
                self._end_skip(out)
            if not length:
                return out
        if self.searching:
            self._search(out, final=True)
            self.searching = True
            return out
        if self.wanted and self.held + self.lost + length <= self.wanted:
            # Once bytes are lost the rest of the packet cannot be placed: it is passed over, framing stays.
            self.lost = length
            return self._end_lossy(out)
        if self.held or self.lost:
            self._end_cut(out, length)
        self.searching = True
        return out

    def close(self) -> list[StreamItem]:
        """The stream ended; returns what was left."""
        out: list[StreamItem] = []
        if self.closed:
            return out
        self.closed = True
        if self.skip and self.skipped is not None:
            self.skipped.length -= self.skip
            out.append(self.skipped)
            self.skip, self.skipped = 0, None
        elif self.searching:
            self._search(out, final=True)
        elif self.held:
            whole = b"".join(self.chunks)
            self.chunks, self.held, self.wanted = [], 0, 0
            self._tail(whole, out)
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
            decoders = FAST[self.version] if self.version_source else _UNKNOWN
        if position < end:
            rest = data[position:] if position else data
            self.chunks, self.held = [rest], len(rest)
        return out

    def _unusual(self, raw: bytes, body: int, out: list[StreamItem]) -> int:
        """A CONNECT, a packet without a body, or one that the fast way refused; returns how many bytes it took."""
        kind = raw[0] >> 4
        if not self.version_source and kind != PacketType.CONNECT:
            self._assume(raw)
        if self._suspect(raw[0], kind, len(raw) - body):
            inner = find_packets(raw, 1, len(raw), self._versions(), exact=True)
            if inner is not None:
                out.append(examine(raw[:inner], self.version))
                return inner
        item = decode_framed(raw, body, self.version)
        if isinstance(item, Malformed) and self.version_source not in ("given", "CONNECT") and self._assume(raw):
            item = decode_framed(raw, body, self.version)
        out.append(item)
        if kind == PacketType.CONNECT:
            self._learn(item)
        return len(raw)

    def _large(self, data: bytes, position: int, body: int, stop: int, out: list[StreamItem]) -> bool:
        """A packet above a limit; returns whether it is to be read all the same."""
        kind = data[position] >> 4
        if self._suspect(data[position], kind, stop - body):
            out.append(unbelieved(data[position:body], self.version))
            self.searching = True
            return True
        if stop - position <= self.max_packet_bytes:
            return True
        self.skipped = Unparsed("too_large", stop - position, data[position : position + 64], 0, kind)
        self.skip = max(0, stop - len(data))
        if not self.skip:
            self._end_skip(out)
        return False

    def _learn(self, item: StreamItem) -> None:
        made = item.packet if isinstance(item, Malformed) else item
        if isinstance(made, Connect) and made.protocol_level is not None:
            self.version, self.version_source = made.version, "CONNECT"

    def _assume(self, raw: bytes) -> bool:
        """Take the version from what one packet says; returns whether it says anything."""
        found = evidence(raw)
        if found is None:
            return False
        self.version, self.version_source = found
        return True

    def _versions(self) -> tuple[ProtocolVersion, ...]:
        """Versions that the stream may be in."""
        if self.version_source:
            return (self.version,)
        return (ProtocolVersion.V5, ProtocolVersion.V3_1_1)

    def _suspect(self, first: int, kind: int, length: int) -> bool:
        """Whether the length of this header does not go with its type, so that framing may be lost already."""
        if kind in (0, 15) and (kind == 0 or self.version != ProtocolVersion.V5):
            return length > 2
        limits = FIXED_LENGTHS.get((kind, self.version))
        if limits is None:
            return False
        return not limits[0] <= length <= min(limits[1], MAX_SUSPECT_BYTES)

    def _end_skip(self, out: list[StreamItem]) -> None:
        if self.skipped is not None:
            out.append(self.skipped)
            self.skipped = None

    def _end_lossy(self, out: list[StreamItem]) -> list[StreamItem]:
        """The packet at the front lost bytes; say what is known of it and pass over its rest."""
        head = b"".join(self.chunks)
        rest = self.wanted - self.held - self.lost
        out_item = self._cut_packet(head, self.wanted, self.lost)
        self.chunks, self.held = [], 0
        wanted, self.wanted, lost, self.lost = self.wanted, 0, self.lost, 0
        if isinstance(out_item, ControlPacket):
            out_item.missing = wanted - len(head)
            out.append(out_item)
            if rest:
                self.skip = rest
            return out
        self.skipped = Unparsed("gap", wanted, head, lost, head[0] >> 4)
        self.skip = rest
        if not rest:
            self._end_skip(out)
        return out

    def _cut_packet(self, head: bytes, wanted: int, lost: int) -> ControlPacket | None:
        """A PUBLISH whose payload alone lost bytes is a packet all the same."""
        if head[0] >> 4 != PacketType.PUBLISH or lost <= 0 or wanted <= len(head):
            return None
        found = truncated(head, self.version)
        made = found.packet
        if isinstance(made, Publish) and made.payload is not None and len(found.faults) == 1:
            return made
        return None

    def _end_cut(self, out: list[StreamItem], length: int) -> None:
        """A gap runs over the end of the packet at the front."""
        head = b"".join(self.chunks)
        self.chunks, self.held = [], 0
        wanted, self.wanted, self.lost = self.wanted, 0, 0
        made = self._cut_packet(head, wanted, wanted - len(head)) if wanted else None
        if made is not None:
            made.missing = wanted - len(head)
            out.append(made)
            return
        missing = wanted - len(head) if wanted else 0
        out.append(Unparsed("gap", len(head) + missing, head, missing, head[0] >> 4))

    def _resume_search(self, rest: bytes, out: list[StreamItem]) -> list[StreamItem]:
        self.searching = True
        self.chunks, self.held, self.wanted = ([rest], len(rest), 0) if rest else ([], 0, 0)
        return self._search(out, final=False) if rest else out

    def _search(self, out: list[StreamItem], *, final: bool) -> list[StreamItem]:
        """Look for a plausible packet in what is held; on success framing is back."""
        whole = b"".join(self.chunks)
        start = find_packets(whole, 0, len(whole), self._versions())
        if start is None:
            keep = 0 if final else MAX_SEARCH_BYTES
            if final:
                self._unparsed(whole, out, "resynchronised")
            elif len(whole) > 2 * keep:
                self.passed += len(whole) - keep
                whole = whole[-keep:]
            self.chunks, self.held = ([whole], len(whole)) if whole and not final else ([], 0)
            return out
        self._unparsed(whole[:start], out, "resynchronised")
        self.chunks, self.held, self.wanted, self.searching = [], 0, 0, False
        rest = whole[start:]
        if final:
            self._tail(rest, out)
            return out
        return self._frame(rest, out)

    def _unparsed(self, raw: bytes, out: list[StreamItem], reason: str) -> None:
        length = self.passed + len(raw)
        self.passed = 0
        if length:
            out.append(Unparsed(reason, length, raw))

    def _tail(self, data: bytes, out: list[StreamItem]) -> None:
        """Packets of the last bytes of a stream; an incomplete one is truncated."""
        self._frame(data, out)
        if self.skip and self.skipped is not None:
            return
        if self.searching:
            self._search(out, final=True)
            return
        if not self.held:
            return
        rest = b"".join(self.chunks)
        self.chunks, self.held, self.wanted = [], 0, 0
        body, stop = packet_end(rest, 0, len(rest))
        if body > 0 and self._suspect(rest[0], rest[0] >> 4, stop - body):
            inner = find_packets(rest, 1, len(rest), self._versions(), exact=True)
            if inner is not None:
                found = truncated(rest[:inner], self.version)
                out.append(found)
                self._tail(rest[inner:], out)
                return
        out.append(truncated(rest, self.version))
