"""Summarises a replay as text and JSON: its plan, its results, broker latencies, and the results of a stand-in broker.

`ReplayOutcome` counts over all connections of a replay; `write_summary` and `summary_document` report it.  `write_plan`
shows the packets that would be sent, for ``--dry-run`` and before anything goes to another host.  `render_latency` and
`latency_lines` compare latencies of the recorded and the live broker.  `ServedOutcome` is for a stand-in broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import itemgetter
from types import SimpleNamespace
from typing import Any, cast

from mqttscope.mqtt.wire import counted
from mqttscope.replay.alterations import Alterations, CauseFinder
from mqttscope.replay.drivers.client import cause, never_came
from mqttscope.replay.drivers.run import ReplayPlan, ReplayRunner
from mqttscope.replay.drivers.serve import ServedConnection, ServerRun
from mqttscope.replay.live import MAX_BEYOND_BYTES, MAX_BEYOND_BYTES_OF_ALL, NoteKind, ReplayNote
from mqttscope.replay.script import Script, ScriptEntry
from mqttscope.replay.server.recorded import recorded_identifier
from mqttscope.replay.verify import verify
from mqttscope.replay.verify.device import DevicePair, verify_device
from mqttscope.replay.verify.difference import Verification
from mqttscope.replay.verify.latency import HANDSHAKES, Quantiles, side_by_side
from mqttscope.report import documents as doc
from mqttscope.report.base import View
from mqttscope.report.jsonl import dumps
from mqttscope.report.page import Page, PageColumn
from mqttscope.report.when import duration
from mqttscope.secrets.credentials import starred, starred_name
from mqttscope.secrets.values import starred_texts


@dataclass(slots=True)
class ReplayOutcome:
    """Results of a finished replay, or of several replays of one recording."""

    broker: str
    pace: str
    recorded: list[Script] = field(default_factory=list)
    live: list[Script | None] = field(default_factory=list)
    """Live connections in the order of ``recorded``; ``None`` without a connection."""
    changes: list[str] = field(default_factory=list)
    """Changes to the recording before anything was sent."""
    notes: Counter[ReplayNote] = field(default_factory=Counter)
    """Deviations from the recording, with their number."""
    failures: Counter[str] = field(default_factory=Counter)
    """Reasons why connections could not be made, or broke."""
    shortfalls: Counter[str] = field(default_factory=Counter)
    """Reasons why connections could not be played as recorded, although nothing broke."""
    never_came: Counter[str] = field(default_factory=Counter)
    """Recorded packets of the broker that did not come although the replay waited for them."""
    not_awaited: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Messages with a shortened wait because earlier ones had not come, by client and Topic Filter."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Reasons why recorded connections were not played."""
    sent: int = 0
    received: int = 0
    seconds: float = 0.0
    recorded_seconds: float = 0.0
    missed: int = 0
    """Number of recorded packets that the replay waited for in vain."""
    too_long: int = 0
    """Expiries in the recording that take too long to wait for."""
    not_kept: int = 0
    """Packets beyond the recording that exceeded the limit: neither compared nor judged."""
    stopped: bool = False
    """Whether the user stopped the replay."""
    not_compared: str = ""
    """Reason why a requested comparison was not made."""
    verification: Verification | None = None

    def noted(self, kind: NoteKind) -> list[tuple[str, int]]:
        return [(note.text, count) for note, count in self.notes.most_common() if note.kind is kind]

    def add_notes(self, notes: Iterable[tuple[ReplayNote, int]]) -> None:
        for note, count in notes:
            self.notes[note] += count

    def add_replay(self, replay: ReplayRunner) -> tuple[list[Script], list[Script | None], set[ScriptEntry]]:
        """Add a finished run; returns its recorded and live connections, and the entries left out on purpose."""
        skipped: set[ScriptEntry] = set()
        recorded: list[Script] = []
        live: list[Script | None] = []
        for driver in replay.drivers:
            player = driver.player
            recorded.append(player.script)
            live.append(player.live.script if driver.link is not None else None)
            self.add_notes(player.live.notes.items())
            skipped |= player.skipped
            self.not_kept += player.live.not_kept
            if driver.failure:
                self.failures[driver.failure] += 1
            if driver.shortfall:
                self.shortfalls[driver.shortfall] += 1
        self.never_came += never_came(replay.drivers, replay.missed, replay.timeouts)
        for (index, topic_filter), count in replay.timeouts.learned.items():
            self.not_awaited[recorded[index].name, topic_filter] += count
        self.recorded += recorded
        self.live += live
        self.sent += replay.context.sent
        self.received += replay.context.received
        self.seconds += replay.seconds
        self.recorded_seconds += replay.recorded_ns / 1e9
        self.missed += replay.context.gates.missed
        self.too_long = max(self.too_long, replay.context.gates.order.too_long)
        self.stopped = self.stopped or replay.stopped
        return recorded, live, skipped

    @property
    def short(self) -> bool:
        """Whether the replay could not be done as recorded."""
        return bool(self.shortfalls or self.never_came)

    @property
    def pairs(self) -> Sequence[tuple[Script, Script | None]]:
        return list(zip(self.recorded, self.live, strict=True))

    @property
    def performed(self) -> int:
        return sum(script is not None for script in self.live)


