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
from mqttscope.replay.client.player import ClientOptions, Skip, Until, Wait
from mqttscope.replay.live import Close, NoteKind, Send
from mqttscope.replay.script import Ending
from tests.replay.client.playing import begun, interrupted, player, resumed, say, sent, texts
from tests.replay.recordings import EXHAUSTIVE, V3_1_1, V5, connack, connect, recordings
from tests.replay.talk import session, whole

EXACTLY_ONCE = ("> publish a qos=2 id=1", "< pubrec 1", "> pubrel 1", "< pubcomp 1")


def test_what_needs_no_change_is_sent_as_it_was_recorded() -> None:
    script = session("> publish a qos=1 id=7", "< puback 7")
    one = begun(script)
    data = []
    for _ in range(2):
        action = one.perform(0)
        assert isinstance(action, Send)
        data.append(action.data)

    assert data == [script.entries[2].raw, script.entries[4].raw]
    assert one.perform(0) == Close("fin")
    assert not one.live.notes


def test_nothing_is_said_before_connack_unless_the_recorded_client_did() -> None:
    patient = player(session("> publish a"))
    patient.perform(0)
    assert patient.perform(0) == Wait(Until.CONNACK)

    hasty = player(whole("> connect", "> publish a", "< connack", "> disconnect"))
    hasty.perform(0)
    assert isinstance(sent(hasty.perform(0)), Publish)
    assert hasty.perform(0) == Wait(Until.CONNACK)


def test_acknowledgements_name_the_identifiers_of_the_live_server() -> None:
    script = session(
        "< publish t x qos=1 id=5",
        "> puback 5 code=0x10 user_property=k:v",
        "< publish t y qos=2 id=6",
        "> pubrec 6",
        "< pubrel 6",
        "> pubcomp 6",
    )
    one = begun(script)
    (first,) = say(one, "publish t x qos=1 id=900")
    assert (first.packet_identifier, first.reason_code) == (900, 0x10)
    assert first.properties == Properties(user_property=[("k", "v")])
    assert [type(found) for found in say(one, "publish t y qos=2 id=901")] == [Pubrec]
    assert say(one, "pubrel 901") == [Pubcomp(901)]
    assert not one.live.notes
    assert {found.type for found in one.correspondence.done} >= {"publish", "pubrel"}


def test_what_the_recorded_client_left_open_stays_open_and_what_is_new_is_acknowledged() -> None:
    one = begun(session("< publish t qos=1 id=5", ended=("reset", "client")))

    assert say(one, "publish t qos=1 id=9") == []
    assert say(one, "publish new qos=1 id=10") == [Puback(10)]
    assert one.perform(0) == Close("reset")


def test_acknowledgements_keep_their_recorded_delay_and_their_order() -> None:
    script = session("< publish a qos=1 id=1", "< publish b qos=1 id=2", "> puback 1", "> puback 2")
    one = begun(script, options=ClientOptions(delay=0.5))
    assert say(one, "publish b qos=1 id=8", "publish a qos=1 id=9") == []
    assert one.acknowledger.due_ns == 10_000_000

    found = [send.entry.packet.packet_identifier for send in one.react(10_000_000)]  # type: ignore[union-attr]
    assert found == [8, 9]


def test_a_lower_receive_maximum_is_obeyed() -> None:
    script = session("> publish a qos=1 id=1", "> publish a qos=1 id=2", "< puback 1", "< puback 2")
    one = begun(script, "connack receive_maximum=1")
    sent(one.perform(0))
    assert one.perform(0) == Wait(Until.RECEIVE_MAXIMUM)
    say(one, "puback 1")
    assert sent(one.perform(0)).packet_identifier == 2


def test_limits_of_the_live_server_are_obeyed() -> None:
    script = whole(
        "> connect",
        "< connack topic_alias_maximum=5",
        "> publish long/topic qos=2 id=1 retain topic_alias=2",
        "> publish - topic_alias=2",
        f"> publish big {'x' * 500}",
        "> disconnect",
    )
    one = begun(script, "connack maximum_qos=1 retain_available=0 maximum_packet_size=400")
    first, second = sent(one.perform(0)), sent(one.perform(0))

    assert isinstance(first, Publish)
    assert (first.qos, first.retain, first.properties) == (1, False, Properties())
    assert isinstance(second, Publish)
    assert (second.topic_name, second.properties) == ("long/topic", Properties())
    assert isinstance(one.perform(0), Skip)
    assert len(texts(one)) == 4
    assert {note.kind for note in one.live.notes} == {NoteKind.ADAPTED, NoteKind.SKIPPED}


def test_an_alias_whose_setting_was_not_sent_is_established_anew() -> None:
    aliased = "> publish - topic_alias=1"
    answer = "connack topic_alias_maximum=5"
    script = whole("> connect", f"< {answer}", "> publish t topic_alias=1", aliased, aliased, "> disconnect")
    del script.entries[2]
    one = begun(script, answer)

    assert [sent(one.perform(0)).topic_name for _ in range(2)] == ["t", ""]


def test_an_identifier_that_is_still_in_use_is_replaced() -> None:
    script = session("> publish a qos=1 id=1", "< puback 1", "> publish b qos=1 id=1", "< puback 1")
    one = begun(script)
    assert [sent(one.perform(0)).packet_identifier for _ in range(2)] == [1, 2]
    say(one, "puback 2")
    assert one.correspondence.done[-1] is script.entries[5]


