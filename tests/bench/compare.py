"""mqttscope against tshark, tcpdump and a small C program, on three captures, in turn: processor time and memory.

Standard library only, and no generator in this process: a child starts with the memory of its parent.  The figures go
to `FIGURES`, from which `mqttscope.dev.performance` makes docs/performance.md.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Container, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from tests.bench.printing import Out, say

FRAMES = 200_000
ROUNDS = 3
CAPTURES = ("clean", "unfriendly", "short")
QUIET_LOAD = 0.3
FOLDER = Path(__file__).resolve().parent
FIGURES = FOLDER / "figures.json"
YARDSTICK = "C program"
LINT = ("lint", "--no-config", "--exit-zero", "--format")
TSHARK = "tshark -T fields, 8 fields"
FEW_FIELDS = (
    "frame.number", "frame.time_epoch", "tcp.stream", "mqtt.msgtype", "mqtt.topic", "mqtt.qos", "mqtt.msgid",
    "mqtt.msg",
)  # fmt: skip
PLAIN_FIELDS = (
    "frame.number", "frame.time_epoch", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "tcp.srcport", "tcp.dstport",
    "tcp.stream", "tcp.len",
)  # fmt: skip
"""Fields of a line of mqttscope besides the packet."""


@dataclass(slots=True)
class Usage:
    """What one process took."""

    seconds: float
    user: float
    system: float
    peak_mb: float


@dataclass(slots=True)
class Program:
    """A command, and what it took in each round."""

    name: str
    command: list[str]
    count: Callable[[str], int] | None = None
    """Number of packets in the output, if the program counts packets."""
    is_exact: bool = True
    """Whether the packets must be those that were generated; tshark misses some."""
    environment: dict[str, str] = field(default_factory=dict)
    usages: list[Usage] = field(default_factory=list)
    packets: int | None = None

    def figures(self) -> dict[str, Any]:
        """The figures of all rounds."""
        return {
            "name": self.name,
            "kernel": self.environment.get("MQTTSCOPE_KERNEL", "") != "0" if self.environment else None,
            "seconds": round(min(usage.user + usage.system for usage in self.usages), 3),
            "megabytes": round(max(usage.peak_mb for usage in self.usages)),
            "packets": self.packets,
        }


def usage_of(
    command: Sequence[str | bytes],
    *,
    codes: Container[int] = (0,),
    output: IO[bytes] | int = subprocess.DEVNULL,
    **argument: Any,
) -> Usage:
    """Run a command, with its output thrown away unless it is wanted."""
    begun = time.perf_counter()
    running = subprocess.Popen(
        command, stdout=output, stderr=subprocess.DEVNULL, **{"env": environment_of({})} | argument
    )
    _, status, used = os.wait4(running.pid, 0)
    seconds = time.perf_counter() - begun
    running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode not in codes:
        raise SystemExit(f"{' '.join(map(str, command[:3]))} ... ended with {running.returncode}")
    scale = 1 << 10 if sys.platform != "darwin" else 1 << 20
    return Usage(seconds, used.ru_utime, used.ru_stime, used.ru_maxrss / scale)


def environment_of(changes: dict[str, str]) -> dict[str, str]:
    """The environment of a measured program; an installed program does not compile its sources each time."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return inherited | changes


def ours(*arguments: str) -> list[str]:
    """A command line of mqttscope."""
    script = Path(sys.executable).parent / "mqttscope"
    return [str(script), *arguments] if script.exists() else [sys.executable, "-m", "mqttscope", *arguments]


def measure(out: Out, frames: Sequence[int] = (FRAMES,), rounds: int = ROUNDS, figures: str | None = None) -> None:
    """Measure, and write the page; with ``figures``, write only the figures into this file."""
    load = os.getloadavg()[0]
    if load > QUIET_LOAD:
        say(f"the load is {load:.1f}: other programs are running and will disturb the figures")
    size = frames[0]
    with tempfile.TemporaryDirectory() as folder:
        yardstick, skipped = _compiled(Path(folder))
        document: dict[str, Any] = {
            "measured": f"{datetime.now(UTC):%Y-%m-%d}", "frames": size, "rounds": rounds, "load": round(load, 1),
            "machine": machine(), "skipped": skipped, "captures": {},
        }  # fmt: skip
        for name in CAPTURES:
            path, truth = _generated(size, name)
            programs = [*_others(path, yardstick, skipped), *_ours(path, Path(folder))]
            for program in programs:
                _check(program, truth["total"])
            for number in range(rounds):
                for program in programs:
                    say(f"{name}, round {number + 1} of {rounds}: {program.name}")
                    program.usages.append(usage_of(program.command, env=environment_of(program.environment)))
            document["captures"][name] = {
                "packets": truth["total"], "connections": truth["connections"],
                "megabytes": round(path.stat().st_size / 1e6, 1),
                "findings": _counted(ours(*LINT, "json", str(path)), {}, _findings),
                "programs": [program.figures() for program in programs],
            }  # fmt: skip
    target = FIGURES if figures is None else Path(figures)
    target.write_text(_stored(document), "utf-8")
    if figures is None:
        from mqttscope.dev.performance import PAGE, page

        PAGE.write_text(page(), "utf-8")
        out(f"wrote {PAGE.name}")


def _stored(document: dict[str, Any]) -> str:
    """The figures as JSON, with one line for each program."""
    text = json.dumps(document, indent=1)
    return re.sub(r'\{\s+("name"[^}]*?)\s+\}', lambda row: "{" + " ".join(row[1].split()) + "}", text) + "\n"