def compare(
    replay: ReplayRunner,
    recorded: Iterable[Script],
    live: Iterable[Script | None],
    skipped: set[ScriptEntry],
    alterations: Alterations | None,
) -> Verification:
    """Differences between the live run and the recording (`ReplayOutcome.add_replay`), with known causes.

    ``alterations``: changes of the user to the recording before it was played.
    """
    verification = verify(zip(recorded, live, strict=True), skipped=skipped)
    causes = {id(driver.player.script): cause(driver.player, driver.failure) for driver in replay.drivers}
    for difference in verification.differences:
        difference.cause = causes.get(id(difference.script), "")
    if alterations is not None:
        CauseFinder(alterations).mark(verification.differences)
    return verification


MAX_ROWS = 20
"""Maximum number of rows of lists by client; further ones are counted."""
_TITLES = {
    NoteKind.ADAPTED: "Adapted to the live broker",
    NoteKind.SESSION: "Sessions",
    NoteKind.ADDED: "Sent beside the recording",
    NoteKind.SKIPPED: "Not sent",
    NoteKind.ENDED: "Ended otherwise",
}


def write_summary(page: Page, outcome: ReplayOutcome) -> None:
    """Write the results of a replay, and its deviations from the recording."""
    performed = f"{outcome.performed:,} of {counted(len(outcome.recorded), 'connection')}"
    page.line(
        [
            f"replayed to {page.safe(outcome.broker)}",
            f"pace {outcome.pace}",
            performed,
            f"{counted(outcome.sent, 'packet')} sent, {outcome.received:,} received",
            f"{duration(int(outcome.seconds * 1e9))} for {duration(int(outcome.recorded_seconds * 1e9))}",
        ],
        style="bold",
    )
    if outcome.stopped:
        page.line(["stopped before its end"], style="yellow")
    if outcome.not_compared:
        page.paragraph(f"not compared: {outcome.not_compared}", "yellow", indent=2)
    if outcome.not_kept:
        page.paragraph(
            f"{outcome.not_kept:,} {'packet' if outcome.not_kept == 1 else 'packets'} beyond the recording "
            "not kept, compared or measured: the limit is "
            f"{MAX_BEYOND_BYTES >> 20} MiB of a connection, and {MAX_BEYOND_BYTES_OF_ALL >> 20} MiB of all",
            "yellow",
            indent=2,
        )
    for why, count in outcome.failures.most_common():
        page.paragraph(f"{_times(count)}{page.safe(why)}", "red", indent=2)
    for why, count in outcome.left_out.most_common():
        page.paragraph(f"{counted(count, 'connection')} not played: {page.safe(why)}", "yellow", indent=2)
    if outcome.too_long:
        passed = f"{outcome.too_long:,} expir{'y' if outcome.too_long == 1 else 'ies'}"
        page.paragraph(f"{passed} of more than a minute in the recording not waited for", "yellow", indent=2)
    if outcome.missed:
        page.paragraph(f"waited in vain {_times(outcome.missed)}for packets of the recording", "yellow")
    for sentence, count in outcome.shortfalls.most_common():
        page.paragraph(f"{_times(count)}{page.safe(sentence)}", "red", indent=2)
    _write_silence(page, outcome)
    if outcome.changes:
        page.title("Changed before it was played")
        for sentence in outcome.changes:
            page.paragraph(f"  {page.safe(starred(sentence))}", indent=4)
    for kind, title in _TITLES.items():
        rows = outcome.noted(kind)
        if rows:
            page.title(title)
            for text, count in rows:
                page.paragraph(f"{count:>7,}  {page.safe(starred(text))}", indent=9)


