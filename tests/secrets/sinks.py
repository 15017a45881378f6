"""Everything that writes what was captured, in process: the outputs of one capture, by the names of their formats."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from mqttscope.api.decoding import Sequence
from mqttscope.dissect import dissect_segments
from mqttscope.dissect.options import Options
from mqttscope.events import Event
from mqttscope.lint.catalogue import all_rules, usual_rule
from mqttscope.lint.engine import Linter
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.net.segment import Segment
from mqttscope.replay.drivers.run import make_plan
from mqttscope.replay.script import read_scripts
from mqttscope.replay.verify import verify
from mqttscope.report.base import Reporter, View
from mqttscope.report.broker_test.outcome import concealed
from mqttscope.report.findings.base import RunSummary
from mqttscope.report.findings.sarif import head
from mqttscope.report.findings.shown import FORMATS, make_reporter
from mqttscope.report.html.packets import PacketPage
from mqttscope.report.html.page import script, style
from mqttscope.report.jsonl import EventJsonLines, dumps
from mqttscope.report.ladder import Ladder
from mqttscope.report.page import Page
from mqttscope.report.replay.json import ReplayJson
from mqttscope.report.replay.summary import plan_document, write_plan
from mqttscope.report.replay.text import ReplayText
from mqttscope.report.table import Table
from mqttscope.report.text import TextLines
from mqttscope.report.tree import Tree
from mqttscope.stats.as_html import MeasuredPage
from mqttscope.stats.as_html import render as page
from mqttscope.stats.as_json import document
from mqttscope.stats.as_text import render
from mqttscope.stats.collect import Statistics
from tests import tools
from tests.secrets.mutants import Mutant

READING = Options({8080: "ws"})


class Text:
    """A sink that keeps what is written."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.parts.append(data)

    def whole(self) -> bytes:
        return b"".join(self.parts)


@cache
def rules() -> tuple[Rule, ...]:
    """All rules."""
    return tuple(usual_rule(rule) for rule in all_rules().values())


def bare(page: bytes) -> bytes:
    """A page without its style and its script, which come from no capture and are long."""
    return page.replace(style().encode(), b"").replace(script().encode(), b"")


def outputs(mutant: Mutant) -> Iterator[tuple[str, bytes]]:
    """What every format says of a damaged conversation."""
    yield from inspected(mutant.segments)
    yield from linted(mutant.segments)
    yield "lake", rows(mutant.segments)
    yield from replayed(mutant)
    if not mutant.scene.web:
        yield from decoded(b"".join(mutant.client), "client")
        yield from decoded(b"".join(mutant.server), "server")
        for side in (mutant.client, mutant.server):
            for version in ProtocolVersion:
                yield "mutate", b"\n".join(concealed(side, version, mutant.scene.secrets))


def inspected(segments: list[Segment]) -> Iterator[tuple[str, bytes]]:
    """``inspect`` and ``stats``."""
    view = View(width=0)
    sinks = [Text() for _ in range(7)]
    reporters: list[Reporter] = [
        TextLines(sinks[0], view), Tree(sinks[1], View(width=120)), Ladder(sinks[2], view), Table(sinks[3], view),
        EventJsonLines(sinks[4]), Tree(sinks[5], View(width=60, payload="hex")),
        MeasuredPage(PacketPage(sinks[6], view)),
    ]  # fmt: skip
    statistics = Statistics()
    for event in dissect_segments(segments, READING):
        for reporter in reporters:
            reporter.feed(event)
        statistics.feed(event)
    for reporter in reporters:
        reporter.close()
    yield from zip(
        ("text", "tree", "ladder", "csv", "jsonl", "narrow tree", "html"), (bare(sink.whole()) for sink in sinks),
        strict=True,
    )  # fmt: skip
    statistics.finish()
    yield "stats", render(statistics, view)
    yield "stats json", dumps(document(statistics))
    yield "stats html", bare(page(statistics))


def linted(segments: list[Segment]) -> Iterator[tuple[str, bytes]]:
    """``lint`` in all formats."""
    linter = Linter(rules())
    findings = [finding for event in dissect_segments(segments, READING) for finding in linter.feed(event)]
    # Reports list their rules in full; a few of them will do.
    broken = {finding.rule for finding in findings}
    summary = RunSummary(
        rules=[rule for rule in linter.rules if rule.code in broken], quality=linter.quality, withheld=linter.withheld
    )
    for name in FORMATS:
        sink = Text()
        reporter = make_reporter(name, sink, View(width=100))
        for finding in findings:
            reporter.feed(finding)
        reporter.close(summary)
        # What SARIF says of all rules comes from no capture either.
        yield f"lint {name}", bare(sink.whole().removeprefix(head()))
    yield "internal errors", repr(linter.internal_errors).encode()


def rows(segments: list[Segment]) -> bytes:
    """The rows of a lake, and what it remembers of sessions and servers."""
    for name in ("pyarrow", "msgspec"):
        tools.package(name)
    from mqttscope.lake.options import LakeOptions
    from mqttscope.lake.public import PUBLIC
    from mqttscope.lake.state import dump, load
    from mqttscope.lake.tables import Collector

    collector = Collector(LakeOptions(READING, rules=rules(), payload_limit=4096), rules=rules())
    for event in dissect_segments(segments, collector.options.reading()):
        collector.feed(event)
    parts: list[bytes] = []
    for row in collector.rows.values():
        _flat(row, parts)
    for key, memory in collector.key_memories(()).items():
        _flat([key, repr(load(dump(memory, shown=PUBLIC)))], parts)
    return b"\n".join(parts)


def _flat(value: Any, parts: list[bytes]) -> None:
    if isinstance(value, bytes | bytearray):
        parts.append(bytes(value))
    elif isinstance(value, str):
        parts.append(value.encode("utf-8", "surrogateescape"))
    elif isinstance(value, dict):
        for each in value.values():
            _flat(each, parts)
    elif isinstance(value, list | tuple):
        for each in value:
            _flat(each, parts)


def replayed(mutant: Mutant) -> Iterator[tuple[str, bytes]]:
    """``replay``: the plan, and the mutant as the answer to what was meant."""
    scripts = read_scripts(dissect_segments(mutant.segments, READING))
    plan, view = make_plan(scripts), View(width=100)
    more: dict[str, Any] = {"broker": "mqtt://127.0.0.1", "pace": "asap", "length_ns": 0, "changes": []}
    page = Page(view)
    write_plan(page, plan, scripts, **more)
    yield "replay plan", page.encoded() + dumps(plan_document(plan, scripts, **more))
    verification = verify([(script, script) for script in scripts])
    others = verify([(script, None) for script in scripts])
    for name, kind in (("replay text", ReplayText), ("replay jsonl", ReplayJson)):
        sink = Text()
        for single_verification in (verification, others):
            report = kind(sink, view)
            for difference in single_verification.differences:
                report.feed(difference)
            report.close(single_verification)
        yield name, sink.whole()


def decoded(raw: bytes, sender: str) -> Iterator[tuple[str, bytes]]:
    """``decode``."""
    if not raw:
        return
    sink = Text()
    tree = Tree(sink, View(width=100, time="none"))
    for event in Sequence(None, sender).events(raw):
        tree.feed(event)
    yield "decode", sink.whole()
    yield "decode jsonl", b"".join(Sequence(None, sender).json(raw, 4096, show_secrets=False))


def events(mutant: Mutant) -> list[Event]:
    """What the dissector says."""
    return list(dissect_segments(mutant.segments, READING))