def machine() -> str:
    """The machine and the versions, in general words."""
    versions = [f"CPython {platform.python_version()}"]
    for program in ("tshark", "tcpdump"):
        if shutil.which(program):
            shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
            number = re.search(r"\d+(?:\.\d+)+", shown.stdout or shown.stderr)
            versions.append(f"{program} {number[0] if number else ''}")
    return f"{os.cpu_count()} processors ({platform.machine()}), {platform.system()}, {', '.join(versions)}"


def _others(path: Path, yardstick: Path | None, skipped: dict[str, str]) -> list[Program]:
    """The programs that mqttscope is compared with; ``skipped`` gets the reasons for missing ones."""
    programs = []
    if shutil.which("tshark"):
        base = ["tshark", "-n", "-r", str(path), "-Y", "mqtt", "-T", "fields"]
        many = [*PLAIN_FIELDS, *_mqtt_fields()]
        few = [*base, *(word for name in FEW_FIELDS for word in ("-e", name))]
        programs += [
            Program(TSHARK, few, _types, is_exact=False),
            Program(
                f"tshark -T fields, {len(many)} fields", [*base, *(word for name in many for word in ("-e", name))]
            ),
        ]
    else:
        skipped["tshark"] = "it is not installed"
    if shutil.which("tcpdump"):
        programs.append(Program("tcpdump", ["tcpdump", "-n", "-r", str(path)]))
    else:
        skipped["tcpdump"] = "it is not installed"
    if yardstick is not None:
        programs.append(Program(YARDSTICK, [str(yardstick), str(path)], _last_line))
    return programs


def _ours(path: Path, folder: Path) -> list[Program]:
    """The commands of mqttscope, without the native kernel and with it."""
    file, lake = str(path), str(folder / "lake")
    # A lake contains a capture once, so that each run begins with a new folder.
    ingest = f"rm -rf {lake}; exec {' '.join(ours('pipeline', 'ingest', file, '--lake', lake, '--format', 'json'))}"
    rows: list[tuple[str, list[str], Callable[[str], int] | None]] = [
        ("inspect --format jsonl", ours("inspect", "--format", "jsonl", file), _inspected),
        ("inspect", ours("inspect", file), None),
        ("stats", ours("stats", "--format", "json", file), _measured),
        ("lint", ours(*LINT, "json", file), _linted),
        ("lint --select ALL", ours(*LINT, "json", "--select", "ALL", file), _linted),
        ("explain --all", ours("explain", "--all", file), None),
        ("compare (twice the capture)", ours("compare", "--format", "json", file, file), None),
        ("redact", ours("redact", file, "--output", str(folder / "redacted.pcapng")), None),
        ("pipeline ingest", ["sh", "-c", ingest], _ingested),
    ]  # fmt: skip
    return [
        Program(name, command, count, environment={"MQTTSCOPE_KERNEL": kernel})
        for name, command, count in rows
        for kernel in ("0", "1")
    ]


def _last_line(text: str) -> int:
    return int(text.splitlines()[-1])


def _inspected(text: str) -> int:
    return text.count('"event":"packet"')


def _measured(text: str) -> int:
    return sum(json.loads(text)["totals"]["packets"].values())


def _linted(text: str) -> int:
    return int(json.loads(text)["summary"]["packets"])


def _ingested(text: str) -> int:
    document = json.loads(text)
    return int(document["rows"]["packets"] + document["open_rows"].get("packets", 0))


def _types(text: str) -> int:
    """Number of packets in the output of tshark, with all types of a frame in one column."""
    column = FEW_FIELDS.index("mqtt.msgtype")
    return sum(1 + line.split("\t")[column].count(",") for line in text.splitlines())


def _check(program: Program, generated: int) -> None:
    """Count the packets in the output of a program before it is timed; `SystemExit` if there are others."""
    if program.count is None:
        return
    program.packets = _counted(program.command, program.environment, program.count)
    if program.is_exact and program.packets != generated:
        raise SystemExit(f"{program.name}: {program.packets:,} packets were found, {generated:,} were generated")


def _findings(text: str) -> int:
    return len(json.loads(text)["findings"])


def _counted(command: list[str], environment: dict[str, str], count: Callable[[str], int]) -> int:
    """What ``count`` returns for the output of a command; in a process of its own, so that this one stays small."""
    with ProcessPoolExecutor(1) as pool:
        return pool.submit(_count, command, environment, count).result()


def _count(command: list[str], environment: dict[str, str], count: Callable[[str], int]) -> int:
    done = subprocess.run(command, capture_output=True, env=environment_of(environment), check=True)
    return count(done.stdout.decode("utf-8", "replace"))


def _compiled(folder: Path) -> tuple[Path | None, dict[str, str]]:
    """The yardstick, or the reason why there is none."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None, {YARDSTICK: "there is no C compiler"}
    program = folder / "yardstick"
    subprocess.run([compiler, "-O2", "-o", str(program), str(FOLDER / "yardstick.c")], check=True)
    return program, {}


def _generated(frames: int, traffic: str) -> tuple[Path, dict[str, Any]]:
    """A capture from another process, and its truth; read once, so that it is in memory for every program."""
    command = [sys.executable, "-m", "tests.bench", "generate", "--frames", str(frames), "--traffic", traffic]
    stdout = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    path = Path(stdout.split("\n", 1)[0])
    with path.open("rb") as file:
        while file.read(1 << 20):
            pass
    truth: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
    return path, truth | {"total": sum(truth["packets"].values())}


def _mqtt_fields() -> list[str]:
    """Every field of MQTT that tshark has."""
    # Line by line: the whole list would make this process, and so the measured memory of its children, larger.
    with subprocess.Popen(["tshark", "-G", "fields"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdout is not None
        rows = (line.split(b"\t") for line in running.stdout)
        return sorted({row[2].decode() for row in rows if row[0] == b"F" and row[2].startswith(b"mqtt.")})
