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
    found = mutated("flow:first-packet-publish")

    assert found.at == 0
    assert found.steps[0].data[0] >> 4 == PacketType.PUBLISH
    assert found.steps[1].data == good(V5).entries[0].raw


def test_a_second_connect_comes_on_the_open_connection() -> None:
    found = mutated("flow:second-connect")

    assert 2 <= found.at < len(good(V5).entries)
    assert found.steps[found.at].data == good(V5).entries[0].raw


def test_nothing_comes_after_disconnect_but_here() -> None:
    sent = [one for one in mutated("flow:packet-after-disconnect").steps if one.action is Action.SEND]

    assert [one.data[0] >> 4 for one in sent[-2:]] == [PacketType.DISCONNECT, PacketType.PINGREQ]
    check_not_applicable("flow:packet-after-disconnect", V3_1_1, sender=SERVER)


def test_a_connection_that_was_refused_has_no_inside() -> None:
    refused = spoken(V5, "> connect\n< connack code=0x87")
    check_not_applicable("flow:second-connect", flow=refused, match="accepted")


def test_every_type_has_its_wrong_direction() -> None:
    wrong = {one.name for one in OPENING if ":wrong-direction" in one.name}

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
    found = mutated(f"flow:{slug}", sender=sender)

    assert found.sent == plain(sender)
    assert len(found.steps) != len(good(V5).entries)


def test_every_byte_has_a_step_of_its_own() -> None:
    sizes = {len(one.data) for one in mutated("flow:split-at-every-byte").steps if one.action is Action.SEND}

    assert sizes == {1}


def test_drop_duplicate_and_reorder_use_what_was_recorded() -> None:
    whole = plain("client")

    assert len(mutated("flow:drop").sent) < len(whole)
    assert len(mutated("flow:duplicate").sent) > len(whole)
    reordered = mutated("flow:reorder")
    assert reordered.sent != whole
    assert sorted(reordered.sent) == sorted(whole)


def test_the_place_of_what_was_dropped_is_kept() -> None:
    found = mutated("flow:drop")

    assert found.steps[found.at].data == b""
    assert found.steps[found.at].entry == found.at


def test_pauses_keep_to_the_keep_alive_or_break_it() -> None:
    pauses = {
        slug: sum(one.nanoseconds for one in mutated(f"flow:{slug}").steps)
        for slug in ("delay", "keep-alive-just-met", "keep-alive-overrun")
    }

    assert pauses == {"delay": 5 * SECOND, "keep-alive-just-met": 57 * SECOND, "keep-alive-overrun": 120 * SECOND}


def test_a_slow_sender_sends_all_the_same() -> None:
    assert mutated("flow:slow-drip").sent == plain("client")


def test_one_who_does_not_read() -> None:
    found = mutated("flow:stop-reading")

    assert found.steps[found.at].action is Action.STOP_READING
    assert not [one for one in found.steps[found.at :] if one.action is Action.AWAIT]


def test_every_type_comes_and_is_answered() -> None:
    found = mutated("flow:every-packet-type", V3_1)
    types = {one.data[0] >> 4 for one in found.steps if one.mutated and one.action is Action.SEND}

    assert types == {3, 6, 8, 10, 12}
    check_not_applicable("flow:every-packet-type", flow=limited())
