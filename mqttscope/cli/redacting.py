"""A run of ``redact``: captures in, one pcapng file out that may leave the house, and a report of what was replaced."""

from __future__ import annotations

import codecs
import os
import secrets
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from types import SimpleNamespace
from typing import BinaryIO, cast

import click
import orjson

from mqttscope.capture import open_capture
from mqttscope.capture.files import find_captures
from mqttscope.capture.read import may_be_compressed
from mqttscope.capture.write import PcapngWriter, ip_frame, open_alone, opener, replace_file
from mqttscope.cli import advice
from mqttscope.cli.errors import ErrorTranslation
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNREADABLE
from mqttscope.cli.output import STDIN, CannotWriteError, Output, Progress, ReadProgress, Watch, warn
from mqttscope.cli.redacting_options import RedactOptions
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureSecrets, Frame
from mqttscope.net.segment import UNREAD
from mqttscope.redact.check import SHORTEST, Check, Hit
from mqttscope.redact.frames import MAX_TUNNELS
from mqttscope.redact.kinds import Choice
from mqttscope.redact.redaction import Redaction
from mqttscope.redact.verify import judge
from mqttscope.report import documents as doc

_REPLACED = doc.record({"values": doc.COUNT.at(itemgetter(0)), "bytes": doc.COUNT.at(itemgetter(1))})
REPORT = doc.record({
    "schema": doc.VERSION_1, "captures": doc.each(doc.ESCAPED).at("given.captures"),
    "output": doc.ESCAPED.at(lambda report: report.given.output or ""),
    "replaced": doc.mapping(_REPLACED).at(lambda report: _replaced(report.run.choice)),
    "kept": doc.ValueType(doc.each(doc.TEXT), sorted).at("given.keep"),
    "blank": doc.ValueType(doc.each(doc.TEXT), sorted).at("given.blank"),
    "frames": doc.record({
        "read": doc.COUNT, "written": doc.COUNT, "rebuilt": doc.COUNT.at("frames.rebuilt"),
    }).at("run"),
    "left_out": doc.by_name(doc.COUNT).at("run.dropped"), "tls_key_blocks": doc.COUNT.at("keys"),
    "differing_packets": doc.COUNT.at(lambda report: report.run.packets.differing + report.run.unfit),
    "differing_findings": doc.each(doc.TEXT).at("differences"),
})  # fmt: skip
"""The document of ``redact --report --format json``."""


def _replaced(choice: Choice) -> dict[str, tuple[int, int]]:
    return {str(name): (choice.counts[name], choice.sizes[name]) for name in sorted(choice.counts)}


KEY_BYTES = 32
KEY_VARIABLE = "MQTTSCOPE_REDACT_KEY"
PIECE_BYTES = 1 << 20
SPOOL_BYTES = 8 << 20
"""Bytes of what can be read once only that are held in memory."""
_FRAME = struct.Struct("<QqIIII")
"""Number, time, link type, original length, number of the capture, and length of a frame that waits."""
MAX_TOLD = 20
"""Hits of a check that are shown; further ones are counted."""
_REASONS = {
    "no_mqtt": "of TCP without MQTT",
    "not_tcp": "without TCP",
    "not_ip": "without IP",
    "fragments": "with parts of a datagram that was joined, or never complete",
}


