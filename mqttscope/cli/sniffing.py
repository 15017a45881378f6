"""Runs ``sniff``: captures frames, writes packets and findings, records to a file, and ends in an orderly way.

`Sniffing` is the capture at work, `Stops` are the conditions that end it, and `LiveKeys` decrypts TLS meanwhile.

A `Keyboard` reads single keys while a screen is shown, without waiting and without echo.  Only a terminal that this
process may read from has keys: a background process has none, nor has one whose standard input is something else.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from mqttscope import system
from mqttscope.capture import live
from mqttscope.capture.keylog import BadKeysError, KeyLog
from mqttscope.capture.tls import Decryption
from mqttscope.capture.tshark import MissingToolError
from mqttscope.capture.write import Recorder
from mqttscope.cli import advice
from mqttscope.cli.errors import CommandFailedError, ErrorTranslation
from mqttscope.cli.main import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNREADABLE, handling, interruption, limit_ending
from mqttscope.cli.output import CannotWriteError, Output, Watch, warn, warn_all
from mqttscope.cli.privileges import screen
from mqttscope.cli.reading import KEYLOG_VARIABLE, CannotReadError
from mqttscope.dissect import Dissector, dissect_segments, segments
from mqttscope.events import CaptureRemark, Event, MalformedEvent, PacketEvent
from mqttscope.mqtt.wire import counted
from mqttscope.net.flow_expiry import IDLE_TIMEOUT_NS
from mqttscope.net.fragments import FragmentTable
from mqttscope.net.frame import CaptureNotice, Decrypted, Frame, SegmentItem
from mqttscope.report.base import View
from mqttscope.report.formats import make_reporter

if TYPE_CHECKING:
    from mqttscope.cli.linting import Findings

SILENCE_NS = 1_000_000_000
"""So far behind the clock the capture's time stays while nothing comes: the last frames may still be on their way."""
PATIENCE_SECONDS = 1.3
"""So long after a signal what is read and judged then may take; after it only the reports are written."""
ADVANCE_SECONDS = 0.25
"""So often the flows are looked after while nothing comes."""


def advanced(dissector: Dissector, now_ns: int) -> Iterator[Event]:
    """Events of flows that end while nothing comes; ``now_ns``: the time of the clock."""
    yield from dissector.advance(now_ns - SILENCE_NS)


class LiveKeys(Decryption):
    """Decryption of a live capture, and the message at its end."""

    def __init__(self, keylog: str, *, verify_checksums: bool) -> None:
        """``keylog``: a key log that programs write to meanwhile; `BadKeysError` where it can be none."""
        self.keylog = KeyLog(keylog)
        super().__init__(self.keylog, verify_checksums=verify_checksums)

    def advice(self) -> str | None:
        """The message at the end where the keys decrypted nothing."""
        if self.records or self.failures:
            return None
        if not self.sessions:
            return f"no TLS connection began, so the keys in {self.keylog.path} opened none"
        return f"no TLS record could be decrypted with the keys in {self.keylog.path}"


def live_keys(keylog: str | None, *, verify_checksums: bool = True) -> LiveKeys | None:
    """Decryption with ``--keylog`` or the file of the environment; none without.

    `CannotReadError` where what the option names cannot be used; what the environment names is left alone then.
    """
    if keylog is None:
        keylog = os.environ.get(KEYLOG_VARIABLE, "")
        if not keylog:
            return None
        # Set for other programs as well, so that what is wrong with it is no reason to stop.
        try:
            keys = LiveKeys(keylog, verify_checksums=verify_checksums)
        except (BadKeysError, MissingToolError) as error:
            warn(f"{error} (${KEYLOG_VARIABLE})")
            return None
    else:
        with ErrorTranslation(CannotReadError, BadKeysError, MissingToolError):
            keys = LiveKeys(keylog, verify_checksums=verify_checksums)
    if not keys.keylog.exists:
        warn(f"key log {keylog} does not exist yet; waiting for it")
    return keys


class _TookTooLong(BaseException):
    """A signal has asked for the end, and one packet takes a rule longer than there is time."""


@dataclass(slots=True)
class Stops:
    """What ends a capture in addition to Ctrl-C."""

    seconds: float | None = None
    packets: int | None = None
    until: Any = None
    """A filter."""
    on_finding: bool = False


