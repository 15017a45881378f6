"""A second reading of captures, which looks for facts that a shown cause cannot live with.

It knows packets, segments and frames, and nothing of the detectors: what they and the declarations overlook shows here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from mqttscope import events
from mqttscope.capture import open_capture
from mqttscope.dissect import dissect_segments, segments
from mqttscope.explain.model import Candidate, Cause, Explanation
from mqttscope.mqtt import packets
from mqttscope.net.frame import CaptureNotice, Frame
from mqttscope.net.segment import ACK, FIN, RST, SYN, Segment, distance, endpoints
from mqttscope.session.connection import C2S, Connection

SECOND = 1_000_000_000
NAMED = frozenset(
    (
        Cause.BAD_CREDENTIALS, Cause.CLIENT_IDENTIFIER_REJECTED, Cause.NOT_AUTHORIZED, Cause.BANNED,
        Cause.UNSUPPORTED_VERSION, Cause.SERVER_UNAVAILABLE, Cause.QUOTA_EXCEEDED, Cause.USE_ANOTHER_SERVER,
        Cause.CONNECT_REFUSED,
    )
)  # fmt: skip
"""What a CONNACK refuses for."""


@dataclass
class Packet:
    """A packet, or bytes that are none (``body`` is ``None``)."""

    at: int
    frame: int
    is_client: bool
    body: object


@dataclass
class Line:
    """One connection."""

    connection: Connection
    talk: list[Packet] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)

    def sent(self, until: int, *, client: bool) -> list[Packet]:
        return [packet for packet in self.talk if packet.is_client is client and packet.at <= until]

    def side(self, *, client: bool) -> list[Segment]:
        name = self.connection.client if client else self.connection.server
        return [segment for segment in self.segments if endpoints(segment.key)[0] == name]


class Reading:
    """One capture, read again."""

    def __init__(self, path: Path) -> None:
        self.ttls: dict[int, int] = {}
        self.lines: dict[int, Line] = {}
        flows: dict[frozenset[str], list[Segment]] = defaultdict(list)
        seen: list[object] = []
        for item in segments(self._frames(path), Counter()):
            seen.append(item)
            if type(item) is Segment:
                flows[frozenset(endpoints(item.key))].append(item)
        for event in dissect_segments(seen):  # type: ignore[arg-type]
            connection = getattr(event, "connection", None)
            if not isinstance(connection, Connection):
                continue
            line = self.lines.setdefault(connection.number, Line(connection))
            if isinstance(event, events.PacketEvent | events.MalformedEvent | events.UnparsedEvent):
                body = event.packet if isinstance(event, events.PacketEvent) else None
                line.talk.append(Packet(event.timestamp_ns, event.frame, event.direction is C2S, body))
        for line in self.lines.values():
            mine = line.connection
            pair = flows[frozenset((mine.client, mine.server))]
            later = [
                other.connection.frame
                for other in self.lines.values()
                if {other.connection.client, other.connection.server} == {mine.client, mine.server}
                and other.connection.frame > mine.frame
            ]
            line.segments = [segment for segment in pair if mine.frame <= segment.frame < min(later, default=1 << 60)]

    def _frames(self, path: Path) -> Iterator[Frame | CaptureNotice]:
        for item in open_capture([str(path)]):
            if type(item) is Frame and item.data[12:14] == b"\x08\x00" and len(item.data) > 22:
                self.ttls[item.number] = item.data[22]
            yield item

    def against(self, end: Explanation) -> Iterator[str]:
        """Facts that contradict what is shown about an end."""
        line = self.lines[end.connection]
        for candidate in end.candidates:
            if end.clock_set or end.ended_how == "capture_end":
                continue
            judge = getattr(self, f"_{candidate.cause}", None)
            if judge is not None and not self._is_stated(candidate):
                yield from (f"{candidate.cause}: {fact}" for fact in judge(line, end, candidate))
            if candidate.cause in NAMED and candidate.headline.startswith("The broker refused the CONNECT"):
                yield from (f"{candidate.cause}: {fact}" for fact in self._refused(line, end, candidate))

    def _is_stated(self, candidate: Candidate) -> bool:
        return candidate.reason_code is not None and "certain" in candidate.certainty

    def _refused(self, line: Line, end: Explanation, candidate: Candidate) -> Iterator[str]:
        refusals = [p for p in line.talk if isinstance(p.body, packets.Connack) and p.body.reason_code]
        served = [
            p for p in line.sent(end.ended_ns, client=False)
            if refusals and p.at > refusals[0].at and not isinstance(p.body, packets.Disconnect)
            and p.body is not None and not (isinstance(p.body, packets.Connack) and p.body.reason_code)
        ]  # fmt: skip
        if served:
            yield f"the server sent frame {served[0].frame} after its refusal"
        if candidate.cause is Cause.UNSUPPORTED_VERSION:
            yield from self._unsupported_version(line, end, candidate)

    def _unsupported_version(self, line: Line, end: Explanation, candidate: Candidate) -> Iterator[str]:
        others = [other for other in self._accepted(line) if self._asked(other) == self._asked(line)]
        yield from (f"#{other.connection.number} has that version" for other in others[:1])

    def _asked(self, line: Line) -> object:
        return next((p.body.version for p in line.talk if isinstance(p.body, packets.Connect)), None)

    def _accepted(self, line: Line) -> list[Line]:
        """Other connections of the server with a CONNACK that accepts."""
        return [
            other for other in self._others(line)
            if any(isinstance(p.body, packets.Connack) and not p.body.reason_code for p in other.talk)
        ]  # fmt: skip

    def _others(self, line: Line) -> list[Line]:
        mine = line.connection
        same = [other for other in self.lines.values() if other.connection.server == mine.server]
        return [other for other in same if other is not line]

    def _ended_by_server(self, line: Line, end: Explanation) -> bool | None:
        """Whether the segment of the end is the server's."""
        last = [
            segment for segment in line.segments if segment.frame == end.ended_frame and segment.flags & (FIN | RST)
        ]
        return endpoints(last[0].key)[0] == line.connection.server if len(last) == 1 else None

    def _keep_alive(self, line: Line, end: Explanation, candidate: Candidate) -> Iterator[str]:
        asked = [p.body for p in line.talk if isinstance(p.body, packets.Connect)]
        propertieses = [p.body.properties for p in line.talk if isinstance(p.body, packets.Connack)]
        keep_alive = next(
            (block.server_keep_alive for block in propertieses if block and block.server_keep_alive), None
        )
        keep_alive = keep_alive or (asked[0].keep_alive if asked else None)
        before = line.sent(end.ended_ns, client=True)
        if keep_alive and before and end.ended_ns - before[-1].at < keep_alive * SECOND - SECOND // 2:
            yield f"the client sent frame {before[-1].frame} within its Keep Alive of {keep_alive} s"
        if self._ended_by_server(line, end) is False and not any("FIN" in reason.text for reason in candidate.reasons):
            yield "the client ended it"

    def _no_ping_response(self, line: Line, end: Explanation, candidate: Candidate) -> Iterator[str]:
        asked = [p for p in line.sent(end.ended_ns, client=True) if isinstance(p.body, packets.Pingreq)]
        answers = [p for p in line.sent(end.ended_ns, client=False) if isinstance(p.body, packets.Pingresp)]
        if asked and answers and answers[-1].at > asked[-1].at and len(answers) >= len(asked):
            yield f"frame {answers[-1].frame} is its PINGRESP"

    def _taken_over(self, line: Line, end: Explanation, candidate: Candidate) -> Iterator[str]:
        mine = line.connection
        host, name = mine.server.rpartition(":")[0], mine.client_identifier
        for other in self.lines.values():
            its = other.connection
            if other is line or its.server.rpartition(":")[0] != host or its.client_identifier != name:
                continue
            if mine.transport == "tls" and not mine.decrypted:
                same = its.client.rpartition(":")[0] == mine.client.rpartition(":")[0]
                if same and mine.opened_ns < its.opened_ns and 0 < end.ended_ns - its.opened_ns <= SECOND:
                    return
            if any(
                isinstance(p.body, packets.Connect) and -5 * SECOND <= p.at - end.ended_ns <= SECOND for p in other.talk
            ):
                return
        yield f"nobody else came as {name!r}"

    def _not_authorized(self, line: Line, end: Explanation, candidate: Candidate) -> Iterator[str]:
        before = line.sent(end.ended_ns, client=True)
        answers = line.sent(end.ended_ns, client=False)
        codes = [code for p in answers for code in _codes(p.body)]
        last = before[-1].body if before else None
        if not isinstance(last, packets.Publish) or any(code >= 0x80 for code in codes):
            return
        answered = {p.body.packet_identifier for p in answers if isinstance(p.body, packets.Puback | packets.Pubrec)}
        for packet in before[:-1]:
            body = packet.body
            is_same = isinstance(body, packets.Publish) and body.topic_name and body.topic_name == last.topic_name
            identifier = getattr(body, "packet_identifier", None)
            if is_same and identifier in answered and identifier != last.packet_identifier:
                yield f"frame {packet.frame} to that topic was acknowledged"

    def _protocol_violation(self, line: Line, end: Explanation, candidate: Candidate) -> Iterator[str]:
        places = [reason.frame for reason in candidate.reasons if reason.frame and reason.frame != end.ended_frame]
        if "had used WebSocket" not in candidate.headline or not places:
            return
        closer = candidate.headline.startswith("The client")
        answers = [p for p in line.sent(end.ended_ns, client=closer) if p.frame > places[0]]
        yield from (f"frame {p.frame} answers it" for p in answers[:1])

    def _packet_too_large(self, line: Line, end: Explanation, candidate: Candidate) -> Iterator[str]:
        if not candidate.headline.startswith("The client closed"):
            return
        sent = [p for p in line.sent(end.ended_ns, client=False) if isinstance(p.body, packets.Publish)]
        size = len(sent[-1].body.raw) if sent and isinstance(sent[-1].body, packets.Publish) else 1 << 30
        for other in (line, *self._others(line)):
            if other.connection.client_identifier != line.connection.client_identifier:
                continue
            until = end.ended_ns if other is line else 1 << 62
            asked = other.sent(until, client=True)
            large = [p for p in other.sent(until, client=False) if p.body and len(getattr(p.body, "raw", b"")) >= size]
            if large and asked and asked[-1].at > large[0].at:
                yield f"the client took frame {large[0].frame} of #{other.connection.number}"

    def _no_connack(self, line: Line, end: Explanation, candidate: Candidate) -> Iterator[str]:
        answers = [p for p in line.sent(end.ended_ns, client=False) if p.body is not None]
        yield from (f"the server sent frame {p.frame}" for p in answers[:1])

    def _wrong_listener(self, line: Line, end: Explanation, candidate: Candidate) -> Iterator[str]:
        mine = line.connection.transport
        if any(segment.payload for segment in line.side(client=False)):
            return
        same = [
            other for other in self._accepted(line)
            if other.connection.transport == mine and self._is_headed(other) == self._is_headed(line)
        ]  # fmt: skip
        yield from (f"#{other.connection.number} was served in {mine}" for other in same[:1])

    def _is_headed(self, line: Line) -> bool:
        """Whether a PROXY protocol header comes before what the client sends."""
        sent = [segment.payload for segment in line.side(client=True) if segment.payload]
        return bool(sent) and bytes(sent[0]).startswith((b"PROXY ", b"\r\n\r\n\0\r\nQUIT"))

    def _server_restart(self, line: Line, end: Explanation, candidate: Candidate) -> Iterator[str]:
        for other in self._others(line):
            heard = [p for p in other.sent(end.ended_ns + 115 * SECOND, client=False) if p.body is not None]
            if not heard or other.connection.opened_ns >= end.ended_ns:
                continue
            if heard[-1].at > end.ended_ns + 2 * SECOND + SECOND // 2:
                yield f"#{other.connection.number} had packets of the server before and after it"
                return

    def _not_listening(self, line: Line, end: Explanation, candidate: Candidate) -> Iterator[str]:
        for other in self._others(line):
            heard = [p.at for p in other.talk if not p.is_client and p.body is not None]
            if heard and heard[0] < end.ended_ns and end.ended_ns + 3 * SECOND < heard[-1]:
                yield f"#{other.connection.number} was served meanwhile"
                return

    def _idle_timeout(self, line: Line, end: Explanation, candidate: Candidate) -> Iterator[str]:
        if "after the client's last packet, whatever" in candidate.headline:
            asked = line.sent(end.ended_ns, client=True)
            for other in self._others(line):
                times = [p.at for p in other.talk if p.is_client]
                longest = max((later - at for at, later in pairwise(times)), default=0)
                if (longest - (end.ended_ns - asked[-1].at)) * 50 > longest:
                    yield f"a client was silent for {longest} ns on #{other.connection.number} and stayed"
        if not candidate.headline.startswith("An idle time-out"):
            return
        data = [segment for segment in line.segments if segment.payload and segment.timestamp_ns <= end.ended_ns]
        if data and end.ended_ns - data[-1].timestamp_ns < 4 * SECOND:
            yield f"frame {data[-1].frame} came {end.ended_ns - data[-1].timestamp_ns} ns before the end"

    def _half_open(self, line: Line, end: Explanation, candidate: Candidate) -> Iterator[str]:
        """Both sides had all, and said so just before the end."""
        before = [segment for segment in line.segments if segment.frame <= end.ended_frame]
        for is_client in (True, False):
            own = [segment for segment in line.side(client=is_client) if segment.frame < end.ended_frame]
            other = [
                segment for segment in line.side(client=not is_client) if segment in before and segment.flags & ACK
            ]
            if not own or not other or any(segment.flags & RST for segment in (*own, *other)):
                return
            last = max(own, key=lambda segment: distance(own[0].sequence, segment.sequence + len(segment.payload)))
            sent = last.sequence + len(last.payload) + last.missing
            if distance(sent, max(segment.acknowledgment for segment in other)) < 0:
                return
            if end.ended_ns - own[-1].timestamp_ns >= 3 * SECOND:
                return
        yield "all that was sent had been acknowledged within 3 s of the end"

    def _middlebox_reset(self, line: Line, end: Explanation, candidate: Candidate) -> Iterator[str]:
        reset = next((segment for segment in line.segments if segment.frame == end.ended_frame), None)
        if reset is None or reset.frame not in self.ttls:
            return
        own = [segment for segment in line.segments if segment.key == reset.key]
        others = {self.ttls.get(segment.frame) for segment in own if not segment.flags & RST}
        sent = [segment for segment in own if segment.frame < reset.frame]
        later = [segment for segment in own if segment.frame > reset.frame and segment.payload]
        ends = [
            (segment.sequence + len(segment.payload) + segment.missing + bool(segment.flags & (SYN | FIN))) & 0xFFFFFFFF
            for segment in sent
        ]
        if others == {self.ttls[reset.frame]} and ends and ends[-1] == reset.sequence and not later:
            yield "the RST has the TTL and the next number of its sender"


def _codes(body: object) -> list[int]:
    if isinstance(body, packets.Suback):
        return list(body.reason_codes or ())
    return [getattr(body, "reason_code", None) or 0]
