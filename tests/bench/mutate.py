"""``mutate`` beside a loop over nc and beside random bytes: cases per second, and how much of a broker they show.

* Cases per second: ``mqttscope mutate``, the same cases as CONNECT and mutated bytes through ``nc`` (`loop`), and the
  random baseline of the catalogue through ``mqttscope mutate``; in turns, against one mosquitto.
* Distinct reactions: as many cases of the catalogue as of its random baseline, played by the same player and watched
  alike.  A reaction is what `reaction` makes of what came back.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from mqttscope.broker_test.drivers.probe_client import BrokerAccess
from mqttscope.broker_test.drivers.run import BrokerTest, longest_s
from mqttscope.broker_test.fit import Numbered, Numbering, capture_hash, fitted, flow_of
from mqttscope.broker_test.verdict import Observation
from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.mqtt import Malformed, PacketType
from mqttscope.mutate import Action, Case, Demand, Reaction, RecordedFlow, cases
from mqttscope.mutate.flow import CLIENT
from mqttscope.replay.script import Script, read_scripts
from mqttscope.report.broker_test.outcome import CASE
from mqttscope.transport.target import parse_broker
from tests.bench import traffic
from tests.bench.compare import Usage, usage_of
from tests.bench.printing import Out, heading, row
from tests.cli.running import capture, command, environment
from tests.proxy.rig import mosquitto

CASES = 200
ROUNDS = 3
REACTION_CASES = 1_000
SEEDS = 3
CAPTURE = "v5-qos"
CAPTURES = ("v31-qos", "v311-qos", "v5-qos")
RANDOM = "random"
STRUCTURED = ",".join([*(one.name.lower() for one in PacketType), "flow"])
"""All mutations but the random ones."""
SHORTEST_S = 0.001
"""Cases with any pause are left out: how long they take says nothing about the program."""
PATIENCE_S = 0.5
MANY = 10_000
"""Turns through the catalogue: enough for any number of cases."""
PROGRAMS = {"mosquitto": "mosquitto", "nc": "netcat-openbsd", "xxd": "xxd", "bash": "bash"}
"""What has to be installed, and the Debian packages that have it."""
USUAL, FASTEST = "-w 1", "-N -w 1"
"""Options of nc: as it is used, which waits a second wherever the broker keeps the connection; and with the end of the
stream after the last byte, so that the broker answers and closes (``-q 0`` implies it)."""


def measure(
    out: Out, cases: int = CASES, rounds: int = ROUNDS, reactions: int = REACTION_CASES, seeds: int = SEEDS
) -> bool:
    """Both tables; whether everything could be measured."""
    absent = missing()
    if absent:
        out(f"Not measured: {', '.join(f'{name} (package {package})' for name, package in absent)} is missing.")
        return False
    with (
        tempfile.TemporaryDirectory(prefix="mqttscope-mutate-") as name,
        mosquitto(Path(name), traffic.BROKER, verbose=False) as broker,
    ):
        same = speed(out, Path(name), broker.port, cases, rounds)
        asyncio.run(variety(out, broker.port, reactions, seeds))
    return same


def missing() -> list[tuple[str, str]]:
    """Programs that are not there, or are another program of that name, with their packages."""
    absent = []
    for name, package in PROGRAMS.items():
        found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
        if found is not None and name == "nc":
            told = subprocess.run([found, "-h"], capture_output=True, text=True, check=False)
            found = found if "OpenBSD" in told.stdout + told.stderr else None
        if found is None:
            absent.append((name, package))
    return absent


# Cases per second


@dataclass(slots=True)
class Took:
    """What a command took for its cases."""

    cases: int
    usage: Usage

    @property
    def rate(self) -> float:
        """Cases per second."""
        return self.cases / self.usage.seconds

    @property
    def cpu_ms(self) -> float:
        """Processor milliseconds for each case; the broker's are not counted."""
        return 1_000 * (self.usage.user + self.usage.system) / self.cases


