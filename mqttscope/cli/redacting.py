"""A run of ``redact``: reads captures, writes one shareable pcapng file, and reports the replacements."""

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
from functools import partial
from operator import itemgetter
from types import SimpleNamespace
from typing import BinaryIO, cast

import click
import orjson

from mqttscope.capture import open_capture
from mqttscope.capture.files import find_captures
from mqttscope.capture.mapped import map_capture
from mqttscope.capture.read import may_be_compressed
from mqttscope.capture.write import PcapngWriter, ip_frame, open_alone, opener, replace_file
from mqttscope.cli import advice
from mqttscope.cli.errors import ErrorTranslation
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNREADABLE
from mqttscope.cli.output import STDIN, CannotWriteError, CaptureWatch, Output, Progress, ReadProgress, warn
from mqttscope.cli.redacting_options import RedactOptions
from mqttscope.dissect import FastPath
from mqttscope.dissect.kernel_path import KernelEvents
from mqttscope.kernel import native
from mqttscope.mqtt.view import utf8
from mqttscope.mqtt.wire import counted
from mqttscope.net.frame import CaptureDrops, CaptureError, CaptureNotice, CaptureSecrets, Frame
from mqttscope.net.segment import UNREAD
from mqttscope.redact.check import SHORTEST, SecretHit, SecretSearch
from mqttscope.redact.frames import MAX_TUNNELS
from mqttscope.redact.kinds import TreatmentChoice
from mqttscope.redact.redaction import Redaction
from mqttscope.redact.verify import Judgement, judge
from mqttscope.report import documents as doc

_REPLACED = doc.record({"values": doc.COUNT.at(itemgetter(0)), "bytes": doc.COUNT.at(itemgetter(1))})
REPORT = doc.record({
    "schema": doc.VERSION_1, "captures": doc.each(doc.ESCAPED).at("args.captures"),
    "output": doc.ESCAPED.at(lambda report: report.args.output or ""),
    "replaced": doc.mapping(_REPLACED).at(lambda report: _replaced(report.run.choice)),
    "kept": doc.ValueType(doc.each(doc.TEXT), sorted).at("args.keep"),
    "blank": doc.ValueType(doc.each(doc.TEXT), sorted).at("args.blank"),
    "frames": doc.record({
        "read": doc.COUNT, "written": doc.COUNT, "rebuilt": doc.COUNT.at("frames.rebuilt"),
    }).at("run"),
    "left_out": doc.by_name(doc.COUNT).at("run.dropped"), "tls_key_blocks": doc.COUNT.at("keys"),
    "differing_packets": doc.COUNT.at(lambda report: report.run.packets.differing + report.run.unfit),
    "differing_findings": doc.each(doc.TEXT).at("differences"),
})  # fmt: skip
"""The document of ``redact --report --format json``."""


def _replaced(choice: TreatmentChoice) -> dict[str, tuple[int, int]]:
    return {str(name): (choice.counts[name], choice.sizes[name]) for name in sorted(choice.counts)}


KEY_BYTES = 32
KEY_VARIABLE = "MQTTSCOPE_REDACT_KEY"
PIECE_BYTES = 1 << 20
SPOOL_BYTES = 8 << 20
"""Maximum bytes in memory of a capture that can be read only once."""
_FRAME = struct.Struct("<QqIIII")
"""Header of a spooled frame: number, time, link type, original length, number of the capture, and length."""
MAX_TOLD = 20
"""Maximum number of check hits shown; further hits are counted."""
_REASONS = {
    "no_mqtt": "of TCP without MQTT",
    "not_tcp": "without TCP",
    "not_ip": "without IP",
    "fragments": "with fragments of a datagram that was reassembled or stayed incomplete",
}


