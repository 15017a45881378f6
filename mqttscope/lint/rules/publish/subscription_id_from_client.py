from mqttscope.lint.rules import V5, Findings, Rule, RuleContext, Severity, examples, sides_guessed
from mqttscope.mqtt import Direction, Publish
from mqttscope.mqtt.properties import SUBSCRIPTION_IDENTIFIER


class SubscriptionIdFromClient(Rule):
    """A client sends a Subscription Identifier in a PUBLISH.

    The property tells a client which of its own subscriptions a message came for.  In the other direction it means
    nothing; a server that passes it on makes subscribers call the wrong handlers.

    Instead, leave it out of every PUBLISH to the server; drop it where a received message is published again.
    """

    code = "PUB106"
    severity = Severity.ERROR
    reason_code = 0x82
    versions = (V5,)
    statements = {V5: {"MQTT-3.3.4-6": ""}}
    sender = Direction.CLIENT_TO_SERVER
    when = "properties"
    signs = ("subscription_identifier",)

    good = examples("""
        none
            opened; > publish a/b hi
        from the server it is right
            opened; > subscribe 1 a/b:0 subscription_identifier=7; < suback 1 0; < publish a/b subscription_identifier=7
    """)
    bad = examples("""
        from the client
            opened; > publish a/b subscription_identifier=7 !properties.subscription_identifier
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """The property must not be there."""
        identifier = packet.properties.first(SUBSCRIPTION_IDENTIFIER) if packet.properties is not None else None
        if identifier is None or sides_guessed(at):
            return None
        told = f"PUBLISH {at.topic!r} from the client has Subscription Identifier {identifier}"
        return self.report("properties.subscription_identifier", told)
