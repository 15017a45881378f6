"""Counts what a run against one broker comes to, and gives the results of its cases to all formats.

`Tried` is one broker; `result_json`, `case_json`, `summary_json` and `document` are the JSON forms.

Reports show a case with an asterisk for each byte of a password or of Authentication Data (`concealed_case`).  The
bytes of a mutated packet may be cut, moved or damaged, so that its fields cannot always be located.  What was secret in
the recorded packets is therefore searched for as well, wherever it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from mqttscope.broker_test.drivers.minimize import Minimized
from mqttscope.broker_test.drivers.run import CaseResult
from mqttscope.broker_test.verdict import AS_RECORDED, Verdict
from mqttscope.mqtt.codec import packet_end
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.view import text
from mqttscope.mutate import Action, Case, Change, Demand
from mqttscope.mutate.flow import Step
from mqttscope.mutate.mutation import MutationKind
from mqttscope.mutate.mutation import Verdict as FlowVerdict
from mqttscope.replay.script import Script
from mqttscope.report import documents as doc
from mqttscope.report.findings.json import line
from mqttscope.secrets.packets import hidden_ranges, holds_secrets

RANK = (
    Verdict.CRASHED,
    Verdict.HUNG,
    Verdict.COLLATERAL,
    Verdict.LEAKED,
    Verdict.REFUSED_LEGAL,
    Verdict.TOLERATED,
    Verdict.NO_ANSWER,
    Verdict.WRONG_REASON,
    Verdict.CONFORMING,
)
"""The worst first."""


@dataclass(slots=True)
class Reduced:
    """A failing case that was made smaller, and how it is played by hand."""

    minimized: Minimized
    shell: str
    """Empty where no shell can play it."""

    def without_secrets(self, result: CaseResult) -> tuple[list[bytes], str]:
        """What is still sent and the line for a shell, as reports show them; no line that would hold a secret."""
        sends = self.minimized.sends
        shown = concealed(sends, result.case.version, known_secrets(result.script))
        return shown, self.shell if shown == sends else ""


@dataclass(slots=True)
class Tried:
    """One broker."""

    broker: str
    capture: str
    """The captures, as they were named."""
    capture_hash: str
    seed: int
    results: list[CaseResult] = field(default_factory=list)
    """Those with a verdict."""
    not_played: Counter[str] = field(default_factory=Counter)
    """Why cases did not get to their mutation."""
    too_long: int = 0
    """Cases left out, since their pauses are longer than was allowed."""
    unspoken: tuple[str, ...] = ()
    """Versions of the captures that the broker does not speak: what was recorded in them is left out."""
    seconds: float = 0.0
    stopped: str = ""
    """Why it ended early."""
    reduced: dict[int, Reduced] = field(default_factory=dict)
    """By the number of the case."""
    show_secrets: bool = False
    """Whether the bytes in reports are shown with their passwords."""
    alone: bool = False
    """A single case was asked for."""

    def add(self, result: CaseResult) -> None:
        """Count a case."""
        if result.ruling is None:
            self.not_played[result.not_played] += 1
        else:
            self.results.append(result)

    @property
    def deviations(self) -> list[CaseResult]:
        """Cases in which the broker deviates, the worst first."""
        found = [one for one in self.results if one.deviates]
        return sorted(found, key=lambda one: (RANK.index(verdict(one)), one.case.mutation.name, one.number))

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """How often each verdict was given, the worst first."""
        counts = Counter(verdict(one) for one in self.results)
        return {one: counts[one] for one in RANK if counts[one]}

    def by_statement(self) -> dict[str, Counter[Verdict]]:
        """Verdicts by what was broken; legal flows stand under ``legal``."""
        rows: dict[str, Counter[Verdict]] = {}
        for one in self.results:
            for name in one.case.statements or (f"{one.case.version.text} ({one.case.verdict})",):
                rows.setdefault(name, Counter())[verdict(one)] += 1
        return rows

    def by_mutation(self) -> dict[str, Counter[Verdict]]:
        """Verdicts by mutation."""
        rows: dict[str, Counter[Verdict]] = {}
        for one in self.results:
            rows.setdefault(one.case.mutation.name, Counter())[verdict(one)] += 1
        return rows


def verdict(result: CaseResult) -> Verdict:
    assert result.ruling is not None
    return result.ruling.verdict


REACTION = {"demand": doc.word(Demand), "reason_codes": doc.each(doc.COUNT)}
DEMANDED = {name: kind.at(f"reaction.{name}") for name, kind in {**REACTION, "within_keep_alive": doc.BOOL}.items()}
_DEMANDED_BY = doc.each(doc.TEXT).at(lambda case: case.mutation.demanded_by(case.version, case.flow.sender))
_CHANGE = doc.record({
    "entry": doc.maybe(doc.COUNT), "field": doc.TEXT, "offset": doc.COUNT, "removed": doc.HEX, "inserted": doc.HEX,
})  # fmt: skip


def _awaiting(step: Step) -> Step | None:
    return step if step.action is Action.AWAIT else None


_STEP = doc.record(
    {"action": doc.word(Action), "entry": doc.maybe(doc.COUNT), "mutated": doc.BOOL},
    {
        "data": doc.HEX.at(lambda step: step.data if step.data or step.action is Action.SEND else None),
        "nanoseconds": doc.WHOLE.at(lambda step: step.nanoseconds or None),
        "awaits": doc.ValueType(
            doc.maybe(doc.TEXT), lambda step: None if step.awaits is None else step.awaits.name.lower(), _awaiting
        ),
        "packet_identifier": doc.ValueType(doc.maybe(doc.COUNT), attrgetter("packet_identifier"), _awaiting),
    },
)  # fmt: skip
CASE = doc.reordered(
    doc.record(
        {
            "schema": doc.VERSION_1, "capture_hash": doc.DIGITS, "connection": doc.COUNT, "seed": doc.WHOLE,
            "case": doc.WHOLE.at("number"), "mutation": doc.TEXT.at("mutation.name"),
            "kind": doc.word(MutationKind).at("mutation.kind"), "description": doc.TEXT.at("mutation.description"),
            "sender": doc.SIDE.at("flow.sender"), "version": doc.PROTOCOL.at("version.text"),
            "verdict": doc.word(FlowVerdict), "statements": doc.each(doc.TEXT),
            "reaction": doc.record({**DEMANDED, "demanded_by": _DEMANDED_BY}).at(doc.itself),
            "at": doc.COUNT.at("flow.at"),
        },
        {
            "changes": doc.each(_CHANGE).at("flow.changes"), "steps": doc.each(_STEP).at("flow.steps"),
            "redacted": doc.BOOL.at(lambda case: None),
        },
    ),
    "schema", "capture_hash", "connection", "seed", "case", "mutation", "kind", "description", "sender", "version",
    "verdict", "statements", "at",
)  # fmt: skip
"""A case: enough to know it, to make it again, and to play it."""
RESULT = {
    "schema": doc.VERSION_1, "event": doc.constant("case"),
    "number": doc.maybe(doc.COUNT).at(lambda result: None if result.number == AS_RECORDED else result.number),
    "verdict": doc.maybe(doc.word(Verdict)).at(lambda result: result.ruling and result.ruling.verdict),
    "why": doc.ESCAPED.at(lambda result: result.ruling.why if result.ruling else result.not_played),
    "statements": doc.each(doc.TEXT).at(lambda result: result.ruling.statements if result.ruling else ()),
    "seconds": doc.SECONDS, "case": CASE,
}  # fmt: skip
LEFT_BEHIND = {"left_behind": doc.each(doc.ESCAPED).at(lambda result: result.unclean or None)}
_RESULT = doc.record(RESULT, LEFT_BEHIND)
REDUCED = doc.record(
    {
        "tries": doc.COUNT.at("small.tries"), "sends": doc.each(doc.HEX),
        "shell": doc.any_of(doc.TEXT, doc.each(doc.TEXT)), "breaks": doc.each(doc.TEXT).at("small.breaks"),
        "fault": doc.unless_empty(doc.ESCAPED).at("small.fault"),
        "unfinished": doc.any_of(doc.BOOL, doc.maybe(doc.TEXT)).at("small.unfinished"),
    },
    {"redacted": doc.BOOL},
)  # fmt: skip
SUMMARY = {
    "schema": doc.VERSION_1, "event": doc.constant("mutate"), "broker": doc.NAME, "capture": doc.NAME,
    "capture_hash": doc.DIGITS, "seed": doc.WHOLE, "cases": doc.COUNT.at(lambda tried: len(tried.results)),
    "deviations": doc.COUNT.at(lambda tried: len(tried.deviations)),
    "verdicts": doc.mapping(doc.COUNT).at(lambda tried: {str(name): one for name, one in tried.verdicts.items()}),
    "not_played": doc.rows("reason", doc.ESCAPED, "cases"), "too_long": doc.COUNT,
    "unspoken_versions": doc.each(doc.TEXT).at("unspoken"), "seconds": doc.SECONDS, "stopped": doc.ESCAPED,
}  # fmt: skip
_SUMMARY = doc.record(SUMMARY)


def result_json(
    result: CaseResult, reduced: Reduced | None = None, *, whole: bool = True, show_secrets: bool = False
) -> dict[str, Any]:
    """One case as plain JSON: ``whole`` with what was sent, else with what it takes to make it again."""
    case = result.case if show_secrets or not whole else concealed_case(result)
    document: dict[str, Any] = _RESULT.view(replace(result, case=case))
    if not whole:
        del document["case"]["changes"], document["case"]["steps"]
    elif case is not result.case:
        document["case"]["redacted"] = True
    if reduced is not None:
        small = reduced.minimized
        sends, shell = (small.sends, reduced.shell) if show_secrets else reduced.without_secrets(result)
        redacted = None if sends == small.sends else True
        document["reduced"] = REDUCED.view(SimpleNamespace(small=small, sends=sends, shell=shell, redacted=redacted))
    return document


def case_json(result: CaseResult, tried: Tried) -> dict[str, Any]:
    """One case of a run; what was sent is told where the broker deviates, and of a case that is played alone."""
    whole = result.deviates or tried.alone
    return result_json(result, tried.reduced.get(result.number), whole=whole, show_secrets=tried.show_secrets)


def summary_json(tried: Tried) -> dict[str, Any]:
    """The run as plain JSON."""
    run: dict[str, Any] = _SUMMARY.view(tried)
    return run


def case_line(result: CaseResult, tried: Tried) -> bytes:
    return line({**case_json(result, tried), "broker": text(tried.broker)}) + b"\n"


def summary_lines(runs: Sequence[Tried]) -> bytes:
    """The end of the JSON Lines: a line for each broker."""
    return b"".join(line(summary_json(one)) + b"\n" for one in runs)


def document(runs: Sequence[Tried], *, matrix: bool = False) -> bytes:
    """The whole run as one JSON document; with several brokers side by side they are its ``runs``."""
    shown = [{**summary_json(one), "results": [case_json(row, one) for row in one.results]} for one in runs]
    return line({"schema": 1, "event": "matrix", "runs": shown} if matrix else shown[0]) + b"\n"


MIN_KNOWN = 4
"""Bytes of the shortest secret that is looked for outside of its field: shorter ones are in too much."""
RUN = 6
"""Bytes in a row of a longer one that are not shown either."""
_Ranges = list[tuple[int, int]]


def concealed_case(result: CaseResult) -> Case:
    """The case of a result without its secrets; the case itself where it has none."""
    case = result.case
    known, version = known_secrets(result.script), case.version
    sends = iter(concealed([one.data for one in case.flow.steps if one.action is Action.SEND], version, known))
    steps = [
        replace(one, data=next(sends) if one.action is Action.SEND else concealed([one.data], version, known)[0])
        for one in case.flow.steps
    ]
    changes = tuple(_change(one, result.script, version, known) for one in case.flow.changes)
    if steps == case.flow.steps and changes == case.flow.changes:
        return case
    return replace(case, flow=replace(case.flow, steps=steps, changes=changes))


def concealed(parts: Sequence[bytes], version: ProtocolVersion, known: Sequence[bytes] = ()) -> list[bytes]:
    """Parts of one stream without its secrets, ``known`` ones and those that stand in their fields."""
    joined = b"".join(parts)
    places = [*_of_packets(joined, version), *_of_parts(parts, version)]
    for value in known:
        places += _occurrences(joined, value)
    shown = _covered(joined, places)
    found, at = [], 0
    for part in parts:
        found.append(shown[at : at + len(part)])
        at += len(part)
    return found


def _places(raw: bytes, version: ProtocolVersion) -> _Ranges:
    """Where secrets stand in a packet whose type has some.

    Of other packets everything is shown, however broken they are: that is what a mutation is about, and what was
    recorded as a secret is known.
    """
    return hidden_ranges(raw, version) if holds_secrets(raw) else []


def known_secrets(script: Script | None) -> list[bytes]:
    """What is secret in the packets of a connection, as far as it is long enough to be known again."""
    entries = () if script is None else script.entries
    version = ProtocolVersion.V5 if script is None else script.version
    values = {one.raw[start:end] for one in entries for start, end in _places(one.raw, version)}
    return sorted((one for one in values if len(one) >= MIN_KNOWN), key=len, reverse=True)


def _of_packets(joined: bytes, version: ProtocolVersion) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(joined):
        body, end = packet_end(joined, at, len(joined))
        if body <= 0:
            # Nobody knows where the next packet begins.
            end = len(joined)
        yield from ((at + start, at + stop) for start, stop in _places(joined[at:end], version))
        at = end


def _of_parts(parts: Sequence[bytes], version: ProtocolVersion) -> Iterator[tuple[int, int]]:
    """The same by the steps, which are whole packets mostly, whatever their lengths say."""
    at = 0
    for part in parts:
        yield from ((at + start, at + stop) for start, stop in _places(part, version))
        at += len(part)


def _occurrences(data: bytes, value: bytes) -> Iterator[tuple[int, int]]:
    """Where a secret stands, or `RUN` bytes of it in a row."""
    size = min(RUN, len(value))
    for start in range(len(value) - size + 1):
        run = value[start : start + size]
        at = data.find(run)
        while at >= 0:
            yield at, at + size
            at = data.find(run, at + 1)


def _covered(data: bytes, places: _Ranges) -> bytes:
    if not places:
        return data
    shown = bytearray(data)
    for start, end in places:
        end = min(end, len(data))
        shown[start:end] = b"*" * (end - start)
    return bytes(shown)


def _change(one: Change, script: Script | None, version: ProtocolVersion, known: Sequence[bytes]) -> Change:
    if one.entry is None or script is None:
        return replace(one, inserted=concealed([one.inserted], version, known)[0])
    end = one.offset + len(one.removed)
    secret = _places(script.entries[one.entry].raw, version)
    places = [(max(start, one.offset) - one.offset, min(stop, end) - one.offset) for start, stop in secret]
    places = [(start, stop) for start, stop in places if start < stop]
    # What takes the place of a secret may have a part of it.
    instead = (
        [(0, len(one.inserted))] if places else [row for value in known for row in _occurrences(one.inserted, value)]
    )
    return replace(one, removed=_covered(one.removed, places), inserted=_covered(one.inserted, instead))