def _write_silence(page: Page, outcome: ReplayOutcome) -> None:
    """Write expected packets that did not come, and messages with a shortened wait."""
    rows = outcome.never_came.most_common()
    if rows:
        page.title("Never came")
    for text, count in rows[:MAX_ROWS]:
        page.paragraph(f"{count:>7,}  {page.safe(text)}", indent=9)
    if len(rows) > MAX_ROWS:
        page.line([f"and {len(rows) - MAX_ROWS:,} more; --format jsonl shows all"])
    waited = outcome.not_awaited.most_common()
    for (client, topic_filter), count in waited[:MAX_ROWS]:
        what = f"{starred_name(topic_filter)!r} for {starred_name(client)}"
        shown = f"{counted(count, 'message')} of {what} not waited for in full: earlier ones"
        page.paragraph(page.safe(f"{shown} had not come"), "yellow", indent=2)
    if len(waited) > MAX_ROWS:
        page.line([f"and {len(waited) - MAX_ROWS:,} more; --format jsonl shows all"], style="yellow")


_LEFT_OUT = doc.rows("reason", doc.TEXT, "connections")
_NOTE = doc.record({
    "kind": doc.word(NoteKind).at(lambda row: row[0].kind), "note": doc.TEXT.at(lambda row: row[0].text),
    "times": doc.COUNT.at(itemgetter(1)),
})  # fmt: skip
_NOTES = doc.each(_NOTE).at(lambda outcome: outcome.notes.items())
_NOT_AWAITED = doc.record({
    "name": doc.TEXT.at(lambda row: row[0][0]), "topic_filter": doc.TEXT.at(lambda row: row[0][1]),
    "messages": doc.COUNT.at(itemgetter(1)),
})  # fmt: skip
_FIRST = (
    "schema", "event", "pace", "packets_sent", "packets_received", "seconds", "connections", "left_out", "changes",
    "notes",
)  # fmt: skip
REPLAY = doc.reordered(doc.record({
    "schema": doc.VERSION_1, "event": doc.constant("replay"), "broker": doc.TEXT, "pace": doc.TEXT,
    "connections": doc.COUNT.at(lambda outcome: len(outcome.recorded)), "connected": doc.COUNT.at("performed"),
    "packets_sent": doc.COUNT.at("sent"), "packets_received": doc.COUNT.at("received"), "seconds": doc.SECONDS,
    "recorded_seconds": doc.SECONDS, "stopped": doc.BOOL, "missed": doc.COUNT, "not_kept": doc.COUNT,
    "not_compared": doc.unless_empty(doc.TEXT), "expiries_not_waited_for": doc.COUNT.at("too_long"),
    "failures": _LEFT_OUT, "shortfalls": _LEFT_OUT, "never_came": doc.rows("what", doc.TEXT, "times"),
    "not_waited_for": doc.each(_NOT_AWAITED).at(lambda outcome: outcome.not_awaited.most_common()),
    "left_out": _LEFT_OUT, "changes": doc.each(doc.TEXT), "notes": _NOTES,
}), *_FIRST)  # fmt: skip


