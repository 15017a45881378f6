from mqttscope.lint.rules import V5, Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt.packets import Auth


class AuthMethodMissing(Rule):
    """An AUTH has no Authentication Method.

    Each AUTH repeats the method of the CONNECT; an AUTH without it is a protocol error.  The specification also allows
    a successful AUTH to end right after its fixed header, which leaves no room for a method: this short form is a
    warning.

    Instead, put the method of the CONNECT into every AUTH.
    """

    code = "AUT102"
    severities = (Severity.ERROR, Severity.WARNING)
    reason_code = 0x82
    versions = (V5,)
    statements = {V5: {"V5-AUTH-method-present": ""}}
    also = {V5: ("MQTT-4.12.0-5",)}

    good = examples("""
        with a method
            > connect authentication_method=SCRAM-SHA-1; < raw f0 10 180e15 000b "SCRAM-SHA-1"
            > auth code=0x18 authentication_method=SCRAM-SHA-1; < connack authentication_method=SCRAM-SHA-1
    """)
    bad = examples("""
        no properties
            > connect authentication_method=SCRAM-SHA-1; < raw f0 02 1800 !properties
        another property only
            > connect authentication_method=SCRAM-SHA-1; < auth code=0x18 authentication_method=SCRAM-SHA-1
            > auth code=0x18 authentication_data=x !properties
        a reason code only
            > connect authentication_method=SCRAM-SHA-1; < raw f0 01 18 !
        the short form of success
            opened authentication_method=SCRAM-SHA-1 < authentication_method=SCRAM-SHA-1
            > auth code=0x19 authentication_method=SCRAM-SHA-1; < raw f0 00 !
    """)

    def check(self, packet: Auth, at: RuleContext) -> Findings:
        """Check the property."""
        block = packet.properties
        if block is not None and block.authentication_method is not None:
            return None
        if packet.reason_code is None:
            message = "AUTH with Remaining Length 0 means success but cannot carry the required Authentication Method"
            return self.report("", message, severity=Severity.WARNING)
        return self.report("" if block is None else "properties", "AUTH has no Authentication Method")