class Sniffing:
    """A capture at work."""

    def __init__(
        self,
        capture: live.LiveCapture,
        dissector: Dissector,
        view: View,
        *,
        form: str,
        human: bool,
        wanted: Any,
        stops: Stops,
        recorder: Recorder | None,
        findings: Findings | None,
        decryption: LiveKeys | None = None,
    ) -> None:
        self.capture = capture
        self.dissector = dissector
        self.stops = stops
        self.recorder = recorder
        self.findings = findings
        self.decryption = decryption
        self.frames = 0
        self.packets = 0
        """Packets shown."""
        self.watch = Watch(progress=False, shown=human)
        self.skipped: Counter[str] = Counter()
        self.fragments = FragmentTable()
        self.sink = Output()
        self.dashboard = None
        self.keyboard: Keyboard | None = None
        if form == "dashboard":
            from mqttscope.report.dashboard import Dashboard, Look

            self.keyboard = keyboard()
            self.dashboard = Dashboard(capture.name, view, None if self.keyboard is None else Look())
        elif findings is not None:
            findings.show_in(self.sink)
        self.reporter = self.dashboard or make_reporter(form, self.sink, view)
        self._flush_reporter = getattr(self.reporter, "flush", lambda: None)
        self._matches = getattr(wanted, "matches", None)
        self._until = getattr(stops.until, "matches", None)
        decoders = view.decoders()
        self._observe = decoders.observe if decoders is not None and decoders.remembers and wanted else None
        self._over = False
        self._told_ready = False
        self._started = time.monotonic()
        self._deadline = float("inf")
        self._advance_at = 0.0
        capture.waiting = self._wait
        dissector.clock.machine = capture.clock.set_by_ns
        capture.watched = self._watched

    def execute(self) -> int:
        """Capture until something ends it; returns the exit code."""
        with self._signals():
            if self.keyboard is not None:
                self.keyboard.open()
            source: Iterator[SegmentItem | Decrypted]
            source = segments(self._recorded(self.capture.frames()), self.skipped, self.fragments)
            if self.decryption is not None:
                source = self.decryption.join(source)
            events = self.watch.events(dissect_segments(source, dissector=self.dissector))
            try:
                for event in events:
                    self._take(event)
                    if self._over:
                        break
            except (live.BadCaptureFilterError, live.CannotCaptureError) as error:
                raise _refused(error) from None
            except _TookTooLong:
                warn("ended by the signal before everything that was captured was read")
            except BrokenPipeError:
                # Whoever read has gone; the summary is for somebody else.
                self.capture.close()
                self._tell()
                raise
            except OSError as error:
                if self.recorder is not None and error.filename and not isinstance(error, BrokenPipeError):
                    raise CannotWriteError(f"--write: {error.filename}: {error.strerror or error}") from None
                raise
            finally:
                self._close()
        self._tell()
        if self.watch.errors or (self.findings is not None and self.findings.linter.internal_errors):
            return EXIT_UNREADABLE
        return EXIT_FINDINGS if self.findings is not None and self.findings.failed else EXIT_CLEAN

    def _recorded(self, frames: Iterator[Frame | CaptureNotice]) -> Iterator[Frame | CaptureNotice]:
        write = None if self.recorder is None else self.recorder.write
        try:
            for frame in frames:
                if type(frame) is Frame:
                    self.frames += 1
                    if write is not None:
                        write(frame)
                yield frame
        finally:
            # Now, not when it is collected: dumpcap has to end before anything is reported about it.
            self.capture.close()

    def _take(self, event: Event) -> None:
        """Show and lint an event; events after the one that ended the capture are dropped."""
        if self._over:
            return
        found = () if self.findings is None else self.findings.feed(event)
        if self._observe is not None:
            self._observe(event)
        if self._is_wanted(event):
            self.reporter.feed(event)
            if isinstance(event, PacketEvent | MalformedEvent):
                self.packets += 1
                self._over = self._over or self.packets == self.stops.packets
        if found:
            # The packet goes before what is said of it.
            self._flush_reporter()
        for finding in found:
            assert self.findings is not None
            verdict = self.findings.take(finding)
            self._over = self._over or (self.stops.on_finding and verdict.counts)
            if self.dashboard is not None and verdict.suppression is None and not verdict.repeated:
                self.dashboard.finding(finding)
        if self._until is not None and self._until(event):
            self._over = True

    def _is_wanted(self, event: Event) -> bool:
        return self._matches is None or isinstance(event, CaptureRemark) or self._matches(event)

    def _wait(self) -> None:
        """Everything that came was shown: look after the clock, the file, the screen."""
        now = time.monotonic()
        if not self._told_ready and self.capture.ready:
            self._told_ready = True
            self._started = now
            if self.stops.seconds is not None:
                self._deadline = now + self.stops.seconds
            if self.dashboard is None:
                warn(f"capturing on {self.capture.name}; Ctrl-C ends it")
        if self.decryption is not None:
            # What was decrypted while no frame came.
            for arrived in self.decryption.arrived():
                for item in self.dissector.clock.beside(arrived):
                    self._feed(item)
        if self.dashboard is not None and self.keyboard is not None:
            self.dashboard.press(self.keyboard.pressed())
            if self.dashboard.look is not None and self.dashboard.look.over:
                self._deadline = now
        if self._over or (now >= self._deadline and not self.capture.stopping):
            self.capture.stop(settle=not self._over)
        if self.capture.silent and now >= self._advance_at:
            self._advance_at = now + ADVANCE_SECONDS
            if self.decryption is not None:
                self.decryption.advance(time.time_ns() - SILENCE_NS)
            for item in self.dissector.clock.release():
                self._feed(item)
            for event in advanced(self.dissector, self.capture.clock.now_ns()):
                self._take(event)
        if self.dashboard is not None:
            self.dashboard.refresh(time.time_ns())
        self._flush_reporter()
        self.sink.flush()
        if self.recorder is not None:
            self.recorder.flush()
        if self.findings is not None:
            self.findings.flush()

    def _watched(self) -> Sequence[int]:
        """Descriptors that are looked after as soon as they have something."""
        keys = () if self.keyboard is None else self.keyboard.watched()
        return (*keys, *(() if self.decryption is None else self.decryption.watched()))

    def _feed(self, item: SegmentItem | Decrypted) -> None:
        """Show what nothing that came has brought."""
        for event in self.watch.events(self.dissector.take(item)):
            self._take(event)

    def _close(self) -> None:
        try:
            if self.dashboard is not None:
                self.dashboard.refresh(time.time_ns(), last=True)
            self.reporter.close()
            if self.findings is not None:
                self.findings.close(self.capture.name, truncated=bool(self.watch.errors))
            self.sink.flush()
        finally:
            if self.keyboard is not None:
                self.keyboard.close()
            if self.decryption is not None:
                self.decryption.close()
            self.capture.close()
            if self.recorder is not None:
                self.recorder.close()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """End in good order on Ctrl-C and on what a service manager sends; the second time at once."""

        def end(number: int, frame: object) -> None:
            if self.capture.stopping:
                raise interruption(number)
            self.capture.stop()
            limit_ending(number, EXIT_UNREADABLE)
            system.set_alarm(PATIENCE_SECONDS)

        def end_now(number: int, frame: object) -> None:
            raise _TookTooLong

        alarm = system.alarm_signal()
        with handling(end), handling(end_now, () if alarm is None else (alarm,)):
            try:
                yield
            finally:
                system.set_alarm(0)

    def _tell(self) -> None:
        capture, dissector = self.capture, self.dissector
        seconds = time.monotonic() - self._started
        dropped = f"; {counted(capture.dropped, 'frame')} dropped" if capture.dropped else "; none dropped"
        warn(
            f"{capture.name}: {counted(self.frames, 'frame')}, {counted(dissector.packets, 'packet')} of"
            f" {counted(dissector.connections, 'connection')} in {seconds:,.1f} s{dropped}"
        )
        if self.recorder is not None:
            warn(self.recorder.told())
        warn_all((*self._limits(), *(() if self.findings is None else self.findings.told())))
        keys = None if self.decryption is None else self.decryption.advice()
        snapped = advice.snap_length(dissector, self.skipped)
        unread = advice.not_read(dissector, self.skipped, live=True)
        warn_all((*advice.of_connections(dissector), snapped, keys, unread))
        if self._matches is not None and dissector.packets and not self.packets:
            warn(f"nothing matches the filter in {counted(dissector.packets, 'packet')}")

    def _limits(self) -> Iterator[str]:
        flows = self.dissector.flows
        if flows.idle_flows:
            hours = IDLE_TIMEOUT_NS // 3_600_000_000_000
            yield f"limit: {counted(flows.idle_flows, 'TCP connection')} idle for {hours} hours, forgotten"
        if flows.evicted_flows:
            yield (
                f"limit: {counted(flows.evicted_flows, 'TCP connection')} forgotten to make room: at most"
                f" {flows.max_flows:,} are remembered"
            )
        if flows.total_limit_hits:
            yield (
                f"limit: {counted(flows.total_limit_hits, 'time')} out-of-order bytes were given up: at most"
                f" {flows.budget.limit:,} are kept"
            )
        if self.fragments.evicted:
            yield f"limit: {counted(self.fragments.evicted, 'fragmented datagram')} forgotten to make room"
        if self.dashboard is not None and self.dashboard.traffic.forgotten:
            yield f"limit: {self.dashboard.traffic.forgotten:,} clients and topics were forgotten by the dashboard"


