"""Mutations that break something before a version is named: in a capture nothing tells which text they break.

A linter has to take some version for such a connection, and cites that one.  A broker is judged by the version of the
flow all the same: that is known here.
"""

from __future__ import annotations

from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mutate.catalogue import matches
from mqttscope.mutate.flow import CLIENT
from mqttscope.mutate.mutation import Mutation

ASSUMED = ProtocolVersion.V3_1_1
"""The version that is taken where nothing tells one."""
BEFORE_THE_LEVEL = ",".join(
    (
        "connect.protocol_name:cut-*",
        "connect.protocol_level:cut-before",
        "connect.remaining_length:five-bytes",
        "connect.remaining_length:all-ones",
        "flow:first-packet-*",
        "flow:connect-dropped",
    )
)
"""Pattern of these mutations: they hide the protocol level of CONNECT, or come before it."""


def cited_instead(one: Mutation, version: ProtocolVersion, sender: str = CLIENT) -> tuple[str, ...]:
    """Statements that a linter may cite in the place of those of `Mutation.broken`; none where the version is told."""
    if version == ASSUMED or not matches(one.name, BEFORE_THE_LEVEL) or not one.broken(version, sender):
        return ()
    return one.broken(ASSUMED, sender)