def summary_document(outcome: ReplayOutcome) -> dict[str, Any]:
    return cast(dict[str, Any], starred_texts(REPLAY.view(outcome)))


def _times(count: int) -> str:
    return "" if count == 1 else f"{count:,} times "


MAX_PLANNED_ROWS = 50
"""Maximum number of connections listed; further ones are counted."""


def write_plan(
    page: Page, plan: ReplayPlan, scripts: list[Script], *, broker: str, pace: str, length_ns: int, changes: list[str]
) -> None:
    """Write the plan, with a table of connections."""
    packets = sum(plan.packets.values())
    page.line(
        [
            f"would replay to {page.safe(broker)}",
            f"pace {pace}",
            counted(plan.connections, "connection"),
            f"{counted(packets, 'packet')} from clients",
            f"at least {duration(length_ns)}" if length_ns else "as soon as possible",
        ],
        style="bold",
    )
    page.line([f"{count:,} {name.upper()}" for name, count in plan.packets.most_common()])
    for warning in plan.warnings:
        page.paragraph(page.safe(starred(warning)), "yellow", indent=2)
    if changes:
        page.title("Changed before it is played")
        for sentence in changes:
            page.paragraph(f"  {page.safe(starred(sentence))}", indent=4)
    page.title("Connections")
    first = min((script.opened_ns for script in scripts), default=0)
    rows = scripts[:MAX_PLANNED_ROWS]
    page.table(
        PageColumn("client", [starred_name(script.name) for script in rows], style="cyan"),
        [
            PageColumn("#", [f"{script.connection.number}" for script in rows]),
            PageColumn("version", [script.version.text for script in rows]),
            PageColumn("opens after", [duration(script.opened_ns - first) for script in rows]),
            PageColumn(
                "lasts", [duration(max(0, script.ending.timestamp_ns - script.opened_ns)) for script in rows], rank=1
            ),
            PageColumn("packets", [f"{sum(entry.from_client for entry in script.entries):,}" for script in rows]),
            PageColumn("ends", [_ending(script) for script in rows], rank=2, right=False),
        ],
    )
    if len(scripts) > MAX_PLANNED_ROWS:
        page.line([f"and {len(scripts) - MAX_PLANNED_ROWS:,} more"], style="dim")


_PLANNED = doc.record({
    "connection": doc.COUNT.at("connection.number"),
    "client_identifier": doc.maybe(doc.NAME).at("connection.client_identifier"),
    "client": doc.TEXT.at("connection.client"), "version": doc.PROTOCOL.at("version.text"), "opened_ns": doc.WHOLE,
    "ended": doc.TEXT.at("ending.how"), "ended_by": doc.maybe(doc.any_of(doc.SIDE, {"const": ""})).at("ending.by"),
    "packets": doc.COUNT.at(lambda script: sum(entry.from_client for entry in script.entries)),
})  # fmt: skip
_WILL = doc.record({"client_identifier": doc.NAME.at(itemgetter(0)), "will_topic": doc.NAME.at(itemgetter(1))})
PLAN = doc.record({
    "schema": doc.VERSION_1, "event": doc.constant("replay_plan"), "broker": doc.TEXT, "pace": doc.TEXT,
    "duration_ns": doc.WHOLE, "changes": doc.each(doc.TEXT), "packets": doc.mapping(doc.COUNT).at("plan.packets"),
    "retained_topics": doc.each(doc.NAME).at("plan.retained"), "cleared_topics": doc.each(doc.NAME).at("plan.cleared"),
    "wills": doc.each(_WILL).at("plan.wills"), "shared_subscriptions": doc.each(doc.NAME).at("plan.shared"),
    "system_topics": doc.each(doc.NAME).at("plan.system"), "connections": doc.each(_PLANNED),
})  # fmt: skip


