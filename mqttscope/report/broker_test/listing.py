"""All mutations: for people as a list, for programs as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mutate import Mutation, Verdict, as_json
from mqttscope.mutate.catalogue import ASSUMED, cited_instead
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
    page.line([f"{count:,} mutations"])


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
