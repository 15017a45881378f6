from collections.abc import Iterator

from mqttscope.lint.rules import V3_1_1, V5, Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connect, Direction, ProtocolVersion
from mqttscope.mqtt.properties import BY_NAME
from mqttscope.mqtt.topics import topic_name_problem

_RESPONSE_TOPIC = BY_NAME["response_topic"].identifier
PROBLEMS = {
    "empty": "is empty",
    "too_long": "is longer than 65535 bytes",
    "null_character": "contains U+0000",
    "wildcard": "contains a wildcard",
}

_STATEMENTS = {
    V5: {"empty": ("MQTT-4.7.3-1",), "null_character": ("MQTT-3.1.3-11",), "wildcard": ("MQTT-4.7.0-1",)},
    V3_1_1: {"empty": ("MQTT-4.7.3-1",), "null_character": ("MQTT-3.1.3-10",), "wildcard": ("MQTT-4.7.1-1",)},
}
"""Statements about each problem; MQTT 3.1 has no statement about them."""


class WillTopicInvalid(Rule):
    """The Will Topic or the will's Response Topic is not a valid Topic Name.

    Messages are published to Topic Names, which are not empty and contain neither wildcards nor U+0000.  Servers refuse
    the CONNECT, or accept it and can never publish the will.

    Instead, use a Topic Name without ``+`` and ``#`` for the will.
    """

    code = "WIL103"
    severity = Severity.ERROR
    also = {
        V5: ("MQTT-3.1.3-11", "MQTT-4.7.0-1", "MQTT-4.7.3-1"),
        V3_1_1: ("MQTT-3.1.3-10", "MQTT-4.7.1-1", "MQTT-4.7.3-1"),
    }
    when = "will"
    sender = Direction.CLIENT_TO_SERVER

    good = examples("""
        a name
            opened will=a/b will_payload=x
        a name that begins with a dollar sign
            opened 3.1.1 will=$dead/c1 will_payload=x
        an empty payload
            opened will=a/b will.response_topic=r
    """)
    bad = examples(r"""
        number sign
            > raw 10 18 0004 "MQTT" 0506003c00 0002 "c1" 00 0003 "a/#" 0001 "x" !will.will_topic
        plus sign in 3.1
            > connect 3.1 will=+/b will_payload=x !will.will_topic
        empty
            > connect 3.1.1 will=- will_payload=x !will.will_topic
        U+0000
            > connect 3.1.1 will="a\u0000" will_payload=x !will.will_topic
        Response Topic
            > connect will=a will_payload=x will.response_topic=r/+ !will.properties.response_topic
    """)

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Check both topics of the will."""
        if packet.will is None:
            return None
        return (
            self.report(field, f"CONNECT: {name} {topic!r} {PROBLEMS[problem]}", statements=_cited(at.version, problem))
            for field, name, topic, problem in will_topic_faults(packet)
        )


def _cited(version: ProtocolVersion, problem: str) -> tuple[str, ...]:
    return _STATEMENTS.get(version, {}).get(problem, ())


def will_topic_faults(packet: Connect) -> Iterator[tuple[str, str, str, str]]:
    """Field, its name, its topic and the kind of problem, for each invalid topic of a will."""
    will = packet.will
    if will is None:
        return
    topics = [("will.will_topic", "Will Topic", will.will_topic)]
    if will.properties is not None:
        responses = will.properties.all(_RESPONSE_TOPIC)
        topics += [("will.properties.response_topic", "Response Topic", response) for response in responses]
    for field, name, topic in topics:
        problem = None if topic is None else topic_name_problem(topic)
        if problem is not None:
            yield field, name, topic, problem
