"""Brokers side by side: one row per mutation and version in which they differ or deviate."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape as escape_html

from mqttscope.mqtt.view import utf8
from mqttscope.report.trial.outcome import RANK, Tried, verdict
from mqttscope.trial.verdict import Verdict

SIGNS = {Verdict.CONFORMING: "·"}
UNSPOKEN = "–"
"""Stands where a broker does not speak the version; nothing stands where the case was not played."""
LEGEND = f"{SIGNS[Verdict.CONFORMING]} conforming, {UNSPOKEN} the broker does not speak the version, empty: not played"
Rows = dict[tuple[str, str], list[str]]
STYLE = "table{border-collapse:collapse}td,th{border:1px solid #999;padding:.2em .5em;text-align:left}"


def _rows(runs: Sequence[Tried]) -> Rows:
    """Verdicts by mutation and version, a column for each run; those without any deviation are left out."""
    found: dict[tuple[str, str], list[set[Verdict]]] = {}
    for place, run in enumerate(runs):
        for one in run.results:
            key = one.case.mutation.name, one.case.version.text
            found.setdefault(key, [set() for _ in runs])[place].add(verdict(one))
    kept = {key: cells for key, cells in sorted(found.items()) if any(cell - {Verdict.CONFORMING} for cell in cells)}
    return {
        key: [UNSPOKEN if key[1] in run.unspoken else _cell(cell) for run, cell in zip(runs, cells, strict=True)]
        for key, cells in kept.items()
    }


def _cell(found: set[Verdict]) -> str:
    """The worst verdict; empty where the case was not played."""
    worst = next((one for one in RANK if one in found), None)
    return "" if worst is None else SIGNS.get(worst, str(worst))


def _sums(runs: Sequence[Tried]) -> dict[str, list[str]]:
    counts = [run.verdicts for run in runs]
    return {str(one): [str(row.get(one, 0)) for row in counts] for one in RANK if any(one in row for row in counts)}


def markdown(runs: Sequence[Tried]) -> str:
    """A table of counts and a table of mutations, as Markdown."""
    brokers = [_cell_text(run.broker) for run in runs]
    lines = ["| verdict | " + " | ".join(brokers) + " |", "|---|" + "---:|" * len(runs)]
    lines += [f"| {name} | " + " | ".join(cells) + " |" for name, cells in _sums(runs).items()]
    rows = _rows(runs)
    if rows:
        lines += ["", LEGEND]
    lines += ["", "| mutation | version | " + " | ".join(brokers) + " |", "|---|---|" + "---|" * len(runs)]
    lines += [f"| `{name}` | {version} | " + " | ".join(cells) + " |" for (name, version), cells in rows.items()]
    return "\n".join(lines) + "\n"


def _cell_text(told: str) -> str:
    return utf8(told).replace("\\", "\\\\").replace("|", "\\|")


def html(runs: Sequence[Tried]) -> str:
    """The same as a page that needs nothing else."""
    brokers = "".join(f"<th>{escape_html(utf8(run.broker))}</th>" for run in runs)
    sums = "".join(_line([name, *cells]) for name, cells in _sums(runs).items())
    rows = "".join(_line([name, version, *cells]) for (name, version), cells in _rows(runs).items())
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>mqttscope mutate</title>'
        f"<style>{STYLE}</style>\n<table><tr><th>verdict</th>{brokers}</tr>\n{sums}</table>\n"
        f"<p>{LEGEND}</p>\n<table><tr><th>mutation</th><th>version</th>{brokers}</tr>\n{rows}</table>\n</html>\n"
    )


def _line(cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<td>{escape_html(cell)}</td>" for cell in cells) + "</tr>\n"
