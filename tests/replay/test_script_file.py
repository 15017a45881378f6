"""One connection as a JSON document: what it says, that it comes back as it was, and what is no such document."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from mqttscope.dissect import dissect_segments
from mqttscope.mqtt.packets import Publish
from mqttscope.replay.script import Script, read_scripts
from mqttscope.replay.script_file import (
    FOREIGN,
    OWN,
    ScriptFileError,
    is_script,
    read_script,
    script_file,
    segments_of,
    write_script,
)
from tests.each import each
from tests.replay.recordings import captured
from tests.replay.talk import asked, record

NAMES = ("v5-qos", "v311-will", "many-in-one-segment", "example-alias-length-too-short", "websocket-v5", "v31-qos")
HIDDEN = asked().replace("connect", "connect password=hunter2", 1)


def document(text: str = HIDDEN, *, show_secrets: bool = False) -> dict[str, Any]:
    (script,) = record(text)
    script.connection.client, script.connection.server = "10.0.0.1:5000", "10.0.0.2:1883"
    new_document: dict[str, Any] = json.loads(write_script(script_file(script, show_secrets=show_secrets)))
    return new_document


def said(script: Script) -> list[tuple[bool, bytes]]:
    return [(script_entry.from_client, script_entry.raw) for script_entry in script.entries]


@pytest.mark.parametrize("name", NAMES)
def test_a_connection_comes_back_as_it_was(name: str) -> None:
    for script in captured(name):
        if not script.begins or not script.connection.client.count("."):
            continue
        written = write_script(script_file(script, show_secrets=True))
        file = read_script(written)
        (again,) = read_scripts(dissect_segments(segments_of(file, "a.json", count(1).__next__)))

        assert is_script(written)
        assert said(again) == said(script)
        assert again.ending.how == script.ending.how
        assert again.connection.client_identifier == script.connection.client_identifier
        apart = [
            abs((script_entry.timestamp_ns - again.opened_ns) - (other.timestamp_ns - script.opened_ns))
            for script_entry, other in zip(again.entries, script.entries, strict=True)
        ]
        assert max(apart) < 1_000


def test_secrets_are_asterisks_of_the_same_length() -> None:
    hidden, shown = document(), document(show_secrets=True)

    assert "hunter2" not in json.dumps(hidden)
    assert hidden["hidden"] == [{"step": 0, "fields": ["password"]}]
    assert "MQTTSCOPE_PASSWORD" in hidden["how to give them"]
    assert bytes.fromhex(shown["steps"][0]["bytes"]).endswith(b"hunter2")
    assert bytes.fromhex(hidden["steps"][0]["bytes"]).endswith(b"*******")
    assert shown["hidden"] == []
    assert "how to give them" not in shown


def test_what_acknowledges_whose_message() -> None:
    (script,) = record(
        asked(
            "dev > publish a/b mine qos=0", "dev < publish a/b mine qos=1 id=1", "dev > puback 1",
            "dev < publish a/b other qos=1 id=2", "dev > puback 2", "dev > puback 7",
        )
    )  # fmt: skip

    assert [step.acknowledges for step in script_file(script).steps if step.kind == "puback"] == [OWN, FOREIGN, FOREIGN]


@each(
    "expected, text",
    [
        ("dev > publish a b", "the capture does not have its CONNECT"),
        ("dev < connack", "the capture does not have its CONNECT"),
    ],
)
def test_what_cannot_be_written(expected: str, text: str) -> None:
    (script,) = record(expected)

    with pytest.raises(ScriptFileError, match=text):
        script_file(script)


def test_topics_that_are_not_there() -> None:
    (script,) = record("dev > connect\ndev < connack\ndev < publish - a\ndev < publish - a topic_alias=3")

    assert [step.says for step in script_file(script).steps[2:]] == [
        "PUBLISH QoS 0 to an empty topic", "PUBLISH QoS 0 to an unknown topic",
    ]  # fmt: skip


def test_what_the_capture_lacks() -> None:
    (script,) = record("dev > connect\ndev < connack\ndev > lost 10\ndev > publish a b\ndev < publish a c")
    served, script_entry = script.entries[3], script.entries[2]
    assert isinstance(served.packet, Publish)
    assert isinstance(script_entry.packet, Publish)
    served.packet.missing = 3

    file = script_file(script)
    script_entry.packet.missing = 3
    with pytest.raises(ScriptFileError, match="3 bytes of the packet in frame 3 are not in the capture"):
        script_file(script)

    assert file.lost == 10
    # What a broker sent in part is left out.
    assert [step.kind for step in file.steps] == ["connect", "connack", "publish"]


def _changed(**changes: Any) -> bytes:
    return json.dumps({**document(), **changes}).encode()


def _step(at: int = 1, /, **changes: Any) -> bytes:
    new_document = document()
    new_document["steps"][at].update(changes)
    return json.dumps(new_document).encode()


@each(
    "data, expected",
    [
        (b"{", "it is not JSON"),
        (b"[]", "not a script of a connection"),
        (b'{"a": 1}', "not a script of a connection"),
        (b'{"a":' * 100_000, "it is not JSON"),
        (b'{"script": "mqtt connection"}', '"schema" is not 1'),
        (_changed(version="4.0"), '"version"'),
        (_changed(steps=[]), '"steps" is not a list'),
        (_changed(steps={}), '"steps" is not a list'),
        (_changed(opened_ns="now"), '"opened_ns"'),
        (_changed(client="nobody"), '"client" is not an address'),
        (_changed(client=None), '"client" is not an address'),
        (_changed(server="10.0.0.1:0"), '"server" is not an address'),
        (_changed(hidden=[{"step": 99, "fields": []}]), '"hidden" does not name steps'),
        (_changed(hidden=[1]), '"hidden" does not name steps'),
        (_changed(steps=[1]), "step 0: it is not an object"),
        (_step(1, **{"from": "broker"}), 'step 1: "from" is neither'),
        (_step(after="soon"), 'step 1: "after" is not a number'),
        (_step(after=True), 'step 1: "after" is not a number'),
        (_step(after=-1), 'step 1: "after" is not a number'),
        (_step(after=1e300), 'step 1: "after" is not a number'),
        (_step(0, after=5), 'step 1: "after" is earlier'),
        (_step(bytes="xx"), 'step 1: "bytes" is not hexadecimal'),
        (_step(bytes=None), 'step 1: "bytes" is not hexadecimal'),
        (_step(bytes=" "), 'step 1: "bytes" is empty'),
        (_step(ends="gone"), 'step 1: "ends" is neither'),
    ],
)
def test_what_is_no_script(data: bytes, expected: str) -> None:
    with pytest.raises(ScriptFileError) as error:
        read_script(data)

    assert expected in str(error.value)


def test_two_address_families() -> None:
    file = read_script(_changed(client="[::1]:5000"))

    with pytest.raises(ScriptFileError, match="of different address families"):
        list(segments_of(file, "a.json", count(1).__next__))


def test_a_capture_is_no_script() -> None:
    assert is_script(b"\xef\xbb\xbf \n{")
    assert not is_script(b"\x0a\x0d\x0d\x0a")
    assert not is_script(b"")
