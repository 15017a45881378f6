"""Players: expected sends for simulated answers, without sockets."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from mqttscope.mqtt import (
    Auth,
    Connect,
    ControlPacket,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
)
from mqttscope.replay.client.exchanges import ClientSessions
from mqttscope.replay.client.player import ClientOptions, Skip, Until, Wait
from mqttscope.replay.live import Close, NoteKind, Send
from mqttscope.replay.script import Ending, Script
from tests.replay.client.playing import BYE, begun, player, say, sent, texts
from tests.replay.recordings import EXHAUSTIVE, V3_1_1, V5, connack, connect, conversation, publish, recordings


def test_what_needs_no_change_is_sent_as_it_was_recorded() -> None:
    script = conversation(
        (">", connect()), ("<", connack()), (">", publish(qos=1, packet_identifier=7)), ("<", Puback(7)), BYE
    )
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
    patient = player(conversation((">", connect()), ("<", connack()), (">", publish()), BYE))
    patient.perform(0)
    assert patient.perform(0) == Wait(Until.CONNACK)

    hasty = player(conversation((">", connect()), (">", publish()), ("<", connack()), BYE))
    hasty.perform(0)
    assert isinstance(sent(hasty.perform(0)), Publish)
    assert hasty.perform(0) == Wait(Until.CONNACK)


def test_acknowledgements_name_the_identifiers_of_the_live_server() -> None:
    reason = Puback(5, reason_code=0x10, properties=Properties(user_property=[("k", "v")]))
    one = begun(
        conversation(
            (">", connect()),
            ("<", connack()),
            ("<", publish("t", qos=1, packet_identifier=5, payload=b"x")),
            (">", reason),
            ("<", publish("t", qos=2, packet_identifier=6, payload=b"y")),
            (">", Pubrec(6)),
            ("<", Pubrel(6)),
            (">", Pubcomp(6)),
            BYE,
        )
    )
    (first,) = say(one, publish("t", qos=1, packet_identifier=900, payload=b"x"))
    assert (first.packet_identifier, first.reason_code, first.properties) == (900, 0x10, reason.properties)  # type: ignore[attr-defined]
    assert [type(found) for found in say(one, publish("t", qos=2, packet_identifier=901, payload=b"y"))] == [Pubrec]
    (last,) = say(one, Pubrel(901))
    assert last == Pubcomp(901)
    assert not one.live.notes
    assert {found.type for found in one.correspondence.done} >= {"publish", "pubrel"}


def test_what_the_recorded_client_left_open_stays_open_and_what_is_new_is_acknowledged() -> None:
    one = begun(
        conversation(
            (">", connect()),
            ("<", connack()),
            ("<", publish("t", qos=1, packet_identifier=5)),
            ended=("reset", "client"),
        )
    )

    assert say(one, publish("t", qos=1, packet_identifier=9)) == []
    assert [type(found) for found in say(one, publish("new", qos=1, packet_identifier=10))] == [Puback]
    assert one.perform(0) == Close("reset")


def test_acknowledgements_keep_their_recorded_delay_and_their_order() -> None:
    script = conversation(
        (">", connect()),
        ("<", connack()),
        ("<", publish("a", qos=1, packet_identifier=1)),
        ("<", publish("b", qos=1, packet_identifier=2)),
        (">", Puback(1)),
        (">", Puback(2)),
        BYE,
    )
    one = begun(script, options=ClientOptions(delay=0.5))
    assert say(one, publish("b", qos=1, packet_identifier=8), publish("a", qos=1, packet_identifier=9)) == []
    assert one.acknowledger.due_ns == 10_000_000

    found = [send.entry.packet.packet_identifier for send in one.react(10_000_000)]  # type: ignore[union-attr]
    assert found == [8, 9]


def test_a_lower_receive_maximum_is_obeyed() -> None:
    script = conversation(
        (">", connect()),
        ("<", connack()),
        (">", publish(qos=1, packet_identifier=1)),
        (">", publish(qos=1, packet_identifier=2)),
        ("<", Puback(1)),
        ("<", Puback(2)),
        BYE,
    )
    one = begun(script, connack(properties=Properties(receive_maximum=1)))
    sent(one.perform(0))
    assert one.perform(0) == Wait(Until.RECEIVE_MAXIMUM)
    say(one, Puback(1))
    assert sent(one.perform(0)).packet_identifier == 2  # type: ignore[attr-defined]


def test_limits_of_the_live_server_are_obeyed() -> None:
    alias = Properties(topic_alias=2)
    script = conversation(
        (">", connect()),
        ("<", connack(properties=Properties(topic_alias_maximum=5))),
        (">", publish("long/topic", qos=2, packet_identifier=1, retain=True, properties=alias)),
        (">", publish("", properties=alias)),
        (">", publish("big", payload=bytes(500))),
        BYE,
    )
    limits = Properties(maximum_qos=1, retain_available=0, maximum_packet_size=400)
    one = begun(script, connack(properties=limits))
    first, second = sent(one.perform(0)), sent(one.perform(0))

    assert isinstance(first, Publish)
    assert (first.qos, first.retain, first.properties) == (1, False, Properties())
    assert isinstance(second, Publish)
    assert (second.topic_name, second.properties) == ("long/topic", Properties())
    assert isinstance(one.perform(0), Skip)
    assert len(texts(one)) == 4
    assert {note.kind for note in one.live.notes} == {NoteKind.ADAPTED, NoteKind.SKIPPED}


def test_an_alias_whose_setting_was_not_sent_is_established_anew() -> None:
    alias = Properties(topic_alias=1)
    script = conversation(
        (">", connect()),
        ("<", connack(properties=Properties(topic_alias_maximum=5))),
        (">", publish("t", properties=alias)),
        (">", publish("", properties=alias)),
        (">", publish("", properties=alias)),
        BYE,
    )
    del script.entries[2]
    one = begun(script, connack(properties=Properties(topic_alias_maximum=5)))

    assert [sent(one.perform(0)).topic_name for _ in range(2)] == ["t", ""]  # type: ignore[attr-defined]


def test_an_identifier_that_is_still_in_use_is_replaced() -> None:
    script = conversation(
        (">", connect()),
        ("<", connack()),
        (">", publish("a", qos=1, packet_identifier=1)),
        ("<", Puback(1)),
        (">", publish("b", qos=1, packet_identifier=1)),
        ("<", Puback(1)),
        BYE,
    )
    one = begun(script)
    assert [sent(one.perform(0)).packet_identifier for _ in range(2)] == [1, 2]  # type: ignore[attr-defined]
    say(one, Puback(2))
    assert one.correspondence.done[-1] is script.entries[5]


def test_pubrel_answers_a_live_pubrec_and_not_a_refusing_one() -> None:
    lines = (
        (">", connect()),
        ("<", connack()),
        (">", publish("a", qos=2, packet_identifier=1)),
        ("<", Pubrec(1)),
        (">", Pubrel(1)),
        ("<", Pubcomp(1)),
        BYE,
    )
    one = begun(conversation(*lines))
    sent(one.perform(0))
    assert say(one, Pubrec(1)) == [Pubrel(1)]

    other = begun(conversation(*lines))
    sent(other.perform(0))
    assert say(other, Pubrec(1, reason_code=0x97)) == []
    assert not other.session.unfinished


def test_an_exchange_that_the_recorded_client_left_is_left() -> None:
    one = begun(
        conversation(
            (">", connect()),
            ("<", connack()),
            (">", publish("a", qos=2, packet_identifier=1)),
            ("<", Pubrec(1)),
            ended=("reset", "client"),
        )
    )
    sent(one.perform(0))
    assert say(one, Pubrec(1)) == []
    assert one.perform(0) == Close("reset")


def two_connections(*second: tuple[str, ControlPacket]) -> list[Script]:
    lasting = Properties(session_expiry_interval=100)
    return recordings(
        (0, ">", connect(properties=lasting)),
        (0, "<", connack()),
        (0, ">", publish("a", qos=1, packet_identifier=1)),
        (1, ">", connect(clean_start=False, properties=lasting)),
        *((1, arrow, packet) for arrow, packet in second),
        ended={0: ("reset", "client")},
    )


def test_a_resend_that_the_live_server_has_acknowledged_is_left_out() -> None:
    first, second = two_connections(
        ("<", connack(session_present=True)),
        (">", publish("a", qos=1, packet_identifier=1, dup=True)),
        ("<", Puback(1)),
        BYE,
    )
    sessions = ClientSessions()
    one = begun(first, sessions=sessions)
    sent(one.perform(0))
    say(one, Puback(1))
    one.ended(Ending("reset", "client"))
    other = begun(second, connack(session_present=True), sessions=sessions)

    assert second.entries[2].resends is first.entries[2]
    assert isinstance(other.perform(0), Skip)


def test_what_the_session_owes_is_sent_again_and_no_second_time() -> None:
    first, second = two_connections(
        ("<", connack(session_present=True)),
        (">", publish("a", qos=1, packet_identifier=1, dup=True)),
        ("<", Puback(1)),
        BYE,
    )
    sessions = ClientSessions()
    one = begun(first, sessions=sessions)
    sent(one.perform(0))
    one.ended(Ending("reset", "client"))
    other = begun(second, connack(session_present=True), sessions=sessions)
    again = sent(other.perform(0))

    assert isinstance(again, Publish)
    assert (again.dup, again.packet_identifier) == (True, 1)
    say(other, Puback(1))
    assert isinstance(other.perform(0), Skip)


def test_a_message_goes_out_as_new_where_the_server_has_forgotten_the_session() -> None:
    first, second = two_connections(
        ("<", connack(session_present=True)),
        (">", publish("a", qos=1, packet_identifier=1, dup=True)),
        ("<", Puback(1)),
        BYE,
    )
    sessions = ClientSessions()
    one = begun(first, sessions=sessions)
    sent(one.perform(0))
    one.ended(Ending("reset", "client"))
    other = begun(second, connack(), sessions=sessions)
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
    one = begun(first, connack(properties=Properties(assigned_client_identifier="live-9")), sessions=sessions)
    one.ended(Ending("fin", "client"))
    other = player(second, sessions=sessions)
    found = sent(other.perform(0))

    assert isinstance(found, Connect)
    assert found.client_identifier == "live-9"


def test_credentials_replace_the_recorded_ones() -> None:
    script = conversation((">", connect(user_name="old", password=b"old")), ("<", connack()))
    found = sent(player(script, ClientOptions(user_name="new", password=b"secret")).perform(0))

    assert isinstance(found, Connect)
    assert (found.user_name, found.password) == ("new", b"secret")


def test_a_client_answers_auth_only_when_it_is_asked() -> None:
    method = Properties(authentication_method="M")
    script = conversation(
        (">", connect(properties=method)),
        ("<", Auth(reason_code=0x18, properties=method)),
        (">", Auth(reason_code=0x18, properties=method)),
        ("<", connack()),
        BYE,
    )
    one = player(script)
    sent(one.perform(0))
    assert one.perform(0) == Wait(Until.AUTH)
    say(one, Auth(reason_code=0x18, properties=method))
    assert isinstance(sent(one.perform(0)), Auth)


def test_a_connection_that_was_still_open_is_ended_in_order() -> None:
    one = begun(conversation((">", connect()), ("<", connack()), ended=("capture_end", "")))

    assert isinstance(sent(one.perform(0)), Disconnect)
    assert one.perform(0) == Close("fin")


def test_a_server_that_ended_the_connection_is_waited_for() -> None:
    one = begun(conversation((">", connect()), ("<", connack()), ended=("fin", "server")))

    assert one.perform(0) == Wait(Until.CLOSE)
    assert one.give_up() == Close("fin")


def test_faithful_means_the_recorded_bytes() -> None:
    script = conversation(
        (">", connect()),
        ("<", connack()),
        ("<", publish("t", qos=1, packet_identifier=5)),
        (">", Puback(5)),
        (">", publish("a", qos=2, packet_identifier=1)),
        BYE,
    )
    one = player(script, ClientOptions(faithful=True))
    data = b"".join(action.data for action in (one.perform(0) for _ in range(4)) if isinstance(action, Send))

    assert data == b"".join(entry.raw for entry in script.entries if entry.from_client)
    assert say(one, publish("t", qos=1, packet_identifier=77)) == []


def test_steps_that_cannot_come_any_more_are_listed() -> None:
    one = begun(
        conversation((">", connect()), ("<", connack()), (">", publish()), (">", Pingreq()), ("<", Pingresp()), BYE)
    )
    one.ended(Ending("reset", "server"))

    assert len(one.skipped) == 3
    assert one.over
    assert set(one.correspondence.done) >= {entry for entry in one.script.entries if not entry.from_client}


def test_subscriptions_that_the_server_does_not_have_are_left_out() -> None:
    script = conversation(
        (">", connect()),
        ("<", connack()),
        (">", Subscribe(1, Properties(subscription_identifier=4), [Subscription("a/b", 1)])),
        ("<", Suback(1, Properties(), [1])),
        (">", Subscribe(2, Properties(), [Subscription("$share/g/a", 1)])),
        ("<", Suback(2, Properties(), [1])),
        BYE,
    )
    limits = Properties(subscription_identifier_available=0, shared_subscription_available=0)
    one = begun(script, connack(properties=limits))
    first = sent(one.perform(0))

    assert isinstance(first, Subscribe)
    assert first.properties == Properties()
    assert isinstance(one.perform(0), Skip)
    assert script.entries[5] in one.correspondence.done


versions = st.sampled_from([V3_1_1, V5])


@settings(max_examples=400 if EXHAUSTIVE else 60, deadline=None)
@given(
    version=versions,
    messages=st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12),
    window=st.integers(1, 4),
    late=st.randoms(use_true_random=False),
)
def test_identifiers_and_windows_are_never_broken(
    version: object, messages: list[tuple[int, bool]], window: int, late: object
) -> None:
    """Whatever the server's pace, a client never has two exchanges of one identifier, nor more than it may."""
    identifiers = itertools.cycle([1, 2, 3])
    lines: list[tuple[str, ControlPacket]] = [(">", connect(version=version)), ("<", connack())]  # type: ignore[arg-type]
    for qos, retain in messages:
        number = next(identifiers) if qos else None
        lines.append((">", publish(qos=qos, retain=retain, packet_identifier=number)))
        if qos == 1:
            lines.append(("<", Puback(number)))
        if qos == 2:
            lines += [("<", Pubrec(number)), (">", Pubrel(number)), ("<", Pubcomp(number))]
    one = begun(conversation(*lines, BYE), connack(properties=Properties(receive_maximum=window)))
    limit = window if version == V5 else 65_535
    owed: list[ControlPacket] = []
    for _ in range(500):
        action = one.perform(0)
        if isinstance(action, Send) and isinstance(action.entry.packet, Publish) and action.entry.packet.qos:
            packet = action.entry.packet
            answer = Puback if packet.qos == 1 else Pubrec
            owed.append(answer(packet_identifier=packet.packet_identifier))
        in_use = [found.packet_identifier for found in owed]  # type: ignore[attr-defined]
        assert len(in_use) == len(set(in_use)) <= limit
        if isinstance(action, Close):
            break
        if owed and (isinstance(action, Wait) or late.random() < 0.3):  # type: ignore[attr-defined]
            for reaction in say(one, owed.pop(0)):
                assert isinstance(reaction, Pubrel)
                owed.append(Pubcomp(reaction.packet_identifier))
    else:
        raise AssertionError("it never ends")