def speed(out: Out, folder: Path, port: int, number: int, rounds: int) -> bool:
    """The table of cases per second; whether ``mutate`` played exactly the cases that nc got."""
    path = capture(CAPTURE)
    chosen = asyncio.run(first_cases(port, path, number))
    lines = folder / "cases.hex"
    lines.write_text("".join(f"{typed(one.case).hex()}\n" for one in chosen), "ascii")
    known = {one.number: CASE.view(one.case) for one in chosen}
    played = mutate(port, path, "*", number)[1]
    same = known.keys() == played.keys() and all(agrees(known[one], played[one]) for one in known)
    runs: dict[str, Callable[[], Took]] = {
        "`mqttscope mutate`": lambda: mutate(port, path, "*", number)[0],
        f"`xxd -r -p \\| nc {USUAL} \\| xxd -p`": lambda: loop(port, lines, USUAL, len(chosen)),
        f"`xxd -r -p \\| nc {FASTEST} \\| xxd -p`": lambda: loop(port, lines, FASTEST, len(chosen)),
        "`mqttscope mutate --mutation random`": lambda: mutate(port, path, RANDOM, len(chosen))[0],
    }
    rows: dict[str, list[Took]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            rows[name].append(run())
    heading(out, f"{len(chosen):,} cases, {rounds} rounds", "cases/s", "processor ms per case", "times the first")
    first = next(iter(rows.values()))
    for name, found in rows.items():
        ratio = statistics.median(one.rate / own.rate for one, own in zip(found, first, strict=True))
        rate, cpu = (statistics.median(getattr(one, figure) for one in found) for figure in ("rate", "cpu_ms"))
        row(out, name, f"{rate:.1f}", f"{cpu:.1f}", f"{ratio:.2f}")
    if not same:
        out("\nNot the same cases: `mutate` played others than nc got.")
    return same


async def first_cases(port: int, path: Path, number: int) -> list[Numbered]:
    """The cases that ``mutate`` plays with seed 1 and ``--cases``, without those that pause."""
    scripts = recorded(path)
    async with trial_at(port) as test:
        own = [await fit(test, one) for one in scripts]
    flows = [flow_of(one, capture_hash(scripts), one.connection.number) for one in own]
    every = Numbering(flows, 1, CLIENT).cases("*", range(len(flows)), MANY)
    return [one for one in islice(every, number) if not longest_s(one.case)]


def typed(case: Case) -> bytes:
    """What a user would pipe into nc for a case: CONNECT, and the bytes of the mutation."""
    steps = [step for step in case.flow.steps if step.action is Action.SEND]
    connect = next((step.data for step in steps if step.data[:1] == b"\x10" and not step.mutated), b"")
    return connect + b"".join(step.data for step in steps if step.mutated)


def agrees(known: dict[str, Any], played: dict[str, Any]) -> bool:
    """Whether a case is the one that was played, of which the bytes are told only where the broker deviates."""
    return all(known[name] == value for name, value in played.items())


def mutate(port: int, path: Path, pattern: str, number: int) -> tuple[Took, dict[int, dict[str, Any]]]:
    """One run of ``mutate`` from its start to its end; what it tells of its cases, by their numbers."""
    words = command("mutate", path, "--broker", f"mqtt://127.0.0.1:{port}", "--mutation", pattern, "--seed", "1")
    options = ("--cases", str(number), "--longest", str(SHORTEST_S), "--wait", str(PATIENCE_S), "--format", "jsonl")
    with tempfile.TemporaryFile() as output:
        usage = usage_of([*words, *options], codes=(0, 1), output=output, env=environment())
        output.seek(0)
        rows = [one for one in map(orjson.loads, output) if one["event"] == "case"]
    return Took(len(rows), usage), {one["number"]: one["case"] for one in rows if one["number"] is not None}


def loop(port: int, lines: Path, options: str, number: int) -> Took:
    """The same cases, typed into a shell: one line after the other, with the answers as hexadecimal text."""
    script = f'while read -r line; do echo "$line" | xxd -r -p | nc {options} 127.0.0.1 {port} | xxd -p; done'
    with lines.open("rb") as source:
        return Took(number, usage_of(["bash", "-c", script], codes=(0, 1), stdin=source, env=environment()))


# Distinct reactions


async def variety(out: Out, port: int, number: int, seeds: int) -> None:
    """The table of distinct reactions."""
    columns = ("structured", "random", "ratio", "only structured", "only random")
    out("")
    heading(out, f"distinct reactions in {number:,} cases", *columns)
    for seed in range(1, seeds + 1):
        found = [await reactions(port, pattern, number, seed) for pattern in (STRUCTURED, RANDOM)]
        counts = [len(one) for one in found]
        only = len(found[0] - found[1]), len(found[1] - found[0])
        row(out, f"seed {seed}", *map(str, counts), f"{counts[0] / counts[1]:.2f}", *map(str, only))


async def reactions(port: int, pattern: str, number: int, seed: int) -> set[Seen]:
    """The distinct reactions to so many cases, which are as many for each connection of the captures."""
    found: set[Seen] = set()
    scripts = [(one, capture_hash(group)) for group in map(recorded, map(capture, CAPTURES)) for one in group]
    async with trial_at(port) as test:
        for index, (script, told) in enumerate(scripts):
            own = await fit(test, script)
            share = number // len(scripts) + (index < number % len(scripts))
            for one in without_pauses(flow_of(own, told, own.connection.number), pattern, share, seed):
                played = (await test.once(own, watched_alike(one))).played
                if played is not None:
                    found.add(reaction(played.seen))
    return found


def without_pauses(flow: RecordedFlow, pattern: str, number: int, seed: int) -> Iterator[Case]:
    """So many cases of a connection that do not pause; after the last mutation it begins again with other choices."""
    every = cases(flow, seed, pattern, turns=MANY)
    return islice((one for one in every if not longest_s(one)), number)


def watched_alike(case: Case) -> Case:
    """The case as though nothing were demanded.

    The player waits longer where a statement demands something, which random bytes never break for certain.  So all
    are watched alike here: until another client, who publishes after it, has heard from the broker.
    """
    return replace(case, mutation=replace(case.mutation, reaction=Reaction(Demand.ANY)))


Seen = tuple[frozenset[str], bool]


def reaction(seen: Observation) -> Seen:
    """What came back from the mutation's first byte on: which packets with which reason codes, and whether it closed.

    Order and number do not count, since they depend on time; neither does whether the broker closed with FIN or RST,
    which is RST where it had not read everything.
    """
    packets = set()
    for one in seen.answers:
        if isinstance(one, Malformed):
            packets.add("malformed")
            continue
        codes = getattr(one, "reason_codes", None) or (getattr(one, "reason_code", None),)
        packets |= {one.packet_type.name if code is None else f"{one.packet_type.name} 0x{code:02x}" for code in codes}
    return frozenset(packets), bool(seen.ended)


# Connections and the broker


def recorded(path: Path) -> list[Script]:
    """The connections of a capture, from their CONNECT on."""
    return [one for one in read_scripts(dissect(open_capture([str(path)]))) if one.begins and one.connect is not None]


async def fit(test: BrokerTest, script: Script) -> Script:
    """A connection as it is played to this broker."""
    return fitted(script, await test.connack(script))


@asynccontextmanager
async def trial_at(port: int) -> AsyncIterator[BrokerTest]:
    """A trial of the broker."""
    test = BrokerTest(BrokerAccess(parse_broker(f"mqtt://127.0.0.1:{port}")), PATIENCE_S)
    await test.begin()
    try:
        yield test
    finally:
        await test.end()
