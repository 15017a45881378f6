"""Asks a lake for its fleet report: `fleet_report` runs all questions of this package."""

from __future__ import annotations

from collections.abc import Callable

from mqttscope.analysis.latency import add_latency
from mqttscope.analysis.overview import add_overview
from mqttscope.analysis.questions import Engine, Lake
from mqttscope.analysis.reconnects import add_endings, add_reconnects
from mqttscope.analysis.retained import add_retained
from mqttscope.analysis.rules import add_rules
from mqttscope.analysis.talk import add_talk
from mqttscope.report.fleet.model import PROPERTIES, Asked, FleetReport

PARTS = (add_overview, add_rules, add_latency, add_talk, add_retained, add_endings, add_reconnects)
"""What fills in a report; the questions of each are asked together."""


def fleet_report(
    engine: Engine, asked: Asked | None = None, *, progress: Callable[[int, int], None] | None = None
) -> FleetReport:
    """Ask a lake for the health of its fleet.

    ``progress`` is told how many parts are done, and of how many.
    """
    asked = asked or Asked(group_by=list(PROPERTIES))
    report = FleetReport(engine.lake, asked)
    lake = Lake(engine, asked)
    for number, add in enumerate(PARTS):
        if progress is not None:
            progress(number, len(PARTS))
        add(report, lake)
    return report
