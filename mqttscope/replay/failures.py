"""What a replay could not do as it was recorded, said in words: connections that failed, and what never came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from mqttscope.mqtt.packets import Publish
from mqttscope.replay.order import Step
from mqttscope.replay.patience import Patience
from mqttscope.replay.player.player import Player
from mqttscope.replay.script import Ending

if TYPE_CHECKING:
    from mqttscope.replay.performer import Performer

_OTHER_VERSION = b"\x20\x02\x00\x01"
"""How brokers refuse a version that they do not know, in the form of 3.1.1 (3.1.1 section 3.2.2.3)."""


def why_it_failed(player: Player, ending: Ending, patience_s: float) -> str:
    """Why a connection that was made led nowhere; empty for one that did not."""
    by_server = ending.by == "server"
    if player.connack is None and player.recorded_connack is not None and (by_server or player.gave_up_connack):
        unreadable = player.unreadable
        if unreadable is not None and unreadable.raw == _OTHER_VERSION:
            return f"the broker does not speak MQTT {player.version.text}"
        if unreadable is not None:
            return f"the broker answered CONNECT with a malformed packet: {unreadable.reason.replace('_', ' ')}"
        if by_server:
            return f"the broker ended a connection before it answered CONNECT: {ending.detail}"
        return f"the broker did not answer CONNECT within {patience_s:g} s"
    return ""


def why_it_fell_short(player: Player, ending: Ending) -> str:
    """Why a connection could not be played to its recorded end, where the broker kept to the protocol; else empty."""
    if player.refused:
        return f"the broker refused a connection: {player.refused}"
    if ending.by == "server" and player.steps:
        if ending.how == "reset" and player.script.ending.how != "reset" and not player.dismissed:
            return f"a connection broke before its end: {ending.detail}"
        return "the broker ended a connection before its end"
    if player.gave_up:
        return f"a connection waited in vain for {player.gave_up}"
    return ""


def cause(player: Player, failure: str) -> str:
    """What is behind all differences of a connection, behind a "because"; empty where they stand for themselves."""
    if failure.startswith("cannot "):
        return f"there is no connection: {failure}"
    return failure or (f"the broker refused the connection: {player.refused}" if player.refused else "")


def never_came(performers: Collection[Performer], missed: Collection[Step], patience: Patience) -> Counter[str]:
    """What was waited for and did not come later either, in words."""
    found: Counter[str] = Counter()
    for performer in performers if missed else ():
        player = performer.player
        for entry in player.awaited:
            if entry not in missed or entry in player.came:
                continue
            what = entry.type.upper()
            if isinstance(entry.packet, Publish):
                what = f"messages of {patience.awaited_on(entry)!r}"
            found[f"{what} for {player.script.name}"] += 1
    return found
