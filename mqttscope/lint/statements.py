"""The normative statements of the specifications, in the project's own words.

The identifier of a statement means nothing without its version: 3.1.1 and 5.0 number different sentences alike.
Numbers are those of the OASIS Standards (5.0: 7 March 2019; 3.1.1: 29 October 2014); statements that the standards do
not number have identifiers of this project (``V5-…``, ``V311-…``, ``V31-…``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from mqttscope.mqtt.constants import ProtocolVersion

FILE = "statements.jsonl"


@dataclass(slots=True, frozen=True)
class Statement:
    """One sentence that binds somebody."""

    version: str
    """``3.1``, ``3.1.1`` or ``5.0``."""
    identifier: str
    section: str
    packet: str
    who: str
    """Whom it binds: ``client``, ``server``, ``both``, ``any``."""
    summary: str
    visible: str
    """How far one has to look to see a violation: ``packet``, ``connection``, ``session``, ``broker``, ``indirect``
    (only by its consequences) or ``no``."""
    note: str
    """How a violation is seen, or why it cannot be."""
    planned: str | None
    """Code of the rule that is to see it, where that rule is not there yet."""

    @property
    def key(self) -> str:
        """The identifier with its version: ``5.0 MQTT-3.3.1-4``."""
        return f"{self.version} {self.identifier}"


@cache
def all_statements() -> dict[str, Statement]:
    """Every statement by `Statement.key`, in the order of the specifications."""
    text = files("mqttscope.lint").joinpath(FILE).read_text("utf-8")
    rows = (Statement(**json.loads(line)) for line in text.splitlines())
    return {row.key: row for row in rows}


def statement(version: ProtocolVersion, identifier: str) -> Statement | None:
    """The statement with this identifier in this version."""
    return all_statements().get(f"{version.text} {identifier}")
