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
from mqttscope.broker_test.fit import CaseNumbering, NumberedCase, capture_hash, fit_script, flow_of
from mqttscope.broker_test.verdict import Observation
from mqttscope.capture import open_capture
from mqttscope.dissect import dissect
from mqttscope.mqtt import Malformed, PacketType
from mqttscope.mutate import Action, Demand, MutationCase, Reaction, RecordedFlow, cases
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
STRUCTURED = ",".join([*(each.name.lower() for each in PacketType), "flow"])
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
        text = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
        if text is not None and name == "nc":
            process = subprocess.run([text, "-h"], capture_output=True, text=True, check=False)
            text = text if "OpenBSD" in process.stdout + process.stderr else None
        if text is None:
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
    lines.write_text("".join(f"{typed(numbered_case.case).hex()}\n" for numbered_case in chosen), "ascii")
    known = {numbered_case.number: CASE.view(numbered_case.case) for numbered_case in chosen}
    played = mutate(port, path, "*", number)[1]
    same = known.keys() == played.keys() and all(agrees(known[number], played[number]) for number in known)
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
    for name, tooks in rows.items():
        ratio = statistics.median(took.rate / own.rate for took, own in zip(tooks, first, strict=True))
        rate, cpu = (statistics.median(getattr(took, figure) for took in tooks) for figure in ("rate", "cpu_ms"))
        row(out, name, f"{rate:.1f}", f"{cpu:.1f}", f"{ratio:.2f}")
    if not same:
        out("\nNot the same cases: `mutate` played others than nc got.")
    return same


async def first_cases(port: int, path: Path, number: int) -> list[NumberedCase]:
    """The cases that ``mutate`` plays with seed 1 and ``--cases``, without those that pause."""
    scripts = recorded(path)
    async with trial_at(port) as test:
        own = [await fit(test, script) for script in scripts]
    flows = [flow_of(script, capture_hash(scripts), script.connection.number) for script in own]
    every = CaseNumbering(flows, 1, CLIENT).cases("*", range(len(flows)), MANY)
    return [numbered_case for numbered_case in islice(every, number) if not longest_s(numbered_case.case)]


def typed(case: MutationCase) -> bytes:
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
        rows = [row for row in map(orjson.loads, output) if row["event"] == "case"]
    return Took(len(rows), usage), {row["number"]: row["case"] for row in rows if row["number"] is not None}


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
        pairses = [await reactions(port, pattern, number, seed) for pattern in (STRUCTURED, RANDOM)]
        counts = [len(pairs) for pairs in pairses]
        only = len(pairses[0] - pairses[1]), len(pairses[1] - pairses[0])
        row(out, f"seed {seed}", *map(str, counts), f"{counts[0] / counts[1]:.2f}", *map(str, only))


async def reactions(port: int, pattern: str, number: int, seed: int) -> set[Seen]:
    """The distinct reactions to so many cases, which are as many for each connection of the captures."""
    result: set[Seen] = set()
    scripts = [(script, capture_hash(group)) for group in map(recorded, map(capture, CAPTURES)) for script in group]
    async with trial_at(port) as test:
        for index, (script, text) in enumerate(scripts):
            own = await fit(test, script)
            share = number // len(scripts) + (index < number % len(scripts))
            for without_pause in without_pauses(flow_of(own, text, own.connection.number), pattern, share, seed):
                played = (await test.play_once(own, watched_alike(without_pause))).played
                if played is not None:
                    result.add(reaction(played.seen))
    return result


def without_pauses(flow: RecordedFlow, pattern: str, number: int, seed: int) -> Iterator[MutationCase]:
    """So many cases of a connection that do not pause; after the last mutation it begins again with other choices."""
    every = cases(flow, seed, pattern, turns=MANY)
    return islice((case for case in every if not longest_s(case)), number)


def watched_alike(case: MutationCase) -> MutationCase:
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
    for answer in seen.answers:
        if isinstance(answer, Malformed):
            packets.add("malformed")
            continue
        codes = getattr(answer, "reason_codes", None) or (getattr(answer, "reason_code", None),)
        packets |= {
            answer.packet_type.name if code is None else f"{answer.packet_type.name} 0x{code:02x}" for code in codes
        }
    return frozenset(packets), bool(seen.ended)


# Connections and the broker


def recorded(path: Path) -> list[Script]:
    """The connections of a capture, from their CONNECT on."""
    return [
        read_script
        for read_script in read_scripts(dissect(open_capture([str(path)])))
        if read_script.begins and read_script.connect is not None
    ]


async def fit(test: BrokerTest, script: Script) -> Script:
    """A connection as it is played to this broker."""
    return fit_script(script, await test.connack(script))


@asynccontextmanager
async def trial_at(port: int) -> AsyncIterator[BrokerTest]:
    """A trial of the broker."""
    test = BrokerTest(BrokerAccess(parse_broker(f"mqtt://127.0.0.1:{port}")), PATIENCE_S)
    await test.begin()
    try:
        yield test
    finally:
        await test.end()