class RedactRun:
    """One run."""

    def __init__(self, given: RedactOptions) -> None:
        self.given = given
        self.secrets = _secrets(given)
        self.watch = Watch(progress=False)
        self.progress = Progress()
        self.keys = 0
        """Blocks with keys of TLS that were left out."""
        self.drops: list[CaptureDrops] = []
        self.hits: list[Hit] = []
        self.forgotten = 0
        """Directions whose ends a check forgot."""
        self.differences: list[str] = []
        """How the findings of the new capture differ from those of the old ones."""

    def execute(self) -> int:
        """Write the capture, or look through those that are named; returns the exit code."""
        try:
            if self.given.output is None:
                return self._check_captures()
            return self._redact(self.given.output)
        finally:
            self.progress.clear()

    def _redact(self, target: str) -> int:
        given = self.given
        choice = Choice.of(given.keep, given.blank)
        with tempfile.TemporaryFile(prefix="mqttscope-") as spool:
            run = Redaction(
                _key(given.key_file), choice, cast(BinaryIO, spool), ip_frame, given.protocol.dissection()
            )  # fmt: skip
            with ErrorTranslation(CannotWriteError, OSError, before="cannot write a temporary file: "):
                before = judge(self._frames_again(run.survey), given.protocol.dissection(), run.feed)
                run.close()
            if self.watch.errors and not run.read:
                warn(f"{target} is not written: nothing could be read")
                return EXIT_UNREADABLE
            written = self._write(run, target)
        if written and os.path.isfile(target):
            after = judge(open_capture([target]), given.protocol.dissection())
            self.differences = before.differences(after)
        self._tell(run, target, written=written)
        if given.form is not None:
            Output().write_all(self._json(run) if given.form == "json" else self._text(run).encode())
        if not written:
            return EXIT_FINDINGS
        return EXIT_UNREADABLE if self.watch.errors else EXIT_CLEAN

    def _frames(self) -> Iterator[Frame]:
        """The frames of the captures; what else they hold is not copied."""
        for item in open_capture(self.given.captures, seen=self._seen(self.given.captures)):
            if isinstance(item, Frame):
                yield item
            elif isinstance(item, CaptureSecrets):
                self.keys += 1
            elif isinstance(item, CaptureError | CaptureDrops):
                if isinstance(item, CaptureDrops):
                    self.drops.append(item)
                self.watch.note(item)

    def _frames_again(self, look: Callable[[Frame], None]) -> Iterator[Frame]:
        """The frames of the captures, each of which was looked at before the first one comes.

        What can be read once only, as standard input, waits in a file that nobody else can open.
        """
        paths = [one for one in find_captures(self.given.captures) if isinstance(one, str)]
        once = STDIN in self.given.captures or any(os.path.exists(one) and not os.path.isfile(one) for one in paths)
        if not once:
            for item in open_capture(self.given.captures, seen=self._seen(self.given.captures)):
                if isinstance(item, Frame):
                    look(item)
            yield from self._frames()
            return
        names: dict[str, int] = {}
        with tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES, prefix="mqttscope-") as spool:
            for frame in self._frames():
                look(frame)
                name = names.setdefault(frame.capture, len(names))
                head = _FRAME.pack(
                    frame.number, frame.timestamp_ns, frame.link_type, frame.original_length, name, len(frame.data)
                )
                spool.write(head + frame.data)
            spool.seek(0)
            known = list(names)
            while head := spool.read(_FRAME.size):
                number, timestamp_ns, kind, original, name, length = _FRAME.unpack(head)
                yield Frame(number, timestamp_ns, kind, spool.read(length), original, known[name])

    def _seen(self, captures: Sequence[str]) -> Callable[[int], object] | None:
        """What takes the numbers of bytes that are read; ``None`` where nobody looks."""
        progress = ReadProgress()
        progress.follow(captures)
        return progress.seen if progress.enabled else None

    def _write(self, run: Redaction, target: str) -> bool:
        """Write the frames; whether nothing of what was looked for is in them.  Else there is no file."""
        plain = not os.path.exists(target) or os.path.isfile(target)
        there = os.path.realpath(target) if plain else target
        new = f"{there}.{os.getpid()}.new" if plain else there
        with ErrorTranslation(CannotWriteError, OSError, ValueError, before=f"--output: {target}: "):
            try:
                file = open(new, "w+b", opener=opener) if plain else os.fdopen(open_alone(new), "wb")  # noqa: SIM115
                with file:
                    self._write_frames(run, cast(BinaryIO, file))
                    if self.secrets and plain:
                        file.flush()
                        with open(new, "rb") as written:
                            self.hits = self._looked_through(new, written)
                if self.hits:
                    return False
                if plain:
                    replace_file(new, there)
            finally:
                if plain:
                    with suppress(OSError):
                        os.unlink(new)
        return True

    def _write_frames(self, run: Redaction, file: BinaryIO) -> None:
        with PcapngWriter(file) as writer:
            for number, frame in enumerate(run.results(), 1):
                assert frame.data is not None
                data = bytes(frame.data)
                writer.write(Frame(number, frame.timestamp_ns, frame.link_type, data, frame.original_length, ""))
                if self.progress.due(number):
                    self.progress.show(f"{number:,} frames written")
            for one in self.drops:
                writer.write_drops(one.received, one.dropped)

    def _looked_through(self, path: str, file: BinaryIO) -> list[Hit]:
        """What of the texts of ``--check`` is in a capture; ``file`` is at its beginning, and can be read again."""
        check = Check([one.raw for one in self.secrets], self.given.protocol.dissection())
        offset = 0
        packed = False
        while data := file.read(PIECE_BYTES):
            packed = packed or (not offset and may_be_compressed(data))
            check.take_bytes(data, offset)
            offset += len(data)
            if self.progress.due(0):
                self.progress.show(f"{offset:,} bytes of {utf8(os.path.basename(path))} looked through")
        file.seek(0)
        for item in open_capture([path], stdin=file, seen=self._seen([path])):
            if isinstance(item, Frame):
                if packed:
                    check.take_compressed(item)
                check.take_frame(item)
            elif isinstance(item, CaptureError):
                self.watch.note(item)
        hits = check.close()
        self.forgotten += check.forgotten
        return hits

    def _check_captures(self) -> int:
        found: list[Hit] = []
        others = [one for one in self.given.captures if one != STDIN]
        paths: list[str | CaptureError] = [STDIN] if STDIN in self.given.captures else []
        for path in [*paths, *(find_captures(others) if others else ())]:
            if isinstance(path, CaptureError):
                self.watch.note(path)
                continue
            name = "standard input" if path == STDIN else utf8(path)
            try:
                with _spooled() if path == STDIN else open(path, "rb") as file:
                    hits = self._looked_through(path, file)
            except (OSError, ValueError) as error:
                warn(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}")
                self.watch.errors += 1
                continue
            self._tell_hits(hits, f"{name}: ")
            found += hits
        if found:
            return EXIT_FINDINGS
        if self.watch.errors:
            return EXIT_UNREADABLE
        self._tell_clean(", ".join(utf8(one) for one in self.given.captures))
        return EXIT_CLEAN

    def _tell_hits(self, hits: Sequence[Hit], before: str = "") -> None:
        for hit in hits[:MAX_TOLD]:
            warn(f"{before}{self.secrets[hit.number].name} is there: {hit.form}, {hit.place}")
        if len(hits) > MAX_TOLD:
            warn(f"{before}and {counted(len(hits) - MAX_TOLD, 'other hit')}")

    def _tell_clean(self, where: str) -> None:
        """Say that nothing of what was looked for is there."""
        if self.secrets:
            none = "it is not" if len(self.secrets) == 1 else "none of them is"
            warn(f"looked for {counted(len(self.secrets), 'text')}: {none} in {where}")
        if self.forgotten:
            ends = counted(self.forgotten, "direction")
            warn(f"limit: the ends of {ends} were forgotten: a text that continues after one of them is not found")

    def _tell(self, run: Redaction, target: str, *, written: bool) -> None:
        """Say what was done, and what the user has to know of it."""
        if not written:
            self._tell_hits(self.hits)
            found = counted(len({one.number for one in self.hits}), "text")
            warn(f"{target} is not written: {found} that may not be there would be in it")
            return
        left = sum(run.dropped.values())
        dropped = f"; {counted(left, 'frame')} left out: {_reasons(run)}" if left else ""
        warn(f"wrote {run.written:,} of {run.read:,} {'frame' if run.read == 1 else 'frames'} to {target}{dropped}")
        if os.path.isfile(target):
            self._tell_clean(target)
        if not run.dissector.connections and not self.watch.errors:
            warn(advice.nothing_found(run.dissector) or "")
        if run.forgotten:
            filler = counted(run.forgotten, "segment")
            warn(f"limit: {filler} stayed filler: more waited to be understood than are remembered")
        if run.frames.sharing:
            shared = counted(run.frames.sharing, "frame")
            warn(f"limit: {MAX_TUNNELS:,} tunnels are kept apart; {shared} of others have one tag")
        if self.differences:
            warn(f"lint finds something else in {target}: {'; '.join(self.differences)}")
        differing = run.packets.differing + run.unfit
        if differing:
            warn(
                f"lint may find other faults than before in {counted(differing, 'packet')} that could not keep the form"
            )

    def _text(self, run: Redaction) -> str:
        choice = run.choice
        rows = [("what", "values", "bytes")]
        rows += [(name, f"{choice.counts[name]:,}", f"{choice.sizes[name]:,}") for name in sorted(choice.counts)]
        widths = [max(len(row[index]) for row in rows) for index in range(3)]
        lines = [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows]
        lines += ["", f"frames read {run.read:,}, written {run.written:,}"]
        lines += [f"left out: {count:,} {_reason(name)}" for name, count in sorted(run.dropped.items())]
        if run.frames.rebuilt:
            lines.append(f"taken out of tunnels and other link layers: {run.frames.rebuilt:,}")
        lines.append(f"blocks with keys of TLS left out: {self.keys:,}")
        lines.append("comments, names, descriptions of interfaces and unknown blocks are never copied")
        return "\n".join(lines) + "\n"

    def _json(self, run: Redaction) -> bytes:
        return (
            orjson.dumps(
                REPORT.view(SimpleNamespace(run=run, given=self.given, keys=self.keys, differences=self.differences))
            )
            + b"\n"
        )


