"""Names in rows and memories, and nothing beside them, are replaced."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pyarrow as pa

from mqttscope.lake.name_mask import NameMask, is_program_word, texts_in
from mqttscope.lake.schemas import PACKETS
from mqttscope.lake.state import dump, load, unpacked
from mqttscope.lake.tracker import KeyMemory, TrackedMessage

MASK = NameMask(["dev-1", 'a"b', "Zoë"], ["dev-1", "dev-1-b", "dev-12"])


def test_texts() -> None:
    for text, masked in (
        ("site/dev-1/up", "site/*****/up"),
        ("dev-12 dev-1-b xdev-1 dev-1x", None),
        ("dev-1_dev-1", "*****_*****"),
        ('{"id":"a\\"b"}', '{"id":"****"}'),
        ("?id=Zo%C3%AB&x", "?id=********&x"),
        ("Zoë", "***"),
        ("Zo\\u00eb", "********"),
    ):
        assert MASK.masked(text) == (masked or text)
        assert MASK.is_in(text) is (masked is not None)
        assert MASK.is_in(text.encode()) is (masked is not None)


def test_rows() -> None:
    row = dict.fromkeys(PACKETS.names)
    content = {"topic": "a/dev-1", "payload": b"dev-1", "topic_filters": ["b", "dev-1"], "connection_id": "dev-1",
               "properties": {"user_property": [{"name": "dev-1", "value": "dev-12"}]}}  # fmt: skip
    batch = pa.RecordBatch.from_pylist([row | content, row | {"topic": "a"}], schema=PACKETS.arrow())
    assert MASK.places(batch) == {"topic": 1, "payload": 1, "topic_filters": 1, "properties": 1}
    masked = MASK.mask_rows(batch).to_pylist()
    assert masked[0]["topic"] == "a/*****"
    assert (masked[0]["payload"], masked[0]["topic_filters"]) == (b"*****", ["b", "*****"])
    assert masked[0]["properties"]["user_property"] == [{"name": "*****", "value": "dev-12"}]
    assert masked[0]["connection_id"] == "dev-1"
    assert masked[1] == batch.to_pylist()[1]
    assert MASK.without_rows(batch).to_pylist() == batch.to_pylist()[1:]
    plain = batch.slice(1)
    assert MASK.mask_rows(plain) is plain
    assert MASK.without_rows(plain) is plain


def test_memories() -> None:
    message = TrackedMessage(["dev-1", "to/dev-1", b"x\5dev-1y", "tcp"], 1, 2)
    state = dump(message)
    exact = load(MASK.rename_state(state, everywhere=False))
    assert exact.head[1:] == message.head[1:]
    assert len(exact.head[0]) == 5
    assert exact.head[0] != "dev-1"
    name = exact.head[0]
    changed = load(MASK.rename_state(state, everywhere=True))
    assert changed.head == [name, f"to/{name}", b"x\5%sy" % name.encode(), "tcp"]
    assert MASK.has_in_state(state)
    other = dump(TrackedMessage(["dev-12"], 1, 2), compress=False)
    assert MASK.rename_state(other, everywhere=True) is other
    assert not MASK.has_in_state(other)


def test_memories_of_a_session_are_about_its_client() -> None:
    memories: dict[tuple[Hashable, ...], dict[str, Any]]
    memories = {("10.0.0.1:1883", "dev-1"): {"TOP101": ["to/dev-1"]}, ("10.0.0.1:1883", "x"): {"TOP101": ["to/dev-1"]}}
    renamed = load(MASK.rename_state(dump(KeyMemory(memories)), everywhere=False)).memories
    (own, its), (other, others) = renamed.items()
    assert its == {"TOP101": [f"to/{own[1]}"]}
    assert own[1] != "dev-1"
    assert (other, others) == (("10.0.0.1:1883", "x"), {"TOP101": ["to/dev-1"]})
    assert "to/dev-1" in set(texts_in(unpacked(dump(memories))))


def test_words_of_the_program() -> None:
    assert is_program_word("tcp")
    assert is_program_word("KAL201")
    assert not is_program_word("dev-1")