def choose(names: Sequence[str]) -> tuple[str, ...]:
    """The interfaces to capture from: those named, each once, else the first there is."""
    if names:
        if not all(names):
            raise CommandFailedError(
                "there is no interface ''; mqttscope sniff --list-interfaces shows those there are"
            )
        return tuple(dict.fromkeys(names))
    found = _interfaces()
    if not found:
        raise CommandFailedError("there is no interface to capture from")
    return (next((one for one in found if not one.loopback), found[0]).name,)


def _interfaces() -> list[live.Interface]:
    try:
        return live.interfaces()
    except live.CannotCaptureError as error:
        raise _refused(error) from None
    except MissingToolError as error:
        raise CommandFailedError(str(error)) from None


def capturing(names: Sequence[str], bpf: str, ports: Sequence[int]) -> live.LiveCapture:
    with ErrorTranslation(CommandFailedError, MissingToolError, live.CannotCaptureError):
        return live.LiveCapture(names, capture_filter=capture_filter(bpf, ports))


def capture_filter(bpf: str, ports: Sequence[int]) -> str:
    """The capture filter for the kernel: the TCP of the ports named, and the user's own filter."""
    of_ports = " or ".join(f"tcp port {port}" for port in sorted(ports))
    return " and ".join(f"({one})" for one in (of_ports, bpf.strip()) if one)


