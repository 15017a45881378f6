"""Messages that did not arrive: equal to `explain --message` of the captures, and losses that are planted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from mqttscope.analysis import undelivered
from mqttscope.capture import open_capture
from mqttscope.dissect import dissect_segments
from mqttscope.dissect import segments as segments_of
from mqttscope.errors import MqttscopeError
from mqttscope.explain.fates import Fate, is_loss
from mqttscope.explain.message_report import MessageReport
from mqttscope.explain.messages import MessageWatch
from mqttscope.lake.options import LakeOptions
from mqttscope.lint.examples import conversation, segments
from mqttscope.net.segment import Segment
from tests import corpora
from tests.analysis.asking import WORDS, rows_of, table_of
from tests.conftest import ROOT
from tests.each import each
from tests.explain.test_messages import AWAY, DELIVERS, FATES, IS_BACK, IS_NEW, LATER, LEAVES, READER, TOPIC, WRITER
from tests.lake.reading import Row, collect
from tests.lint.lint_help import steps_of

TABLES = ("packets", "messages", "connections", "gaps")
MOST_BYTES = 2_000_000
Place = tuple[int, str, str]
"""Frame and topic of a message, and the name of its subscriber."""


def rows_and_fates(read: list[Segment]) -> tuple[list[Row], dict[Place, list[tuple[Fate, bool]]]]:
    """Rows of `undelivered`, and fates of `explain --message` with whether they are losses."""
    tables = collect(dissect_segments(read), LakeOptions())
    query = undelivered.undelivered(WORDS, {name: name for name in TABLES})
    rows = rows_of(query, **{name: table_of(name, tables.get(name, [])) for name in TABLES})
    watch = MessageWatch("#")
    for event in dissect_segments(read):
        watch.feed(event)
    watch.origins.settle()
    deliveries = MessageReport(watch)._deliveries
    fates: dict[Place, list[tuple[Fate, bool]]] = {}
    for message in watch.published.values():
        for key in dict.fromkeys([*message.got, *message.held, *watch.matching(message.topic)]):
            client = watch.clients[key]
            for delivery, held in deliveries.of(message, key, client) if client.server == message.server else ():
                loss = held is not None and is_loss(delivery.fate, message, held, client)
                place = message.frame, message.topic, delivery.client
                fates.setdefault(place, []).append((delivery.fate, loss))
    return rows, fates


def place_of(row: Row) -> Place:
    return row["frame"], row["topic"], row["subscriber"]


@pytest.mark.long
def test_losses_are_the_losses_of_explain() -> None:
    assert compared(ROOT / "captures", is_equal=True) > {"not_sent", "offline"}


@pytest.mark.long
@corpora.needs("captures/field/*.pcap")
def test_losses_of_field_captures_are_the_losses_of_explain() -> None:
    assert compared(corpora.path("captures", "field"), is_equal=True) > {"not_sent", "session_gone"}


@pytest.mark.long
@pytest.mark.parametrize("root", corpora.collections("captures/**/*.pcap"))
def test_what_is_lost_in_a_collection_is_lost_for_explain(root: Path) -> None:
    assert compared(root / "captures")


def compared(root: Path, *, is_equal: bool = False) -> set[str]:
    """Reasons of all rows of the captures in a folder; each lost one is lost for `explain`, and conversely if equal."""
    wrong, reasons = [], set[str]()
    for path in sorted(root.glob("**/*")):
        if path.suffix not in (".pcap", ".pcapng", ".cap") or path.stat().st_size >= MOST_BYTES:
            continue
        try:
            read = segments_of(open_capture([str(path)]))
            rows, fates = rows_and_fates([item for item in read if isinstance(item, Segment)])
        except (MqttscopeError, OSError):
            continue
        reasons.update(row["reason"] for row in rows)
        lost, known = losses(rows, fates)
        # If several messages have one content, another one may be the lost one.
        repeated = {(*place_of(row), row["reason"]) for row in rows if row["repeated"]}
        wrong += [(path, "only in the view", place) for place in lost - known if place not in repeated]
        wrong += [(path, "only in explain", place) for place in known - lost if is_equal]
    assert wrong == []
    return reasons


def losses(
    rows: list[Row], fates: dict[Place, list[tuple[Fate, bool]]]
) -> tuple[Counter[tuple[object, ...]], Counter[tuple[object, ...]]]:
    """Places of the losses with their reasons: of the view, and of `explain --message`."""
    lost = Counter[tuple[object, ...]]((*place_of(row), row["reason"]) for row in rows if row["lost"])
    return lost, Counter((*place, str(fate)) for place, some in fates.items() for fate, is_lost in some if is_lost)


STRICTER = {
    "back": "the only sign that the capture continues is half a packet",
    "it ended, and the client is back": "the only sign that the capture continues is half a packet",
    "the copy of a share, and none for the other subscription, as the identifiers say": "copies have no identifier",
}
"""Conversations with a loss that rows do not prove, and why."""


@each("name, text", [(name, text) for name, (text, *_) in FATES.items()])
def test_losses_of_conversations_are_the_losses_of_explain(name: str, text: str) -> None:
    lost, known = losses(*rows_and_fates(list(segments(conversation("", *steps_of(text))))))
    assert lost == (Counter() if name in STRICTER else known)


def planted(*steps: str) -> list[tuple[str, bool]]:
    """Reasons of the rows of a conversation; its losses are the losses of `explain`."""
    rows, fates = rows_and_fates(list(segments(conversation("", *steps_of(*steps)))))
    lost, known = losses(rows, fates)
    assert lost == known
    return [(row["reason"], row["lost"]) for row in rows]


MORE = "+2 < publish other later; +2 @1 > pingreq"
"""The broker sends the reader something else: it still reads."""


@each("steps, rows", [
    ([READER, WRITER, DELIVERS, MORE], []),
    ([READER, WRITER, MORE], [("not_sent", True)]),
    ([READER, WRITER, LATER], [("not_sent", True)]),
    ([READER, WRITER.replace("id=5", "id=5 dup"), MORE], [("not_sent", True)]),
    ([AWAY, "+1 @2 opened client=reader resume session_expiry_interval=60", WRITER,
      "+1 @3 opened client=reader resume < present"], [("session_gone", True)]),
    ([READER, f"@1 opened client=writer; @1 > publish {TOPIC} hot", MORE], [("not_received", False)]),
    ([READER, f"@1 opened client=writer; @1 > publish {TOPIC} hot", "@1 > publish other x qos=1 id=9; @1 < puback 9",
      MORE], [("not_sent", True)]),
    ([READER, "+1 > disconnect; > fin", f"+1 {WRITER}", LATER], []),
    ([AWAY, f"+1 {WRITER}", LATER], [("offline", False)]),
    ([AWAY, f"+1 {WRITER}", IS_BACK, "+2 @1 > pingreq"], [("not_sent", True)]),
    ([AWAY, f"+1 {WRITER}", IS_NEW, "+2 @1 > pingreq"], [("session_gone", True)]),
    ([AWAY, f"+1 {WRITER}", IS_BACK, f"@2 {DELIVERS}", "+2 @1 > pingreq"], []),
    ([AWAY, f"+1 {WRITER}".replace("id=5", "id=5 message_expiry_interval=2"), IS_BACK, "+2 @1 > pingreq"],
     [("expired", True)]),
    ([READER, WRITER.replace("puback 5", "puback 5 code=0x87"), MORE], [("message_refused", False)]),
    ([READER, LEAVES, WRITER, MORE], []),
])  # fmt: skip
def test_planted_losses(steps: list[str], rows: list[tuple[str, bool]]) -> None:
    assert planted(*steps) == rows


def test_of_equal_contents_as_many_are_lost_as_did_not_come() -> None:
    """Three messages of one content and two deliveries: the last one is named, since another may be the lost one."""
    sends = "; ".join(f"+1 @1 > publish {TOPIC} on qos=1 id={number}; @1 < puback {number}" for number in (5, 6, 7))
    steps = steps_of(READER, "@1 opened client=writer", sends, f"+1 < publish {TOPIC} on qos=1 id=1",
                     f"< publish {TOPIC} on qos=1 id=2", MORE)  # fmt: skip
    rows, _ = rows_and_fates(list(segments(conversation("", *steps))))

    assert [(row["repeated"], row["subscriber"], row["publisher"]) for row in rows] == [(True, "reader", "writer")]


def test_subscriptions_end() -> None:
    steps = steps_of(AWAY, IS_NEW, READER, LEAVES)
    tables = collect(dissect_segments(segments(conversation("", *steps))), LakeOptions())
    packets, connections = (table_of(name, tables[name]) for name in ("packets", "connections"))
    timeline = f"({undelivered.client_timeline('packets', 'connections')})"
    query = f"select ended from ({undelivered.subscription_spans(WORDS, 'packets', timeline)}) order by asked_ns"

    rows = rows_of(query, packets=packets, connections=connections)

    assert [row["ended"] for row in rows] == ["session", "unsubscribe"]
