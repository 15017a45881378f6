"""A recorded connection made to fit the broker that it will be played to.

What is legal depends on the limits that a broker announces.  So a mutation is not applied to the connection as it was
recorded, but to the same one with the live broker's CONNACK in it, and with the client's packets within its limits.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.packets import Connack, Connect, Publish, Subscribe
from mqttscope.mutate import Flow
from mqttscope.replay.player import adapt
from mqttscope.replay.script import C2S, S2C, Script
from mqttscope.session.connection import Connection


def flow_of(script: Script, capture_hash: str, number: int) -> Flow:
    """The connection in the form that mutations are applied to."""
    return Flow.of(script.entries, version=script.version, capture_hash=capture_hash, connection=number)


def fitted(
    script: Script, connack: Connack | None, *, user_name: str | None = None, password: bytes | None = None
) -> Script:
    """A copy of the script for a broker that answers its CONNECT with this CONNACK.

    ``user_name`` and ``password`` replace the recorded ones.  Without a CONNACK only these are changed.
    """
    made = copy.deepcopy(script)
    live = Connection(script.connection.number, "", "", "", 0, 0, handshake_seen=True)
    live.assume_version(script.version, "the recording", known=True)
    recorded = script.connection
    for number, (entry, original) in enumerate(zip(made.entries, script.entries, strict=True)):
        packet = entry.packet
        if entry.from_client:
            fit = None
            if isinstance(packet, Connect):
                own = user_name if user_name is not None else packet.user_name
                fit = adapt.connect(original, {}, user_name, password_for(script.version, own, password))
            elif isinstance(packet, Publish) and connack is not None:
                fit = adapt.publish(original, live, recorded)
            elif isinstance(packet, Subscribe) and connack is not None:
                fit = adapt.subscribe(original, live, recorded)
            if fit is not None and fit.refused is None:
                entry.packet, entry.raw = fit.packet, fit.raw
            if isinstance(entry.packet, Connect | Publish):
                live.apply(entry.packet, C2S, number, 0, 0)
        elif isinstance(packet, Connack) and connack is not None:
            entry.packet, entry.raw = connack, connack.raw
            live.apply(connack, S2C, number, 0, 0)
    return made


def password_for(version: ProtocolVersion, user_name: str | None, password: bytes | None) -> bytes | None:
    """The password where it may be sent: before 5.0 there is none without a User Name (3.1.1 MQTT-3.1.2-22)."""
    return None if user_name is None and version < ProtocolVersion.V5 else password


def recorded_failures(script: Script) -> frozenset[int]:
    """Reason codes of failures that the recorded server gave."""
    found: set[int] = set()
    for entry in script.entries:
        if not entry.from_client:
            codes: Sequence[int] = getattr(entry.packet, "reason_codes", None) or ()
            one = getattr(entry.packet, "reason_code", None)
            found.update(code for code in (*codes, *((one,) if one is not None else ())) if code)
    return frozenset(found)
