"""``sniff`` at a steady rate of messages: whether every packet is shown, how late, and with what memory and time."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from concurrent.futures import Future, ProcessPoolExecutor, wait
from pathlib import Path

from tests.bench import traffic
from tests.bench.printing import Out, heading, row, spread
from tests.bench.sniffer import sniffing
from tests.proxy.rig import mosquitto

RATE = 5_000
SECONDS = 60.0
EVERY_SECONDS = 10.0


def measure(out: Out, rate: int = RATE, seconds: float = SECONDS, *, lint: bool = False) -> bool:
    """Publish, watch, print a table and a verdict; whether every packet was shown."""
    with (
        tempfile.TemporaryDirectory(prefix="mqttscope-live-") as name,
        mosquitto(Path(name), traffic.BROKER, verbose=False) as broker,
        sniffing(broker.port, *(["--lint", "--exit-zero"] if lint else [])) as sniffer,
        # A process of its own: what it takes is not to delay the reading of lines here.
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
    ):
        columns = "PUBLISH shown", "RSS MB", "% of a processor", "dumpcap %", "dropped"
        heading(out, "seconds", *columns, texts=0)
        publishing = pool.submit(traffic.publish, broker.port, rate, seconds)
        while not sniffer.packets["publish"] and not publishing.done():
            time.sleep(0.01)
        began = row_at = time.monotonic()
        before = sniffer.sample()
        over = False
        while not over:
            over = _done(publishing, row_at + EVERY_SECONDS)
            now, took, row_at = sniffer.sample(), time.monotonic() - row_at, time.monotonic()
            own = (now.cpu_seconds - before.cpu_seconds) / took
            dumpcap = (now.dumpcap_cpu_seconds - before.dumpcap_cpu_seconds) / took
            shares = f"{own:.0%}", f"{dumpcap:.0%}", f"{sniffer.dropped:,}"
            row(out, f"{row_at - began:.0f}", f"{sniffer.packets['publish']:,}", f"{now.megabytes:.1f}", *shares)
            before = now
        sent, came = publishing.result()
        sniffer.settle(lambda: sniffer.packets["publish"] >= sent + came)
        code = sniffer.end()
    shown = sniffer.packets["publish"]
    out(
        f"\n{sent:,} published, {came:,} delivered: {sent + came:,} PUBLISH packets, {shown:,} shown;"
        f" {sniffer.dropped:,} frames dropped; exit code {code}."
    )
    if sniffer.late:
        median, late, latest = spread([number / 1e6 for number in sniffer.late])
        out(
            f"From the time of the frame to the line: median {median:.1f} ms, 99 % {late:.1f} ms,"
            f" at most {latest:.1f} ms."
        )
    for text in sniffer.messages:
        out(f"> {text}")
    return shown == sent + came and not code


def _done(publishing: Future[tuple[int, int]], at: float) -> bool:
    """Wait until everything is published, at most until a time; whether it is."""
    return bool(wait([publishing], max(0.0, at - time.monotonic())).done)
