"""The JSON Schemas of outputs for programs, which are shipped in ``mqttscope/schemas``.

Field names, enumerations and types of values come from the declarations that create the outputs.  Further keys are
allowed: keys are added within schema 1, so that documents of later releases are valid too.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import PurePosixPath

from mqttscope.dev.schemas.events import definitions
from mqttscope.dev.schemas.shared import shared
from mqttscope.report.documents import Schema

FOLDER = PurePosixPath("mqttscope/schemas")
DIALECT = "https://json-schema.org/draft/2020-12/schema"

SCHEMAS: dict[str, tuple[str, str]] = {
    "event-line": ("A line of inspect, sniff and decode", "dev.schemas.events:event_line"),
    "finding-line": ("A line of lint", "report.findings.json:LINE"),
    "findings": ("The document of lint", "report.findings.json:DOCUMENT"),
    "statistics": ("The document of stats", "stats.as_json:DOCUMENT"),
    "explanations": ("The document of explain", "report.explanations.as_json:DOCUMENT"),
    "comparison": ("The document of compare", "report.compare:DOCUMENT"),
    "comparison-line": ("A line of compare", "report.compare:LINE"),
    "redaction": ("The document of redact --format json", "cli.redacting:REPORT"),
    "replay-line": ("A line of replay and serve", "dev.schemas.live:replay_line"),
    "mutate": ("The document of mutate", "dev.schemas.live:mutate"),
    "mutate-line": ("A line of mutate", "dev.schemas.live:mutate_line"),
    "mutate-case": ("A case that mutate --reduce writes", "dev.schemas.live:mutate_case"),
    "script": ("A script of a connection", "dev.schemas.live:script"),
    "baseline": ("A baseline of lint", "dev.schemas.linting:baseline"),
    "lint-settings": ("The document of lint --show-settings", "cli.linting_settings:SHOWN"),
    "rules": ("The document of rules", "report.rules_text:RULES"),
    "coverage": ("The document of rules --coverage", "report.rules_text:COVERAGE"),
    "ingest": ("The document of pipeline ingest", "dev.schemas.lakes:ingest"),
    "fleet-report": ("The document of pipeline report", "dev.schemas.lakes:fleet_report"),
    "answer": ("The document of pipeline sql", "dev.schemas.lakes:answer"),
}
"""Name of the file without its ending -> title, and where the document is declared.

The modules are imported when the schema is made: lake schemas need the packages of lakes."""


def files() -> dict[PurePosixPath, str]:
    """The text of each file by its path, relative to the project."""
    schemas = ((name, json.dumps(schema_of(name), indent=1, ensure_ascii=False)) for name in SCHEMAS)
    return {FOLDER / f"{name}.json": f"{text}\n" for name, text in schemas}


def schema_of(name: str) -> Schema:
    """A schema, with the definitions of events if it refers to them."""
    title, place = SCHEMAS[name]
    module, _, attribute = place.partition(":")
    declared = getattr(import_module(f"mqttscope.{module}"), attribute)
    schema = declared() if callable(declared) else declared
    if "#/$defs/" in json.dumps(schema):
        schema = {**schema, "$defs": definitions()}
    return {"$schema": DIALECT, "title": f"{title}, schema 1", **shared(schema)}
