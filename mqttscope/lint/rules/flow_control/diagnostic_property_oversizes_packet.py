import dataclasses
from collections.abc import Iterator
from typing import Any

from mqttscope.lint.rules import V5, Needs, Report, Rule, RuleContext, Severity, examples, packet_name
from mqttscope.mqtt import ControlPacket, Properties, encode
from mqttscope.mqtt.packets import Auth, Connack, Disconnect, Puback, Pubcomp, Pubrec, Pubrel, Suback, Unsuback

ANSWERS = (Connack, Puback, Pubrec, Pubrel, Pubcomp, Suback, Unsuback, Disconnect, Auth)
"""Packets that must not exceed the limit because of their Reason String and User Properties."""
REASON_STRING, USER_PROPERTY = 0x1F, 0x26


class DiagnosticPropertyOversizesPacket(Rule):
    """A packet exceeds the receiver's maximum size only because of its Reason String or User Properties.

    Both properties only help people who read logs.  Because of them the receiver closes the connection with 0x95
    (Packet too large) and never sees the actual reason code of the packet.

    Instead, omit the Reason String and the User Properties if the packet would exceed the Maximum Packet Size.
    """

    code = "FLW203"
    severities = (Severity.ERROR, Severity.INFO)
    reason_code = 0x95
    versions = (V5,)
    statements = {
        V5: {
            "MQTT-3.2.2-19": "connack.properties.reason_string",
            "MQTT-3.2.2-20": "connack.properties.user_property",
            "MQTT-3.4.2-2": "puback.properties.reason_string",
            "MQTT-3.4.2-3": "puback.properties.user_property",
            "MQTT-3.5.2-2": "pubrec.properties.reason_string",
            "MQTT-3.5.2-3": "pubrec.properties.user_property",
            "MQTT-3.6.2-2": "pubrel.properties.reason_string",
            "MQTT-3.6.2-3": "pubrel.properties.user_property",
            "MQTT-3.7.2-2": "pubcomp.properties.reason_string",
            "MQTT-3.7.2-3": "pubcomp.properties.user_property",
            "MQTT-3.9.2-1": "suback.properties.reason_string",
            "MQTT-3.9.2-2": "suback.properties.user_property",
            "MQTT-3.11.2-1": "unsuback.properties.reason_string",
            "MQTT-3.11.2-2": "unsuback.properties.user_property",
            "MQTT-3.14.2-3": "disconnect.properties.reason_string",
            "MQTT-3.14.2-4": "disconnect.properties.user_property",
            "MQTT-3.15.2-2": "auth.properties.reason_string",
            "MQTT-3.15.2-3": "auth.properties.user_property",
        }
    }
    looks_at = ANSWERS
    when = "properties"
    signs = ("oversized",)
    needs = Needs.OPENING

    good = examples("""
        omitted
            opened maximum_packet_size=20 < code=0x8c
        exactly the limit
            opened maximum_packet_size=20; > publish a qos=1 id=1; < puback 1 code=0x87 reason_string="eleven char"
    """)
    bad = examples("""
        a long Reason String in CONNACK
            opened maximum_packet_size=20 < code=0x8c reason_string="x"*47 !properties.reason_string
        one byte too many in PUBACK
            opened maximum_packet_size=20; > publish a qos=1 id=1
            < puback 1 code=0x87 reason_string="twelve chars" !properties.reason_string
        both properties, in DISCONNECT from the client
            opened < maximum_packet_size=20
            > disconnect code=0x80 reason_string=xxxxxxxxxxxxxxxxxxxx user_property=k:vvvvvvvvvvvvvvvvvvvv
                !properties.reason_string !properties.user_property
        perhaps sent before the CONNACK arrived
            opened < maximum_packet_size=20
            crossing > disconnect code=0x80 user_property=k:vvvvvvvvvvvvvvvvvvvv !properties.user_property
    """)

    def check(self, packet: Any, at: RuleContext) -> Iterator[Report]:
        """Check whether the packet fits without the optional properties."""
        limit = at.receiver.maximum_packet_size
        if not limit or len(packet.raw) <= limit:
            return
        optional = droppable(packet, limit)
        severity, confidence = at.awareness()
        for field in optional:
            yield self.report(
                f"properties.{field}",
                f"{packet_name(packet)} is {len(packet.raw):,} bytes long (limit {limit:,}) only because of "
                f"{' and '.join(optional)}, which has to be omitted",
                severity=severity,
                confidence=confidence,
            )


def droppable(packet: ControlPacket, limit: int) -> tuple[str, ...]:
    """The properties that a packet above the limit had to omit; empty if it would be too large without them."""
    if not isinstance(packet, ANSWERS) or not packet.properties:
        return ()
    items = packet.properties.items
    present = {identifier for identifier, _ in items} & {REASON_STRING, USER_PROPERTY}
    if not present:
        return ()
    rest = Properties.of(item for item in items if item[0] not in present)
    bare: ControlPacket = dataclasses.replace(packet, properties=rest or None)
    if len(encode(bare, V5)) > limit:
        return ()
    names = {REASON_STRING: "reason_string", USER_PROPERTY: "user_property"}
    return tuple(names[identifier] for identifier in sorted(present))
