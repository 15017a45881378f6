"""The live connection: what answers what on either side, and what is kept of it."""

from __future__ import annotations

from mqttscope.mqtt import Connect, Puback, Publish
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.properties import Properties
from mqttscope.replay.live import MAX_BEYOND_BYTES, PACKET_BYTES, LiveConnection, PacketBudget, readdressed, sent_again
from mqttscope.replay.script import Script, ScriptEntry
from mqttscope.session.connection import CONNECTED, Connection
from tests.replay.client.playing import begun, say
from tests.replay.talk import read, whole


def test_room_is_limited_for_each_connection_and_for_all() -> None:
    budget = PacketBudget(left=3 * PACKET_BYTES)

    assert budget.reserve(0, b"") == PACKET_BYTES
    assert budget.reserve(MAX_BEYOND_BYTES, b"") == 0
    assert budget.reserve(0, b"x" * PACKET_BYTES) == 2 * PACKET_BYTES
    assert budget.reserve(0, b"") == 0


def test_beyond_the_room_packets_are_counted_and_not_kept() -> None:
    room = PacketBudget(per_connection=3 * PACKET_BYTES + 10)
    player = begun(whole("> connect", "< connack", "< publish t 1"), room=room)
    say(player, *["pingresp"] * 10, "publish t 1")

    texts = [entry.type for entry in player.live.script.entries]
    assert texts == ["connect", "connack", *["pingresp"] * 3, "publish"]
    assert player.live.not_kept == 7


def test_an_acknowledgement_that_is_sent_again_and_again_is_beyond_the_recording() -> None:
    room = PacketBudget(per_connection=4 * PACKET_BYTES + 50)
    exchange = "> publish t qos=2 id=1", "< pubrec 1", "> pubrel 1", "< pubcomp 1"
    player = begun(whole("> connect", "< connack", *exchange), room=room)
    player.perform(0)
    for _ in range(20):
        say(player, "pubrec 1")

    assert len(player.live.script.entries) <= 2 + 3 + 4
    assert player.live.not_kept > 20


def both() -> tuple[LiveConnection, LiveConnection]:
    """One connection as its client and as its server see it."""
    client, server = (Script(Connection(0, "", "", "", 0, 0)) for _ in range(2))
    return LiveConnection(client, plays_client=True), LiveConnection(server, plays_client=False)


def said(live: LiveConnection, *lines: str) -> list[ScriptEntry]:
    """Let both sides say something in turn."""
    for line in lines:
        arrow, words = line.split(" ", 1)
        packet = read(words)
        packet.raw = encode(packet, live.version)
        if (arrow == ">") is live.plays_client:
            live.sent(packet, packet.raw, None, 0)
        else:
            live.received(packet, 0)
    return live.script.entries


def test_both_halves_find_the_same_answers() -> None:
    for live in both():
        entries = said(
            live,
            "> connect", "< connack", "> publish a qos=2 id=1", "< publish b qos=1 id=1",
            "> pingreq", "> puback 1", "< pubrec 1", "> pubrel 1", "< pubcomp 1",
            "< pingresp", "< pingresp", "> puback 1",
        )  # fmt: skip
        answered = [
            None if script_entry.answers is None else entries.index(script_entry.answers) for script_entry in entries
        ]

        assert answered == [None, 0, None, None, None, 3, 2, 2, 2, 4, None, None]
        assert [script_entry.from_client for script_entry in entries] == [at in (0, 2, 4, 5, 7, 11) for at in range(12)]
        assert live.connection.phase is CONNECTED
        assert not live._waiting
        assert live._waiting_bytes == 0


def test_the_first_connect_counts_and_what_is_not_to_be_applied_changes_nothing() -> None:
    _, live = both()
    said(live, "> connect client=first keep_alive=7")
    live.received(Connect(client_identifier="second", keep_alive=9), 0, apply=False)
    said(live, "< connack")

    assert (live.connection.client_identifier, live.connection.keep_alive) == ("first", 7)
    assert live.script.entries[2].answers is live.script.entries[0]


def test_the_oldest_that_wait_for_an_answer_are_forgotten_first() -> None:
    live, _ = both()
    live.max_waiting_bytes = 3 * (PACKET_BYTES + 20)
    said(live, "> connect", "< connack", *(f"> publish a qos=1 id={number}" for number in range(1, 6)))
    first, last = said(live, "< puback 1", "< puback 5")[-2:]

    assert first.answers is None
    assert last.answers is live.script.entries[6]


def test_a_packet_is_readdressed_and_sent_again_as_a_copy() -> None:
    packet = Puback(1, raw=b"x")
    assert readdressed(packet, 1) is packet
    assert readdressed(packet, 2) == Puback(2)
    published = Publish(qos=1, packet_identifier=1, properties=Properties(topic_alias=3, content_type="t"), raw=b"x")
    again = sent_again(published, "topic")

    assert (again.dup, again.topic_name, again.raw) == (True, "topic", b"")
    assert again.properties == Properties(content_type="t")
    assert sent_again(published, None).properties == published.properties
