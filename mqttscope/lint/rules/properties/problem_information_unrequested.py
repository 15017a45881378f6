from typing import Any

from mqttscope.lint.rules import V5, Findings, Needs, Related, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.mqtt import Auth, Direction, Puback, Pubcomp, Pubrec, Pubrel, Suback, Unsuback

_WORDS = {0x1F: "reason_string", 0x26: "user_property"}


class ProblemInformationUnrequested(Rule):
    """A server sends a Reason String or User Property although the client asked for none.

    A client that sets Request Problem Information to 0 has no room for such texts, or no use for them.  The server may
    then put a Reason String into CONNACK and DISCONNECT only, and a User Property into these two and PUBLISH; a client
    that gets one elsewhere treats it as a protocol error.

    Instead, keep the property of the CONNECT with the connection and leave both out of all other packets.
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
        a refusal without words
            opened request_problem_information=0; > publish a qos=1 id=10; < puback 10 code=0x87
        words where they are allowed in any case
            opened request_problem_information=0 < reason_string=welcome user_property=k:v; > subscribe 1 a:0
            < suback 1 0; < publish a user_property=k:v; < disconnect code=0x8b reason_string=bye
        the client asks for words, as it does when it says nothing
            opened; > publish a qos=1 id=10; < puback 10 code=0x87 reason_string=no
        the client asks for words
            opened request_problem_information=1; > publish a qos=1 id=10; < puback 10 code=0x87 reason_string=no
        the client itself may use them
            opened request_problem_information=0; > subscribe 1 a:1; < suback 1 1; < publish a qos=1 id=10
            > puback 10 code=0x80 reason_string=full
    """)
    bad = examples("""
        a Reason String in a PUBACK
            opened request_problem_information=0; > publish a qos=1 id=10
            < puback 10 code=0x87 reason_string=no !properties.reason_string
        both in a SUBACK
            opened request_problem_information=0; > subscribe 1 a:0
            < suback 1 0x87 reason_string=no user_property=k:v user_property=k:w !properties.reason_string
                !properties.user_property
    """)

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """Look at what CONNECT asked for."""
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
