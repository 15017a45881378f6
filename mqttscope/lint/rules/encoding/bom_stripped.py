from mqttscope.lint.context import SECOND_NS, RuleContext
from mqttscope.lint.message_model import Messages, PublishedMessage
from mqttscope.lint.properties_passed_on import property_difference
from mqttscope.lint.rules import V3_1_1, V5, Confidence, Findings, Needs, Related, Report, Rule, Severity, examples
from mqttscope.mqtt import Direction, Publish

RECENT_NS = 30 * SECOND_NS
"""Maximum age of a publication that a delivery is compared with."""


class BomStripped(Rule):
    """A server removes the character U+FEFF from a string that a publisher sent.

    Some decoders interpret these three bytes as a byte order mark.  In MQTT they are an ordinary character, the zero
    width no-break space: a topic without it is a different topic, and its subscribers receive messages that are not for
    them.

    Instead, decode strings without byte order mark detection, and forward all of their bytes.
    """

    code = "ENC411"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    statements = {V5: {"MQTT-1.5.4-3": ""}, V3_1_1: {"MQTT-1.5.3-3": ""}}
    sender = Direction.SERVER_TO_CLIENT
    needs = Needs.OPENING | Needs.WHOLE_SENDER
    models = (Messages,)
    about = (Messages, "topics", "marked")

    good = examples(r"""
        forwarded
            @1 opened client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; opened
            +2 > publish "\ufeffa/b" 21.5 qos=1 id=1 content_type="\ufefft"; < puback 1
            @1 < publish "\ufeffa/b" 21.5 qos=1 id=1 content_type="\ufefft"; @1 > puback 1
        another message with the same payload, on the topic without the character
            @1 opened client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; opened; +2 > publish "\ufeffa/b" 21.5 qos=1 id=1
            < puback 1; > publish a/b 21.5 qos=1 id=2; < puback 2; @1 < publish a/b 21.5 qos=1 id=1; @1 > puback 1
            @1 < publish "\ufeffa/b" 21.5 qos=1 id=1; @1 > puback 1
        the publication was not captured
            @1 opened client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; opened; +2 > publish "\ufeffa/b" 21.5 qos=1 id=1
            < puback 1; @1 < publish a/b other qos=1 id=1; @1 > puback 1
    """)
    bad = examples(r"""
        from the topic
            @1 opened client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; opened; +2 > publish "\ufeffa/b" 21.5 qos=1 id=1
            < puback 1; @1 < publish a/b 21.5 qos=1 id=1 !topic_name; @1 > puback 1
        from the topic, in 3.1.1
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; opened
            +2 > publish "\ufeffa/b" 21.5 qos=1 id=1; < puback 1; @1 < publish a/b 21.5 qos=1 id=1 !topic_name
            @1 > puback 1
        from properties
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 content_type="\ufefft" user_property=k:"\ufeffv"; < puback 1
            @1 < publish a 21.5 qos=1 id=1 content_type=t user_property=k:v !properties.content_type
                !properties.user_property
            @1 > puback 1
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for the message under the topic with the character, and compare properties."""
        model, name = at.model(Messages), at.topic
        if model.marked and name in model.marked and not packet.dup:
            sent = model.topic_with_mark(packet, name, at)
            if sent is not None and at.timestamp_ns - sent.timestamp_ns <= RECENT_NS:
                return self._report("topic_name", sent)
        if at.version is not V5 or packet.dup:
            return None
        difference = property_difference(packet, at)
        if difference is None:
            return None
        return [self._report(f"properties.{name}", difference.sent) for name in difference.unmarked()]

    def _report(self, field: str, sent: PublishedMessage) -> Report:
        name = field.rpartition(".")[2].replace("_", " ")
        return self.report(
            field,
            f"U+FEFF in the {name} of a message on {sent.topic!r} of {sent.publisher!r} is lost",
            related=(Related.to("the message as published", sent),),
        )