def plan_document(
    plan: ReplayPlan, scripts: list[Script], *, broker: str, pace: str, length_ns: int, changes: list[str]
) -> dict[str, Any]:
    """The plan as JSON."""
    document: dict[str, Any] = PLAN.view(SimpleNamespace(
        plan=plan, connections=scripts, broker=broker, pace=pace, duration_ns=length_ns, changes=changes
    ))  # fmt: skip
    return cast(dict[str, Any], starred_texts(document))


def _ending(script: Script) -> str:
    how = {"fin": "closed", "reset": "reset", "open": "still open"}.get(script.ending.how, script.ending.how)
    return f"{how} by the {script.ending.by}" if script.ending.by else how


Times = Mapping[str, Sequence[int]]
"""Nanoseconds by handshake, as measured by `replay.latency`."""

_QUANTILES = {"minimum": "min", "maximum": "max"}


def render_latency(recorded: Times, live: Times, view: View) -> bytes:
    """A table with two rows per handshake; empty if nothing was measured."""
    handshakes = side_by_side(recorded, live)
    if not handshakes:
        return b""
    page = Page(view)
    rows = [row for kind, before, now in handshakes for row in ((kind, "recorded", before), (kind, "live", now))]
    page.title("Latency")
    columns = [PageColumn("broker", [side for _, side, _ in rows], right=False)]
    for quantile in fields(Quantiles):
        name = quantile.name
        rank = {"count": 1, "minimum": 4, "p95": 2, "p99": 3, "maximum": 2}.get(name, 0)
        shown = [_shown(values, name, unicode=page.unicode) for _, _, values in rows]
        columns.append(PageColumn(_QUANTILES.get(name, name), shown, rank))
    page.table(PageColumn("handshake", [HANDSHAKES[kind] for kind, _, _ in rows], whole=True), columns)
    return page.encoded()


def _shown(quantiles: Quantiles | None, name: str, *, unicode: bool) -> str:
    if quantiles is None:
        return ""
    value: int = getattr(quantiles, name)
    return f"{value:,}" if name == "count" else duration(value, unicode=unicode)


_QUANTILES_OF = doc.maybe(doc.record({
    "count": doc.COUNT, "min_ns": doc.WHOLE.at("minimum"), "p50_ns": doc.WHOLE.at("p50"), "p95_ns": doc.WHOLE.at("p95"),
    "p99_ns": doc.WHOLE.at("p99"), "max_ns": doc.WHOLE.at("maximum"),
}))  # fmt: skip
LATENCY = doc.record({
    "schema": doc.VERSION_1, "event": doc.constant("latency"), "kind": doc.TEXT.at(itemgetter(0)),
    "recorded": _QUANTILES_OF.at(itemgetter(1)), "live": _QUANTILES_OF.at(itemgetter(2)),
})  # fmt: skip


def latency_lines(recorded: Times, live: Times) -> bytes:
    """A JSON line per handshake, ``null`` if nothing was measured."""
    return b"".join(dumps(LATENCY.view(row)) + b"\n" for row in side_by_side(recorded, live))


_DEVIATIONS = {
    NoteKind.ADAPTED: "Adapted to the device",
    NoteKind.SESSION: "Sessions",
    NoteKind.ADDED: "Beside the recording",
    NoteKind.SKIPPED: "Not sent",
    NoteKind.ENDED: "Ended otherwise",
}


