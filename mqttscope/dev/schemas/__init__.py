"""The JSON Schemas of outputs for programs, which are shipped in ``mqttscope/schemas``.

Field names, enumerations and types of values come from the declarations that make the outputs.  What they leave open is
on purpose: within schema 1 keys are added, so that a document of a later release fits as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import PurePosixPath

from mqttscope.dev.schemas import reports
from mqttscope.dev.schemas.events import event_line
from mqttscope.dev.schemas.linting import baseline, coverage, lint_settings, rules
from mqttscope.dev.schemas.live import mutate, mutate_case, mutate_line, replay_line, script
from mqttscope.dev.schemas.notation import Schema, shared

FOLDER = PurePosixPath("mqttscope/schemas")
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _of_lake(name: str) -> Callable[[], Schema]:
    """What makes a schema of `lakes`, which is loaded no sooner: it needs the packages that lakes need."""

    def made() -> Schema:
        schema: Schema = getattr(import_module("mqttscope.dev.schemas.lakes"), name)()
        return schema

    return made


SCHEMAS: dict[str, tuple[str, Callable[[], Schema]]] = {
    "event-line": ("A line of inspect, sniff and decode", event_line),
    "finding-line": ("A line of lint", reports.finding_line),
    "findings": ("The document of lint", reports.findings),
    "statistics": ("The document of stats", reports.statistics),
    "explanations": ("The document of explain", reports.explanations),
    "comparison": ("The document of compare", reports.comparison),
    "comparison-line": ("A line of compare", reports.comparison_line),
    "redaction": ("The document of redact --format json", reports.redaction),
    "replay-line": ("A line of replay and serve", replay_line),
    "mutate": ("The document of mutate", mutate),
    "mutate-line": ("A line of mutate", mutate_line),
    "mutate-case": ("A case that mutate --reduce writes", mutate_case),
    "script": ("A script of a connection", script),
    "baseline": ("A baseline of lint", baseline),
    "lint-settings": ("The document of lint --show-settings", lint_settings),
    "rules": ("The document of rules", rules),
    "coverage": ("The document of rules --coverage", coverage),
    "ingest": ("The document of pipeline ingest", _of_lake("ingest")),
    "fleet-report": ("The document of pipeline report", _of_lake("fleet_report")),
    "answer": ("The document of pipeline sql", _of_lake("answer")),
}
"""Name of the file without its ending -> title, and what makes it."""


def files() -> dict[PurePosixPath, str]:
    """The text of each file by its path, relative to the project."""
    return {FOLDER / f"{name}.json": json.dumps(made(name), indent=1, ensure_ascii=False) + "\n" for name in SCHEMAS}


def made(name: str) -> Schema:
    title, make = SCHEMAS[name]
    return {"$schema": DIALECT, "title": f"{title}, schema 1", **shared(make())}