class RedactRun:
    """One run of ``redact``."""

    def __init__(self, args: RedactOptions) -> None:
        self.args = args
        self.secrets = _secrets(args)
        self.watch = CaptureWatch(progress=False)
        self.progress = Progress()
        self.keys = 0
        """Number of omitted blocks with TLS keys."""
        self.drops: list[CaptureDrops] = []
        self.hits: list[SecretHit] = []
        self.forgotten = 0
        """Number of directions with last bytes that a check discarded."""
        self.differences: list[str] = []
        """Differences between the findings of the new capture and of the old captures."""

    def execute(self) -> int:
        """Write the new capture, or search the named captures; returns the exit code."""
        try:
            if self.args.output is None:
                return self._check_captures()
            return self._redact(self.args.output)
        finally:
            self.progress.clear()

    def _redact(self, target: str) -> int:
        args = self.args
        choice = TreatmentChoice.of(args.keep, args.blank)
        with tempfile.TemporaryFile(prefix="mqttscope-") as spool:
            run = Redaction(
                _key(args.key_file), choice, cast(BinaryIO, spool), ip_frame, args.protocol.dissection()
            )  # fmt: skip
            with ErrorTranslation(CannotWriteError, OSError, before="cannot write a temporary file: "):
                before = self._redact_frames(run)
                run.close()
            if self.watch.errors and not run.read:
                warn(f"{target} is not written: nothing could be read")
                return EXIT_UNREADABLE
            written = self._write(run, target)
        if written and os.path.isfile(target):
            after = judge(partial(_direct, [target]), args.protocol.dissection())
            self.differences = before.differences(after)
        self._print_results(run, target, written=written)
        if args.form is not None:
            Output().write_all(self._json(run) if args.form == "json" else self._text(run).encode())
        if not written:
            return EXIT_FINDINGS
        return EXIT_UNREADABLE if self.watch.errors else EXIT_CLEAN

    def _redact_frames(self, run: Redaction) -> Judgement:
        """Redact all frames; returns the findings in the captures."""
        captures, options = self.args.captures, self.args.protocol.dissection()
        if not _is_read_once(captures):
            for frame in self._frames_again(run.survey):
                run.feed(frame)
            return judge(lambda path: (item for item in _direct(captures, path) if isinstance(item, Frame)), options)

        def each(_: FastPath) -> Iterator[Frame]:
            for frame in self._frames_again(run.survey):
                run.feed(frame)
                yield frame

        return judge(each, options)

    def _frames(self) -> Iterator[Frame]:
        """Frames of the captures; no other blocks are copied."""
        for item in open_capture(self.args.captures, seen=self._progress_callback(self.args.captures)):
            if isinstance(item, Frame):
                yield item
            elif isinstance(item, CaptureSecrets):
                self.keys += 1
            elif isinstance(item, CaptureError | CaptureDrops):
                if isinstance(item, CaptureDrops):
                    self.drops.append(item)
                self.watch.note(item)

    def _frames_again(self, look: Callable[[Frame], None]) -> Iterator[Frame]:
        """Frames of the captures, after ``look`` has seen all of them.

        Captures that can be read only once, such as standard input, are spooled to a private file.
        """
        if not _is_read_once(self.args.captures):
            for item in open_capture(self.args.captures, seen=self._progress_callback(self.args.captures)):
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

    def _progress_callback(self, captures: Sequence[str]) -> Callable[[int], object] | None:
        """Callback for the number of bytes read, or ``None`` without progress."""
        progress = ReadProgress()
        progress.follow(captures)
        return progress.seen if progress.enabled else None

    def _write(self, run: Redaction, target: str) -> bool:
        """Write the frames; returns false, without a file, if they contain a text of ``--check``."""
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
            for drops in self.drops:
                writer.write_drops(drops.received, drops.dropped)

    def _looked_through(self, path: str, file: BinaryIO) -> list[SecretHit]:
        """Search a capture for the texts of ``--check``; ``file`` is at its start, and seekable."""
        check = SecretSearch([secret.raw for secret in self.secrets], self.args.protocol.dissection())
        offset = 0
        packed = False
        while data := file.read(PIECE_BYTES):
            packed = packed or (not offset and may_be_compressed(data))
            check.take_bytes(data, offset)
            offset += len(data)
            if self.progress.due(0):
                self.progress.show(f"{offset:,} bytes of {utf8(os.path.basename(path))} searched")
        file.seek(0)
        for item in open_capture([path], stdin=file, seen=self._progress_callback([path])):
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
        all_hits: list[SecretHit] = []
        others = [capture for capture in self.args.captures if capture != STDIN]
        paths: list[str | CaptureError] = [STDIN] if STDIN in self.args.captures else []
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
            self._print_hits(hits, f"{name}: ")
            all_hits += hits
        if all_hits:
            return EXIT_FINDINGS
        if self.watch.errors:
            return EXIT_UNREADABLE
        self._tell_clean(", ".join(utf8(capture) for capture in self.args.captures))
        return EXIT_CLEAN

    def _print_hits(self, hits: Sequence[SecretHit], before: str = "") -> None:
        for hit in hits[:MAX_TOLD]:
            warn(f"{before}found {self.secrets[hit.number].name}: {hit.form}, {hit.place}")
        if len(hits) > MAX_TOLD:
            warn(f"{before}and {counted(len(hits) - MAX_TOLD, 'other hit')}")

    def _tell_clean(self, where: str) -> None:
        """Report that the checked texts were not found."""
        if self.secrets:
            absent = "it does not occur" if len(self.secrets) == 1 else "they do not occur"
            warn(f"searched for {counted(len(self.secrets), 'text')}: {absent} in {where}")
        if self.forgotten:
            ends = counted(self.forgotten, "direction")
            warn(f"limit: the last bytes of {ends} were discarded: a text that continues after them is not found")

    def _print_results(self, run: Redaction, target: str, *, written: bool) -> None:
        """Report the results and limits of the run."""
        if not written:
            self._print_hits(self.hits)
            texts = counted(len({hit.number for hit in self.hits}), "text")
            warn(f"{target} is not written: it would contain {texts} of --check")
            return
        left = sum(run.dropped.values())
        dropped = f"; {counted(left, 'frame')} omitted: {_reasons(run)}" if left else ""
        warn(f"wrote {run.written:,} of {run.read:,} {'frame' if run.read == 1 else 'frames'} to {target}{dropped}")
        if os.path.isfile(target):
            self._tell_clean(target)
        if not run.dissector.connections and not self.watch.errors:
            warn(advice.nothing_found(run.dissector) or "")
        if run.forgotten:
            filler = counted(run.forgotten, "segment")
            warn(f"limit: {filler} remained filler: too many segments waited for decoding")
        if run.frames.sharing:
            shared = counted(run.frames.sharing, "frame")
            warn(f"limit: {MAX_TUNNELS:,} tunnels are kept apart; {shared} of further tunnels share a tag")
        if self.differences:
            warn(f"lint reports different findings in {target}: {'; '.join(self.differences)}")
        differing = run.packets.differing + run.unfit
        if differing:
            warn(f"lint may report different faults in {counted(differing, 'packet')} that could not keep their form")

    def _text(self, run: Redaction) -> str:
        choice = run.choice
        rows = [("what", "values", "bytes")]
        rows += [(name, f"{choice.counts[name]:,}", f"{choice.sizes[name]:,}") for name in sorted(choice.counts)]
        widths = [max(len(row[index]) for row in rows) for index in range(3)]
        lines = [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows]
        lines += ["", f"frames read {run.read:,}, written {run.written:,}"]
        lines += [f"omitted: {count:,} {_reason(name)}" for name, count in sorted(run.dropped.items())]
        if run.frames.rebuilt:
            lines.append(f"extracted from tunnels and other link layers: {run.frames.rebuilt:,}")
        lines.append(f"blocks with TLS keys omitted: {self.keys:,}")
        lines.append("comments, names, interface descriptions and unknown blocks are never copied")
        return "\n".join(lines) + "\n"

    def _json(self, run: Redaction) -> bytes:
        return (
            orjson.dumps(
                REPORT.view(SimpleNamespace(run=run, args=self.args, keys=self.keys, differences=self.differences))
            )
            + b"\n"
        )


