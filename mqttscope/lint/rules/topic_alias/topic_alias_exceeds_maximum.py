from mqttscope.lint.rules import V5, Findings, Needs, Rule, RuleContext, Severity, examples
from mqttscope.mqtt.packets import Publish


class TopicAliasExceedsMaximum(Rule):
    """A PUBLISH has a Topic Alias above the receiver's Topic Alias Maximum.

    The receiver has no table entry for it and closes the connection with 0x94 (Topic Alias invalid).  The client's
    maximum is in CONNECT and applies to the server; the server's maximum is in CONNACK and applies to the client.  The
    default is 0: no aliases.  A client that uses aliases before the CONNACK reaches it can only guess the maximum.

    Instead, use aliases from 1 to the maximum that the receiver announced on this connection.
    """

    code = "ALS202"
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    reason_code = 0x94
    versions = (V5,)
    statements = {
        V5: {
            "MQTT-3.1.2-26": "server",
            "MQTT-3.1.2-27": "server",
            "MQTT-3.2.2-17": "client",
            "MQTT-3.2.2-18": "client",
            "MQTT-3.3.2-9": "client",
            "MQTT-3.3.2-11": "server",
            "V5-PUBLISH-alias-range": "",
        }
    }
    when = "properties"
    signs = ("odd_alias",)
    needs = Needs.OPENING

    good = examples("""
        exactly the maximum, in both directions
            opened topic_alias_maximum=3 < topic_alias_maximum=5; > publish a topic_alias=5; < publish b topic_alias=3
        a correct guess
            opened < topic_alias_maximum=5; crossing > publish a topic_alias=5
    """)
    bad = examples("""
        above the server's maximum
            opened < topic_alias_maximum=5; > publish a topic_alias=6 !properties.topic_alias
        above the client's maximum
            opened topic_alias_maximum=3 < topic_alias_maximum=5; < publish b topic_alias=4 !properties.topic_alias
        the server accepts no aliases
            opened topic_alias_maximum=3; > publish a topic_alias=1 !properties.topic_alias
        the client accepts no aliases
            opened; < publish b topic_alias=1 !properties.topic_alias
        without a CONNACK
            > connect; > publish a topic_alias=1 !properties.topic_alias
        sent before the CONNACK arrived
            opened < topic_alias_maximum=5; crossing > publish a topic_alias=6 !properties.topic_alias
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare with the receiver's maximum."""
        assert packet.properties is not None
        alias = packet.properties.topic_alias
        if alias is None or alias <= at.receiver.topic_alias_maximum:
            return None
        limit = at.receiver.topic_alias_maximum
        receiver = "server" if at.from_client else "client"
        text = f"PUBLISH {at.topic!r} has Topic Alias {alias:,}, the {receiver}'s Topic Alias Maximum is {limit:,}"
        severity, confidence = at.awareness()
        if at.from_client and at.history.connack is None:
            if not at.party.in_step():
                return None  # the capture may lack a CONNACK that the client received
            # A later CONNACK may still allow it.
            severity = Severity.WARNING
            text = f"PUBLISH {at.topic!r} has Topic Alias {alias:,} before the CONNACK has announced a maximum"
        left_out = () if limit == 0 else ("MQTT-3.1.2-27", "MQTT-3.2.2-18")
        side = "client" if at.from_client else "server"
        rows = self.statements_for(at.version, side, "publish", "properties.topic_alias")
        return self.report(
            "properties.topic_alias",
            text,
            severity=severity,
            confidence=confidence,
            statements=tuple(row for row in rows if row not in left_out),
        )
