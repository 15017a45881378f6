"""Damaged input, from every command and in every format: an answer in good time, never an exception.

Brokers that send without end, or not at all: `replay` and `mutate` end, in little memory, and soon when told to.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mqttscope.cli.main import EXIT_FAILED, EXIT_FINDINGS, EXIT_UNREADABLE
from tests.cli.running import FORMATS, capture, command, environment, invoke, run
from tests.each import some
from tests.forked import Forked
from tests.mqtt.cases import CASES
from tests.proxy import rig
from tests.replay.hostile import FLOODS, NAMES, Hostile

DAMAGED = (
    "alias-both-directions",
    "example-alias-length-too-short",
    "five-byte-length",
    "joined-after-alias",
    "lost-in-payload",
    "refused-connect",
    "snaplen-96",
    "tls-12",
    "v5-publish-properties",
    "websocket-deflate",
    "websocket-split",
)
COMMANDS = [("inspect", "--format", form) for form in FORMATS] + [
    ("stats", "--format", form) for form in ("text", "json")
]
ALL = [*COMMANDS, ("inspect", "--format", "tree", "--color", "--payload", "hex", "--show-secrets")]


def truncated(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """The beginnings of a capture: cut inside the section header, and anywhere."""
    for length in (*range(0, 40, 7), *sorted(chance.sample(range(40, len(data)), 6))):
        yield data[:length]


def flipped(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """Some bits of a capture changed, a few or many."""
    for count in (1, 3, 10, 30, 100, 300):
        changed = bytearray(data)
        for _ in range(count):
            # The blocks that open the file are left alone more often than not: after them is the interesting part.
            changed[chance.randrange(200, len(data))] ^= 1 << chance.randrange(8)
        yield bytes(changed)
    changed = bytearray(data)
    for _ in range(5):
        changed[chance.randrange(200)] ^= 1 << chance.randrange(8)
    yield bytes(changed)


def nonsense(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """Random bytes alone, after a good header, and in the middle of a capture."""
    yield chance.randbytes(3_000)
    yield data[:200] + chance.randbytes(3_000)
    middle = len(data) // 2
    yield data[:middle] + chance.randbytes(200) + data[middle:]


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("words", ALL, ids=" ".join)
@pytest.mark.parametrize("damage", [truncated, flipped, nonsense], ids=lambda damage: str(damage.__name__))
@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_captures(name: str, damage: object, words: tuple[str, ...]) -> None:
    assert callable(damage)
    data = capture(name).read_bytes()
    for argument in damage(data, random.Random(f"{name} {words}")):
        # An exception would be raised here: `invoke` asks for tracebacks.
        done = invoke(words[0], "-", *words[1:], stdin=argument)
        assert done.code in (0, 3)
        if done.code == 3:
            assert done.err.startswith("mqttscope: -: ")
        if words[-1] == "jsonl":
            assert all(line["schema"] == 1 for line in done.lines)
        if "--color" not in words:
            assert b"\x1b" not in done.out


@pytest.mark.timeout(120)
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_damaged_captures_of_the_program_itself(words: tuple[str, ...]) -> None:
    data = capture("v5-qos").read_bytes()
    for raw in (data[:3_000], *list(flipped(data, random.Random(1)))[5:6]):
        done = run(words[0], "-", *words[1:], stdin=raw)
        assert done.code in (0, 3)
        assert "Traceback" not in done.err
        assert "internal error" not in done.err


@pytest.mark.timeout(120)
@pytest.mark.parametrize("version", some(["auto", "5.0", "3.1", "3.1.1"], 4))
@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_damaged_packets(form: str, version: str) -> None:
    chance = random.Random(f"{form} {version}")
    lines = [chance.randbytes(chance.randrange(40)) for _ in range(150)]
    for case in chance.sample(CASES, 150):
        changed = bytearray(case.raw)
        for _ in range(chance.randrange(4) if changed else 0):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        lines.append(bytes(changed))
    raw = b"\n".join(line.hex().encode() for line in lines)
    done = invoke("decode", "-", "--format", form, "--mqtt-version", version, stdin=raw)

    assert (done.code, done.err) == (1, "")
    assert b"\x1b" not in done.out
    if form == "jsonl":
        assert {line["line"] for line in done.lines} == {number for number, line in enumerate(lines, 1) if line}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_lines_of_anything(form: str) -> None:
    raw = random.Random(form).randbytes(20_000)
    done = invoke("decode", "-", "--format", form, stdin=raw)

    assert done.code == 3
    assert "Traceback" not in done.err
    assert all(line.startswith("mqttscope: line ") for line in done.err.splitlines())


@pytest.mark.timeout(120)
@pytest.mark.parametrize("form", ["text", "jsonl"])
@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"\xc0\0" * 2_000, 0),
        (b"\x30\xff\xff\xff\x7f" + bytes(20_000), 1),
        (b"\x82\xff\x7f" + bytes(16_383), 0),
        (b"\xff" * 5_000, 1),
    ],
    ids=["many packets", "a length never reached", "many empty filters", "a bad length again and again"],
)
def test_long_lines(raw: bytes, code: int, form: str) -> None:
    assert invoke("decode", "-", "--format", form, stdin=raw.hex().encode()).code == code


MOST_BYTES = 320 * 1024 * 1024
"""Resident memory at its peak.  Without limits pings take as much within seconds, and ever more."""
BOUND_S = 120.0
"""Far above what these runs take, and far below one that does not end."""
END_S = 15.0
"""Two seconds are meant, of a processor that has nothing else to do."""
FLOODED_S = 1.0
"""How long a broker has sent before the run is stopped."""


def quick(names: Iterable[str], *arguments: str) -> list[Any]:
    """Those of the names that are tried each time, and the others as what takes minutes."""
    return [name if name in arguments else pytest.param(name, marks=pytest.mark.exhaustive) for name in names]


def stops(names: Iterable[str], **text: str) -> list[Any]:
    """Each of the names with each signal, of which those kept are tried each time."""
    return [
        pytest.param(
            name, getattr(signal, how), id=f"{name}-{how}",
            marks=() if text.get(name) == how else pytest.mark.exhaustive,
        )
        for name in names
        for how in ("SIGINT", "SIGTERM")
    ]  # fmt: skip


@dataclass(slots=True)
class Flood:
    """A hostile broker in a process of its own, since a flood takes a whole processor."""

    process: subprocess.Popen[str]
    port: int

    def goes_on(self) -> None:
        """Wait until it has had a client, for a while."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "heard\n"
        time.sleep(FLOODED_S)


