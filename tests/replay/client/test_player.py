"""Players: expected sends for simulated answers, without sockets."""

from __future__ import annotations

import itertools
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.mqtt import (
    Auth,
    Connect,
    Disconnect,
    Properties,
    ProtocolVersion,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
)
from mqttscope.replay.client.exchanges import ClientSessions
from mqttscope.replay.client.player import AwaitedEvent, ClientOptions, ClientWait, SkippedStep
from mqttscope.replay.live import Close, NoteKind, Send
from mqttscope.replay.script import Ending
from tests.replay.client.playing import begun, interrupted, player, resumed, say, sent, texts
from tests.replay.recordings import EXHAUSTIVE, V3_1_1, V5, connack, connect, recordings
from tests.replay.talk import session, whole

EXACTLY_ONCE = ("> publish a qos=2 id=1", "< pubrec 1", "> pubrel 1", "< pubcomp 1")


def test_what_needs_no_change_is_sent_as_it_was_recorded() -> None:
    script = session("> publish a qos=1 id=7", "< puback 7")
    client_player = begun(script)
    data = []
    for _ in range(2):
        action = client_player.perform(0)
        assert isinstance(action, Send)
        data.append(action.data)

    assert data == [script.entries[2].raw, script.entries[4].raw]
    assert client_player.perform(0) == Close("fin")
    assert not client_player.live.notes


def test_nothing_is_said_before_connack_unless_the_recorded_client_did() -> None:
    patient = player(session("> publish a"))
    patient.perform(0)
    assert patient.perform(0) == ClientWait(AwaitedEvent.CONNACK)

    hasty = player(whole("> connect", "> publish a", "< connack", "> disconnect"))
    hasty.perform(0)
    assert isinstance(sent(hasty.perform(0)), Publish)
    assert hasty.perform(0) == ClientWait(AwaitedEvent.CONNACK)


def test_acknowledgements_name_the_identifiers_of_the_live_server() -> None:
    script = session(
        "< publish t x qos=1 id=5",
        "> puback 5 code=0x10 user_property=k:v",
        "< publish t y qos=2 id=6",
        "> pubrec 6",
        "< pubrel 6",
        "> pubcomp 6",
    )
    client_player = begun(script)
    (first,) = say(client_player, "publish t x qos=1 id=900")
    assert (first.packet_identifier, first.reason_code) == (900, 0x10)
    assert first.properties == Properties(user_property=[("k", "v")])
    assert [type(result) for result in say(client_player, "publish t y qos=2 id=901")] == [Pubrec]
    assert say(client_player, "pubrel 901") == [Pubcomp(901)]
    assert not client_player.live.notes
    assert {script_entry.type for script_entry in client_player.correspondence.done} >= {"publish", "pubrel"}


def test_what_the_recorded_client_left_open_stays_open_and_what_is_new_is_acknowledged() -> None:
    client_player = begun(session("< publish t qos=1 id=5", ended=("reset", "client")))

    assert say(client_player, "publish t qos=1 id=9") == []
    assert say(client_player, "publish new qos=1 id=10") == [Puback(10)]
    assert client_player.perform(0) == Close("reset")


def test_acknowledgements_keep_their_recorded_delay_and_their_order() -> None:
    script = session("< publish a qos=1 id=1", "< publish b qos=1 id=2", "> puback 1", "> puback 2")
    client_player = begun(script, options=ClientOptions(delay=0.5))
    assert say(client_player, "publish b qos=1 id=8", "publish a qos=1 id=9") == []
    assert client_player.acknowledger.due_ns == 10_000_000

    result = [send.entry.packet.packet_identifier for send in client_player.react(10_000_000)]  # type: ignore[union-attr]
    assert result == [8, 9]


def test_a_lower_receive_maximum_is_obeyed() -> None:
    script = session("> publish a qos=1 id=1", "> publish a qos=1 id=2", "< puback 1", "< puback 2")
    client_player = begun(script, "connack receive_maximum=1")
    sent(client_player.perform(0))
    assert client_player.perform(0) == ClientWait(AwaitedEvent.RECEIVE_MAXIMUM)
    say(client_player, "puback 1")
    assert sent(client_player.perform(0)).packet_identifier == 2