def record(target: str | None, ring_bytes: int | None, ring_files: int | None) -> Recorder | None:
    """The file to write frames to; a usage error when it cannot be."""
    if target is None:
        return None
    with ErrorTranslation(CannotWriteError, OSError, ValueError, before=f"--write: {target}: "):
        return Recorder(target, ring_bytes=ring_bytes, ring_files=ring_files)


def listed() -> str:
    """The interfaces as a table."""
    found = _interfaces()
    width = max((len(one.name) for one in found), default=0)
    lines = [
        f"{one.name:<{width}}  {', '.join((*one.addresses, *filter(None, (one.description,))))}".rstrip()
        for one in found
    ]
    return "".join(f"{line}\n" for line in lines)


def _refused(error: live.CannotCaptureError) -> click.ClickException:
    if isinstance(error, live.NotPermittedError):
        return CommandFailedError(screen(error))
    if isinstance(error, live.BadCaptureFilterError):
        return click.UsageError(f"--bpf: {error}")
    return CommandFailedError(str(error))


MAX_BYTES = 4096
"""Bytes of keys that are taken at a time: the user may paste a file."""
_SEQUENCE = re.compile(r"\x1b[\[O][0-9;?<]*[ -/]*[@-~]?")
"""What arrows, function keys and the mouse send."""


class Keyboard:
    """The keys of a terminal, from :meth:`open` to :meth:`close`."""

    def __init__(self, descriptor: int, termios: Any, tty: Any) -> None:
        self._descriptor = descriptor
        self._termios, self._tty = termios, tty
        self._before: list[Any] | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._over = False

    def open(self) -> None:
        """Take keys as they are pressed, and show none of them."""
        self._before = self._termios.tcgetattr(self._descriptor)
        self._tty.setcbreak(self._descriptor, self._termios.TCSANOW)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._before is None:
            return
        before, self._before = self._before, None
        if self.is_ours():
            self._termios.tcsetattr(self._descriptor, self._termios.TCSANOW, before)

    def watched(self) -> tuple[int, ...]:
        return () if self._before is None or self._over or not self.is_ours() else (self._descriptor,)

    def pressed(self) -> list[str]:
        """The keys that were pressed since the last call: a character each, U+001B for Esc."""
        if not self.watched():
            return []
        self._claim()
        if not select.select([self._descriptor], [], [], 0)[0]:
            return []
        try:
            data = os.read(self._descriptor, MAX_BYTES)
        except OSError:
            data = b""
        # The terminal has gone: it stays readable, and would be asked without end.
        self._over = not data
        return list(_SEQUENCE.sub("", self._decoder.decode(data)))

    def _claim(self) -> None:
        """A shell that had stopped the program may have given it back with another mode."""
        termios = self._termios
        try:
            if termios.tcgetattr(self._descriptor)[3] & termios.ICANON:
                self._tty.setcbreak(self._descriptor, termios.TCSANOW)
        except (termios.error, OSError):
            self._over = True

    def is_ours(self) -> bool:
        """Whether this process is in the foreground: another one would be stopped for touching the terminal."""
        return system.in_foreground(self._descriptor)


def keyboard() -> Keyboard | None:
    """The keys of standard input; none where it is not a terminal of this process."""
    modules = system.terminal()
    if modules is None or sys.stdin is None or not sys.stdin.isatty():
        return None
    found = Keyboard(sys.stdin.fileno(), *modules)
    return found if found.is_ours() else None
