"""Drawing cases, planting and judging them, and the report."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.lab import ends as ends
from tests.lab import losses as losses
from tests.lab.catalogue import FAULTS, Fault, Truth
from tests.lab.clients import PLAIN, TLS, NotPlantedError
from tests.lab.judge import RIGHT, Judgement, damage, judge
from tests.lab.rig import AMQTT, COMMAND, MOSQUITTO, Draw, Lab, authority
from tests.lab.wire import Network, Wire, can_make_networks

ATTEMPTS = 4
REQUIRED = 0.95
"""Share of the cases that have to be right."""


def draw(seed: int, number: int, attempt: int, *, has_wire: bool, has_amqtt: bool, only: Sequence[str] = ()) -> Draw:
    """Case of a number: the same one for the same seed and machine."""
    chance = random.Random(f"{seed}/{number}/{attempt}/draw")
    order = sorted(name for name in only or FAULTS if has_wire or not FAULTS[name].needs_wire)
    # Each kind comes once before one comes twice.
    random.Random(f"{seed}/{number // len(order)}").shuffle(order)
    fault = FAULTS[order[number % len(order)]]
    broker = chance.choice([broker for broker in fault.brokers if broker == MOSQUITTO or has_amqtt])
    version = chance.choice(fault.versions)
    transport = chance.choice(fault.transports)
    clients = [client for client in fault.clients if client != COMMAND or transport == PLAIN]
    client = chance.choice(clients)
    if broker == AMQTT:
        version, transport = "3.1.1", PLAIN
    return Draw(
        seed=seed, number=number, attempt=attempt, fault=fault.name, broker=broker, client=client, version=version,
        transport=transport, has_keys=client != COMMAND and chance.random() < 0.75,
        recorded_at=chance.choice(fault.recorded_at),
        delay_ms=chance.choice((0, 0, 5, 40)) if has_wire else 0,
        damage=chance.choice(fault.damages) if fault.damages and chance.random() < 0.4 else "",
    )  # fmt: skip


@dataclass(slots=True)
class Case:
    """One case and what came of it."""

    draw: Draw
    truth: Truth | None = None
    judgement: Judgement | None = None
    capture: str = ""
    redrawn: list[str] | None = None
    """Why earlier draws of this number were not planted."""
    failure: str = ""

    @property
    def verdict(self) -> str:
        return "not planted" if self.judgement is None else self.judgement.verdict

    def as_json(self) -> dict[str, Any]:
        truth = self.truth
        return {
            **asdict(self.draw),
            "truth": None if truth is None else {
                "causes": {name: sorted(causes) for name, causes in truth.causes.items()},
                "fates": {name: sorted(fates) for name, fates in truth.fates.items()},
                "topic": truth.topic,
            },
            "verdict": self.verdict,
            "judgement": None if self.judgement is None else self.judgement.as_json(),
            "capture": self.capture, "redrawn": self.redrawn or [], "failure": self.failure,
        }  # fmt: skip


def plant(
    drawn: Draw, network: Network, certificates: Path, capture: Path
) -> tuple[Truth, Path | None, dict[str, str]]:
    """Plant a fault and record it; the truth, the keys of TLS, and where clients connected from."""
    fault: Fault = FAULTS[drawn.fault]
    folder = Path(tempfile.mkdtemp(prefix="lab-"))
    lab = Lab(drawn, network, folder, certificates, fault.config)
    try:
        for name, content in fault.files.items():
            (folder / name).write_text(content)
        lab.start_broker()
        if isinstance(network, Wire):
            network.delay(drawn.delay_ms / 1000)
        with lab.recording(capture):
            truth = fault.plant(lab)
        keys = lab.keys
        if keys is not None:
            shutil.copy(keys, capture.with_suffix(".keys"))
            keys = capture.with_suffix(".keys")
        (capture.with_suffix(".log")).write_text(lab.log)
        return truth, keys, lab.places
    finally:
        lab.close()


def run_case(number: int, seed: int, name: str, folder: Path, options: dict[str, Any]) -> Case:
    """Draw, plant and judge a case; a fault that does not take effect is drawn again."""
    redrawn: list[str] = []
    for attempt in range(ATTEMPTS):
        drawn = draw(seed, number, attempt, **options)
        capture = folder / f"{seed}-{number:04}-{drawn.fault}.pcap"
        try:
            with closing(Wire(name) if options["has_wire"] else Network()) as network:
                truth, keys, places = plant(drawn, network, authority(folder / "certificates"), capture)
        except (NotPlantedError, OSError) as error:
            redrawn.append(f"{drawn}: {error!r}")
            continue
        words: list[str | Path] = [] if keys is None else ["--keylog", keys]
        if drawn.damage:
            whole = capture.with_suffix(".whole")
            capture.rename(whole)
            damage(whole, capture, drawn.damage, drawn.chance)
        blind = drawn.transport == TLS and keys is None
        judgement = judge(capture, truth, words, damaged=drawn.damage, blind=blind, places=places)
        return Case(drawn, truth, judgement, str(capture), redrawn)
    return Case(drawn, redrawn=redrawn)


def _work(slot: int, numbers: Any, results: Any, seed: int, folder: Path, options: dict[str, Any]) -> None:
    """Judge cases until there is no number any more."""
    while (number := numbers.get()) is not None:
        try:
            results.put(run_case(number, seed, f"lab{os.getppid()}-{slot}", folder / f"slot{slot}", options))
        except Exception:
            results.put(Case(draw(seed, number, 0, **options), failure=traceback.format_exc()))


def run(numbers: Sequence[int], seed: int, folder: Path, jobs: int, only: Sequence[str] = ()) -> Iterator[Case]:
    """Cases as they are judged, several beside each other."""
    options = {"has_wire": can_make_networks(), "has_amqtt": shutil.which("amqtt") is not None, "only": tuple(only)}
    context = multiprocessing.get_context("spawn")
    waiting, results = context.Queue(), context.Queue()
    for number in [*numbers, *[None] * jobs]:
        waiting.put(number)
    workers = []
    for slot in range(jobs):
        authority(folder / f"slot{slot}" / "certificates")
        worker = context.Process(target=_work, args=(slot, waiting, results, seed, folder, options))
        worker.start()
        workers.append(worker)
    try:
        for _ in numbers:
            yield results.get(timeout=300)
    finally:
        for worker in workers:
            worker.join(10)
            if worker.is_alive():
                worker.terminate()


def is_good(cases: Sequence[Case]) -> bool:
    """Whether enough is right, and nothing is contradicted."""
    planted = [case for case in cases if case.judgement is not None]
    right = sum(case.verdict == RIGHT for case in planted)
    contradicted = any(case.judgement.contradicted for case in planted if case.judgement is not None)
    failed = any(case.failure for case in cases)
    return bool(planted) and right >= REQUIRED * len(planted) and not contradicted and not failed


def report(cases: Sequence[Case], folder: Path) -> Path:
    """Write the table as JSON and Markdown; returns the latter."""
    rows = [case.as_json() for case in sorted(cases, key=lambda case: case.draw.number)]
    (folder / "report.json").write_text(json.dumps(rows, indent=1, default=str) + "\n")
    verdicts = Counter(case.verdict for case in cases)
    faults = sorted({case.draw.fault for case in cases})
    kinds = sorted(verdicts)
    lines = [
        "# Laboratory",
        "",
        f"{len(cases)} cases: " + ", ".join(f"{count} {kind}" for kind, count in verdicts.items()),
        "",
    ]
    lines += ["| fault | " + " | ".join(kinds) + " | contradicted | accused | drawn again |"]
    lines += ["|---" * (len(kinds) + 4) + "|"]
    for name in faults:
        mine = [case for case in cases if case.draw.fault == name]
        counts = Counter(case.verdict for case in mine)
        judged = [case.judgement for case in mine if case.judgement is not None]
        more = (
            sum(bool(judgement.contradicted) for judgement in judged),
            sum(bool(judgement.accused) for judgement in judged),
            sum(len(case.redrawn or []) for case in mine),
        )  # fmt: skip
        lines.append(
            f"| {name} | "
            + " | ".join(str(counts[kind] or "") for kind in kinds)
            + f" | {' | '.join(str(n or '') for n in more)} |"
        )
    for case in sorted(cases, key=lambda case: case.draw.number):
        problems = _problems(case)
        if problems:
            lines += [
                "",
                f"## {case.draw.number}: {case.verdict}",
                "",
                str(case.draw),
                "",
                case.capture,
                "",
                *problems,
                "",
            ]
            lines.append(f"`make lab SEED={case.draw.seed} CASE={case.draw.number} FAULT={case.draw.fault}`")
    path = folder / "report.md"
    path.write_text("\n".join(lines) + "\n")
    return path


def _problems(case: Case) -> list[str]:
    if case.judgement is None:
        return [f"- {text}" for text in [*(case.redrawn or []), *([case.failure] if case.failure else [])]]
    truth = case.truth
    assert truth is not None
    planted = truth.fates or truth.causes
    expected = "; ".join(f"{name}: {' or '.join(sorted(right))}" for name, right in planted.items())
    texts = [f"- said: {text}" for text in case.judgement.shown]
    texts += [f"- contradicted: {text}" for text in case.judgement.contradicted]
    texts += [f"- accused: {text}" for text in case.judgement.accused]
    return [f"- true: {expected}", *texts] if texts else []