def _spooled() -> BinaryIO:
    """What standard input holds, as a file that can be read twice; nobody else can open it."""
    if sys.stdin is None:
        raise OSError("it is closed")
    spool = cast(BinaryIO, tempfile.TemporaryFile(prefix="mqttscope-"))  # noqa: SIM115 - closed by the caller
    try:
        shutil.copyfileobj(sys.stdin.buffer, spool, PIECE_BYTES)
        spool.seek(0)
    except BaseException:
        spool.close()
        raise
    return spool


def _reason(name: str) -> str:
    known = UNREAD.get(name)
    return f"frames {known.words if known else _REASONS.get(name, name)}"


def _reasons(run: Redaction) -> str:
    return ", ".join(f"{count:,} {_reason(name).removeprefix('frames ')}" for name, count in run.dropped.most_common())


def _key(path: str | None) -> bytes:
    """The key in a file; without one that of the environment, or a random one."""
    if path is None:
        return os.environ.get(KEY_VARIABLE, "").encode("utf-8", "surrogateescape") or secrets.token_bytes(KEY_BYTES)
    key = _read(path, "--key-file").strip()
    if not key:
        raise click.UsageError("the key is empty")
    return key


@dataclass(frozen=True, slots=True)
class _Secret:
    """A text that is looked for."""

    raw: bytes
    name: str
    """What stands for it in messages: an option and a number, or a line of a file; never the text."""


