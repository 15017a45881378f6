"""Results of a broker test, shared by all report formats.

`BrokerRun` is the run against one broker; `result_json`, `case_json`, `summary_json` and `document` are the JSON forms.

Reports show an asterisk for each byte of a password or of Authentication Data (`concealed_case`).  The bytes of a
mutated packet may be cut, moved or damaged, so its fields cannot always be located.  Secrets of the recorded packets
are therefore searched for everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from mqttscope.broker_test.drivers.minimize import MinimizedCase
from mqttscope.broker_test.drivers.run import CaseResult
from mqttscope.broker_test.verdict import AS_RECORDED, BrokerVerdict
from mqttscope.mqtt.codec import packet_end
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.view import text
from mqttscope.mutate import Action, Change, Demand, MutationCase
from mqttscope.mutate.flow import FlowStep
from mqttscope.mutate.mutation import FlowVerdict, MutationKind
from mqttscope.replay.script import Script
from mqttscope.report import documents as doc
from mqttscope.report.findings.json import line
from mqttscope.secrets.packets import hidden_ranges, holds_secrets

RANK = (
    BrokerVerdict.CRASHED,
    BrokerVerdict.HUNG,
    BrokerVerdict.COLLATERAL,
    BrokerVerdict.LEAKED,
    BrokerVerdict.REFUSED_LEGAL,
    BrokerVerdict.TOLERATED,
    BrokerVerdict.NO_ANSWER,
    BrokerVerdict.WRONG_REASON,
    BrokerVerdict.CONFORMING,
)
"""Verdicts, worst first."""


@dataclass(slots=True)
class ReducedCase:
    """A failing case that was made smaller, with a shell command to play it."""

    minimized: MinimizedCase
    shell: str
    """Shell command; empty if no shell can play the case."""

    def without_secrets(self, result: CaseResult) -> tuple[list[bytes], str]:
        """Packets and shell command without secrets; no command if it would contain one."""
        sends = self.minimized.sends
        shown = concealed(sends, result.case.version, known_secrets(result.script))
        return shown, self.shell if shown == sends else ""


@dataclass(slots=True)
class BrokerRun:
    """Run against one broker."""

    broker: str
    capture: str
    """Names of the captures, as the user gave them."""
    capture_hash: str
    seed: int
    results: list[CaseResult] = field(default_factory=list)
    """Cases with a verdict."""
    not_played: Counter[str] = field(default_factory=Counter)
    """Cases that did not reach their mutation, by reason."""
    too_long: int = 0
    """Number of cases left out because their pauses are too long."""
    unspoken: tuple[str, ...] = ()
    """Versions in the captures that the broker does not support; their connections are left out."""
    seconds: float = 0.0
    stopped: str = ""
    """Reason why the run ended early."""
    reduced: dict[int, ReducedCase] = field(default_factory=dict)
    """Reduced cases by the number of the case."""
    show_secrets: bool = False
    """Whether reports contain passwords."""
    alone: bool = False
    """Whether the user selected a single case."""

    def add(self, result: CaseResult) -> None:
        """Add the result of a case."""
        if result.ruling is None:
            self.not_played[result.not_played] += 1
        else:
            self.results.append(result)

    @property
    def deviations(self) -> list[CaseResult]:
        """Cases with a deviation of the broker, worst first."""
        deviations = (result for result in self.results if result.deviates)
        return sorted(deviations, key=lambda row: (RANK.index(verdict(row)), row.case.mutation.name, row.number))

    @property
    def verdicts(self) -> dict[BrokerVerdict, int]:
        """Number of cases by verdict, worst first."""
        counts = Counter(verdict(result) for result in self.results)
        return {verdict_: counts[verdict_] for verdict_ in RANK if counts[verdict_]}

    def by_statement(self) -> dict[str, Counter[BrokerVerdict]]:
        """Verdicts by broken statement; legal flows are counted under ``legal``."""
        rows: dict[str, Counter[BrokerVerdict]] = {}
        for result in self.results:
            for name in result.case.statements or (f"{result.case.version.text} ({result.case.verdict})",):
                rows.setdefault(name, Counter())[verdict(result)] += 1
        return rows

    def by_mutation(self) -> dict[str, Counter[BrokerVerdict]]:
        """Verdicts by mutation."""
        rows: dict[str, Counter[BrokerVerdict]] = {}
        for result in self.results:
            rows.setdefault(result.case.mutation.name, Counter())[verdict(result)] += 1
        return rows


def verdict(result: CaseResult) -> BrokerVerdict:
    assert result.ruling is not None
    return result.ruling.verdict


REACTION = {"demand": doc.word(Demand), "reason_codes": doc.each(doc.COUNT)}
DEMANDED = {name: kind.at(f"reaction.{name}") for name, kind in {**REACTION, "within_keep_alive": doc.BOOL}.items()}
_DEMANDED_BY = doc.each(doc.TEXT).at(lambda case: case.mutation.demanded_by(case.version, case.flow.sender))
_CHANGE = doc.record({
    "entry": doc.maybe(doc.COUNT), "field": doc.TEXT, "offset": doc.COUNT, "removed": doc.HEX, "inserted": doc.HEX,
})  # fmt: skip


def _awaiting(step: FlowStep) -> FlowStep | None:
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
"""A case, with everything needed to identify, recreate and play it."""
RESULT = {
    "schema": doc.VERSION_1, "event": doc.constant("case"),
    "number": doc.maybe(doc.COUNT).at(lambda result: None if result.number == AS_RECORDED else result.number),
    "verdict": doc.maybe(doc.word(BrokerVerdict)).at(lambda result: result.ruling and result.ruling.verdict),
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
    "verdicts": doc.mapping(doc.COUNT).at(lambda tried: {str(name): count for name, count in tried.verdicts.items()}),
    "not_played": doc.rows("reason", doc.ESCAPED, "cases"), "too_long": doc.COUNT,
    "unspoken_versions": doc.each(doc.TEXT).at("unspoken"), "seconds": doc.SECONDS, "stopped": doc.ESCAPED,
}  # fmt: skip
_SUMMARY = doc.record(SUMMARY)


def result_json(
    result: CaseResult, reduced: ReducedCase | None = None, *, whole: bool = True, show_secrets: bool = False
) -> dict[str, Any]:
    """A case as plain JSON: ``whole`` with the bytes sent, else only what identifies the case."""
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


def case_json(result: CaseResult, run: BrokerRun) -> dict[str, Any]:
    """A case of a run; the bytes sent are included if the broker deviates or the case was played alone."""
    whole = result.deviates or run.alone
    return result_json(result, run.reduced.get(result.number), whole=whole, show_secrets=run.show_secrets)


def summary_json(tried: BrokerRun) -> dict[str, Any]:
    run: dict[str, Any] = _SUMMARY.view(tried)
    return run


def case_line(result: CaseResult, tried: BrokerRun) -> bytes:
    return line({**case_json(result, tried), "broker": text(tried.broker)}) + b"\n"


def summary_lines(runs: Sequence[BrokerRun]) -> bytes:
    """The end of the JSON Lines: a summary line for each broker."""
    return b"".join(line(summary_json(run)) + b"\n" for run in runs)


def document(runs: Sequence[BrokerRun], *, matrix: bool = False) -> bytes:
    """The run as one JSON document; with several brokers (``matrix``) they are its ``runs``."""
    shown = [{**summary_json(run), "results": [case_json(row, run) for row in run.results]} for run in runs]
    return line({"schema": 1, "event": "matrix", "runs": shown} if matrix else shown[0]) + b"\n"


MIN_KNOWN = 4
"""Minimum length of a secret that is searched for outside its field; shorter byte strings are too common."""
RUN = 6
"""Length of a byte sequence of a longer secret that is hidden too."""
_Ranges = list[tuple[int, int]]


def concealed_case(result: CaseResult) -> MutationCase:
    """The case of a result without its secrets; the case itself if it has no secrets."""
    case = result.case
    known, version = known_secrets(result.script), case.version
    sends = iter(concealed([step.data for step in case.flow.steps if step.action is Action.SEND], version, known))
    steps = [
        replace(step, data=next(sends) if step.action is Action.SEND else concealed([step.data], version, known)[0])
        for step in case.flow.steps
    ]
    changes = tuple(_change(change, result.script, version, known) for change in case.flow.changes)
    if steps == case.flow.steps and changes == case.flow.changes:
        return case
    return replace(case, flow=replace(case.flow, steps=steps, changes=changes))


def concealed(parts: Sequence[bytes], version: ProtocolVersion, known: Sequence[bytes] = ()) -> list[bytes]:
    """Parts of one stream without ``known`` secrets and without secrets in their fields."""
    joined = b"".join(parts)
    places = [*_of_packets(joined, version), *_of_parts(parts, version)]
    for value in known:
        places += _occurrences(joined, value)
    shown = _covered(joined, places)
    shown_parts, at = [], 0
    for part in parts:
        shown_parts.append(shown[at : at + len(part)])
        at += len(part)
    return shown_parts


def _places(raw: bytes, version: ProtocolVersion) -> _Ranges:
    """Ranges of secrets in a packet of a type that can have secrets.

    Other packets are shown in full, however broken: that is what a mutation is about, and recorded secrets are known.
    """
    return hidden_ranges(raw, version) if holds_secrets(raw) else []


def known_secrets(script: Script | None) -> list[bytes]:
    """Secrets in the recorded packets of a connection that are long enough to be recognised elsewhere."""
    entries = () if script is None else script.entries
    version = ProtocolVersion.V5 if script is None else script.version
    values = {entry.raw[start:end] for entry in entries for start, end in _places(entry.raw, version)}
    return sorted((value for value in values if len(value) >= MIN_KNOWN), key=len, reverse=True)


def _of_packets(joined: bytes, version: ProtocolVersion) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(joined):
        body, end = packet_end(joined, at, len(joined))
        if body <= 0:
            # The start of the next packet is unknown.
            end = len(joined)
        yield from ((at + start, at + stop) for start, stop in _places(joined[at:end], version))
        at = end


def _of_parts(parts: Sequence[bytes], version: ProtocolVersion) -> Iterator[tuple[int, int]]:
    """Ranges of secrets step by step; most steps are whole packets, whatever their length fields contain."""
    at = 0
    for part in parts:
        yield from ((at + start, at + stop) for start, stop in _places(part, version))
        at += len(part)


def _occurrences(data: bytes, value: bytes) -> Iterator[tuple[int, int]]:
    """Ranges of a secret, or of `RUN` bytes of it in a row."""
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


def _change(change: Change, script: Script | None, version: ProtocolVersion, known: Sequence[bytes]) -> Change:
    if change.entry is None or script is None:
        return replace(change, inserted=concealed([change.inserted], version, known)[0])
    end = change.offset + len(change.removed)
    secret = _places(script.entries[change.entry].raw, version)
    places = [(max(start, change.offset) - change.offset, min(stop, end) - change.offset) for start, stop in secret]
    places = [(start, stop) for start, stop in places if start < stop]
    # The replacement of a secret may contain a part of it.
    occurrences = [row for value in known for row in _occurrences(change.inserted, value)]
    instead = [(0, len(change.inserted))] if places else occurrences
    return replace(change, removed=_covered(change.removed, places), inserted=_covered(change.inserted, instead))
