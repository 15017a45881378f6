"""An hour of ``sniff`` in less time: very many connections, a ring of files beside them, and what memory they leave.

Connections that are over are remembered for two minutes of capture time: memory is to stay the same from then on.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from mqttscope.capture import open_capture
from mqttscope.net.frame import CaptureError, Frame
from tests.bench.compare import ours
from tests.bench.printing import Out, heading, row
from tests.bench.sniffer import Sniffer, sniffing
from tests.bench.traffic import BROKER, Crowd
from tests.proxy.rig import mosquitto

CONNECTIONS = 72_000
"""An hour at twenty per second."""
RATE = 240.0
RING_FILES = 5
EVERY_SECONDS = 20
"""One row of the table for so many samples, of which there is one per second."""


def measure(out: Out, connections: int = CONNECTIONS, rate: float = RATE) -> bool:
    """Let clients come, watch, print a table and a verdict; whether everything is as it should be."""
    with (
        tempfile.TemporaryDirectory(prefix="mqttscope-soak-") as name,
        mosquitto(Path(name), BROKER, verbose=False) as broker,
    ):
        ring = Path(name) / "ring"
        ring.mkdir()
        arguments = ("--write", str(ring / "ring.pcapng"), "--ring-size", "1", "--ring-files", str(RING_FILES))
        with sniffing(broker.port, *arguments, "--lint", "--exit-zero") as sniffer:
            crowd = Crowd(broker.port)
            most = asyncio.run(_watch(out, crowd, sniffer, ring, connections, rate))
            code = sniffer.end()
        files = sorted(ring.iterdir())
        most = max(most, len(files))
        wrong = [f"sniff ended with {code}"] if code else []
        if most > RING_FILES:
            wrong.append(f"{most} files at a time, {RING_FILES} asked for")
        for path in files:
            wrong += unreadable(path, broker.port)
    wrong += [f"{number:,} connections failed: {what}" for what, number in crowd.failed.items()]
    wrong += [
        f"{kind.upper()}: {crowd.sent[kind]:,} sent, {sniffer.packets[kind]:,} shown"
        for kind in sorted({*crowd.sent, *sniffer.packets})
        if crowd.sent[kind] != sniffer.packets[kind]
    ]
    text = ", ".join(f"{rule} {number:,} times" for rule, number in sniffer.findings.most_common()) or "none"
    out(
        f"\n{crowd.over:,} connections, {crowd.sent.total():,} packets sent, {sniffer.packets.total():,} shown;"
        f" {sniffer.dropped:,} frames dropped; at most {most} files at a time, {len(files)} read at the end.\n"
        f"Findings: {text}."
    )
    for reported_text in sniffer.messages:
        out(f"> {reported_text}")
    for single_text in wrong:
        out(f"**{single_text}**")
    return not wrong


async def _watch(out: Out, crowd: Crowd, sniffer: Sniffer, ring: Path, connections: int, rate: float) -> int:
    """Print a row every `EVERY_SECONDS` while clients come; the most files there were."""
    heading(out, "seconds", "connections", "frames", "RSS MB", "dumpcap MB", "files", "dropped", texts=0)
    coming = asyncio.create_task(crowd.come(connections, rate))
    began, samples, most, highest = time.monotonic(), 0, 0, 0.0

    def show() -> None:
        memory = f"{highest:.1f}", f"{now.dumpcap_megabytes:.1f}"
        counts = f"{crowd.over:,}", f"{sniffer.frame:,}", *memory, str(files), f"{sniffer.dropped:,}"
        row(out, f"{time.monotonic() - began:.0f}", *counts)

    while not coming.done():
        await asyncio.wait([coming], timeout=1.0)
        samples += 1
        now, files = sniffer.sample(), len(list(ring.iterdir()))
        most, highest = max(most, files), max(highest, now.megabytes)
        if samples % EVERY_SECONDS == 0:
            show()
            highest = 0.0
    await coming
    sniffer.settle(lambda: sniffer.packets.total() >= crowd.sent.total())
    now, files = sniffer.sample(), len(list(ring.iterdir()))
    highest = now.megabytes
    show()
    return max(most, files)


def unreadable(path: Path, port: int) -> list[str]:
    """What is wrong with a file, for mqttscope and for tshark, where it is there."""
    frames, wrong = 0, []
    for item in open_capture([str(path)]):
        frames += isinstance(item, Frame)
        if isinstance(item, CaptureError):
            wrong.append(f"{path.name}: {item.message}")
    if not frames:
        wrong.append(f"{path.name}: no frames")
    code, _, texts = _run(ours("inspect", "--no-color", "--format", "jsonl", "--port", str(port), str(path)))
    if code or texts:
        wrong.append(f"{path.name}: inspect ended with {code}: {' '.join(texts)}")
    tshark = shutil.which("tshark")
    if tshark is not None:
        code, lines, texts = _run([tshark, "-n", "-r", str(path), "-T", "fields", "-e", "frame.number"])
        texts = [line for line in texts if not line.startswith("Running as user")]
        if code or texts or lines != frames:
            wrong.append(f"{path.name}: tshark ended with {code}, {lines} of {frames} frames: {' '.join(texts)}")
    return wrong


def _run(command: Sequence[str]) -> tuple[int, int, list[str]]:
    """Exit code, lines on standard output, and standard error of a program."""
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    texts = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    return done.returncode, done.stdout.count(b"\n"), texts
