"""The rules by area, the words that they are declared with, and what several ask before they conclude something."""

from mqttscope.events import MalformedEvent
from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext, forget_oldest
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Confidence, Related, Report, Severity
from mqttscope.lint.rule import ALL_VERSIONS, V3_1, V3_1_1, V5, Findings, Needs, Rule, packet_name
from mqttscope.lint.strings import shown
from mqttscope.mqtt import Malformed, ProtocolVersion, Publish, decode
from mqttscope.session.connection import C2S, S2C, Connection

__all__ = [
    "ALL_VERSIONS", "C2S", "S2C", "SECOND_NS", "V3_1", "V3_1_1", "V5", "Confidence", "Connection",
    "ConnectionKey", "Findings", "Needs", "Related", "Report", "Rule", "RuleContext", "Severity", "examples",
    "forget_oldest", "lawful_elsewhere", "may_be_3_1", "nothing_understood", "packet_name", "properties_lost", "shown",
    "sides_guessed",
]  # fmt: skip


def sides_guessed(at: RuleContext) -> bool:
    """Whether a packet in the wrong direction rather shows that client and server were taken for each other.

    Without handshake and CONNECT only a port that MQTT is known by is more than a guess.
    """
    connection = at.connection
    return not connection.roles_known and connection.roles_evidence != "port"


def lawful_elsewhere(at: RuleContext) -> bool:
    """Whether the version is only assumed, and the malformed packet well formed in another one.

    3.1 cannot be told from 3.1.1 without a CONNECT, and leaves bits alone that 3.1.1 reserves.
    """
    event = at.event
    if at.connection.version_known or not isinstance(event, MalformedEvent):
        return False
    raw = event.malformed.raw
    return any(not isinstance(decode(raw, one), Malformed) for one in ProtocolVersion if one is not at.version)


def may_be_3_1(at: RuleContext) -> bool:
    return at.version is not ProtocolVersion.V5 and not at.connection.version_known


def nothing_understood(at: RuleContext) -> bool:
    """Whether all that came before was lost or no packet, so that MQTT itself is not proven yet.

    What one side answers to a request that was not captured, an HTTP upgrade for instance, may look like packets.
    """
    return bool(at.connection.gaps) and not at.client.packets and not at.server.packets


def properties_lost(packet: Publish, at: RuleContext) -> bool:
    """Whether the snap length cut a PUBLISH before its properties, so that it only seems to have none."""
    return bool(packet.missing) and packet.properties is None and at.version is ProtocolVersion.V5
