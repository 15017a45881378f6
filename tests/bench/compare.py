"""mqttscope against tshark on the same captures, in turn, with time, processor time and memory of each process.

Standard library only, and no generator in this process: what a child is charged for memory begins with its parent's.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import IO, Any

from tests.bench.printing import Out, heading, row, say

SIZES = (250_000, 1_000_000)
ROUNDS = 3
SMALL_ROUNDS = 15
WRONG = 0.1
"""Share of packets that break the specification, in the capture of which much is found."""
FEW_PACKETS = Path(__file__).resolve().parent.parent.parent / "captures" / "v5-session-present" / "capture.pcapng"
"""Eleven packets in 36 frames."""
PLAIN_FIELDS = (
    "frame.number", "frame.time_epoch", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "tcp.srcport", "tcp.dstport",
    "tcp.stream", "tcp.len",
)  # fmt: skip
"""What a line of ours says beside the packet."""
TYPES = (
    "", "connect", "connack", "publish", "puback", "pubrec", "pubrel", "pubcomp", "subscribe", "suback",
    "unsubscribe", "unsuback", "pingreq", "pingresp", "disconnect",
)  # fmt: skip
IN_ORDER = "tcp.reassemble_out_of_order:TRUE"
QUIET_LOAD = 0.3


@dataclass(slots=True)
class Usage:
    """What one process took."""

    seconds: float
    user: float
    system: float
    peak_mb: float


@dataclass(slots=True)
class Contender:
    """A command and what it took in each round."""

    name: str
    command: list[str]
    usages: list[Usage] = field(default_factory=list)

    def median(self, name: str) -> float:
        """Of all rounds."""
        return float(median(getattr(usage, name) for usage in self.usages))


def usage_of(
    command: Sequence[str | bytes],
    *,
    codes: Container[int] = (0,),
    output: IO[bytes] | int = subprocess.DEVNULL,
    **given: Any,
) -> Usage:
    """Run a command, with its output thrown away unless it is wanted."""
    # Who has installed a program does not compile its sources each time.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begun = time.perf_counter()
    running = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL, **{"env": environment} | given)
    _, status, used = os.wait4(running.pid, 0)
    seconds = time.perf_counter() - begun
    running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode not in codes:
        raise SystemExit(f"{' '.join(map(str, command[:3]))} ... ended with {running.returncode}")
    scale = 1 << 10 if sys.platform != "darwin" else 1 << 20
    return Usage(seconds, used.ru_utime, used.ru_stime, used.ru_maxrss / scale)


def measure(out: Out, frames: Sequence[int] = SIZES, rounds: int = ROUNDS) -> None:
    """Print the whole comparison as Markdown."""
    load = os.getloadavg()[0]
    if load > QUIET_LOAD:
        say(f"the load is {load:.1f}: other programs are running and will disturb the figures")
    out(machine(load, rounds, frames))
    peaks: dict[str, list[float]] = {}
    for size in frames:
        path, truth = _generated(size)
        check(path, truth)
        out(f"\n### {size:,} frames\n\n{_contents(truth, path)}\n")
        contenders = large(path)
        run(contenders, rounds)
        table(out, contenders, size)
        if shutil.which("tshark"):
            out(f"\n{_found_by_tshark(path, truth)}")
        for one in contenders:
            peaks.setdefault(one.name, []).append(one.median("peak_mb"))
    if len(frames) > 1:
        sizes = [f"{size:,}" for size in frames]
        out(f"\n### Peak memory with {' and '.join(sizes)} frames\n")
        heading(out, "command", *sizes)
        for name, values in peaks.items():
            row(out, name, *(f"{value:,.0f} MB" for value in values))
    path, truth = _generated(frames[0], WRONG)
    out(f"\n### {frames[0]:,} frames, one in {round(1 / WRONG)} packets breaks the specification\n")
    out(f"{_contents(truth, path)}\n")
    contenders = [one for one in large(path) if "lint" in one.name or one.name.startswith("tshark -Y mqtt -T fields (")]
    contenders.sort(key=lambda one: "lint" not in one.name)
    run(contenders, rounds)
    table(out, contenders, frames[0])
    out("\n### Start: a capture of eleven packets\n")
    contenders = small(FEW_PACKETS)
    run(contenders, SMALL_ROUNDS)
    table(out, contenders, None)


def run(contenders: list[Contender], rounds: int) -> None:
    """Let all commands run in turn, so that whatever disturbs them disturbs all."""
    for number in range(rounds):
        for one in contenders:
            one.usages.append(usage_of(one.command))
            if one.usages[-1].seconds > 1:
                say(f"round {number + 1} of {rounds}: {one.name}: {one.usages[-1].seconds:.1f} s")


def ours(*arguments: str) -> list[str]:
    """A command line of mqttscope."""
    script = Path(sys.executable).parent / "mqttscope"
    return [str(script), *arguments] if script.exists() else [sys.executable, "-m", "mqttscope", *arguments]


def large(path: Path) -> list[Contender]:
    """What is compared on a large capture; the first one is what the others are measured by."""
    file = str(path)
    found = [Contender("mqttscope inspect --format jsonl", ours("inspect", "--format", "jsonl", file))]
    if shutil.which("tshark"):
        chosen = [argument for name in [*PLAIN_FIELDS, *_mqtt_fields()] for argument in ("-e", name)]
        count = len(chosen) // 2
        base, fields = ["tshark", "-n", "-r", file], ["-T", "fields", *chosen]
        found += [
            Contender(f"tshark -Y mqtt -T fields ({count} fields)", [*base, "-Y", "mqtt", *fields]),
            Contender(f"tshark -T fields ({count} fields)", [*base, *fields]),
            Contender("tshark -Y mqtt -T fields, in order", [*base, "-o", IN_ORDER, "-Y", "mqtt", *fields]),
            Contender("tshark -T ek -J mqtt", [*base, "-T", "ek", "-J", "mqtt"]),
            Contender("tshark -Y mqtt (one line each)", [*base, "-Y", "mqtt"]),
        ]
    found += [
        Contender("mqttscope inspect (text)", ours("inspect", file)),
        Contender("mqttscope stats", ours("stats", file)),
        # Every rule of the specifications; the capture conforms, so that all of it is rules and no output.
        Contender("mqttscope lint", ours("lint", "--no-config", "--exit-zero", "--format", "jsonl", file)),
    ]
    return found


def small(path: Path) -> list[Contender]:
    """What is compared on a capture of a few packets."""
    file = str(path)
    found = [
        Contender("mqttscope inspect", ours("inspect", file)),
        Contender("mqttscope --version", ours("--version")),
        Contender("mqttscope inspect --format jsonl", ours("inspect", "--format", "jsonl", file)),
    ]
    if shutil.which("tshark"):
        found.append(Contender("tshark --version", ["tshark", "--version"]))
        found.append(Contender("tshark -r", ["tshark", "-n", "-r", file]))
    return found


def table(out: Out, contenders: list[Contender], frames: int | None) -> None:
    """Print medians; ratios are medians of the ratios within the rounds."""
    heading(out, "command", "seconds", *(["frames/s"] if frames else []), "user s", "peak MB", "times the first")
    first = contenders[0].usages
    for one in contenders:
        seconds = one.median("seconds")
        ratio = median(usage.seconds / base.seconds for usage, base in zip(one.usages, first, strict=True))
        times = [f"{seconds:.2f}", f"{frames / seconds:,.0f}"] if frames else [f"{seconds:.3f}"]
        user, peak = f"{one.median('user'):.2f}", f"{one.median('peak_mb'):,.0f}"
        row(out, f"`{one.name}`", *times, user, peak, f"{ratio:.2f}")


def check(path: Path, truth: dict[str, object]) -> None:
    """The gate before any time is taken: exactly the packets that were generated come out."""
    found: Counter[str] = Counter()
    events: Counter[str] = Counter()
    with subprocess.Popen(ours("inspect", "--format", "jsonl", str(path)), stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        pattern = re.compile(rb'"event":"(\w+)".*?"type":"(\w+)"|"event":"(\w+)"')
        for line in running.stdout:
            event = pattern.search(line)
            assert event is not None
            name = (event[1] or event[3]).decode()
            events[name] += 1
            if name == "packet":
                found[event[2].decode()] += 1
    if found != truth["packets"]:
        raise SystemExit(f"{path}: {dict(found)} was found, {truth['packets']} was generated")
    strange = {name: count for name, count in events.items() if name in ("malformed", "unparsed", "gap")}
    if strange or events["connection_opened"] != truth["connections"]:
        raise SystemExit(f"{path}: {dict(events)} is not what was generated")
    say(f"{path.name}: {events['packet']:,} packets, exactly those that were generated")


def machine(load: float, rounds: int, sizes: Sequence[int]) -> str:
    """Where and how this was measured."""
    facts = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", facts.read_text()) if facts.exists() else []
    tshark = "no tshark"
    if shutil.which("tshark"):
        said = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=True).stdout
        tshark = said.splitlines()[0].partition(" (Git")[0]
    again = " ".join(f"--frames {size}" for size in sizes)
    return (
        f"{datetime.now(UTC):%Y-%m-%d}: {names[0] if names else platform.processor()}, {os.cpu_count()} cores, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}, {tshark}; load before "
        f"{load:.1f}; medians of {rounds} rounds.\n"
        f"Again with `python -m tests.bench compare {again} --rounds {rounds}`."
    )


def _contents(truth: dict[str, object], path: Path) -> str:
    packets = truth["packets"]
    assert isinstance(packets, dict)
    return (
        f"{sum(packets.values()):,} packets of {truth['connections']:,} connections, "
        f"{path.stat().st_size / 1e6:,.0f} MB; all of them found, and no others."
    )


def _found_by_tshark(path: Path, truth: dict[str, object]) -> str:
    """How many of the packets tshark finds, by their types."""
    generated = truth["packets"]
    assert isinstance(generated, dict)
    said = []
    for options in ([], ["-o", IN_ORDER]):
        found: Counter[str] = Counter()
        command = ["tshark", "-n", "-r", str(path), *options, "-Y", "mqtt", "-T", "fields", "-e", "mqtt.msgtype"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
            assert running.stdout is not None
            for line in running.stdout:
                found.update(line.strip().split(","))
        right = sum(min(found[str(number)], generated.get(name, 0)) for number, name in enumerate(TYPES))
        said.append(f"{sum(generated.values()) - right:,} packets and finds {found.total() - right:,} that nobody sent")
    return f"tshark misses {said[0]}; with `-o {IN_ORDER}` it misses {said[1]}."


def _generated(frames: int, wrong: float = 0.0) -> tuple[Path, dict[str, object]]:
    """A capture from another process, and its truth; read once, so that it lies in memory for everybody."""
    command = [sys.executable, "-m", "tests.bench", "generate", "--frames", str(frames), "--wrong", str(wrong)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    path = Path(said.split("\n", 1)[0])
    with path.open("rb") as file:
        while file.read(1 << 20):
            pass
    truth = json.loads(path.with_suffix(".json").read_text())
    assert isinstance(truth, dict)
    return path, truth


def _mqtt_fields() -> list[str]:
    """Every field that tshark knows of MQTT."""
    # Line by line: the whole list would make this process, and so the measured memory of its children, larger.
    with subprocess.Popen(["tshark", "-G", "fields"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdout is not None
        rows = (line.split(b"\t") for line in running.stdout)
        return sorted({row[2].decode() for row in rows if row[0] == b"F" and row[2].startswith(b"mqtt.")})
