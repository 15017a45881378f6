"""What `explain` and `lint` say about a recording, held against what was planted."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mqttscope.explain.model import Cause
from tests.cli.running import invoke
from tests.lab.catalogue import ANY, BARE_ENDS, CLOCK, LATE, MODEST, ONE_WAY, SHORT, Truth

RIGHT, PARTLY, WRONG, MISSING = "right", "partly", "wrong", "missing"
_ORDER = (RIGHT, PARTLY, WRONG, MISSING)
SIDES = {"client_to_server": "client", "server_to_client": "server"}


@dataclass(slots=True)
class Judgement:
    """Verdict about one case."""

    verdict: str
    shown: list[str] = field(default_factory=list)
    """What was said where it is not right."""
    contradicted: list[str] = field(default_factory=list)
    accused: list[str] = field(default_factory=list)
    """Errors of the linter against a side that did nothing wrong."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def damage(source: Path, target: Path, kind: str, chance: random.Random) -> None:
    """Copy a recording with a fault of its own: the begin or a side is missing, frames are cut, or the clock was
    set."""
    data = source.read_bytes()
    head, frames, place = data[:24], [], 24
    while place + 16 <= len(data):
        size = struct.unpack_from("<I", data, place + 8)[0]
        frames.append((struct.unpack_from("<IIII", data, place), data[place + 16 : place + 16 + size]))
        place += 16 + size
    if kind == LATE:
        frames = frames[chance.randint(1, max(len(frames) // 3, 1)) :]
    if kind == ONE_WAY:
        of_server = chance.random() < 0.5
        frames = [row for row in frames if _is_of_server(row[1]) == of_server]
    limit = chance.choice((70, 96, 128)) if kind == SHORT else 1 << 18
    step_at = chance.randint(1, max(len(frames) - 1, 1)) if kind == CLOCK else len(frames)
    step_s = chance.choice((-3600, -30, 30, 3600))
    with target.open("wb") as out:
        out.write(head)
        for number, ((seconds, fraction, _, length), frame) in enumerate(frames):
            frame = frame[:limit]
            moved = seconds + step_s * (number >= step_at)
            out.write(struct.pack("<IIII", moved, fraction, len(frame), length) + frame)


def _is_of_server(frame: bytes) -> bool:
    """Whether the server sent a frame: clients have the higher port."""
    source, target = struct.unpack_from(">HH", frame, 14 + (frame[14] & 15) * 4)
    return bool(source < target)


def explained(capture: Path, *words: str | Path) -> dict[str, Any]:
    """The document of `explain`."""
    return invoke("explain", capture, "--all", "--format", "json", *words).document


def judge(
    capture: Path, truth: Truth, words: Sequence[str | Path] = (), *, damaged: str = "", blind: bool = False,
    places: dict[str, str] | None = None,
) -> Judgement:  # fmt: skip
    """Compare what is said about a capture with the truth."""
    modest = MODEST if damaged or blind else frozenset[Cause]()
    judgement, words = Judgement(RIGHT), (*words, *truth.words)
    rows = explained(capture, *words)["explanations"]
    places = places or {}
    judged = set()
    for name, causes in truth.causes.items():
        at = [
            place for place, row in enumerate(rows)
            if (row["client_identifier"] or ANY) == name or row["client"] == places.get(name)
        ]  # fmt: skip
        if not at:
            # Nobody need have asked a stopped broker again, and of what is cut there may be too little to say anything.
            if not damaged and (name != ANY or len(truth.causes) == 1):
                _worsen(judgement, MISSING, f"{name}: no connection is explained")
            continue
        judged.add(at[0])
        _judge_end(judgement, name, rows[at[0]], causes | modest, truth, is_whole=not modest)
    for place, row in enumerate(rows):
        name = row["client_identifier"] or ANY
        if place in judged or truth.topic or blind or damaged:
            continue
        allowed = {Cause.NORMAL, Cause.STILL_OPEN} | truth.causes.get(name, set()) | truth.causes.get(ANY, set())
        if Cause(row["cause"]) not in allowed and row["certainty"] != "hypothesis":
            judgement.contradicted.append(f"bystander {name}: {row['cause']} ({row['certainty']}): {row['headline']}")
    if truth.topic:
        _judge_fates(judgement, capture, truth, words, blind=blind)
    _judge_lint(judgement, capture, truth, words)
    return judgement


def _judge_end(
    judgement: Judgement, name: str, row: dict[str, Any], right: frozenset[Cause], truth: Truth, *, is_whole: bool
) -> None:
    shown = [(Cause(cause["cause"]), cause["certainty"], cause["headline"]) for cause in row["causes"]]
    text = f"{name}: " + "; ".join(f"{cause} ({certainty}): {headline}" for cause, certainty, headline in shown)
    if shown[0][0] not in right:
        _worsen(judgement, PARTLY if any(cause in right for cause, _, _ in shown) else WRONG, text)
    for cause, certainty, headline in shown:
        if cause not in right | truth.also | BARE_ENDS and certainty != "hypothesis":
            judgement.contradicted.append(f"{name}: {cause} ({certainty}): {headline}")
    if (
        is_whole
        and truth.afterwards
        and not any(truth.afterwards in after["text"].lower() for after in row["afterwards"])
    ):
        _worsen(judgement, PARTLY, f"{name}: nothing of a {truth.afterwards} afterwards")


def _judge_fates(
    judgement: Judgement, capture: Path, truth: Truth, words: Sequence[str | Path], *, blind: bool
) -> None:
    messages = explained_message(capture, truth.topic, words)
    for name, fates in truth.fates.items():
        rows = [client for message in messages for client in message["clients"] if client["client"] == name]
        shown = [(row["fate"], row["text"]) for row in rows]
        if any(fate in fates for fate, _ in shown[-1:]) or (blind and not shown):
            continue
        if any(fate in fates for fate, _ in shown):
            # Of several messages, another one than the last is meant.
            continue
        _worsen(judgement, WRONG if shown else MISSING, f"{name}: {shown or [m['summary'] for m in messages]}")


def explained_message(capture: Path, topic: str, words: Sequence[str | Path]) -> list[dict[str, Any]]:
    """What `explain --message` says."""
    done = invoke("explain", capture, "--message", topic, "--format", "json", *words)
    messages: list[dict[str, Any]] = done.document["messages"]
    return messages


def _judge_lint(judgement: Judgement, capture: Path, truth: Truth, words: Sequence[str | Path]) -> None:
    done = invoke("lint", capture, "--format", "jsonl", "--no-config", *words)
    for line in done.lines:
        if "rule" not in line or line.get("severity") != "error":
            continue
        side = SIDES.get(line.get("direction") or "", "")
        if side and side not in truth.guilty:
            judgement.accused.append(f"{side}: {line['rule']} ({line['confidence']}): {line['message']}")


def _worsen(judgement: Judgement, verdict: str, text: str) -> None:
    if _ORDER.index(verdict) > _ORDER.index(judgement.verdict):
        judgement.verdict = verdict
    judgement.shown.append(text)
