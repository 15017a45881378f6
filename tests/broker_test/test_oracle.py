"""The linter agrees before anybody is accused."""

from __future__ import annotations

from mqttscope.broker_test.conversation import Conversation
from mqttscope.broker_test.export import conversation_of
from mqttscope.broker_test.verdict import OF_A_CLIENT, BrokerVerdict, Ruling
from mqttscope.mqtt import Disconnect, Pingresp, encode
from mqttscope.mutate import MutationCase
from tests.broker_test.flows import V5, broken_by_client, confirm, findings, make_case, script

QOS_3 = make_case("publish:qos-3", script())
TOLERATED = Ruling(BrokerVerdict.TOLERATED, "it continues", ("5.0 MQTT-4.13.1-1",))


def said(case: MutationCase) -> Conversation:
    """What a broker heard that answered everything as recorded."""
    return conversation_of(case.flow, 1_000)


def test_a_violation_that_was_on_the_wire_is_confirmed() -> None:
    assert confirm(TOLERATED, QOS_3, said(QOS_3)) is TOLERATED
    assert "5.0 MQTT-3.3.1-4" in {text for finding in findings(said(QOS_3))[0] for text in finding.statements}


def test_a_violation_that_never_got_there_is_excused() -> None:
    heard = said(QOS_3)
    heard.chunks = heard.chunks[: heard.begins]

    assert not confirm(TOLERATED, QOS_3, heard).deviates


def test_who_refuses_a_client_that_broke_something_else_is_excused() -> None:
    refused = Ruling(BrokerVerdict.REFUSED_LEGAL, "closed")
    case = make_case("publish.topic_name:spaces", script())
    broken = said(case)
    broken.add(True, b"\x36\x06\x00\x01a\x00\x01\x00", 2_000_000_000, mutated=True)

    assert confirm(refused, case, said(case)) is refused
    assert not confirm(refused, case, broken).deviates


def test_a_wrong_reason_needs_the_linters_word() -> None:
    ruling = Ruling(BrokerVerdict.WRONG_REASON, "closed with 0x9b", ("5.0 MQTT-4.13.1-1",))
    for code, blamed in ((0x9B, True), (0x81, False)):
        heard = said(QOS_3)
        place = heard.begins + 1
        heard.chunks = heard.chunks[:place]
        heard.add(False, encode(Disconnect(reason_code=code), V5), 2_000_000_000, ends="fin")
        assert confirm(ruling, QOS_3, heard).deviates is blamed


def test_what_concerns_the_whole_broker_needs_no_statement() -> None:
    case = make_case("random:bits", script())
    crashed = Ruling(BrokerVerdict.CRASHED, "gone")
    heard = said(case)
    heard.add(False, encode(Pingresp(), V5), 2_000)

    assert confirm(crashed, case, heard) is crashed


def test_a_code_that_only_clients_may_send_is_a_table_of_its_own() -> None:
    ruling = Ruling(BrokerVerdict.WRONG_REASON, "closed with 0x00", OF_A_CLIENT)
    unseen = said(QOS_3)
    unseen.chunks = unseen.chunks[: unseen.begins]

    assert confirm(ruling, QOS_3, said(QOS_3)) is ruling
    assert not confirm(ruling, QOS_3, unseen).deviates


def test_statements_that_the_client_breaks() -> None:
    assert "5.0 MQTT-3.3.1-4" in broken_by_client(said(make_case("publish:qos-3", script())))
    assert broken_by_client(said(make_case("publish.topic_name:spaces", script()))) == ()
