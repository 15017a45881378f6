"""Mutations and mutated flows as lists: all mutations that there are, and what is where in a capture of mutated flows.

For people as text and as comments of frames, for programs as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mqttscope.broker_test.export import SERVER, client_of
from mqttscope.broker_test.fit import Numbered
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.view import text
from mqttscope.mqtt.wire import counted
from mqttscope.mutate import Mutation, Verdict, as_json
from mqttscope.mutate.catalogue import ASSUMED, cited_instead
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


def listing_json(one: Mutation, sender: str) -> dict[str, Any]:
    """A mutation as plain JSON, with what holds for one sender."""
    document = as_json(one)
    for version in one.versions:
        reaction = one.reaction_in(version, sender)
        document["versions"][version.text] |= {
            "verdict": str(one.verdict(version, sender)),
            "statements": list(one.broken(version, sender)),
            "cited_instead": list(cited_instead(one, version, sender)),
            "demand": str(reaction.demand),
            "reason_codes": list(reaction.reason_codes),
            "demanded_by": list(one.demanded_by(version, sender)),
        }
    return {"schema": 1, **document}


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

    def as_json(self) -> dict[str, Any]:
        """What is known of it, as plain JSON."""
        case = self.numbered.case
        reaction = case.reaction
        return {
            "schema": 1,
            "event": "mutated_flow",
            "connection": self.index,
            "frame": self.frame,
            "client": str(client_of(self.index)),
            "server": str(SERVER),
            "number": self.numbered.number,
            "mutation": case.mutation.name,
            "version": case.version.text,
            "verdict": str(case.verdict),
            "statements": list(case.statements),
            "cited_instead": list(cited_instead(case.mutation, case.version, case.flow.sender)),
            "reaction": {"demand": str(reaction.demand), "reason_codes": list(reaction.reason_codes)},
            "recorded_connection": case.connection,
        }


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
    return written_line({**about, "flows": [row.as_json() for row in rows]})


def written_line(shown: dict[str, Any]) -> bytes:
    return line(shown) + b"\n"
