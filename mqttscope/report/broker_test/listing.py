"""Mutations and mutated flows as lists: all mutations that there are, and what is where in a capture of mutated flows.

For people as text and as comments of frames, for programs as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

from mqttscope.broker_test.export import SERVER, client_of
from mqttscope.broker_test.fit import Numbered
from mqttscope.mqtt.constants import ProtocolVersion, type_name
from mqttscope.mqtt.view import text
from mqttscope.mqtt.wire import counted
from mqttscope.mutate import Case, Mutation, Verdict
from mqttscope.mutate.catalogue import ASSUMED, cited_instead
from mqttscope.mutate.mutation import MutationKind, Reaction
from mqttscope.report import documents as doc
from mqttscope.report.broker_test.outcome import DEMANDED, REACTION
from mqttscope.report.findings.json import line
from mqttscope.report.page import Page


def write_listing(page: Page, mutations: Iterable[Mutation], sender: str) -> None:
    """Each mutation with the statements it breaks, or that it is legal, and the reaction that is demanded."""
    count = 0
    for one in mutations:
        count += 1
        page.line([one.name], "bold")
        page.paragraph(f"  {one.description}", indent=2)
        for told, versions in _rows(one, sender).items():
            page.paragraph(f"  {', '.join(versions)}: {told}", indent=4)
    page.line([counted(count, "mutation")])


class _InVersion(NamedTuple):
    """A mutation in one version, sent by one side."""

    mutation: Mutation
    version: ProtocolVersion
    sender: str

    @property
    def reaction(self) -> Reaction:
        return self.mutation.reaction_in(self.version, self.sender)


_STATEMENTS = doc.each(doc.TEXT)
_VERSION = doc.record({
    "verdict": doc.word(Verdict).at(lambda row: row.mutation.verdict(row.version, row.sender)),
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


def listing_json(one: Mutation, sender: str) -> dict[str, Any]:
    """A mutation as plain JSON, with what holds for one sender."""
    versions = {version.text: _InVersion(one, version, sender) for version in one.versions}
    shown: dict[str, Any] = MUTATION.view(SimpleNamespace(mutation=one, versions=versions))
    return shown


def _rows(one: Mutation, sender: str) -> dict[str, list[str]]:
    """What is to be said of a mutation, with the versions that it holds for."""
    rows: dict[str, list[str]] = {}
    for version in one.versions:
        rows.setdefault(said(one, version, sender), []).append(version.text)
    return rows


def said(one: Mutation, version: ProtocolVersion, sender: str) -> str:
    """What a mutation breaks in a version and what is demanded then: ``breaks MQTT-3.3.1-4; close with 0x81``."""
    verdict = one.verdict(version, sender)
    reaction = one.reaction_in(version, sender)
    codes = " or ".join(f"0x{code:02x}" for code in reaction.reason_codes)
    told = f"{reaction.demand}{f' with {codes}' if codes else ''}"
    if verdict is Verdict.LEGAL:
        return f"legal; {told}"
    statements = ", ".join(text.split(" ", 1)[1] for text in one.broken(version, sender))
    broken = f"breaks {statements}" if statements else "breaks nothing for certain"
    should = " (should)" if verdict is Verdict.DISCOURAGED else ""
    instead = ", ".join(text.split(" ", 1)[1] for text in cited_instead(one, version, sender))
    # Captures tell no version before CONNECT does, so that a linter has to take one.
    cited = f"; seen in a capture as {instead} of {ASSUMED.text}" if instead else ""
    return f"{broken}{should}; {told}{cited}"


@dataclass(slots=True, frozen=True)
class WrittenCase:
    """One connection of the capture."""

    index: int
    """Of the connection, from 0: tshark calls it ``tcp.stream``."""
    frame: int
    """Its first frame, from 1."""
    numbered: Numbered


MUTATED_FLOW = doc.record({
    "schema": doc.VERSION_1, "event": doc.constant("mutated_flow"), "connection": doc.COUNT.at("index"),
    "frame": doc.COUNT, "client": doc.TEXT.at(lambda row: str(client_of(row.index))),
    "server": doc.TEXT.at(lambda _: str(SERVER)), "number": doc.maybe(doc.COUNT).at("numbered.number"),
    "mutation": doc.TEXT.at("numbered.case.mutation.name"), "version": doc.PROTOCOL.at("numbered.case.version.text"),
    "verdict": doc.word(Verdict).at("numbered.case.verdict"), "statements": _STATEMENTS.at("numbered.case.statements"),
    "cited_instead": _STATEMENTS.at(lambda row: _cited_instead(row.numbered.case)),
    "reaction": doc.record(REACTION).at("numbered.case.reaction"),
    "recorded_connection": doc.COUNT.at("numbered.case.connection"),
})  # fmt: skip


def _cited_instead(case: Case) -> tuple[str, ...]:
    return cited_instead(case.mutation, case.version, case.flow.sender)


def comment(row: WrittenCase) -> str:
    """What the first frame of a connection says of it."""
    case = row.numbered.case
    told = said(case.mutation, case.version, case.flow.sender)
    return f"{case.mutation.name} (case {row.numbered.number}): {case.version.text}: {told}"


def summary(file: str, capture: str, capture_hash: str, seed: int, count: int) -> dict[str, Any]:
    """The whole as plain JSON."""
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
    """One JSON document: the summary with the connections as its ``flows``."""
    return written_line({**about, "flows": [MUTATED_FLOW.view(row) for row in rows]})


def written_line(shown: dict[str, Any]) -> bytes:
    return line(shown) + b"\n"
