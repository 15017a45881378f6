"""PRP105."""

from collections.abc import Iterable
from typing import Any

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, make_connect, opened, server
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import V5, Findings, Rule, packet_name
from mqttscope.lint.strings import WITH_STRINGS
from mqttscope.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Puback,
    Publish,
    Suback,
    Subscribe,
)
from mqttscope.mqtt.parts import Subscription, Will
from mqttscope.mqtt.properties import BY_NAME, Properties, property_name

_USER_PROPERTY, _SUBSCRIPTION_IDENTIFIER = 0x26, 0x0B
_TOLD_FOR_THE_WILL_ONLY = tuple(
    BY_NAME[name].identifier for name in ("payload_format_indicator", "message_expiry_interval")
)


class PropertyRepeated(Rule):
    """A property that may appear once appears several times in one packet.

    The receiver cannot know which value is meant; the standard calls it a protocol error, and the connection is
    closed.  Only User Properties may always repeat, and Subscription Identifiers where a server delivers a message.
    Of Payload Format Indicator and Message Expiry Interval the standard says it for the Will and not for PUBLISH, so
    there it is a warning.

    Instead, set each property once; the User Property takes as many values as are needed.
    """

    code = "PRP105"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    reason_code = 0x82
    versions = (V5,)
    statements = {
        V5: {
            "V5-PROP-repeat-CONNECT": "connect.properties",
            "V5-PROP-repeat-WILL": "connect.will",
            "V5-PROP-repeat-CONNACK": "connack",
            "V5-PROP-repeat-PUBLISH": "publish",
            "V5-PROP-repeat-ACKS": "puback,pubrec,pubrel,pubcomp",
            "V5-PROP-repeat-SUBSCRIBE": "subscribe",
            "V5-PROP-repeat-SUBACK": "suback",
            "V5-PROP-repeat-UNSUBACK": "unsuback",
            "V5-PROP-repeat-DISCONNECT": "disconnect",
            "V5-PROP-repeat-AUTH": "auth",
        }
    }
    looks_at = WITH_STRINGS
    when = "properties"
    always = (Connect,)
    signs = ("repeated",)

    good = examples(
        lambda: [
            conversation(
                "each property once, User Properties as often as wanted",
                *opened(
                    connect=Properties(user_property=[("k", "v"), ("k", "v")], topic_alias_maximum=5),
                    connack=Properties(topic_alias_maximum=10),
                ),
                client(
                    Publish(
                        topic_name="a/b", properties=Properties(topic_alias=1, user_property=[("k", "1"), ("k", "2")])
                    )
                ),
            ),
            conversation(
                "a message for two subscriptions",
                *opened(),
                client(Subscribe(1, Properties(subscription_identifier=1), [Subscription("a")])),
                server(Suback(1, reason_codes=[0])),
                client(Subscribe(2, Properties(subscription_identifier=2), [Subscription("#")])),
                server(Suback(2, reason_codes=[0])),
                server(Publish(topic_name="a", properties=Properties(subscription_identifier=[1, 2]))),
            ),
            conversation(
                "the Will has properties of its own",
                *opened(
                    connect=Properties(user_property=[("k", "v")]),
                    will=Will("a", b"gone", properties=Properties(user_property=[("k", "v")], will_delay_interval=5)),
                ),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "two Topic Aliases",
                *opened(connack=Properties(topic_alias_maximum=10)),
                client(
                    Publish(topic_name="a/b", properties=Properties.of([(0x23, 1), (0x23, 2)]), payload=b"hi")
                ).marked("properties.topic_alias"),
            ),
            conversation(
                "two Subscription Identifiers in a SUBSCRIBE",
                *opened(),
                client(Subscribe(1, Properties(subscription_identifier=[1, 2]), [Subscription("a")])).marked(
                    "properties.subscription_identifier"
                ),
            ),
            conversation(
                "Payload Format Indicator and Message Expiry Interval in a PUBLISH: a warning",
                *opened(),
                client(
                    Publish(
                        topic_name="a",
                        properties=Properties.of([(0x01, 1), (0x01, 1), (0x02, 5), (0x02, 6), (0x02, 7)]),
                    )
                ).marked("properties.payload_format_indicator", "properties.message_expiry_interval"),
            ),
            conversation(
                "in a CONNECT",
                client(make_connect(properties=Properties.of([(0x21, 10), (0x11, 5), (0x21, 10)]))).marked(
                    "properties.receive_maximum"
                ),
            ),
            conversation(
                "in the Will Properties",
                client(make_connect(will=Will("a", b"gone", properties=Properties.of([(0x01, 1), (0x01, 1)])))).marked(
                    "will.properties.payload_format_indicator"
                ),
            ),
            conversation(
                "in packets of the server",
                opened()[0],
                server(Connack(properties=Properties.of([(0x24, 1), (0x24, 1)]))).marked("properties.maximum_qos"),
                client(Publish(qos=1, topic_name="a", packet_identifier=1)),
                server(Puback(1, 0, Properties.of([(0x1F, "a"), (0x1F, "b")]))).marked("properties.reason_string"),
                server(Disconnect(0x9C, Properties.of([(0x1C, "a"), (0x1C, "b")]))).marked(
                    "properties.server_reference"
                ),
            ),
        ]
    )

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """Nearly always no identifier comes twice."""
        block = packet.properties
        items = () if block is None else block.items
        if (len(items) > 1 and len({number for number, _ in items}) < len(items)) or isinstance(packet, Connect):
            return self._count(packet, at)
        return None

    def _count(self, packet: Any, at: RuleContext) -> Iterable[Report]:
        """Count each identifier, in the packet and in its Will."""
        if packet.properties is not None:
            yield from self._block(packet, packet.properties, "", at)
        if isinstance(packet, Connect) and packet.will is not None and packet.will.properties is not None:
            yield from self._block(packet, packet.will.properties, "will.", at)

    def _block(self, packet: Any, block: Properties, prefix: str, at: RuleContext) -> Iterable[Report]:
        counts: dict[int, int] = {}
        for number, _ in block.items:
            counts[number] = counts.get(number, 0) + 1
        publish = isinstance(packet, Publish)
        for number, count in counts.items():
            if count == 1 or number == _USER_PROPERTY:
                continue
            if number == _SUBSCRIPTION_IDENTIFIER and publish and not at.from_client:
                continue
            name = property_name(number)
            where = "the Will Properties" if prefix else packet_name(packet)
            told = f"{where}: property {name} appears {count} times"
            if publish and number in _TOLD_FOR_THE_WILL_ONLY:
                told += " (the standard forbids it in so many words for the Will only)"
                yield self.report(f"{prefix}properties.{name}", told, severity=Severity.WARNING)
            else:
                yield self.report(f"{prefix}properties.{name}", told)