def test_limits_of_the_live_server_are_obeyed() -> None:
    script = whole(
        "> connect",
        "< connack topic_alias_maximum=5",
        "> publish long/topic qos=2 id=1 retain topic_alias=2",
        "> publish - topic_alias=2",
        f"> publish big {'x' * 500}",
        "> disconnect",
    )
    client_player = begun(script, "connack maximum_qos=1 retain_available=0 maximum_packet_size=400")
    first, second = sent(client_player.perform(0)), sent(client_player.perform(0))

    assert isinstance(first, Publish)
    assert (first.qos, first.retain, first.properties) == (1, False, Properties())
    assert isinstance(second, Publish)
    assert (second.topic_name, second.properties) == ("long/topic", Properties())
    assert isinstance(client_player.perform(0), SkippedStep)
    assert len(texts(client_player)) == 4
    assert {note.kind for note in client_player.live.notes} == {NoteKind.ADAPTED, NoteKind.SKIPPED}


def test_an_alias_whose_setting_was_not_sent_is_established_anew() -> None:
    aliased = "> publish - topic_alias=1"
    answer = "connack topic_alias_maximum=5"
    script = whole("> connect", f"< {answer}", "> publish t topic_alias=1", aliased, aliased, "> disconnect")
    del script.entries[2]
    client_player = begun(script, answer)

    assert [sent(client_player.perform(0)).topic_name for _ in range(2)] == ["t", ""]


def test_an_identifier_that_is_still_in_use_is_replaced() -> None:
    script = session("> publish a qos=1 id=1", "< puback 1", "> publish b qos=1 id=1", "< puback 1")
    client_player = begun(script)
    assert [sent(client_player.perform(0)).packet_identifier for _ in range(2)] == [1, 2]
    say(client_player, "puback 2")
    assert client_player.correspondence.done[-1] is script.entries[5]


def test_pubrel_answers_a_live_pubrec_and_not_a_refusing_one() -> None:
    client_player = begun(session(*EXACTLY_ONCE))
    sent(client_player.perform(0))
    assert say(client_player, "pubrec 1") == [Pubrel(1)]

    other = begun(session(*EXACTLY_ONCE))
    sent(other.perform(0))
    assert say(other, "pubrec 1 code=0x97") == []
    assert not other.session.unfinished


def test_an_exchange_that_the_recorded_client_left_is_left() -> None:
    client_player = begun(session(*EXACTLY_ONCE[:2], ended=("reset", "client")))
    sent(client_player.perform(0))
    assert say(client_player, "pubrec 1") == []
    assert client_player.perform(0) == Close("reset")


SENT_AGAIN = ("< connack present", "> publish a qos=1 id=1 dup", "< puback 1")


def test_a_resend_that_the_live_server_has_acknowledged_is_left_out() -> None:
    first, second = resumed(*SENT_AGAIN)
    other = begun(second, "connack present", sessions=interrupted(first, "puback 1"))

    assert second.entries[2].resends is first.entries[2]
    assert isinstance(other.perform(0), SkippedStep)


def test_what_the_session_owes_is_sent_again_and_no_second_time() -> None:
    first, second = resumed(*SENT_AGAIN)
    other = begun(second, "connack present", sessions=interrupted(first))
    again = sent(other.perform(0))

    assert isinstance(again, Publish)
    assert (again.dup, again.packet_identifier) == (True, 1)
    say(other, "puback 1")
    assert isinstance(other.perform(0), SkippedStep)


def test_a_message_goes_out_as_new_where_the_server_has_forgotten_the_session() -> None:
    first, second = resumed(*SENT_AGAIN)
    other = begun(second, sessions=interrupted(first))
    again = sent(other.perform(0))

    assert isinstance(again, Publish)
    assert not again.dup
    assert any(note.kind is NoteKind.SESSION for note in other.live.notes)


def test_an_assigned_identifier_stands_for_the_recorded_one() -> None:
    first, second = recordings(
        (0, ">", connect("")),
        (0, "<", connack(properties=Properties(assigned_client_identifier="rec-1"))),
        (1, ">", connect("rec-1", clean_start=False)),
        (1, "<", connack()),
    )
    sessions = ClientSessions()
    client_player = begun(first, "connack assigned_client_identifier=live-9", sessions=sessions)
    client_player.ended(Ending("fin", "client"))
    result = sent(player(second, sessions=sessions).perform(0))

    assert isinstance(result, Connect)
    assert result.client_identifier == "live-9"


def test_credentials_replace_the_recorded_ones() -> None:
    script = whole("> connect user_name=old password=old", "< connack")
    result = sent(player(script, ClientOptions(user_name="new", password=b"secret")).perform(0))

    assert isinstance(result, Connect)
    assert (result.user_name, result.password) == ("new", b"secret")


