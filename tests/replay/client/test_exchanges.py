"""Which recorded packet of the server a live one is, what is acknowledged to it, and sessions of clients."""

from __future__ import annotations

from mqttscope.mqtt import Disconnect, Properties, ProtocolVersion, Puback, Pubcomp, Publish, Pubrec, Pubrel
from mqttscope.replay.client.exchanges import ClientSessions, Correspondence
from mqttscope.replay.live import NoteKind, UnfinishedMessage
from mqttscope.replay.script import Script, ScriptEntry
from tests.replay.client.playing import begun, interrupted, player, resumed, say, sent
from tests.replay.recordings import V3_1, V5
from tests.replay.talk import session, whole


def test_equal_ones_in_their_order_and_each_once() -> None:
    script = session("< publish a 1", "< publish b 1", "< publish a 1", "> publish a 2")
    recorded = Correspondence(script)

    def match(topic: str, payload: bytes) -> ScriptEntry | None:
        packet = Publish(topic_name=topic, payload=payload)
        entry = ScriptEntry(False, packet, topic, 0, 0)
        recorded.delivery(entry, packet)
        return entry.source

    assert [match("a", b"1") for _ in range(3)] == [script.entries[2], script.entries[4], None]
    assert match("b", b"1") is script.entries[3]
    assert match("a", b"2") is None


def live(source: ScriptEntry, answers: ScriptEntry | None = None) -> ScriptEntry:
    """The same packet once more."""
    return ScriptEntry(source.from_client, source.packet, source.topic, 0, 0, answers=answers)


def test_an_answer_is_the_recorded_one_and_ends_what_is_waited_for() -> None:
    script = session("> publish a qos=1 id=1", "< puback 1")
    _, _, published, acknowledged, _ = script.entries
    correspondence = Correspondence(script)
    sent = live(published)
    sent.source = published
    answer = live(acknowledged, sent)
    correspondence.answer(answer)

    assert answer.source is acknowledged
    assert correspondence.matched == {acknowledged}
    assert acknowledged in correspondence.done
    again = live(acknowledged, sent)
    correspondence.answer(again)
    assert again.source is None


def test_the_answer_to_a_fence_is_all_that_it_is_for() -> None:
    script = session("> publish a")
    correspondence = Correspondence(script, {script.entries[2]})
    ping = ScriptEntry(True, Puback(1), None, 0, 0)
    correspondence.fence(ping, script.entries[2])
    answer = ScriptEntry(False, Puback(1), None, 0, 0, answers=ping)
    correspondence.answer(answer)

    assert correspondence.done == [script.entries[2]]
    assert answer.source is None


def test_what_is_said_instead_lets_nobody_wait_for_what_was_next() -> None:
    script = session("< publish a", "< publish b")
    correspondence = Correspondence(script)
    correspondence.match(live(script.entries[1]), correspondence.awaited)
    correspondence.done.clear()
    correspondence.replaced()

    assert correspondence.done == [script.entries[2]]
    correspondence.await_nothing()
    assert set(correspondence.done) == set(script.entries[1:4])


def hasty(version: ProtocolVersion = V5) -> Script:
    """A client that does not wait for the CONNACK."""
    exchange = "< pubrec 1", "> pubrel 1", "< pubcomp 1"
    lines = "> connect keep_alive=60", "> publish a qos=2 id=1", "< connack", *exchange, "> disconnect"
    return whole(*lines, version=version)


def test_what_was_sent_ahead_of_connack_is_not_forgotten_with_the_session() -> None:
    client_player = player(hasty())
    for _ in range(2):
        sent(client_player.perform(0))
    assert say(client_player, "connack", "pubrec 1") == [Pubrel(1)]
    assert not client_player.live.notes


def test_what_was_sent_ahead_of_connack_is_not_sent_again() -> None:
    """3.1 has no Session Present: a client cannot know that the session is new."""
    client_player = player(hasty(V3_1))
    for _ in range(2):
        sent(client_player.perform(0))
    say(client_player, "connack")
    assert not client_player.urgent


def test_a_session_that_is_gone_forgets_what_earlier_connections_sent() -> None:
    first, second = resumed("> publish b qos=1 id=2", "< connack present", "< puback 2")
    other = player(second, sessions=interrupted(first))
    for _ in range(2):
        sent(other.perform(0))
    say(other, "connack")

    assert list(other.session.unfinished) == [2]
    assert {note.kind for note in other.live.notes} == {NoteKind.SESSION}


def test_nothing_follows_the_disconnect_whatever_the_server_says() -> None:
    client_player = begun(session("> publish a qos=2 id=1"))
    for _ in range(2):
        sent(client_player.perform(0))
    assert client_player.acknowledger.closed
    assert say(client_player, "pubrec 1", "publish b qos=1 id=7") == []
    assert not client_player.urgent


def test_the_recorded_release_is_used_where_the_recording_has_the_client_alone() -> None:
    """PUBREC and all else of the server is not in the recording."""
    release = "> pubrel 1 code=0 user_property=k:v"
    client_player = player(whole("> connect", "> publish a qos=2 id=1", release, "> disconnect"))
    sent(client_player.perform(0))
    say(client_player, "connack")
    sent(client_player.perform(0))
    (result,) = say(client_player, "pubrec 1")

    assert result.properties == Properties(user_property=[("k", "v")])
    assert not client_player.live.notes


def test_what_comes_twice_is_a_further_delivery() -> None:
    script = session("< publish a")
    client_player = begun(script)
    say(client_player, "publish a", "publish a")
    sources = [entry.source for entry in client_player.live.script.entries if isinstance(entry.packet, Publish)]

    assert sources == [script.entries[2], None]


def test_a_delivery_with_another_qos_than_recorded_is_completed() -> None:
    client_player = begun(session("< publish t x qos=1 id=5", "> puback 5"))

    assert [type(result) for result in say(client_player, "publish t x qos=2 id=9")] == [Pubrec]
    assert [type(result) for result in say(client_player, "pubrel 9")] == [Pubcomp]


def test_a_second_connack_begins_nothing_anew() -> None:
    first, second = resumed("< connack present")
    other = begun(second, "connack present", sessions=interrupted(first))
    say(other, "connack present")

    assert isinstance(sent(other.perform(0)), Publish)
    say(other, "puback 1")
    assert isinstance(sent(other.perform(0)), Disconnect)


def test_what_was_never_acknowledged_is_not_with_another_qos_either() -> None:
    """The next ones would be acknowledged out of order (5.0 MQTT-4.6.0-2)."""
    client_player = begun(session("< publish a qos=2 id=1", "< publish b qos=2 id=2", "> pubrec 2"))

    assert say(client_player, "publish a qos=1 id=5") == []
    assert say(client_player, "publish b qos=1 id=6") == []
    assert say(client_player, "publish new qos=1 id=7") == [Puback(7)]


def test_a_client_is_known_by_its_identifier_and_none_by_an_empty_one() -> None:
    sessions = ClientSessions()

    assert sessions.session_of("a") is sessions.session_of("a")
    assert sessions.session_of("a") is not sessions.session_of("b")
    assert sessions.session_of("") is not sessions.session_of("")


def test_what_is_forgotten() -> None:
    session = ClientSessions().session_of("a")
    entry = whole("> connect", "> publish t qos=1 id=1").entries[1]
    session.unfinished.update({1: UnfinishedMessage(entry), 2: UnfinishedMessage(entry)})
    session.receiving[9] = None
    session.forget([1, 3])

    assert list(session.unfinished) == [2]
    assert not session.receiving
    session.clear()
    assert not session.unfinished
