"""``--output``: the frames of the packets that were shown, as a new pcapng file."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, BinaryIO, cast

import click

from mqttscope.capture import open_capture
from mqttscope.capture.write import PcapngWriter
from mqttscope.cli.output import CannotWrite
from mqttscope.cli.targets import refuse_inputs
from mqttscope.dissect import Dissector
from mqttscope.dissect.dialogue import Dialogue
from mqttscope.events import ConnectionClosed, Event, GapEvent, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.mqtt.constants import Direction
from mqttscope.net.frame import CaptureNotice, Frame
from mqttscope.net.plaintext import Plaintext
from mqttscope.net.segment import SYN, Segment, endpoints

MAX_FRAMES_OF_A_PACKET = 1_000_000
"""Frames of one direction that are remembered while its packet is not complete; further ones are left out."""
MAX_HANDSHAKES = 1_000_000
"""Directions whose SYN, and connections whose CONNECT is remembered; beyond that the oldest is forgotten."""

Place = tuple[str, int]
"""Capture and number of a frame."""

_endpoints = lru_cache(8192)(endpoints)


@dataclass(slots=True)
class _Track:
    """One direction of a flow."""

    pending: list[Place] = field(default_factory=list)
    """Frames that brought bytes since the last time nothing was held of them."""
    done: bool = False
    """A packet of this direction was completed by the segment at hand."""
    tangled: bool = False
    """Segments came out of order, so that the last frame alone need not hold what has begun."""


class Export:
    """Notes the frames while packets are shown, then reads the captures again and writes those frames.

    A packet's frames are all that carried data of its direction since its first byte, so that captures in which
    segments came out of order stay whole.  The TCP handshake and the CONNECT of its connection come with it, since
    without them nobody could tell the client and the version, and on other ports not even that it is MQTT.  A
    WebSocket is kept from its beginning up to the packet: upgrade and compression are needed to read it again; so is
    TLS that was decrypted, with both directions, since keys alone do not open a record.
    Standard input cannot be read twice: what is read is kept in a temporary file meanwhile.
    """

    def __init__(self, captures: Sequence[str], target: str) -> None:
        self.target = target
        self.captures = tuple(captures)
        self._wanted: dict[str, set[int]] = {}
        self._tracks: dict[tuple[str, str], _Track] = {}
        self._handshakes: dict[tuple[str, str], Place] = {}
        self._connects: dict[int, list[Place]] = {}
        self._check_target()
        self._spool: BinaryIO | None = None
        self.stdin: BinaryIO | None = None
        """What to read as standard input."""
        if "-" in captures and sys.stdin is not None:
            self._spool = cast(BinaryIO, tempfile.TemporaryFile(prefix="mqttscope-"))  # noqa: SIM115 (closed by write)
            self.stdin = cast(BinaryIO, _Copied(sys.stdin.buffer, self._spool))

    def _check_target(self) -> None:
        directory = os.path.dirname(os.path.abspath(self.target))
        if not os.path.isdir(directory):
            raise click.UsageError(f"--output: {directory} is no directory")
        if os.path.isdir(self.target):
            raise click.UsageError(f"--output: {self.target} is a directory")
        exists = os.path.exists(self.target)
        if not os.access(self.target if exists else directory, os.W_OK):
            raise click.UsageError(f"--output: {self.target} cannot be written")
        refuse_inputs(self.target, self.captures)

    def events(self, source: Iterable[Segment | CaptureNotice | Plaintext], dissector: Dissector) -> Iterator[Event]:
        """Events as `dissect_segments` gives them, keeping track of which frames they are made of."""
        for segment in source:
            if isinstance(segment, Plaintext):
                yield from self._completed(dissector.plaintext(segment))
                continue
            if not isinstance(segment, Segment):
                dissector.take_note(segment)
                yield segment
                continue
            pair = _endpoints(segment.key)
            place = segment.capture, segment.frame
            if segment.flags & SYN:
                self._handshakes.pop(pair, None)
                _make_room(self._handshakes)
                self._handshakes[pair] = place
            if not (segment.payload or segment.missing):
                yield from dissector.feed(segment)
                continue
            track = self._tracks.setdefault(pair, _Track())
            if len(track.pending) < MAX_FRAMES_OF_A_PACKET:
                track.pending.append(place)
            track.done = False
            yield from self._completed(dissector.feed(segment))
            state = self._state(segment.key, dissector)
            if state == "rest":
                del self._tracks[pair]
            elif state == "unclear":
                track.tangled = True
            elif track.done and not track.tangled:
                track.pending = [place]
        yield from dissector.close()

    def _completed(self, events: Iterator[Event]) -> Iterator[Event]:
        """Pass events on; their directions have completed a packet."""
        for event in events:
            if isinstance(event, PacketEvent | MalformedEvent | UnparsedEvent):
                track = self._tracks.get(_pair(event))
                if track is not None:
                    track.done = True
                    if not isinstance(event, UnparsedEvent) and event.type == "connect":
                        _make_room(self._connects)
                        self._connects[event.connection.number] = list(track.pending)
            elif isinstance(event, ConnectionClosed):
                self._connects.pop(event.connection.number, None)
            yield event

    def _state(self, key: bytes, dissector: Dissector) -> str:
        """What a direction waits for: nothing (``rest``), the next packet's end (``next``), or what is unclear."""
        entry = dissector.flows.direction(key)
        if entry is None:
            return "rest"
        flow, half, from_initiator = entry
        dialogue = flow.context
        if not isinstance(dialogue, Dialogue):
            return "rest"
        secured = dialogue.tls is not None and dissector.options.decrypting
        if dialogue.web is not None or secured or dialogue.connection is None or half.buffer.size:
            return "unclear"
        stream = dialogue.stream(from_initiator is dialogue.client_is_initiator)
        if stream.searching or stream.skip or dialogue.held:
            return "unclear"
        return "next" if stream.held else "rest"

    def note(self, event: Event) -> None:
        """Remember the frames of one event that was shown."""
        if not isinstance(event, PacketEvent | MalformedEvent | UnparsedEvent | GapEvent):
            return
        self._want(event.capture, event.frame)
        for place in self._connects.pop(event.connection.number, ()):
            self._want(*place)
        pair = _pair(event)
        back = pair[1], pair[0]
        for one in (pair, back):
            if one in self._handshakes:
                self._want(*self._handshakes[one])
        for one in (pair, back) if event.connection.transport != "tcp" else (pair,):
            track = self._tracks.get(one)
            if track is not None:
                for place in track.pending:
                    self._want(*place)
                # What is wanted need not be remembered twice.
                track.pending.clear()

    def _want(self, capture: str, frame: int) -> None:
        self._wanted.setdefault(capture, set()).add(frame)

    def write(self) -> None:
        """Write the frames noted, in the order of the captures."""
        if self._spool is not None:
            self._spool.seek(0)
        try:
            with PcapngWriter(self.target) as writer:
                for frame in open_capture(self.captures, stdin=self._spool):
                    if isinstance(frame, Frame) and frame.number in self._wanted.get(frame.capture, ()):
                        writer.write(frame)
        except (OSError, ValueError) as error:
            raise CannotWrite(f"--output: {self.target}: {getattr(error, 'strerror', None) or error}") from None
        finally:
            if self._spool is not None:
                self._spool.close()


class _Copied:
    """A binary input that keeps what is read from it."""

    def __init__(self, source: BinaryIO, copy: BinaryIO) -> None:
        self._read = getattr(source, "read1", source.read)
        self._copy = copy

    def read1(self, size: int = -1) -> bytes:
        """Read what there is, at most ``size`` bytes."""
        data: bytes = self._read(size)
        self._copy.write(data)
        return data

    read = read1


def _make_room(table: dict[Any, Any]) -> None:
    if len(table) >= MAX_HANDSHAKES:
        del table[next(iter(table))]


def _pair(event: PacketEvent | MalformedEvent | UnparsedEvent | GapEvent) -> tuple[str, str]:
    """Source and destination of what an event is about."""
    connection = event.connection
    if event.direction is Direction.CLIENT_TO_SERVER:
        return connection.client, connection.server
    return connection.server, connection.client
