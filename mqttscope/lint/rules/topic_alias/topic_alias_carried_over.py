from dataclasses import dataclass, field

from mqttscope.lint.rule import V5, Findings, Needs, Rule, packet_name
from mqttscope.lint.rules import Confidence, ConnectionKey, RuleContext, Severity, examples, forget_oldest, shown
from mqttscope.lint.session_model import SessionModel, doubted
from mqttscope.mqtt import Direction, Puback, Publish, Pubrec

MAX_WAITING = 64
"""Maximum number of such messages tracked until their acknowledgement; for others only the sender is reported."""


@dataclass(slots=True)
class UnresolvedMessages:
    """Unacknowledged messages with an alias from an earlier connection."""

    topics: dict[tuple[ConnectionKey, bool, int], str] = field(default_factory=dict)
    """Topics by connection, whether the client is the sender, and packet identifier."""


class TopicAliasCarriedOver(Rule):
    """A sender uses a Topic Alias that was set on an earlier connection, but not on this one.

    Aliases end with their connection, even if the session continues: the receiver cannot resolve the topic and closes
    the connection (0x82).  Clients make this mistake if they store encoded messages and resend them after a reconnect.
    A receiver that acknowledges such a message has kept the alias itself, or has lost the message: that is a separate
    finding.

    Instead, store the topic with the message, and send it together with the alias once on each connection.
    """

    code = "ALS305"
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    reason_code = 0x82
    versions = (V5,)
    statements = {V5: {"MQTT-3.3.2-7": ""}}
    when = {Publish: "properties"}
    signs = {Publish: ("unresolved",), Puback: ("odd_aliases",), Pubrec: ("odd_aliases",)}
    needs = Needs.OPENING | Needs.WHOLE_SENDER
    models = (SessionModel,)
    Memory = UnresolvedMessages

    good = examples("""
        set again
            opened topic_alias_maximum=5 < topic_alias_maximum=5; > publish a/b topic_alias=1; > disconnect; > fin
            @1 opened topic_alias_maximum=5 < topic_alias_maximum=5; @1 > publish a/b topic_alias=1
            @1 > publish - topic_alias=1
        the PUBLISH that sets it again is not in the capture
            opened topic_alias_maximum=5 < topic_alias_maximum=5; > publish a/b topic_alias=1; > disconnect; > fin
            @1 opened topic_alias_maximum=5 < topic_alias_maximum=5; @1 lost > publish a/b topic_alias=1
            @1 > publish - topic_alias=1
        set on each connection
            opened topic_alias_maximum=5 < topic_alias_maximum=5; > publish a/b topic_alias=1; > publish - topic_alias=1
            > disconnect; > fin; @1 opened topic_alias_maximum=5 < topic_alias_maximum=5
    """)
    bad = examples("""
        by the client
            opened topic_alias_maximum=5 < topic_alias_maximum=5; > publish a/b topic_alias=1; > disconnect; > fin
            @1 opened topic_alias_maximum=5 < topic_alias_maximum=5
            @1 > publish - topic_alias=1 !properties.topic_alias
        by the server, in a continued session
            opened topic_alias_maximum=5 < topic_alias_maximum=5; < publish a/b topic_alias=1; > reset
            @1 opened resume topic_alias_maximum=5 < present; @1 < publish - topic_alias=1 !properties.topic_alias
        accepted by the server
            opened topic_alias_maximum=5 < topic_alias_maximum=5; > publish a/b topic_alias=1; > disconnect; > fin
            @1 opened topic_alias_maximum=5 < topic_alias_maximum=5
            @1 > publish - qos=1 id=3 topic_alias=1 !properties.topic_alias; @1 < puback 3 !
    """)

    def check(self, packet: Publish | Puback | Pubrec, at: RuleContext) -> Findings:
        """Look for an unset alias on earlier connections."""
        if not isinstance(packet, Publish):
            return self._accepted(packet, at) if at.other.odd_aliases else None
        if packet.topic_name or at.topic is not None or at.party.malformed or packet.properties is None:
            return None
        alias = packet.properties.topic_alias
        if not alias:
            return None
        model = at.model(SessionModel)
        topic = model.aliases(at.direction).get(alias)
        if model.owner != at.key or topic is None:
            return None
        if packet.packet_identifier is not None:
            waiting: UnresolvedMessages = at.memory(self)
            waiting.topics[at.key, at.from_client, packet.packet_identifier] = topic
            forget_oldest(waiting.topics, MAX_WAITING)
        return self.report(
            "properties.topic_alias",
            f"PUBLISH has only Topic Alias {alias:,}, which meant {shown(topic)} on an earlier connection but is "
            "not set on this one",
            **doubted(apart=model.before_apart),
        )

    def _accepted(self, packet: Puback | Pubrec, at: RuleContext) -> Findings:
        sender = at.direction.opposite
        key = at.key, sender is Direction.CLIENT_TO_SERVER, packet.packet_identifier
        topic = at.memory(self).topics.pop(key, None)
        if topic is None or (packet.reason_code or 0) >= 0x80:
            return None
        return self.report(
            "",
            f"{packet_name(packet)} accepts a message with a Topic Alias that meant {shown(topic)} on an earlier "
            "connection but is not set on this one",
            **doubted(apart=at.model(SessionModel).before_apart),
        )
