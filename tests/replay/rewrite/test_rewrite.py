"""Rewrites as a whole."""

from __future__ import annotations

import pytest

from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.declare import Malformed
from mqttscope.mqtt.packets import Connect, Publish
from mqttscope.replay.rewrite.rewrite import RewriteError, Rewrites, rewrite
from tests.replay.recordings import NAMES, captured, check_links, links, packets, recorded, snapshot


@pytest.mark.parametrize("name", NAMES)
def test_without_rewrites_everything_is_as_it_was(name: str) -> None:
    scripts = captured(name)
    copies, changes = rewrite(scripts, Rewrites())

    assert not changes
    assert not Rewrites()
    assert links(copies) == links(scripts)
    for script, copy in zip(scripts, copies, strict=True):
        assert copy.connection is script.connection
        for one, other in zip(script.entries, copy.entries, strict=True):
            assert other is not one
            assert other.packet is one.packet
            assert other.raw is one.raw


@pytest.mark.parametrize("name", NAMES)
def test_what_is_changed_has_the_bytes_of_its_packet(name: str) -> None:
    scripts = captured(name)
    before = snapshot(scripts)
    asked = Rewrites.parse(
        ["#=lab/#"],
        ["*=x-*"],
        ["publish.qos=1", "publish.payload=hex:00", "connect.keep_alive=5"],
        ["connect.user_name"],
    )
    copies, changes = rewrite(scripts, asked)

    assert changes or not scripts
    assert snapshot(scripts) == before
    check_links(copies)
    old = {id(entry.packet): entry for script in scripts for entry in script.entries}
    for script in copies:
        for entry in script.entries:
            same = old.get(id(entry.packet))
            if same is not None:
                assert entry.raw is same.raw
            else:
                assert not isinstance(entry.packet, Malformed)
                assert entry.raw == entry.packet.raw == encode(entry.packet, script.version)


def test_fields_that_are_set_hold_whatever_a_mapping_made_of_them() -> None:
    asked = Rewrites.parse(
        ["a=b"],
        ["c1=c2"],
        ["publish.payload=@one", "publish.retain=true"],
        password=b"secret",
        read_file=lambda name: name.encode(),
    )
    (script,), _ = rewrite(recorded((">", Publish(topic_name="a"))), asked)
    hello, _, said = packets(script)

    assert hello == Connect("MQTT", 5, client_identifier="c2", keep_alive=60, password=b"secret")
    assert said == Publish(retain=True, topic_name="b", payload=b"one")


@pytest.mark.parametrize(
    "asked",
    [
        {"topics": ["a"]},
        {"clients": ["a"]},
        {"settings": ["publish.qos"]},
        {"settings": ["publish.qos=7"]},
        {"unset": ["publish.qos"]},
        {"settings": ["publish.payload=@file"]},
    ],
)
def test_mistakes_are_told_before_anything_is_done(asked: dict[str, list[str]]) -> None:
    with pytest.raises(RewriteError):
        Rewrites.parse(
            asked.get("topics", ()), asked.get("clients", ()), asked.get("settings", ()), asked.get("unset", ())
        )
