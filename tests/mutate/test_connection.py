"""How connections begin and end; order, number, pieces and time of what is sent on them."""

from __future__ import annotations

import pytest

from mqttscope.mqtt import PacketType
from mqttscope.mutate import Action
from mqttscope.mutate.connection import OPENING
from mqttscope.mutate.flow import SERVER, SIDES, MutatedFlow, recorded_steps
from mqttscope.mutate.steps import SECOND
from tests.mutate.talk import V3_1, V3_1_1, V5, authenticated, check_not_applicable, good, limited, mutated, spoken


def test_another_packet_comes_first() -> None:
    flow = mutated("flow:first-packet-publish")

    assert flow.at == 0
    assert flow.steps[0].data[0] >> 4 == PacketType.PUBLISH
    assert flow.steps[1].data == good(V5).entries[0].raw


def test_a_second_connect_comes_on_the_open_connection() -> None:
    flow = mutated("flow:second-connect")

    assert 2 <= flow.at < len(good(V5).entries)
    assert flow.steps[flow.at].data == good(V5).entries[0].raw


def test_nothing_comes_after_disconnect_but_here() -> None:
    sent = [step for step in mutated("flow:packet-after-disconnect").steps if step.action is Action.SEND]

    assert [step.data[0] >> 4 for step in sent[-2:]] == [PacketType.DISCONNECT, PacketType.PINGREQ]
    check_not_applicable("flow:packet-after-disconnect", V3_1_1, sender=SERVER)


def test_a_connection_that_was_refused_has_no_inside() -> None:
    refused = spoken(V5, "> connect\n< connack code=0x87")
    check_not_applicable("flow:second-connect", flow=refused, match="accepts the connection")


def test_every_type_has_its_wrong_direction() -> None:
    wrong = {mutation.name for mutation in OPENING if ":wrong-direction" in mutation.name}

    assert wrong == {
        f"flow:wrong-direction-{name}"
        for name in (
            *("connect", "subscribe", "unsubscribe", "pingreq", "disconnect"),
            *("connack", "suback", "unsuback", "pingresp"),
        )
    }


def test_endings() -> None:
    assert mutated("flow:reset").steps[-1].action is Action.RESET
    assert mutated("flow:half-closed").steps[-1].action is Action.HALF_CLOSE
    inside = mutated("flow:closed-inside-packet").steps
    assert inside[-1].action is Action.CLOSE
    assert len(inside[-2].data) >= 3


def test_authentication_wants_a_method() -> None:
    assert mutated("flow:packet-during-authentication", flow=authenticated()).at == 1
    check_not_applicable("flow:packet-during-authentication")
    check_not_applicable("flow:auth-unsolicited", flow=authenticated())


def test_waiting_is_data() -> None:
    assert mutated("flow:nothing-sent").steps[0].nanoseconds == 120_000_000_000
    half = mutated("flow:half-a-connect")
    assert good(V5).entries[0].raw.startswith(half.sent)


def plain(sender: str) -> bytes:
    """What a side sends without a mutation."""
    return MutatedFlow("", sender, V5, recorded_steps(good(V5), sender)).sent


@pytest.mark.parametrize("sender", SIDES)
@pytest.mark.parametrize("slug", ["split-at-every-byte", "split-once", "coalesce"])
def test_pieces_do_not_change_the_bytes(slug: str, sender: str) -> None:
    flow = mutated(f"flow:{slug}", sender=sender)

    assert flow.sent == plain(sender)
    assert len(flow.steps) != len(good(V5).entries)


def test_every_byte_has_a_step_of_its_own() -> None:
    sizes = {len(step.data) for step in mutated("flow:split-at-every-byte").steps if step.action is Action.SEND}

    assert sizes == {1}


def test_drop_duplicate_and_reorder_use_what_was_recorded() -> None:
    whole = plain("client")

    assert len(mutated("flow:drop").sent) < len(whole)
    assert len(mutated("flow:duplicate").sent) > len(whole)
    reordered = mutated("flow:reorder")
    assert reordered.sent != whole
    assert sorted(reordered.sent) == sorted(whole)


def test_the_place_of_what_was_dropped_is_kept() -> None:
    flow = mutated("flow:drop")

    assert flow.steps[flow.at].data == b""
    assert flow.steps[flow.at].entry == flow.at


def test_pauses_keep_to_the_keep_alive_or_break_it() -> None:
    pauses = {
        slug: sum(step.nanoseconds for step in mutated(f"flow:{slug}").steps)
        for slug in ("delay", "keep-alive-just-met", "keep-alive-overrun")
    }

    assert pauses == {"delay": 5 * SECOND, "keep-alive-just-met": 57 * SECOND, "keep-alive-overrun": 120 * SECOND}


def test_a_slow_sender_sends_all_the_same() -> None:
    assert mutated("flow:slow-drip").sent == plain("client")


def test_one_who_does_not_read() -> None:
    flow = mutated("flow:stop-reading")

    assert flow.steps[flow.at].action is Action.STOP_READING
    assert not [step for step in flow.steps[flow.at :] if step.action is Action.AWAIT]


def test_every_type_comes_and_is_answered() -> None:
    mutated_flow = mutated("flow:every-packet-type", V3_1)
    types = {step.data[0] >> 4 for step in mutated_flow.steps if step.mutated and step.action is Action.SEND}

    assert types == {3, 6, 8, 10, 12}
    check_not_applicable("flow:every-packet-type", flow=limited())
