"""The record of one link, on a transport that does nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mqttscope.net.segment import ACK, FIN, PSH, RST, SYN
from mqttscope.transport.recording import Tap
from mqttscope.transport.sockets import Delivery
from tests.transport.linking import CONNACK, CONNECT, frames, play, recorder, story
from tests.transport.test_sockets import Transport
from tests.transport.wires import V4, V6, complaints


def test_a_link_of_ours_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "it.pcapng"

    async def scene() -> None:
        made = recorder(path)
        transport = Transport()
        tap = made.tap(*V4, Delivery(transport), is_client=True)
        tap.sent(CONNECT)
        transport.waiting = 2
        tap.received(CONNACK)
        assert tap.acknowledge()
        transport.waiting = 0
        assert not tap.acknowledge()
        tap.finished(local=True)
        tap.finished(local=True)
        tap.finished(local=False)
        tap.gone()
        assert not tap.acknowledge()
        made.close()

    play(scene)
    assert story(path) == (CONNECT, CONNACK, ["FlowOpened", "client fin", "server fin", "closed fin"])
    assert complaints(path) == []
    made = [one.segment for one in frames(path)]
    assert [one.flags for one in made] == [
        SYN, SYN | ACK, ACK, PSH | ACK, PSH | ACK, ACK, ACK, FIN | ACK, FIN | ACK, ACK, ACK
    ]  # fmt: skip
    behind = [one.acknowledgment - made[0].sequence - 1 for one in (made[4], made[6])]
    assert behind == [len(CONNECT) - 2, len(CONNECT)]


def test_a_client_of_ours_stands_on_the_other_side(tmp_path: Path) -> None:
    path = tmp_path / "it.pcapng"

    async def scene() -> None:
        made = recorder(path)
        client, server = V6
        tap = made.tap(server, client, Delivery(Transport()), is_client=False)
        tap.received(CONNECT)
        tap.sent(CONNACK)
        tap.aborted(local=False)
        tap.sent(b"never")
        tap.gone()
        made.close()

    play(scene)
    assert story(path) == (CONNECT, CONNACK, ["FlowOpened", "client reset", "server reset", "closed reset"])
    assert frames(path)[-1].segment.flags & RST
    assert complaints(path) == []


def test_what_is_confirmed_is_recorded_soon(tmp_path: Path) -> None:
    async def scene() -> Tap:
        made = recorder(tmp_path / "it.pcapng")
        tap = made.tap(*V4, Delivery(Transport()), is_client=True)
        tap.sent(CONNECT)
        assert tap.wire.acknowledged(False) == 0
        await asyncio.sleep(0.3)
        assert tap.wire.acknowledged(False) == len(CONNECT)
        made.close()
        return tap

    tap = play(scene)
    assert tap.wire.acknowledged(False) == len(CONNECT)