def test_pubrel_answers_a_live_pubrec_and_not_a_refusing_one() -> None:
    one = begun(session(*EXACTLY_ONCE))
    sent(one.perform(0))
    assert say(one, "pubrec 1") == [Pubrel(1)]

    other = begun(session(*EXACTLY_ONCE))
    sent(other.perform(0))
    assert say(other, "pubrec 1 code=0x97") == []
    assert not other.session.unfinished


def test_an_exchange_that_the_recorded_client_left_is_left() -> None:
    one = begun(session(*EXACTLY_ONCE[:2], ended=("reset", "client")))
    sent(one.perform(0))
    assert say(one, "pubrec 1") == []
    assert one.perform(0) == Close("reset")


SENT_AGAIN = ("< connack present", "> publish a qos=1 id=1 dup", "< puback 1")


def test_a_resend_that_the_live_server_has_acknowledged_is_left_out() -> None:
    first, second = resumed(*SENT_AGAIN)
    other = begun(second, "connack present", sessions=interrupted(first, "puback 1"))

    assert second.entries[2].resends is first.entries[2]
    assert isinstance(other.perform(0), Skip)


def test_what_the_session_owes_is_sent_again_and_no_second_time() -> None:
    first, second = resumed(*SENT_AGAIN)
    other = begun(second, "connack present", sessions=interrupted(first))
    again = sent(other.perform(0))

    assert isinstance(again, Publish)
    assert (again.dup, again.packet_identifier) == (True, 1)
    say(other, "puback 1")
    assert isinstance(other.perform(0), Skip)


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
    one = begun(first, "connack assigned_client_identifier=live-9", sessions=sessions)
    one.ended(Ending("fin", "client"))
    found = sent(player(second, sessions=sessions).perform(0))

    assert isinstance(found, Connect)
    assert found.client_identifier == "live-9"


def test_credentials_replace_the_recorded_ones() -> None:
    script = whole("> connect user_name=old password=old", "< connack")
    found = sent(player(script, ClientOptions(user_name="new", password=b"secret")).perform(0))

    assert isinstance(found, Connect)
    assert (found.user_name, found.password) == ("new", b"secret")


def test_a_client_answers_auth_only_when_it_is_asked() -> None:
    auth = "auth code=0x18 authentication_method=M"
    one = player(whole("> connect authentication_method=M", f"< {auth}", f"> {auth}", "< connack", "> disconnect"))
    sent(one.perform(0))
    assert one.perform(0) == Wait(Until.AUTH)
    say(one, auth)
    assert isinstance(sent(one.perform(0)), Auth)


def test_a_connection_that_was_still_open_is_ended_in_order() -> None:
    one = begun(session(ended=("capture_end", "")))

    assert isinstance(sent(one.perform(0)), Disconnect)
    assert one.perform(0) == Close("fin")


def test_a_server_that_ended_the_connection_is_waited_for() -> None:
    one = begun(session(ended=("fin", "server")))

    assert one.perform(0) == Wait(Until.CLOSE)
    assert one.give_up() == Close("fin")


def test_faithful_means_the_recorded_bytes() -> None:
    script = session("< publish t qos=1 id=5", "> puback 5", "> publish a qos=2 id=1")
    one = player(script, ClientOptions(faithful=True))
    data = b"".join(action.data for action in (one.perform(0) for _ in range(4)) if isinstance(action, Send))

    assert data == b"".join(entry.raw for entry in script.entries if entry.from_client)
    assert say(one, "publish t qos=1 id=77") == []


def test_steps_that_cannot_come_any_more_are_listed() -> None:
    one = begun(session("> publish a", "> pingreq", "< pingresp"))
    one.ended(Ending("reset", "server"))

    assert len(one.skipped) == 3
    assert one.over
    assert set(one.correspondence.done) >= {entry for entry in one.script.entries if not entry.from_client}


def test_subscriptions_that_the_server_does_not_have_are_left_out() -> None:
    script = session(
        "> subscribe 1 a/b:1 subscription_identifier=4", "< suback 1 1", "> subscribe 2 $share/g/a:1", "< suback 2 1"
    )
    one = begun(script, "connack subscription_identifier_available=0 shared_subscription_available=0")
    first = sent(one.perform(0))

    assert isinstance(first, Subscribe)
    assert first.properties == Properties()
    assert isinstance(one.perform(0), Skip)
    assert script.entries[5] in one.correspondence.done


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
    one = begun(whole(*lines, "> disconnect", version=version), LIMITED[version].format(window))
    limit = window if version == V5 else 65_535
    owed: list[str] = []
    for _ in range(500):
        action = one.perform(0)
        if isinstance(action, Send) and isinstance(action.entry.packet, Publish) and action.entry.packet.qos:
            packet = action.entry.packet
            owed.append(f"{'puback' if packet.qos == 1 else 'pubrec'} {packet.packet_identifier}")
        in_use = [words.split()[1] for words in owed]
        assert len(in_use) == len(set(in_use)) <= limit
        if isinstance(action, Close):
            break
        if owed and (isinstance(action, Wait) or late.random() < 0.3):
            for reaction in say(one, owed.pop(0)):
                assert isinstance(reaction, Pubrel)
                owed.append(f"pubcomp {reaction.packet_identifier}")
    else:
        raise AssertionError("it never ends")
