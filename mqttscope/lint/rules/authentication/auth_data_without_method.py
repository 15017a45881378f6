from mqttscope.lint.rules import V5, Findings, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.mqtt.packets import Connack, Connect


class AuthDataWithoutMethod(Rule):
    """A CONNECT or CONNACK has Authentication Data without an Authentication Method.

    Only the method gives the data a meaning.  The specification defines this as a protocol error in CONNECT; mqttscope
    treats CONNACK the same way, since its data also belong to a method.

    Instead, send Authentication Method together with Authentication Data.
    """

    code = "AUT101"
    severity = Severity.ERROR
    reason_code = 0x82
    versions = (V5,)
    statements = {V5: {"V5-CONNECT-auth-data-alone": ""}}
    when = "properties"

    good = examples("""
        both
            opened authentication_method=A authentication_data=x < authentication_method=A authentication_data=y
        a method without data
            opened authentication_method=A < authentication_method=A
    """)
    bad = examples("""
        in CONNECT
            > raw 10 13 0004 "MQTT" 0502003c0416 0001 "x" 0002 "c1" !properties.authentication_data
        in CONNACK
            opened < authentication_data=y !properties.authentication_data
    """)

    def check(self, packet: Connect | Connack, at: RuleContext) -> Findings:
        """Check both properties."""
        block = packet.properties
        if block is None or block.authentication_data is None or block.authentication_method is not None:
            return None
        return self.report(
            "properties.authentication_data",
            f"{packet_name(packet)} has Authentication Data without Authentication Method",
        )
