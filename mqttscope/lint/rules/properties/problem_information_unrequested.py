from typing import Any

from mqttscope.lint.rules import V5, Findings, Needs, Related, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.mqtt import Auth, Direction, Puback, Pubcomp, Pubrec, Pubrel, Suback, Unsuback

_WORDS = {0x1F: "reason_string", 0x26: "user_property"}


class ProblemInformationUnrequested(Rule):
    """A server sends a Reason String or User Property that the client declined.

    A client that sets Request Problem Information to 0 has no room or no use for such texts.  The server may then send
    a Reason String only in CONNACK and DISCONNECT, and a User Property only in these two and PUBLISH; in other packets
    the client treats them as a protocol error.

    Instead, store the setting from the CONNECT for the connection and omit both properties from all other packets.
    """

    code = "PRP207"
    severity = Severity.ERROR
    reason_code = 0x82
    versions = (V5,)
    statements = {V5: {"MQTT-3.1.2-29": ""}}
    looks_at = (Puback, Pubrec, Pubrel, Pubcomp, Suback, Unsuback, Auth)
    sender = Direction.SERVER_TO_CLIENT
    when = "properties"
    needs = Needs.OPENING

    good = examples("""
        a refusal without text
            opened request_problem_information=0; > publish a qos=1 id=10; < puback 10 code=0x87
        texts in packets that always allow them
            opened request_problem_information=0 < reason_string=welcome user_property=k:v; > subscribe 1 a:0
            < suback 1 0; < publish a user_property=k:v; < disconnect code=0x8b reason_string=bye
        the client requests texts by default
            opened; > publish a qos=1 id=10; < puback 10 code=0x87 reason_string=no
        the client requests texts
            opened request_problem_information=1; > publish a qos=1 id=10; < puback 10 code=0x87 reason_string=no
        texts from the client itself
            opened request_problem_information=0; > subscribe 1 a:1; < suback 1 1; < publish a qos=1 id=10
            > puback 10 code=0x80 reason_string=full
    """)
    bad = examples("""
        a Reason String in a PUBACK
            opened request_problem_information=0; > publish a qos=1 id=10
            < puback 10 code=0x87 reason_string=no !properties.reason_string
        both properties in a SUBACK
            opened request_problem_information=0; > subscribe 1 a:0
            < suback 1 0x87 reason_string=no user_property=k:v user_property=k:w !properties.reason_string
                !properties.user_property
    """)

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """Check the setting in the CONNECT."""
        connect = at.history.connect
        if connect is None or connect.properties is None or connect.properties.request_problem_information != 0:
            return None
        first = at.history.connect_sent
        asked = () if first is None else (Related.to("the CONNECT", first),)
        names = dict.fromkeys(_WORDS[number] for number, _ in packet.properties.items if number in _WORDS)
        return [
            self.report(
                f"properties.{name}",
                f"{packet_name(packet)} carries {name} although CONNECT set request_problem_information to 0",
                related=asked,
            )
            for name in names
        ]
