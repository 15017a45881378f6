"""``mqttscope sniff`` under observation: what it shows, how late, and what memory and processor time it takes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.bench.compare import ours
from tests.proxy.rig import processor_seconds

QUIET_SECONDS = 20.0
"""Time without a new packet after which packets that are missing count as lost."""
END_SECONDS = 60.0
MEGABYTE = 1 << 20

_PACKET = re.compile(rb'\{"schema":1,"event":"packet".*?"frame":(\d+).*?"timestamp_ns":(\d+).*?"type":"(\w+)"')
_RULE = re.compile(rb'"rule":"(\w+)"')
_DROPPED = re.compile(rb'"event":"capture_drops".*?"dropped":(\d+)')


@dataclass(slots=True)
class Sample:
    """What was to be seen of the processes at a moment."""

    megabytes: float
    """Resident memory of sniff."""
    dumpcap_megabytes: float
    cpu_seconds: float
    dumpcap_cpu_seconds: float


class Sniffer:
    """A running ``sniff --format jsonl`` of a port of loopback, whose lines are read and counted as they come."""

    def __init__(self, port: int, *arguments: str) -> None:
        self.packets: Counter[str] = Counter()
        """By type."""
        self.findings: Counter[str] = Counter()
        """By rule."""
        self.late = array("q")
        """Nanoseconds from the time of the frame until the line was read, of each packet."""
        self.frame = 0
        """Of the latest packet shown."""
        self.dropped = 0
        self.messages: list[str] = []
        """Standard error."""
        self._ready = threading.Event()
        self.running = subprocess.Popen(
            ours("sniff", "-i", "lo", "--port", str(port), "--format", "jsonl", "--no-config", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._read, self._hear)]
        for thread in self._threads:
            thread.start()
        # Its line about the capture, or the end of its standard error.
        self._ready.wait()
        if self.running.poll() is not None:
            self.end()
            raise SystemExit("sniff did not start: " + " ".join(self.messages))
        self.dumpcap = _children(self.running.pid)[0]

    def sample(self) -> Sample:
        """Memory and processor time until now."""
        own, dumpcap = self.running.pid, self.dumpcap
        return Sample(_resident(own), _resident(dumpcap), processor_seconds(own), processor_seconds(dumpcap))

    def settle(self, is_complete: Callable[[], bool]) -> None:
        """Wait until all packets are shown that are expected, or none comes any more."""
        seen, since = -1, time.monotonic()
        while not is_complete() and self.running.poll() is None:
            if self.packets.total() != seen:
                seen, since = self.packets.total(), time.monotonic()
            elif time.monotonic() - since > QUIET_SECONDS:
                return
            time.sleep(0.01)

    def end(self) -> int:
        """End it as Ctrl-C does, and read the rest; its exit code."""
        with suppress(ProcessLookupError):
            self.running.send_signal(signal.SIGINT)
        try:
            self.running.wait(END_SECONDS)
        finally:
            self.running.kill()
        for thread in self._threads:
            thread.join(END_SECONDS)
        for pipe in (self.running.stdout, self.running.stderr):
            if pipe is not None:
                pipe.close()
        return self.running.returncode

    def _read(self) -> None:
        assert self.running.stdout is not None
        descriptor, held = self.running.stdout.fileno(), b""
        while data := os.read(descriptor, 1 << 18):
            now = time.time_ns()
            *lines, held = (held + data).split(b"\n")
            for line in lines:
                self._count(line, now)

    def _count(self, line: bytes, now: int) -> None:
        if packet := _PACKET.match(line):
            self.frame = int(packet[1])
            self.late.append(now - int(packet[2]))
            self.packets[packet[3].decode()] += 1
        elif drops := _DROPPED.search(line):
            self.dropped += int(drops[1])
        elif rule := _RULE.search(line):
            self.findings[rule[1].decode()] += 1

    def _hear(self) -> None:
        assert self.running.stderr is not None
        for line in self.running.stderr:
            self.messages.append(line.decode("utf-8", "replace").strip())
            if "capturing on" in self.messages[-1]:
                self._ready.set()
        self._ready.set()


@contextmanager
def sniffing(port: int, *arguments: str) -> Iterator[Sniffer]:
    """A sniffer that ends with the body, if it did not before."""
    sniffer = Sniffer(port, *arguments)
    try:
        yield sniffer
    finally:
        if sniffer.running.poll() is None:
            sniffer.end()


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _resident(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MEGABYTE
    except (OSError, IndexError):
        return 0.0
