"""Runs ``sniff``: captures frames, writes packets and findings, records to a file, and ends in an orderly way.

`SniffRun` is one run, `StopConditions` are the conditions that end it, and `LiveKeys` decrypts TLS.
"""

from __future__ import annotations

import os
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
from mqttscope.cli.output import CannotWriteError, CaptureWatch, Output, warn, warn_all
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
    from mqttscope.cli.linting import LiveFindings
    from mqttscope.metrics.monitor import LiveMonitor

SILENCE_NS = 1_000_000_000
"""During silence, the capture's time lags the clock by this, because frames may still be in transit."""
PATIENCE_SECONDS = 1.3
"""Maximum time after a signal for reading and linting; then only the reports are written."""
ADVANCE_SECONDS = 0.25
"""Interval for expiring flows during silence."""


def advance(dissector: Dissector, now_ns: int) -> Iterator[Event]:
    """Let time pass in the dissector, up to a time of the clock; yields events of flows that end during silence."""
    yield from dissector.advance(now_ns - SILENCE_NS)


class LiveKeys(Decryption):
    """Decryption of a live capture, and its final message."""

    def __init__(self, keylog: str, *, verify_checksums: bool) -> None:
        """``keylog``: a key log that may still grow; `BadKeysError` if it is invalid."""
        self.keylog = KeyLog(keylog)
        super().__init__(self.keylog, verify_checksums=verify_checksums)

    def advice(self) -> str | None:
        """Final message if the keys decrypted nothing."""
        if self.records or self.failures:
            return None
        if not self.sessions:
            return f"no TLS connection started, so the keys in {self.keylog.path} had no use"
        return f"no TLS record could be decrypted with the keys in {self.keylog.path}"


def live_keys(keylog: str | None, *, verify_checksums: bool = True) -> LiveKeys | None:
    """Decryption with ``--keylog`` or the key log of the environment, or ``None``.

    `CannotReadError` if the file of the option is unusable; an unusable file of the environment is only reported.
    """
    if keylog is None:
        keylog = os.environ.get(KEYLOG_VARIABLE, "")
        if not keylog:
            return None
        # The variable is shared with other programs, so errors in its file are not fatal.
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


class _RuleTimeout(BaseException):
    """A rule takes longer for one packet than the time left after a signal."""


@dataclass(slots=True)
class StopConditions:
    """Conditions that end a capture, in addition to Ctrl-C."""

    seconds: float | None = None
    packets: int | None = None
    until: Any = None
    """Compiled filter that ends the capture when it matches an event."""
    on_finding: bool = False


