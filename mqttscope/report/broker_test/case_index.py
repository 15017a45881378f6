"""What is where in a capture of mutated flows: in comments for people, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mqttscope.broker_test.export import SERVER, client_of
from mqttscope.broker_test.fit import Numbered
from mqttscope.mqtt.view import text
from mqttscope.mutate.catalogue import cited_instead
from mqttscope.report.broker_test.listing import said
from mqttscope.report.findings.json import line


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
    """A JSON object with its line end."""
    return line(shown) + b"\n"
