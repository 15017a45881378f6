"""What rules remember of a server in parts: which ends of connections can be left out (and test_small_batch.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mqttscope.lake.key_parts import OF_A_CONNECTION, models_of, rows_of_key
from mqttscope.lake.memory import key_memory
from mqttscope.lake.tracker import KeyMemory, OpenConnection
from mqttscope.lint.engine import Linter
from mqttscope.lint.finding import Scope
from mqttscope.net.segment import Segment, group_key
from tests.lake.reading import CAPTURES, Fold, all_of_them, options, read_segments

RICH = ("equal-identifiers", "misdelivered", "retained-mishandled", "wills-mishandled")
CUTS = 6
WHOM = bytes(12), 5, 7


def restless(segments: list[Segment]) -> Iterator[tuple[bool, int]]:
    """Of each server of a capture that was read so far: whether its connections cannot be left out, and what is found
    if they end.
    """
    fold = Fold(options())
    fold.ingest(segments)
    for name in sorted({key for keys in fold.flow_keys.values() for key in keys}):
        states = [row for row in fold.states if name in row["keys"]]
        ends = {row["flow"]: row["ending_ns"] for row in states}
        asked = [row for row in fold.keys if row["key"] == name and row["next_ns"] is not None]
        waits = any(row["next_ns"] <= (ends.get(row["flow"]) or 0) for row in asked)
        own = {each for row in states for each in row["connections"]}
        result = sum(row["connection_id"] in own and row["scope"] != "connection" for row in fold.open)
        yield None in ends.values() or waits, result


def test_no_rule_has_anything_to_say_of_the_end_of_what_is_not_restless() -> None:
    quiet = loud = 0
    for capture in (path for path in CAPTURES if path.parent.name in RICH):
        segments = read_segments(capture)
        for number in range(1, CUTS):
            for is_restless, shown_number in restless(segments[: number * len(segments) // CUTS]):
                assert is_restless or not shown_number, (capture.parent.name, number)
                quiet += not is_restless
                loud += is_restless
    assert quiet > loud > 0


def test_what_shares_objects_is_one_part() -> None:
    linter = Linter(all_of_them())
    parts = models_of(linter)

    assert {parts[rule.code] for rule in linter.rules if rule.code in ("DLV411", "FLW404", "ENC411")} == {"messages"}
    assert parts["RET406"] == parts["retained_store"] == "retained_store"
    assert parts["RET407"] == "RET407"


def test_rows_of_a_key() -> None:
    linter = Linter(all_of_them())
    documents: dict[Any, dict[str, Any]] = {
        ("s:1883",): {"DLV416": {"a": 1}, "messages": {"b": 2}, "DLV411": {"c": 3}},
        ("s:1883", "name"): {"session": {"d": 4}},
        ("s:1883", WHOM): {"session": {"e": 5}},
    }
    memory = KeyMemory(documents, {WHOM: OpenConnection({"RET406": 40}, {"WIL404": 30})})
    rows = rows_of_key("s:1883", memory, linter, whole=False)

    flow = group_key(WHOM[0])
    assert [(row[0], *row[2:]) for row in rows] == [
        ("s:1883", rows[0][2], "DLV416", None, None),
        ("s:1883", rows[0][2], "messages", None, None),
        ("s:1883", rows[0][2], "s:1883 name", None, None),
        ("s:1883", 40, OF_A_CONNECTION, flow, 30),
    ]
    actual_memory = KeyMemory()
    for row in rows:
        other_memory = key_memory(row[1])
        for key, memories in other_memory.memories.items():
            actual_memory.memories.setdefault(key, {}).update(memories)
        actual_memory.open |= other_memory.open
    assert actual_memory == memory
    ((_, state, due_ns, *rest),) = rows_of_key("s:1883 name", memory, linter, whole=True)
    assert (key_memory(state), due_ns, rest) == (memory, 40, [None, None, None])
    assert {rule.scope for rule in linter.rules} > {Scope.BROKER}