def test_a_client_answers_auth_only_when_it_is_asked() -> None:
    auth = "auth code=0x18 authentication_method=M"
    client_player = player(
        whole("> connect authentication_method=M", f"< {auth}", f"> {auth}", "< connack", "> disconnect")
    )
    sent(client_player.perform(0))
    assert client_player.perform(0) == ClientWait(AwaitedEvent.AUTH)
    say(client_player, auth)
    assert isinstance(sent(client_player.perform(0)), Auth)


def test_a_connection_that_was_still_open_is_ended_in_order() -> None:
    client_player = begun(session(ended=("capture_end", "")))

    assert isinstance(sent(client_player.perform(0)), Disconnect)
    assert client_player.perform(0) == Close("fin")


def test_a_server_that_ended_the_connection_is_waited_for() -> None:
    client_player = begun(session(ended=("fin", "server")))

    assert client_player.perform(0) == ClientWait(AwaitedEvent.CLOSE)
    assert client_player.give_up() == Close("fin")


def test_faithful_means_the_recorded_bytes() -> None:
    script = session("< publish t qos=1 id=5", "> puback 5", "> publish a qos=2 id=1")
    client_player = player(script, ClientOptions(faithful=True))
    data = b"".join(action.data for action in (client_player.perform(0) for _ in range(4)) if isinstance(action, Send))

    assert data == b"".join(entry.raw for entry in script.entries if entry.from_client)
    assert say(client_player, "publish t qos=1 id=77") == []


def test_steps_that_cannot_come_any_more_are_listed() -> None:
    client_player = begun(session("> publish a", "> pingreq", "< pingresp"))
    client_player.ended(Ending("reset", "server"))

    assert len(client_player.skipped) == 3
    assert client_player.over
    assert set(client_player.correspondence.done) >= {
        entry for entry in client_player.script.entries if not entry.from_client
    }


def test_subscriptions_that_the_server_does_not_have_are_left_out() -> None:
    script = session(
        "> subscribe 1 a/b:1 subscription_identifier=4", "< suback 1 1", "> subscribe 2 $share/g/a:1", "< suback 2 1"
    )
    client_player = begun(script, "connack subscription_identifier_available=0 shared_subscription_available=0")
    first = sent(client_player.perform(0))

    assert isinstance(first, Subscribe)
    assert first.properties == Properties()
    assert isinstance(client_player.perform(0), SkippedStep)
    assert script.entries[5] in client_player.correspondence.done


LIMITED = {V3_1_1: "connack", V5: "connack receive_maximum={}"}


@settings(max_examples=400 if EXHAUSTIVE else 60, deadline=None)
@given(
    version=st.sampled_from([V3_1_1, V5]),
    messages=st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12),
    window=st.integers(1, 4),
    late=st.randoms(use_true_random=False),
)
def test_identifiers_and_windows_are_never_broken(
    version: ProtocolVersion, messages: list[tuple[int, bool]], window: int, late: Random
) -> None:
    """Whatever the server's pace, a client never has two exchanges of one identifier, nor more than it may."""
    identifiers = itertools.cycle([1, 2, 3])
    lines = ["> connect", "< connack"]
    for qos, retain in messages:
        number = next(identifiers) if qos else None
        lines.append(f"> publish a qos={qos}" + " retain" * retain + (f" id={number}" if qos else ""))
        if qos == 1:
            lines.append(f"< puback {number}")
        if qos == 2:
            lines += [f"< pubrec {number}", f"> pubrel {number}", f"< pubcomp {number}"]
    client_player = begun(whole(*lines, "> disconnect", version=version), LIMITED[version].format(window))
    limit = window if version == V5 else 65_535
    owed: list[str] = []
    for _ in range(500):
        action = client_player.perform(0)
        if isinstance(action, Send) and isinstance(action.entry.packet, Publish) and action.entry.packet.qos:
            packet = action.entry.packet
            owed.append(f"{'puback' if packet.qos == 1 else 'pubrec'} {packet.packet_identifier}")
        in_use = [words.split()[1] for words in owed]
        assert len(in_use) == len(set(in_use)) <= limit
        if isinstance(action, Close):
            break
        if owed and (isinstance(action, ClientWait) or late.random() < 0.3):
            for reaction in say(client_player, owed.pop(0)):
                assert isinstance(reaction, Pubrel)
                owed.append(f"pubcomp {reaction.packet_identifier}")
    else:
        raise AssertionError("it never ends")
