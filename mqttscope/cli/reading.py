"""Captures as the commands read them: segments, and what is inside TLS where the keys are known."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, cast

import click

from mqttscope.capture import open_capture
from mqttscope.capture.files import STDIN
from mqttscope.cli.main import EXIT_UNREADABLE
from mqttscope.cli.options import FileOptions
from mqttscope.cli.output import warn
from mqttscope.dissect import CaptureOrder, FastPath, segments
from mqttscope.errors import MqttscopeError
from mqttscope.mqtt.view import utf8
from mqttscope.net.fragments import Fragments
from mqttscope.net.frame import CaptureNotice, CaptureSecrets, Frame, FrameSink, Plaintext
from mqttscope.net.segment import Segment

Tap = Callable[[Iterator[Frame | CaptureNotice]], Iterator[Frame | CaptureNotice]]
MAX_NAMED = 5
"""Captures that are named in one sentence; further ones are counted."""
KEYLOG_VARIABLE = "SSLKEYLOGFILE"


class CannotDecryptError(MqttscopeError, click.ClickException):
    """The keys cannot be used; nothing is read."""

    exit_code = EXIT_UNREADABLE


class CannotDissectError(MqttscopeError, click.ClickException):
    """tshark is to dissect the frames and cannot be had; nothing is read."""

    exit_code = EXIT_UNREADABLE


class Reading:
    """The captures of one run, decrypted where a key log or secrets in the captures allow it."""

    def __init__(
        self,
        captures: Sequence[str],
        files: FileOptions | None = None,
        stdin: BinaryIO | None = None,
        fragments: Fragments | None = None,
    ) -> None:
        """``fragments``: the table that reassembles IP fragments, where the caller wants to see it."""
        keylog = None if files is None else files.keylog
        self.captures = captures
        self.via = None if files is None else files.preferences
        """Preferences of tshark, where that is to dissect the frames."""
        self.fragments = fragments
        self.keys: bytes | None = None
        self.records = 0
        """Records of TLS that were decrypted."""
        self.order = CaptureOrder()
        """Which captures begin before the end of one that was read before."""
        self._fast_path: FastPath | None = None
        self._stdin = stdin
        self._spool: BinaryIO | None = None
        self._keylog = keylog
        self._failed = False
        if self.via is not None:
            _need_tshark()
        if keylog is not None:
            self.keys = _keys(keylog)
        elif os.path.isfile(os.environ.get(KEYLOG_VARIABLE, "")):
            # Set for other programs as well, so that what is wrong with it is no reason to stop.
            self._keylog = os.environ[KEYLOG_VARIABLE]
            try:
                self.keys = _keys(self._keylog)
            except CannotDecryptError as error:
                warn(f"{error.message} (${KEYLOG_VARIABLE})")

    @property
    def decrypting(self) -> bool:
        """Whether keys were given."""
        return self.keys is not None

    @property
    def takes_fast_path(self) -> bool:
        """Whether a fast path may take frames: nobody else has to see them."""
        return self.keys is None and self.via is None

    def segments(
        self, skipped: Counter[str], tap: Tap | None = None, fast_path: FastPath | None = None
    ) -> Iterator[Segment | CaptureNotice | Plaintext]:
        """Segments and plaintexts; the frames go through ``tap`` on their way, those that hold no TCP as well.

        What ``fast_path`` takes of the frames does not come out here.
        """
        if self.takes_fast_path:
            self._fast_path = fast_path
        if self.keys is not None and STDIN in self.captures:
            # It has to be read twice.
            try:
                self._spool = _spooled(self._stdin)
            except OSError as error:
                raise CannotDecryptError(f"cannot decrypt: {error.strerror or error}") from None
        frames = self._open(self._fast_path)
        items = self._segments(frames if tap is None else tap(frames), skipped, self.fragments)
        found = self._until_secrets(items) if self.keys is None else self._joined(self.keys, items)
        several = len(self.captures) > 1 or not (list(self.captures) == [STDIN] or os.path.isfile(self.captures[0]))
        yield from self._compared(found) if several else found

    def _compared(
        self, items: Iterator[Segment | CaptureNotice | Plaintext]
    ) -> Iterator[Segment | CaptureNotice | Plaintext]:
        """Pass everything on, and note captures that overlap in time with one that was read before."""
        order = self.order
        for item in items:
            if type(item) is Segment:
                order.see(item.capture, item.timestamp_ns)
            yield item

    def _segments(
        self,
        frames: Iterator[Frame | CaptureNotice],
        skipped: Counter[str] | None = None,
        fragments: Fragments | None = None,
    ) -> Iterator[Segment | CaptureNotice]:
        """The segments of frames, by the front end that was asked for."""
        if self.via is None:
            return segments(frames, skipped, fragments)
        from mqttscope.capture.via_tshark import Dissection

        waiting = STDIN in self.captures and self._spool is None
        try:
            return Dissection(frames, self.via, skipped, waiting=waiting).segments()
        except OSError as error:
            raise CannotDissectError(f"tshark cannot be started: {error.strerror or error}") from None

    def advice(self) -> Iterator[str]:
        """The messages at the end: captures that overlap, keys that decrypted nothing."""
        overlapping = self.order.overlapping
        names = [utf8(one) for one in overlapping[:MAX_NAMED]]
        left = len(overlapping) - len(names)
        more = f" and {left:,} more" if left else ""
        if len(overlapping) == 1:
            yield (
                f"{names[0]} overlaps in time with an earlier capture and is read after it, so times go back;"
                " mergecap makes one of them"
            )
        elif names:
            yield (
                f"{', '.join(names)}{more} overlap in time with earlier captures and are read after them, so"
                " times go back; mergecap makes one of them"
            )
        keys = self.unopened()
        if keys is not None:
            yield keys

    def unopened(self) -> str | None:
        """The message where the keys decrypted nothing."""
        if self._keylog is None or self.records or self._failed:
            return None
        return f"no TLS record could be decrypted with the keys in {self._keylog}"

    def _open(self, direct: FrameSink | None = None) -> Iterator[Frame | CaptureNotice]:
        if self._spool is None:
            return open_capture(self.captures, stdin=self._stdin, direct=direct)
        return open_capture(self.captures, stdin=open(self._spool.name, "rb"))

    def _again(self) -> Iterator[Segment | CaptureNotice]:
        return self._segments(self._open())

    def _until_secrets(self, items: Iterator[Segment | CaptureNotice]) -> Iterator[Segment | CaptureNotice | Plaintext]:
        for item in items:
            yield item
            if type(item) is not CaptureSecrets:
                continue
            from mqttscope.capture.tls import TLS_KEY_LOG
            from mqttscope.capture.tshark import MissingToolError, find_tshark

            if item.secrets_type == TLS_KEY_LOG:
                if STDIN in self.captures:
                    warn(f"{item.capture}: holds keys of TLS, which are used where the capture is a file")
                    continue
                try:
                    find_tshark()
                except MissingToolError as error:
                    warn(f"{item.capture}: holds keys of TLS; {error}")
                    continue
                if self._fast_path is not None:
                    self._fast_path.closed = True
                yield from self._joined(b"", items)
                return

    def _joined(
        self, keys: bytes, items: Iterator[Segment | CaptureNotice]
    ) -> Iterator[Segment | CaptureNotice | Plaintext]:
        from mqttscope.capture.tls import Decryption
        from mqttscope.capture.tshark import MissingToolError

        try:
            decryption = Decryption(self._open if self.via is None else self._again, keys)
        except MissingToolError as error:
            raise CannotDecryptError(str(error)) from None
        except OSError as error:
            raise CannotDecryptError(f"cannot decrypt: {error.strerror or error}") from None
        for item in decryption.join(items):
            self.records, self._failed = decryption.records, decryption.fault is not None
            yield item


def _need_tshark() -> None:
    """Report that tshark is missing before anything is written."""
    from mqttscope.capture.tshark import MissingToolError
    from mqttscope.capture.via_tshark import find_tshark

    try:
        find_tshark()
    except MissingToolError as error:
        raise CannotDissectError(str(error)) from None


def _keys(path: str) -> bytes:
    from mqttscope.capture.keylog import BadKeysError, read_keys

    try:
        return read_keys(path)
    except BadKeysError as error:
        raise CannotDecryptError(str(error)) from None


def _spooled(source: BinaryIO | None) -> BinaryIO:
    """Standard input as a temporary file, which goes when it is closed."""
    file = tempfile.NamedTemporaryFile(prefix="mqttscope-")  # noqa: SIM115 - open as long as the run
    if source is None and sys.stdin is not None:
        source = sys.stdin.buffer
    while source is not None and (data := source.read1(1 << 20)):  # type: ignore[attr-defined]
        file.write(data)
    file.flush()
    return cast(BinaryIO, file)