@dataclass(slots=True)
class ServedOutcome:
    """Results of a finished run of a stand-in broker."""

    pace: str
    served: list[ServedConnection] = field(default_factory=list)
    unplayed: list[Script] = field(default_factory=list)
    """Recorded connections that no device made."""
    recorded: int = 0
    sent: int = 0
    received: int = 0
    seconds: float = 0.0
    complete: bool = False
    changes: list[str] = field(default_factory=list)
    """Changes to the recording before the run."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Reasons why recorded connections could not be played."""
    notes: Counter[ReplayNote] = field(default_factory=Counter)
    """Deviations from the recording, with their number."""

    @classmethod
    def from_run(cls, serving: ServerRun, pace: str, changes: list[str]) -> ServedOutcome:
        """The outcome of a closed run."""
        outcome = cls(pace, serving.served, _never(serving), len(serving.scripts), serving.sent, serving.received)
        outcome.seconds, outcome.complete = serving.clock.since_start_ns() / 1e9, serving.complete
        outcome.changes = changes
        outcome.notes.update(serving.notes)
        return outcome

    @property
    def played(self) -> int:
        """Number of device connections matched with a recorded one."""
        return sum(connection.recorded is not None for connection in self.served)

    def verify(self) -> Verification:
        """Compare the devices with the recorded clients."""
        pairs, extra = [], []
        for connection in self.served:
            if connection.recorded is None or connection.played is None:
                extra.append(connection.live)
                continue
            converted = connection.recorded.connect if connection.played is not connection.recorded else None
            pairs.append(DevicePair(connection.played, connection.live, converted))
        return verify_device(pairs, unplayed=self.unplayed, extra=extra)


def _never(serving: ServerRun) -> list[Script]:
    used = {id(connection.recorded) for connection in serving.served}
    return [script for script in serving.scripts if id(script) not in used]


def write_served(page: Page, outcome: ServedOutcome) -> None:
    """Write the results of a stand-in broker, and its deviations from the recording."""
    matched = outcome.recorded - len(outcome.unplayed)
    page.line(
        [
            f"served {matched:,} of {counted(outcome.recorded, 'recorded connection')}",
            f"pace {outcome.pace}",
            counted(len(outcome.served), "connection"),
            f"{counted(outcome.sent, 'packet')} sent, {outcome.received:,} received",
            duration(int(outcome.seconds * 1e9)),
        ],
        style="bold",
    )
    for script in outcome.unplayed[:MAX_ROWS]:
        name = script.name if recorded_identifier(script) != "" else "(no Client Identifier)"
        page.line([f"never connected: {page.safe(name)}"], style="yellow")
    if len(outcome.unplayed) > MAX_ROWS:
        page.line([f"and {len(outcome.unplayed) - MAX_ROWS:,} more"], style="yellow")
    for why, count in outcome.left_out.most_common():
        page.line([f"{counted(count, 'connection')} not played: {page.safe(why)}"], style="yellow")
    if outcome.changes:
        page.title("Changed before it was played")
        for sentence in outcome.changes:
            page.line([f"  {page.safe(sentence)}"])
    for kind, title in _DEVIATIONS.items():
        rows = [(note.text, count) for note, count in outcome.notes.most_common() if note.kind is kind]
        if rows:
            page.title(title)
            for text, count in rows:
                page.line([f"  {count:>7,}  {page.safe(text)}"])


SERVE = doc.reordered(doc.record({
    "schema": doc.VERSION_1, "event": doc.constant("serve"), "pace": doc.TEXT,
    "recorded_connections": doc.COUNT.at("recorded"),
    "connections": doc.COUNT.at(lambda outcome: len(outcome.served)), "played": doc.COUNT, "complete": doc.BOOL,
    "never_connected": doc.each(doc.COUNT.at("connection.number")).at("unplayed"),
    "packets_sent": doc.COUNT.at("sent"), "packets_received": doc.COUNT.at("received"), "seconds": doc.SECONDS,
    "left_out": _LEFT_OUT, "changes": doc.each(doc.TEXT), "notes": _NOTES,
}), *_FIRST)  # fmt: skip
served_document = SERVE.view
"""Makes a JSON document of a `ServedOutcome`."""