@contextmanager
def flood(name: str, upstream: int = 0) -> Iterator[Flood]:
    """Such a broker."""
    words = [sys.executable, "-m", "tests.replay.hostile", name, "0", str(upstream)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        try:
            yield Flood(process, int(process.stdout.readline()))
        finally:
            process.kill()


@contextmanager
def broker(name: str, upstream: int = 0) -> Iterator[int]:
    """The port of such a broker."""
    with flood(name, upstream) as new_flood:
        yield new_flood.port


@dataclass(slots=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    most_bytes: int
    after_signal_s: float = 0.0

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def ran(*words: str | Path, folder: Path, stop: Callable[[], None] | None = None, how: int = signal.SIGTERM) -> Ran:
    """Run the command line; after ``stop`` returns it gets a signal."""
    out = folder / "out"
    with out.open("wb") as file:
        # The memory that is measured is that of a process which has nothing of another.
        kind = subprocess.Popen if stop is None else Forked
        process = kind(command(*words), stdout=file, stderr=file, env=environment())
    # Whoever hangs is killed, and has failed.
    killer = threading.Timer(BOUND_S, process.kill)
    killer.start()
    began = time.monotonic()
    if stop is not None:
        stop()
        process.send_signal(how)
        began = time.monotonic()
    peak = 0
    while process.poll() is None:
        peak = max(peak, largest(process.pid))
        time.sleep(0.02)
    killer.cancel()
    return Ran(process.returncode, out.read_text("utf-8"), peak, time.monotonic() - began)


def largest(process: int) -> int:
    """The most memory that a process has had.  `wait4` counts that of the process it was forked from."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def replayed(port: int, folder: Path, *options: str, **more: Any) -> Ran:
    return ran(
        "replay", capture("v5-qos"), "--broker", f"mqtt://127.0.0.1:{port}", "--no-config", "--pace", "asap", *options,
        folder=folder, **more,
    )  # fmt: skip


def mutated(port: int, folder: Path, *options: str, **more: Any) -> Ran:
    return ran("mutate", capture("v311-qos"), "--broker", f"mqtt://127.0.0.1:{port}", *options, folder=folder, **more)


@pytest.mark.long
@pytest.mark.parametrize("name", quick(NAMES, "pings", "to-acknowledge", "huge", "nonsense", "deaf"))
def test_a_replay_ends_whatever_the_broker_sends(name: str, tmp_path: Path) -> None:
    with broker(name) as port:
        done = replayed(port, tmp_path, "--wait", "0.4", "--format", "jsonl")

    assert done.code == EXIT_FAILED, done.out
    (summary,) = [line for line in done.lines if line["event"] == "replay"]
    assert not summary["stopped"]
    assert done.most_bytes < MOST_BYTES


@pytest.mark.long
@pytest.mark.parametrize("name", ["pings", "to-acknowledge"])
def test_what_is_not_kept_of_a_flood_is_said(name: str, tmp_path: Path) -> None:
    text = "packets beyond the recording not kept, compared or measured"
    with broker(name) as port:
        # How long it takes until the limit is reached depends on what else the machine does.
        for wait in ("1.5", "6", "24"):
            done = replayed(port, tmp_path, "--wait", wait, "--verify")
            if text in done.out:
                break

    assert done.code in (EXIT_FINDINGS, EXIT_FAILED)
    assert "stopped before its end" not in done.out
    assert text in done.out
    assert "the limit is 32 MiB of a connection, and 256 MiB of all" in " ".join(done.out.split())
    assert done.most_bytes < MOST_BYTES


@pytest.mark.long
def test_a_packet_above_all_limits_is_passed_over_and_said(tmp_path: Path) -> None:
    """256 MB are announced, and they come."""
    with broker("huge") as port:
        done = replayed(port, tmp_path, "--wait", "1.5")

    assert done.code == EXIT_FAILED
    assert "stopped before its end" not in done.out
    assert "a packet of more than 16,777,216 bytes was not kept" in done.out
    assert done.most_bytes < MOST_BYTES // 2


@pytest.mark.parametrize(
    ("name", "how"), stops(["pings", "to-acknowledge", "connacks", "silent", "deaf"], pings="SIGINT", deaf="SIGTERM")
)
def test_a_replay_can_be_stopped(name: str, how: int, tmp_path: Path) -> None:
    with flood(name) as new_flood:
        done = replayed(new_flood.port, tmp_path, "--wait", "60", "--verify", stop=new_flood.goes_on, how=how)

    assert done.code == EXIT_FAILED, done.out
    assert "stopped before its end" in done.out
    assert "because the replay was stopped" in done.out
    assert done.after_signal_s < END_S


@pytest.mark.long
@pytest.mark.parametrize("name", quick([*FLOODS, "silent"], "pings", "huge", "silent"))
def test_a_broker_without_end_is_no_broker_for_mutate(name: str, tmp_path: Path) -> None:
    with broker(name) as port:
        done = mutated(port, tmp_path, "--mutation", "publish:qos-3", "--wait", "0.4")

    assert done.code == EXIT_UNREADABLE, done.out
    assert "floods its clients" in done.out or "does not answer CONNECT" in done.out
    assert done.most_bytes < MOST_BYTES


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.parametrize("name", quick(["pings", "to-acknowledge", "huge"], "to-acknowledge"))
def test_mutate_ends_its_cases_in_a_flood(name: str, tmp_path: Path) -> None:
    """Our own clients are served, and every connection of a case is flooded."""
    with rig.mosquitto(tmp_path) as real, broker(name, real.port) as port:
        done = mutated(port, tmp_path, "--mutation", "publish:qos-3,publish:dup-qos-0", "--wait", "0.3", "--cases", "2")

    assert "Traceback" not in done.out
    assert "cases against" in done.out or "case against" in done.out, done.out
    assert done.most_bytes < MOST_BYTES


@pytest.mark.broker
@pytest.mark.parametrize(
    ("name", "how"), stops(["pings", "to-acknowledge", "mute", "silent", "deaf"], pings="SIGTERM", mute="SIGINT")
)
def test_mutate_can_be_stopped(name: str, how: int, tmp_path: Path) -> None:
    with rig.mosquitto(tmp_path) as real, flood(name, real.port) as new_flood:
        done = mutated(
            new_flood.port,
            tmp_path,
            "--wait",
            "30",
            "--reduce",
            str(tmp_path / "found"),
            stop=new_flood.goes_on,
            how=how,
        )

    assert done.code == EXIT_UNREADABLE, done.out
    assert "ended early: interrupted" in done.out
    assert done.after_signal_s < END_S


def test_the_helper_is_what_it_says() -> None:
    """A flood floods; else nothing here would prove anything."""
    import socket

    hostile = Hostile("pings")
    with hostile.listen() as server:
        threading.Thread(target=hostile.take, args=(server,), daemon=True).start()
        with socket.create_connection(server.getsockname()) as client:
            client.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a")
            heard = 0
            while heard < 1 << 20:
                heard += len(client.recv(1 << 16))
        hostile.end()
