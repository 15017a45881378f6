"""AUT102."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, hexadecimal, make_connect, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.mqtt.packets import Auth, Connack
from mqttscope.mqtt.properties import Properties

_METHOD = Properties(authentication_method="SCRAM-SHA-1")


class AuthMethodMissing(Rule):
    """An AUTH has no Authentication Method.

    Each AUTH repeats the method that CONNECT named; its absence is a protocol error.  The specification also lets an
    AUTH for success end right after its fixed header, where no method fits in: that short form is a warning.

    Instead, put the method of the CONNECT into every AUTH.
    """

    code = "AUT102"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    reason_code = 0x82
    versions = (V5,)
    statements = {V5: {"V5-AUTH-method-present": ""}}
    also = {V5: ("MQTT-4.12.0-5",)}
    looks_at = Auth

    good = examples(
        lambda: [
            conversation(
                "with a method",
                client(make_connect(properties=_METHOD)),
                server(hexadecimal("f0 10 18 0e 15 00 0b 53 43 52 41 4d 2d 53 48 41 2d 31")),
                client(Auth(0x18, _METHOD)),
                server(Connack(properties=_METHOD)),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "no property at all",
                client(make_connect(properties=_METHOD)),
                server(hexadecimal("f0 02 18 00")).marked("properties"),
            ),
            conversation(
                "another property only",
                client(make_connect(properties=_METHOD)),
                server(Auth(0x18, _METHOD)),
                client(Auth(0x18, Properties(authentication_data=b"x"))).marked("properties"),
            ),
            conversation(
                "a reason code alone",
                client(make_connect(properties=_METHOD)),
                server(hexadecimal("f0 01 18")).marked(""),
            ),
            conversation(
                "the short form of success",
                client(make_connect(properties=_METHOD)),
                server(Connack(properties=_METHOD)),
                client(Auth(0x19, _METHOD)),
                server(hexadecimal("f0 00")).marked(""),
            ),
        ]
    )

    def check(self, packet: Auth, at: RuleContext) -> Findings:
        """Look for the property."""
        block = packet.properties
        if block is not None and block.authentication_method is not None:
            return None
        if packet.reason_code is None:
            message = "AUTH with Remaining Length 0 means success but cannot carry the Authentication Method it needs"
            return self.report("", message, severity=Severity.WARNING)
        return self.report("" if block is None else "properties", "AUTH has no Authentication Method")