class SniffRun:
    """One run of ``sniff``."""

    def __init__(
        self,
        capture: live.LiveCapture,
        dissector: Dissector,
        view: View,
        *,
        form: str,
        human: bool,
        wanted: Any,
        stops: StopConditions,
        recorder: Recorder | None,
        findings: LiveFindings | None,
        decryption: LiveKeys | None = None,
        monitor: LiveMonitor | None = None,
    ) -> None:
        """``form``: a format of packets, or ``none``.  ``monitor``: gets all traffic."""
        self.capture = capture
        self.dissector = dissector
        self.stops = stops
        self.recorder = recorder
        self.findings = findings
        self.decryption = decryption
        self.monitor = monitor
        self.frames = 0
        self.packets = 0
        """Number of packets shown."""
        self.watch = CaptureWatch(progress=False, shown=human)
        self.skipped: Counter[str] = Counter()
        self.fragments = FragmentTable()
        self.sink = Output()
        if findings is not None:
            findings.show_in(self.sink)
        self.reporter = None if form == "none" else make_reporter(form, self.sink, view)
        self._flush_reporter = getattr(self.reporter, "flush", lambda: None)
        self._matches = getattr(wanted, "matches", None)
        self._until = getattr(stops.until, "matches", None)
        decoders = view.decoders()
        self._observe = decoders.observe if decoders is not None and decoders.remembers and wanted else None
        self._over = False
        self._reported_ready = False
        self._started = time.monotonic()
        self._deadline = float("inf")
        self._advance_at = 0.0
        capture.waiting = self._wait
        dissector.clock.machine = capture.clock.set_by_ns
        capture.watched = self._watched

    def execute(self) -> int:
        """Capture until something ends it; returns the exit code."""
        with self._handling_signals():
            source: Iterator[SegmentItem | Decrypted]
            frames = self._recorded(self.capture.frames())
            if self.monitor is not None:
                frames = self.monitor.frames(frames)
            source = segments(frames, self.skipped, self.fragments)
            if self.decryption is not None:
                source = self.decryption.join(source)
            if self.monitor is not None:
                source = self.monitor.segments(self.dissector.clock.follow(source))
            events = self.watch.events(dissect_segments(source, dissector=self.dissector))
            try:
                for event in events:
                    self._take(event)
                    if self._over:
                        break
            except (live.BadCaptureFilterError, live.CannotCaptureError) as error:
                raise _refused(error) from None
            except _RuleTimeout:
                warn("ended by the signal before all captured frames were read")
            except BrokenPipeError:
                # The reader of standard output is gone; the summary goes to standard error.
                self.capture.close()
                self._print_summary()
                raise
            except OSError as error:
                if self.recorder is not None and error.filename and not isinstance(error, BrokenPipeError):
                    raise CannotWriteError(f"--write: {error.filename}: {error.strerror or error}") from None
                raise
            finally:
                self._close()
        self._print_summary()
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
            # Close now, not at garbage collection: dumpcap has to end before the report.
            self.capture.close()

    def _take(self, event: Event) -> None:
        """Show and lint an event; events after the one that ended the capture are dropped."""
        if self._over:
            return
        findings = () if self.findings is None else self.findings.feed(event)
        if self._observe is not None:
            self._observe(event)
        if self.monitor is not None:
            self.monitor.feed(event, findings)
        if self._is_wanted(event):
            if self.reporter is not None:
                self.reporter.feed(event)
            if isinstance(event, PacketEvent | MalformedEvent):
                self.packets += 1
                self._over = self._over or self.packets == self.stops.packets
        if findings:
            # Show the packet before its findings.
            self._flush_reporter()
        for finding in findings:
            assert self.findings is not None
            verdict = self.findings.take(finding)
            self._over = self._over or (self.stops.on_finding and verdict.counts)
            if self.monitor is not None and verdict.is_occurrence:
                self.monitor.finding(finding)
        if self._until is not None and self._until(event):
            self._over = True

    def _is_wanted(self, event: Event) -> bool:
        return self._matches is None or isinstance(event, CaptureRemark) or self._matches(event)

    def _wait(self) -> None:
        """Called when all captured frames were handled: update the clock, the file and the screen."""
        now = time.monotonic()
        if not self._reported_ready and self.capture.ready:
            self._reported_ready = True
            self._started = now
            if self.stops.seconds is not None:
                self._deadline = now + self.stops.seconds
            warn(f"capturing on {self.capture.name}; Ctrl-C ends it")
        if self.decryption is not None:
            # Handle data that was decrypted without a new frame.
            for arrived in self.decryption.arrived():
                for item in self.dissector.clock.interleave(arrived):
                    self._feed(item)
        if self._over or (now >= self._deadline and not self.capture.stopping):
            self.capture.stop(settle=not self._over)
        if self.capture.silent and now >= self._advance_at:
            self._advance_at = now + ADVANCE_SECONDS
            if self.decryption is not None:
                self.decryption.advance(time.time_ns() - SILENCE_NS)
            for item in self.dissector.clock.release():
                self._feed(item)
            for event in advance(self.dissector, self.capture.clock.now_ns()):
                self._take(event)
        self._update_metrics()
        self._flush_reporter()
        self.sink.flush()
        if self.recorder is not None:
            self.recorder.flush()
        if self.findings is not None:
            self.findings.flush()

    def _update_metrics(self) -> None:
        """Update the time and the number of frames in the live metrics."""
        if self.monitor is not None:
            self.monitor.pass_live_time(self.capture, self.frames)

    def _watched(self) -> Sequence[int]:
        """Descriptors to watch for input."""
        return () if self.decryption is None else self.decryption.watched()

    def _feed(self, item: SegmentItem | Decrypted) -> None:
        """Handle an item that did not come from a new frame."""
        if self.monitor is not None:
            [item] = self.monitor.segments([item])
        for event in self.watch.events(self.dissector.take(item)):
            self._take(event)

    def _close(self) -> None:
        try:
            self._update_metrics()
            if self.reporter is not None:
                self.reporter.close()
            if self.findings is not None:
                self.findings.close(self.capture.name, truncated=bool(self.watch.errors))
            self.sink.flush()
        finally:
            if self.decryption is not None:
                self.decryption.close()
            self.capture.close()
            if self.recorder is not None:
                self.recorder.close()

    @contextmanager
    def _handling_signals(self) -> Iterator[None]:
        """End with reports on Ctrl-C and on the signals of service managers; a second signal ends at once."""

        def end(number: int, frame: object) -> None:
            if self.capture.stopping:
                raise interruption(number)
            self.capture.stop()
            limit_ending(number, EXIT_UNREADABLE)
            system.set_alarm(PATIENCE_SECONDS)

        def end_now(number: int, frame: object) -> None:
            raise _RuleTimeout

        alarm = system.alarm_signal()
        with handling(end), handling(end_now, () if alarm is None else (alarm,)):
            try:
                yield
            finally:
                system.set_alarm(0)

    def _print_summary(self) -> None:
        capture, dissector = self.capture, self.dissector
        seconds = time.monotonic() - self._started
        warn(
            f"{capture.name}: {counted(self.frames, 'frame')}, {counted(dissector.packets, 'packet')} of"
            f" {counted(dissector.connections, 'connection')} in {seconds:,.1f} s;"
            f" {counted(capture.dropped, 'frame')} dropped"
        )
        if self.recorder is not None:
            warn(self.recorder.summary())
        warn_all((*self._limits(), *(() if self.findings is None else self.findings.messages())))
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
            yield f"limit: {counted(flows.idle_flows, 'TCP connection')} discarded after {hours} idle hours"
        if flows.evicted_flows:
            yield (
                f"limit: {counted(flows.evicted_flows, 'TCP connection')} discarded: at most {flows.max_flows:,} are"
                " remembered"
            )
        if flows.total_limit_hits:
            yield (
                f"limit: {counted(flows.total_limit_hits, 'time')} out-of-order bytes were discarded: at most"
                f" {flows.budget.limit:,} are kept"
            )
        if self.fragments.evicted:
            yield f"limit: {counted(self.fragments.evicted, 'fragmented datagram')} discarded to make room"
        if self.monitor is not None and self.monitor.facts.unexplained:
            ends = counted(self.monitor.facts.unexplained, "end")
            yield f"limit: {ends} of connections not explained in the live metrics, because reading lagged"
        if self.monitor is not None and self.monitor.facts.forgotten:
            yield f"limit: {self.monitor.facts.forgotten:,} clients and topics were discarded by the live metrics"