def _is_read_once(captures: Sequence[str]) -> bool:
    """Whether a capture can be read only once, such as standard input."""
    paths = [path for path in find_captures(captures) if isinstance(path, str)]
    return STDIN in captures or any(os.path.exists(path) and not os.path.isfile(path) for path in paths)


def _direct(captures: Sequence[str], path: FastPath) -> Iterator[Frame | CaptureNotice]:
    """The frames and notices of captures that neither the kernel nor a fast path has taken."""
    data = map_capture(captures) if native() is not None else None
    if data is not None:
        kernel = KernelEvents.attempt(path, captures[0], data)
        if kernel is not None:
            return kernel.frames(path, None)
    return open_capture(captures, direct=path)


def _spooled() -> BinaryIO:
    """Standard input as a private seekable file."""
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
    """Key from a file, else from the environment, else random."""
    if path is None:
        return os.environ.get(KEY_VARIABLE, "").encode("utf-8", "surrogateescape") or secrets.token_bytes(KEY_BYTES)
    key = _read(path, "--key-file").strip()
    if not key:
        raise click.UsageError("the key is empty")
    return key


@dataclass(frozen=True, slots=True)
class _SearchedText:
    """A text to search for."""

    raw: bytes
    name: str
    """Name in messages: an option and a number, or a line of a file; never the text."""


def _secrets(args: RedactOptions) -> list[_SearchedText]:
    """Texts of ``--check`` and ``--check-file``, in order."""
    texts = [
        _SearchedText(text.encode("utf-8", "surrogateescape"), f"text {number} of --check")
        for number, text in enumerate(args.checked, 1)
    ]
    for path in args.check_files:
        lines = _text_lines(_read(path, "--check-file"))
        listed = [_SearchedText(text, f"line {at} of {utf8(path)}") for at, text in enumerate(lines, 1) if text]
        if not listed:
            raise click.UsageError(f"--check-file: {path} contains no text")
        texts += listed
    for secret in texts:
        if len(secret.raw) < SHORTEST:
            raise click.UsageError(f"{secret.name} has fewer than {SHORTEST} bytes: such a text occurs by chance")
    return texts


def _text_lines(raw: bytes) -> list[bytes]:
    """Stripped lines of a text in UTF-8 or, with a byte order mark, in UTF-16."""
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raw = raw.decode("utf-16", "replace").encode()
    return [line.strip() for line in raw.removeprefix(codecs.BOM_UTF8).splitlines()]


def _read(path: str, option: str) -> bytes:
    with ErrorTranslation(click.UsageError, OSError, ValueError, before=f"{option}: {path}: "):
        if path == STDIN:
            return sys.stdin.buffer.read() if sys.stdin is not None else b""
        with open(path, "rb") as file:
            return file.read()
