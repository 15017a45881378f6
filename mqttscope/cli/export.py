"""``--output``: the frames of the packets that were shown, as a new pcapng file."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence

import click

from mqttscope.capture import open_capture
from mqttscope.capture.write import PcapngWriter
from mqttscope.dissect import Dissector
from mqttscope.dissect.dialogue import Dialogue
from mqttscope.events import Event, MalformedEvent, PacketEvent, UnparsedEvent
from mqttscope.net.frame import CaptureNotice, Frame
from mqttscope.net.segment import Segment

MAX_FRAMES_OF_A_PACKET = 1_000_000
"""Frames that are remembered while one packet is not complete."""


class Export:
    """Notes the frames while packets are shown, then reads the captures again and writes those frames.

    A packet's frames are all that carried data of its direction since its first byte, so that captures in which
    segments came out of order stay whole.  Standard input cannot be read twice: it is kept in a temporary file meanwhile.
    """

    def __init__(self, captures: Sequence[str], target: str) -> None:
        self.target = target
        self.captures = tuple(captures)
        self._wanted: dict[str, set[int]] = {}
        self._pending: dict[bytes, list[tuple[str, int]]] = {}
        self._now: list[tuple[str, int]] = []
        self._spool: str | None = None
        self._check_target()
        if "-" in captures:
            handle, self._spool = tempfile.mkstemp(prefix="mqttscope-")
            with os.fdopen(handle, "wb") as spool:
                shutil.copyfileobj(sys.stdin.buffer, spool)
            self.captures = tuple(self._spool if name == "-" else name for name in captures)

    def _check_target(self) -> None:
        directory = os.path.dirname(os.path.abspath(self.target))
        if not os.path.isdir(directory):
            raise click.UsageError(f"--output: {directory} is no directory")
        if os.path.isdir(self.target):
            raise click.UsageError(f"--output: {self.target} is a directory")
        for name in self.captures:
            if os.path.exists(name) and os.path.exists(self.target) and os.path.samefile(name, self.target):
                raise click.UsageError(f"--output: {self.target} is the capture that is read")

    def events(self, source: Iterable[Segment | CaptureNotice], dissector: Dissector) -> Iterator[Event]:
        """Events as `dissect_segments` gives them, keeping track of which frames they are made of."""
        for segment in source:
            if not isinstance(segment, Segment):
                yield segment
                continue
            if not segment.payload:
                yield from dissector.feed(segment)
                continue
            frames = self._pending.setdefault(segment.key, [])
            if len(frames) < MAX_FRAMES_OF_A_PACKET:
                frames.append((segment.capture, segment.frame))
            self._now = frames
            count = dissector.packets
            yield from dissector.feed(segment)
            if self._at_rest(segment.key, dissector):
                del self._pending[segment.key]
            elif dissector.packets != count:
                self._pending[segment.key] = [(segment.capture, segment.frame)]
        self._now = []
        yield from dissector.close()

    def _at_rest(self, key: bytes, dissector: Dissector) -> bool:
        """Whether nothing of this direction waits for more bytes."""
        entry = dissector.flows.direction(key)
        if entry is None:
            return True
        flow, half, from_initiator = entry
        dialogue = flow.context
        if not isinstance(dialogue, Dialogue):
            return True
        stream = (
            dialogue.client_stream if from_initiator is dialogue.client_is_initiator else dialogue.server_stream
        )
        return half.clear and not stream.held and dialogue.connection is not None

    def note(self, event: Event) -> None:
        """Remember the frames of one event that was shown."""
        if not isinstance(event, PacketEvent | MalformedEvent | UnparsedEvent):
            return
        self._wanted.setdefault(event.capture, set()).add(event.frame)
        for capture, frame in self._now:
            self._wanted.setdefault(capture, set()).add(frame)

    def write(self) -> None:
        """Write the frames noted, in the order of the captures."""
        try:
            with PcapngWriter(self.target) as writer:
                for frame in open_capture(self.captures):
                    if isinstance(frame, Frame) and frame.number in self._wanted.get(frame.capture, ()):
                        writer.write(frame)
        except OSError as error:
            raise click.ClickException(f"--output: {self.target}: {error.strerror}") from None
        finally:
            if self._spool is not None:
                os.unlink(self._spool)


