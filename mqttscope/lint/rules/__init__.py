"""The rules by area, the names that rules are declared with, and checks that several rules share."""

from mqttscope.events import MalformedEvent
from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext, forget_oldest
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Confidence, Related, Report, Severity
from mqttscope.lint.rule import ALL_VERSIONS, SPARKPLUG, V3_1, V3_1_1, V5, Findings, Needs, Rule, packet_name
from mqttscope.lint.strings import shown
from mqttscope.mqtt import Malformed, ProtocolVersion, Publish, decode
from mqttscope.session.connection import C2S, S2C, Connection

__all__ = [
    "ALL_VERSIONS", "C2S", "S2C", "SECOND_NS", "SPARKPLUG", "V3_1", "V3_1_1", "V5", "Confidence",
    "Connection", "ConnectionKey", "Findings", "Needs", "Related", "Report", "Rule", "RuleContext", "Severity",
    "examples", "forget_oldest", "may_be_3_1", "nothing_decoded", "packet_name", "properties_lost", "roles_guessed",
    "shown", "valid_elsewhere",
]  # fmt: skip


def roles_guessed(at: RuleContext) -> bool:
    """Whether a packet in the wrong direction more likely means that client and server were confused.

    Without TCP handshake and CONNECT, only a well-known port of MQTT shows which side is the server.
    """
    connection = at.connection
    return not connection.roles_known and connection.roles_evidence != "port"


def valid_elsewhere(at: RuleContext) -> bool:
    """Whether the version is only assumed, and the malformed packet is well-formed in another version.

    Without a CONNECT, 3.1 and 3.1.1 cannot be distinguished, and 3.1 allows bits that 3.1.1 reserves.
    """
    event = at.event
    if at.connection.version_known or not isinstance(event, MalformedEvent):
        return False
    raw = event.malformed.raw
    return any(not isinstance(decode(raw, other), Malformed) for other in ProtocolVersion if other is not at.version)


def may_be_3_1(at: RuleContext) -> bool:
    return at.version is not ProtocolVersion.V5 and not at.connection.version_known


def nothing_decoded(at: RuleContext) -> bool:
    """Whether all earlier bytes were lost or did not decode, so that the connection may not be MQTT at all.

    The answer to a request that was not captured, such as an HTTP upgrade, may look like packets.
    """
    return bool(at.connection.gaps) and not at.client.packets and not at.server.packets


def properties_lost(packet: Publish, at: RuleContext) -> bool:
    """Whether the snap length cut a PUBLISH before its properties, so that they only seem to be missing."""
    return bool(packet.missing) and packet.properties is None and at.version is ProtocolVersion.V5
