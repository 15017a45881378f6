"""Lists of mutations, and of the mutated flows in a capture.

People read them as text and as comments of frames, programs as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

from mqttscope.broker_test.export import SERVER, client_of
from mqttscope.broker_test.fit import NumberedCase
from mqttscope.mqtt.constants import ProtocolVersion, type_name
from mqttscope.mqtt.view import text
from mqttscope.mqtt.wire import counted
from mqttscope.mutate import FlowVerdict, Mutation, MutationCase
from mqttscope.mutate.catalogue import ASSUMED, cited_instead
from mqttscope.mutate.mutation import MutationKind, Reaction
from mqttscope.report import documents as doc
from mqttscope.report.broker_test.outcome import DEMANDED, REACTION
from mqttscope.report.findings.json import line
from mqttscope.report.page import Page


def write_listing(page: Page, mutations: Iterable[Mutation], sender: str) -> None:
    """Write each mutation with the statements it breaks, or that it is legal, and the demanded reaction."""
    count = 0
    for mutation in mutations:
        count += 1
        page.line([mutation.name], "bold")
        page.paragraph(f"  {mutation.description}", indent=2)
        for sentence, versions in _rows(mutation, sender).items():
            page.paragraph(f"  {', '.join(versions)}: {sentence}", indent=4)
    page.line([counted(count, "mutation")])


class _VersionedMutation(NamedTuple):
    """A mutation in one version, sent by one side."""

    mutation: Mutation
    version: ProtocolVersion
    sender: str

    @property
    def reaction(self) -> Reaction:
        return self.mutation.reaction_in(self.version, self.sender)


_STATEMENTS = doc.each(doc.TEXT)
_VERSION = doc.record({
    "verdict": doc.word(FlowVerdict).at(lambda row: row.mutation.verdict(row.version, row.sender)),
    "statements": _STATEMENTS.at(lambda row: row.mutation.broken(row.version, row.sender)), **DEMANDED,
    "demanded_by": _STATEMENTS.at(lambda row: row.mutation.demanded_by(row.version, row.sender)),
    "cited_instead": _STATEMENTS.at(lambda row: cited_instead(row.mutation, row.version, row.sender)),
})  # fmt: skip
MUTATION = doc.record({
    "schema": doc.VERSION_1, "mutation": doc.TEXT.at("mutation.name"),
    "kind": doc.word(MutationKind).at("mutation.kind"), "description": doc.TEXT.at("mutation.description"),
    "packet_type": doc.maybe(doc.ValueType(doc.TEXT, type_name)).at("mutation.packet_type"),
    "field": doc.TEXT.at("mutation.field"), "senders": doc.each(doc.SIDE).at("mutation.senders"),
    "versions": doc.mapping(_VERSION),
})  # fmt: skip


def listing_json(mutation: Mutation, sender: str) -> dict[str, Any]:
    """A mutation as plain JSON, for one sender."""
    versions = {version.text: _VersionedMutation(mutation, version, sender) for version in mutation.versions}
    shown: dict[str, Any] = MUTATION.view(SimpleNamespace(mutation=mutation, versions=versions))
    return shown


def _rows(mutation: Mutation, sender: str) -> dict[str, list[str]]:
    """Effects of a mutation, with the versions that each applies to."""
    rows: dict[str, list[str]] = {}
    for version in mutation.versions:
        rows.setdefault(effect(mutation, version, sender), []).append(version.text)
    return rows


def effect(mutation: Mutation, version: ProtocolVersion, sender: str) -> str:
    """Broken statements and demanded reaction of a mutation in a version: ``breaks MQTT-3.3.1-4; close with 0x81``."""
    verdict = mutation.verdict(version, sender)
    reaction = mutation.reaction_in(version, sender)
    codes = " or ".join(f"0x{code:02x}" for code in reaction.reason_codes)
    reaction_text = f"{reaction.demand}{f' with {codes}' if codes else ''}"
    if verdict is FlowVerdict.LEGAL:
        return f"legal; {reaction_text}"
    statements = ", ".join(text.split(" ", 1)[1] for text in mutation.broken(version, sender))
    broken = f"breaks {statements}" if statements else "no certain violation"
    should = " (should)" if verdict is FlowVerdict.DISCOURAGED else ""
    instead = ", ".join(text.split(" ", 1)[1] for text in cited_instead(mutation, version, sender))
    # Before CONNECT a capture does not show the version, so a linter assumes one.
    cited = f"; seen in a capture as {instead} of {ASSUMED.text}" if instead else ""
    return f"{broken}{should}; {reaction_text}{cited}"


@dataclass(slots=True, frozen=True)
class WrittenCase:
    """One connection of the written capture."""

    index: int
    """Index of the connection, from 0; tshark calls it ``tcp.stream``."""
    frame: int
    """Number of its first frame, from 1."""
    numbered: NumberedCase


MUTATED_FLOW = doc.record({
    "schema": doc.VERSION_1, "event": doc.constant("mutated_flow"), "connection": doc.COUNT.at("index"),
    "frame": doc.COUNT, "client": doc.TEXT.at(lambda row: str(client_of(row.index))),
    "server": doc.TEXT.at(lambda _: str(SERVER)), "number": doc.maybe(doc.COUNT).at("numbered.number"),
    "mutation": doc.TEXT.at("numbered.case.mutation.name"), "version": doc.PROTOCOL.at("numbered.case.version.text"),
    "verdict": doc.word(FlowVerdict).at("numbered.case.verdict"),
    "statements": _STATEMENTS.at("numbered.case.statements"),
    "cited_instead": _STATEMENTS.at(lambda row: _cited_instead(row.numbered.case)),
    "reaction": doc.record(REACTION).at("numbered.case.reaction"),
    "recorded_connection": doc.COUNT.at("numbered.case.connection"),
})  # fmt: skip


def _cited_instead(case: MutationCase) -> tuple[str, ...]:
    return cited_instead(case.mutation, case.version, case.flow.sender)


def comment(row: WrittenCase) -> str:
    """Comment of the first frame of a connection."""
    case = row.numbered.case
    shown = effect(case.mutation, case.version, case.flow.sender)
    return f"{case.mutation.name} (case {row.numbered.number}): {case.version.text}: {shown}"


def summary(file: str, capture: str, capture_hash: str, seed: int, count: int) -> dict[str, Any]:
    """Summary of the written capture as plain JSON."""
    return {
        "schema": 1,
        "event": "written",
        "file": text(file),
        "capture": text(capture),
        "capture_hash": capture_hash,
        "seed": seed,
        "connections": count,
    }


def document(about: dict[str, Any], rows: Sequence[WrittenCase]) -> bytes:
    """Summary and connections (``flows``) as one JSON document."""
    return written_line({**about, "flows": [MUTATED_FLOW.view(row) for row in rows]})


def written_line(shown: dict[str, Any]) -> bytes:
    return line(shown) + b"\n"