def _secrets(given: RedactOptions) -> list[_Secret]:
    """The texts of ``--check`` and ``--check-file``, in their order."""
    found = [
        _Secret(one.encode("utf-8", "surrogateescape"), f"text {number} of --check")
        for number, one in enumerate(given.checked, 1)
    ]
    for path in given.check_files:
        lines = _text_lines(_read(path, "--check-file"))
        listed = [_Secret(one, f"line {at} of {utf8(path)}") for at, one in enumerate(lines, 1) if one]
        if not listed:
            raise click.UsageError(f"--check-file: {path} has no text in it")
        found += listed
    for one in found:
        if len(one.raw) < SHORTEST:
            raise click.UsageError(
                f"{one.name} has fewer than {SHORTEST} bytes: such a text stands everywhere by chance"
            )
    return found


def _text_lines(raw: bytes) -> list[bytes]:
    """The lines of a text in UTF-8 or, with its mark, in UTF-16, without marks and without blanks at their ends."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raw = raw.decode("utf-16", "replace").encode()
    return [line.strip() for line in raw.removeprefix(codecs.BOM_UTF8).splitlines()]


def _read(path: str, option: str) -> bytes:
    with ErrorTranslation(click.UsageError, OSError, ValueError, before=f"{option}: {path}: "):
        if path == STDIN:
            return sys.stdin.buffer.read() if sys.stdin is not None else b""
        with open(path, "rb") as file:
            return file.read()
