from mqttscope.lint.message_model import PublishedMessage
from mqttscope.lint.properties_passed_on import doubt_of, expiry_difference, property_difference
from mqttscope.lint.rules import V5, Confidence, Findings, Needs, Related, Report, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import MessageRule
from mqttscope.mqtt import Publish


class PropertyAltered(MessageRule):
    """A server changes properties of a message: content type, response topic, correlation data, format or expiry.

    These properties are meant for the receiver alone.  While a message waits, its Message Expiry Interval may decrease,
    but neither increase nor disappear.  A response with a wrong topic, or without its Correlation Data, never reaches
    the requester.  An error if the payload identifies the message among all others of its topic; a retained copy, a
    possible other message, or a property that the server added is a warning.

    Instead, forward Payload Format Indicator, Content Type, Response Topic and Correlation Data unchanged.
    """

    code = "DLV413"
    severities = (Severity.ERROR, Severity.WARNING)
    versions = (V5,)
    statements = {
        V5: {
            "MQTT-3.3.2-4": "publish.properties.payload_format_indicator",
            "MQTT-3.3.2-15": "publish.properties.response_topic",
            "MQTT-3.3.2-16": "publish.properties.correlation_data",
            "MQTT-3.3.2-20": "publish.properties.content_type",
        }
    }
    also = {V5: ("MQTT-3.3.2-6",)}  # an interval that is too small may be a limit of the server
    needs = Needs.OPENING | Needs.WHOLE_SENDER

    good = examples("""
        unchanged, in another order
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 payload_format_indicator=1 content_type=text/plain response_topic=r/1
                correlation_data=0x0001
            < puback 1
            @1 < publish a 21.5 qos=1 id=1 correlation_data=0x0001 response_topic=r/1 content_type=text/plain
                payload_format_indicator=1
            @1 > puback 1
        a missing Payload Format Indicator equals 0
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 payload_format_indicator=0; < puback 1; @1 < publish a 21.5 qos=1 id=1
            @1 > puback 1
        a subscriber of 3.1.1 receives no properties
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened 5.0
            +2 > publish a 21.5 qos=1 id=1 payload_format_indicator=1 content_type=text/plain response_topic=r/1
                correlation_data=0x0001
            < puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
        a publisher of 3.1.1 sends no properties
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened 3.1.1; +2 > publish a 21.5 qos=1 id=1
            < puback 1; @1 < publish a 21.5 qos=1 id=1 content_type=text/plain; @1 > puback 1
        the same payload with and without the property
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 content_type=text/plain; < puback 1; > publish a 21.5 qos=1 id=2; < puback 2
            @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
        perhaps the message of another publisher
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 content_type=text/plain; < puback 1
            @1 < publish a 21.5 qos=1 id=1 content_type=text/plain; @1 > puback 1; @1 < publish a 21.5 qos=1 id=1
            @1 > puback 1
        the Message Expiry Interval is reduced, or belongs to an equal message without one
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 message_expiry_interval=100; < puback 1
            @1 < publish a 21.5 qos=1 id=1 message_expiry_interval=99; @1 > puback 1; > publish a 22 qos=1 id=2
            < puback 2; > publish a 22 qos=1 id=3 message_expiry_interval=100; < puback 3
            @1 < publish a 22 qos=1 id=2; @1 > puback 2
        the publication was not captured
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 content_type=text/plain; < puback 1; @1 < publish a other qos=1 id=1
            @1 > puback 1
    """)
    bad = examples("""
        the content type is lost
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 content_type=text/plain; < puback 1
            @1 < publish a 21.5 qos=1 id=1 !properties.content_type; @1 > puback 1
        several properties are changed
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 payload_format_indicator=1 content_type=text/plain response_topic=r/1
                correlation_data=0x0001
            < puback 1
            @1 < publish a 21.5 qos=1 id=1 correlation_data=0x00 response_topic=r/2 content_type=text/plain
                !properties.payload_format_indicator !properties.response_topic !properties.correlation_data
            @1 > puback 1
        the Message Expiry Interval is lost, or larger than published
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 message_expiry_interval=100; < puback 1
            @1 < publish a 21.5 qos=1 id=1 !properties.message_expiry_interval; @1 > puback 1
            > publish a 22 qos=1 id=2 message_expiry_interval=100; < puback 2
            @1 < publish a 22 qos=1 id=2 message_expiry_interval=101 !properties.message_expiry_interval
            @1 > puback 2
        a property is added, and a retained copy: only warnings
            opened; +2 > publish a 21.5 qos=1 retain id=1 content_type=text/plain; < puback 1; @1 opened client=c2
            @1 > subscribe 1 a:1; @1 < suback 1 1; @1 < publish a 21.5 qos=1 retain id=1 !properties.content_type
            @1 > puback 1; +2 > publish a other qos=1 id=1; < puback 1
            @1 < publish a other qos=1 id=1 content_type=text/plain !properties.content_type; @1 > puback 1
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare the properties of a delivery with the messages that it may be a copy of."""
        expiry = expiry_difference(packet, at)
        reports = [] if expiry is None else [self._of_expiry(*expiry)]
        difference = property_difference(packet, at)
        if difference is None:
            return reports
        sent = difference.sent
        return reports + [
            self.report(
                f"properties.{name}",
                f"{name.replace('_', ' ')} of a message on {sent.topic!r} of {sent.publisher!r} is {change}",
                related=(Related.to("the message as published", sent),),
                **doubt_of(difference, added=change == "added"),
            )
            for name, change in difference.changes()
        ]

    def _of_expiry(self, sent: PublishedMessage, change: str, is_sure: bool) -> Report:
        return self.report(
            "properties.message_expiry_interval",
            f"message expiry interval of a message on {sent.topic!r} of {sent.publisher!r} {change}",
            related=(Related.to("the message as published", sent),),
            severity=None if is_sure else Severity.WARNING,
            confidence=None if is_sure else Confidence.HEURISTIC,
            statements=("MQTT-3.3.2-6",),
        )
