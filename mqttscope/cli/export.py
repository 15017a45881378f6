"""``--output``: the frames of the packets that were shown, as a new pcapng file."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence

import click

from mqttscope.events import Event, GapEvent, MalformedEvent, PacketEvent, UnparsedEvent


class Export:
    """Notes the frames while packets are shown, then reads the captures again and writes those frames.

    Standard input cannot be read twice, so it is kept in a temporary file meanwhile.
    """

    def __init__(self, captures: Sequence[str], target: str) -> None:
        self.target = target
        self.captures = tuple(captures)
        self._frames: dict[str, set[int]] = {}
        self._spool: str | None = None
        self._check_target()
        if "-" in captures:
            handle, self._spool = tempfile.mkstemp(prefix="mqttscope-")
            with os.fdopen(handle, "wb") as spool:
                shutil.copyfileobj(sys.stdin.buffer, spool)
            self.captures = tuple(self._spool if name == "-" else name for name in captures)

    def _check_target(self) -> None:
        directory = os.path.dirname(os.path.abspath(self.target))
        if not os.path.isdir(directory) or os.path.isdir(self.target):
            raise click.UsageError(f"--output: {self.target}: no such directory, or a directory itself")
        for name in self.captures:
            if os.path.exists(name) and os.path.exists(self.target) and os.path.samefile(name, self.target):
                raise click.UsageError(f"--output: {self.target} is the capture itself")

    def note(self, event: Event) -> None:
        """Remember the frames of one event."""
        if isinstance(event, PacketEvent | MalformedEvent | UnparsedEvent | GapEvent):
            self._frames.setdefault(event.capture, set()).update(getattr(event, "frames", None) or (event.frame,))

    def write(self) -> None:
        """Write the frames noted."""
        from mqttscope.capture import open_capture
        from mqttscope.capture.write import PcapngWriter
        from mqttscope.net.frame import Frame

        try:
            with PcapngWriter(self.target) as writer:
                for frame in open_capture(self.captures):
                    if isinstance(frame, Frame) and frame.number in self._frames.get(frame.capture, ()):
                        writer.write(frame)
        except OSError as error:
            raise click.ClickException(f"--output: {self.target}: {error.strerror}") from None
        finally:
            if self._spool is not None:
                os.unlink(self._spool)
