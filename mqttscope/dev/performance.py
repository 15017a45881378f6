"""docs/performance.md: the figures of the benchmark in the text of a template.

``python -m tests.bench`` writes the figures; the page follows from them, so that a check needs no benchmark.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
BENCH = ROOT / "tests" / "bench"
PAGE = ROOT / "docs" / "performance.md"
REFERENCE, YARDSTICK = "tshark -T fields, 8 fields", "C program"
TITLES = {
    "unfriendly": "Unfriendly: no payload recurs, much to report",
    "clean": "Clean: recurring payloads, nothing to report",
    "short": "Short connections, with retransmissions and reordering",
}
NOTHING = "–"
_HEAD = (
    "| command | s | s without kernel | times tshark's speed | without kernel | times the C program's time | MB "
    "| MB without kernel | packets |"
)


def page(figures: dict[str, Any] | None = None) -> str:
    """The page for these figures; by default for the stored ones."""
    figures = figures or json.loads((BENCH / "figures.json").read_text("utf-8"))
    captures = figures["captures"]
    text = (BENCH / "performance.md").read_text("utf-8")
    for name, content in {
        "first": _first(captures["unfriendly"]),
        "machine": _machine(figures),
        "captures": "\n\n".join(f"### {title}\n\n{_table(captures[name])}" for name, title in TITLES.items()),
    }.items():
        text = text.replace(f"{{{{{name}}}}}", content)
    return text


def _first(capture: dict[str, Any]) -> str:
    """The commands of a default installation on one capture."""
    reference = _seconds(capture, REFERENCE)
    lines = ["| command | seconds | times the speed of tshark | MB |", "|---|--:|--:|--:|"]
    lines += [
        f"| `{program['name']}` | {program['seconds']:.2f} | {_ratio(reference, program['seconds'])} | "
        f"{program['megabytes']:,} |"
        for program in capture["programs"]
        if program["kernel"]
    ]
    return "\n".join(lines)


def _machine(figures: dict[str, Any]) -> str:
    """How the figures were measured."""
    rounds = "one round" if figures["rounds"] == 1 else f"the minimum of {figures['rounds']} rounds in turn"
    skipped = "".join(f" Without {name}: {reason}." for name, reason in figures["skipped"].items())
    return (
        f"Measured on {figures['measured']}: {figures['machine']}; {figures['frames']:,} frames; processor time"
        f" (user and system), {rounds}; load before it {figures['load']:.1f}.{skipped}"
    )


def _table(capture: dict[str, Any]) -> str:
    """All programs on one capture; a row of mqttscope has figures with and without the native kernel."""
    reference, yardstick = _seconds(capture, REFERENCE), _seconds(capture, YARDSTICK)
    contents = (
        f"{capture['packets']:,} packets of {capture['connections']:,} connections, {capture['megabytes']:,} MB, "
        f"{capture['findings']:,} findings."
    )
    lines = [contents, "", _HEAD, "|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    plain = {program["name"]: program for program in capture["programs"] if program["kernel"] is False}
    for program in capture["programs"]:
        if program["kernel"] is False:
            continue
        name, seconds = program["name"], program["seconds"]
        packets = NOTHING if program["packets"] is None else f"{program['packets']:,}"
        times = NOTHING if yardstick is None else f"{seconds / yardstick:,.1f}"
        plain_seconds = plain_ratio = plain_size = NOTHING
        if name in plain:
            other = plain[name]
            plain_seconds, plain_size = f"{other['seconds']:.2f}", f"{other['megabytes']:,}"
            plain_ratio = _ratio(reference, other["seconds"])
        lines.append(
            f"| `{name}` | {seconds:.2f} | {plain_seconds} | {_ratio(reference, seconds)} | {plain_ratio} | {times} | "
            f"{program['megabytes']:,} | {plain_size} | {packets} |"
        )
    return "\n".join(lines)


def _seconds(capture: dict[str, Any], name: str) -> float | None:
    return next((program["seconds"] for program in capture["programs"] if program["name"] == name), None)


def _ratio(reference: float | None, seconds: float) -> str:
    return NOTHING if reference is None else f"{reference / seconds:.2f}"
