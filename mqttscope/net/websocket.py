"""MQTT inside WebSocket, read passively (RFC 6455, permessage-deflate of RFC 7692, MQTT 5.0 section 6).

Ordered bytes of both directions come in, application bytes and remarks go out.  MQTT does not care about WebSocket
frames (MQTT-6.0.0-2), so payload is delivered as it arrives and no frame is ever buffered.  When bytes are missing or
wrong the position in the frames is kept only where it is certain.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mqttscope.net.http_upgrade import FRAMES, HTTP, LOST, Handshake, Problem, Upgrade
from mqttscope.net.inflate import Inflater
from mqttscope.net.websocket_frames import SEARCH, Lost, Side, WebSocketEvent, lose, read, skip
from mqttscope.net.websocket_search import advance, begin


@dataclass(slots=True)
class WebSocket:
    """One connection.  Feed the ordered bytes of both directions, in the order of the capture; close both at the end.

    The limits of the HTTP exchange are those of ``Handshake``.  ``handshake`` is ``None`` when frames have begun.
    """

    handshake: Handshake | None = field(default_factory=Handshake)
    client: Side = field(default_factory=lambda: Side(True))
    server: Side = field(default_factory=lambda: Side(False))

    @classmethod
    def joined(cls) -> WebSocket:
        """A connection whose beginning was not captured: a frame is assumed to begin at the start of each direction."""
        return cls(None, Side(True, FRAMES, "unknown", trusted=False), Side(False, FRAMES, "unknown", trusted=False))

    def feed(self, from_client: bool, data: bytes) -> list[WebSocketEvent]:
        """Take the next bytes of one direction; returns what they complete, which may concern both directions."""
        side = self.client if from_client else self.server
        out: list[WebSocketEvent] = []
        if side.phase == FRAMES and not side.searches:
            read(side, data, out)
        elif side.phase in (FRAMES, SEARCH, LOST):
            advance(side, data, out)
        elif self.handshake:
            news: list[Upgrade | Problem] = []
            used = self.handshake.feed(from_client, data, news)
            self._proceed(news, out)
            if used < len(data):
                out += self.feed(from_client, data[used:])
        return out

    def gap(self, from_client: bool, length: int) -> list[WebSocketEvent]:
        """Say that the next ``length`` bytes of one direction were not captured."""
        side = self.client if from_client else self.server
        out: list[WebSocketEvent] = []
        news: list[Upgrade | Problem] = []
        if length <= 0:
            return out
        if side.phase == HTTP and self.handshake:
            self.handshake.gap(from_client, length, news)
            self._proceed(news, out)
        elif side.phase == FRAMES and side.in_frame:
            length -= skip(side, length, out)
        if length and side.phase == SEARCH:
            advance(side, b"", out, final=True)
        if length and side.phase == FRAMES:
            if side.in_frame:  # one that the end of the search found
                length -= skip(side, length, out)
            if length:
                begin(side, length, out)
        if length:
            side.offset += length
            out.append(Lost(from_client, length))
        return out

    def close(self, from_client: bool) -> list[WebSocketEvent]:
        """Say that one direction ended."""
        side = self.client if from_client else self.server
        out: list[WebSocketEvent] = []
        news: list[Upgrade | Problem] = []
        if self.handshake:
            self.handshake.close(from_client, news)
            self._proceed(news, out)
        if side.phase == SEARCH:
            advance(side, b"", out, final=True)
        if side.phase == FRAMES and (side.in_frame or side.header):
            detail = (
                f"{side.remaining} of its payload bytes never came" if side.in_frame else "its header is incomplete"
            )
            at = side.frame_offset if side.in_frame else side.offset
            out.append(Problem(from_client, "truncated_frame", detail, at, False))
        return out

    def _proceed(self, news: list[Upgrade | Problem], out: list[WebSocketEvent]) -> None:
        """Pass on what the HTTP exchange says and begin with the frames of the directions that are through with it."""
        out += news
        handshake = self.handshake
        if handshake is None:
            return
        agreed = handshake.response
        for side, opening in ((self.client, handshake.client), (self.server, handshake.server)):
            if agreed and side.inflater is None and side.deflate != "agreed":
                side.deflate = "agreed" if agreed.deflate else ""
                if agreed.deflate:
                    side.inflater = Inflater(agreed.client_takeover if side.from_client else agreed.server_takeover)
            if side.phase == HTTP and opening.phase in (FRAMES, LOST):
                side.phase, side.offset = opening.phase, opening.offset
                if agreed is None:
                    side.deflate, side.trusted = "unknown", False
                rest = bytes(opening.buffer)
                opening.buffer.clear()
                if side.phase == FRAMES:
                    read(side, rest, out)
                else:
                    lose(side, rest, out)
        if self.client.phase != HTTP and self.server.phase != HTTP:
            self.handshake = None
