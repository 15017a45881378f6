from mqttscope.lint.rules import V5, Findings, Rule, RuleContext, Severity, examples, roles_guessed
from mqttscope.mqtt import Direction, Publish
from mqttscope.mqtt.properties import SUBSCRIPTION_IDENTIFIER


class SubscriptionIdFromClient(Rule):
    """A client sends a Subscription Identifier in a PUBLISH.

    The property identifies the subscription of the receiving client that a message matches.  In the other direction it
    has no meaning; a server that forwards it makes subscribers call the wrong handlers.

    Instead, omit it from every PUBLISH to the server, and remove it before you publish a received message again.
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
        no identifier
            opened; > publish a/b hi
        allowed from the server
            opened; > subscribe 1 a/b:0 subscription_identifier=7; < suback 1 0; < publish a/b subscription_identifier=7
    """)
    bad = examples("""
        from the client
            opened; > publish a/b subscription_identifier=7 !properties.subscription_identifier
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Report the property if present."""
        identifier = packet.properties.first(SUBSCRIPTION_IDENTIFIER) if packet.properties is not None else None
        if identifier is None or roles_guessed(at):
            return None
        text = f"PUBLISH {at.topic!r} from the client has Subscription Identifier {identifier}"
        return self.report("properties.subscription_identifier", text)