def choose(names: Sequence[str]) -> tuple[str, ...]:
    """Interfaces to capture from: the named ones, each once, else the first non-loopback interface."""
    if names:
        if not all(names):
            raise CommandFailedError(
                "interface '' does not exist; mqttscope sniff --list-interfaces lists the interfaces"
            )
        return tuple(dict.fromkeys(names))
    available = _interfaces()
    if not available:
        raise CommandFailedError("this machine has no interface to capture from")
    return (next((interface for interface in available if not interface.loopback), available[0]).name,)


def _interfaces() -> list[live.CaptureInterface]:
    try:
        return live.interfaces()
    except live.CannotCaptureError as error:
        raise _refused(error) from None
    except MissingToolError as error:
        raise CommandFailedError(str(error)) from None


def live_capture(names: Sequence[str], bpf: str, ports: Sequence[int]) -> live.LiveCapture:
    with ErrorTranslation(CommandFailedError, MissingToolError, live.CannotCaptureError):
        return live.LiveCapture(names, capture_filter=capture_filter(bpf, ports))


def capture_filter(bpf: str, ports: Sequence[int]) -> str:
    """Capture filter for the kernel: TCP of the named ports, combined with the user's own filter."""
    of_ports = " or ".join(f"tcp port {port}" for port in sorted(ports))
    return " and ".join(f"({part})" for part in (of_ports, bpf.strip()) if part)


def record(target: str | None, ring_bytes: int | None, ring_files: int | None) -> Recorder | None:
    """Recorder for the file of ``--write``; an error if it cannot be written."""
    if target is None:
        return None
    with ErrorTranslation(CannotWriteError, OSError, ValueError, before=f"--write: {target}: "):
        return Recorder(target, ring_bytes=ring_bytes, ring_files=ring_files)


def listed() -> str:
    """Interfaces as a table."""
    available = _interfaces()
    width = max((len(interface.name) for interface in available), default=0)
    lines = []
    for interface in available:
        about = ", ".join((*interface.addresses, *filter(None, (interface.description,))))
        lines.append(f"{interface.name:<{width}}  {about}".rstrip() + "\n")
    return "".join(lines)


def _refused(error: live.CannotCaptureError) -> click.ClickException:
    if isinstance(error, live.NotPermittedError):
        return CommandFailedError(screen(error))
    if isinstance(error, live.BadCaptureFilterError):
        return click.UsageError(f"--bpf: {error}")
    return CommandFailedError(str(error))
