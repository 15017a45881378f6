"""State can be written down: it is made of plain values alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from enum import Enum

from mqttscope.mqtt import (
    Disconnect,
    PacketStream,
    Pingreq,
    Properties,
    Subscribe,
    Subscription,
)
from mqttscope.session import Connection, Exchange
from tests.session.story import Story, connack, connect, publish


def values(root: object) -> Iterator[tuple[str, object]]:
    """Every value inside an object with the way to it."""
    todo: list[tuple[str, object]] = [(type(root).__name__, root)]
    while todo:
        path, value = todo.pop()
        yield path, value
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            todo += [(f"{path}.{one.name}", getattr(value, one.name)) for one in dataclasses.fields(value)]
        elif isinstance(value, dict):
            todo += [(f"{path}[{key!r}]", part) for key, part in value.items()]
            todo += [(f"{path} key", key) for key in value]
        elif isinstance(value, list):
            todo += [(f"{path}[{index}]", part) for index, part in enumerate(value)]


def assert_plain(root: object) -> None:
    for path, value in values(root):
        plain = value is None or type(value) in (int, str, bytes, bool, list, dict)
        assert plain or isinstance(value, Enum) or dataclasses.is_dataclass(value), f"{path} is a {type(value)}"


def test_state_is_plain_data_after_a_long_story() -> None:
    subscribe = Subscribe(4, subscriptions=[Subscription("a/#", 1)])
    connection = Story(
        ("C", connect(client_identifier="x", receive_maximum=3)),
        ("S", connack(server_keep_alive=3, assigned_client_identifier="y", retain_available=0)),
        ("C", publish(1, 1, "t", topic_alias=2)),
        ("C", publish(2, 2, "", topic_alias=2)),
        ("S", publish(1, 2, "u")),
        ("C", subscribe),
        ("C", Pingreq()),
        ("C", Disconnect(4, Properties(session_expiry_interval=1))),
    ).connection

    assert len(connection.client_side.exchanges) == 3
    assert isinstance(connection.client_side.exchanges[1], Exchange)
    assert_plain(connection)
    assert isinstance(connection, Connection)


def test_streams_are_plain_data_while_they_hold_bytes() -> None:
    held, searching, large = PacketStream(), PacketStream(), PacketStream(max_packet_bytes=8)
    held.feed(b"\x30\x7f\0\x01a")
    searching.gap(9)
    searching.feed(b"\x30\x0a\0\x01")
    large.feed(b"\x30\x7f\0\x01a")

    assert held.held
    assert searching.searching
    assert large.skip
    for stream in (held, searching, large):
        parts = {name: value for name, value in values(stream) if type(value).__name__ != "PacketStream"}
        assert parts
        assert_plain(stream)
