"""PUB107."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V5, Findings, Rule
from mqttscope.mqtt.packets import Connect, Publish
from mqttscope.mqtt.parts import Will
from mqttscope.mqtt.properties import Properties


class PayloadNotUtf8(Rule):
    """A payload is not the UTF-8 text that its Payload Format Indicator announces.

    A receiver may check it and answer with 0x99 (Payload format invalid), and one that does not check shows garbage or
    fails while it decodes.  Payloads may hold any character, U+0000 and control characters too.

    Instead, encode the text as UTF-8, or leave the indicator out for binary payloads.
    """

    code = "PUB107"
    severity = Severity.ERROR
    reason_code = 0x99
    versions = (V5,)
    statements = {V5: {"V5-WILL-payload-utf8": "connect", "V5-PUBLISH-payload-utf8": "publish"}}
    looks_at = (Publish, Connect)
    when = "properties"
    always = (Connect,)
    signs = {Publish: ("payload_format_indicator",)}

    good = examples(
        lambda: [
            conversation(
                "UTF-8 text, control characters and all",
                *opened(),
                client(
                    Publish(
                        topic_name="a/b",
                        properties=Properties(payload_format_indicator=1),
                        payload="gr\u00fcn\0\x07".encode(),
                    )
                ),
            ),
            conversation(
                "binary, and said so",
                *opened(will=Will("w", b"\xff", properties=Properties(payload_format_indicator=0))),
                client(
                    Publish(topic_name="a/b", properties=Properties(payload_format_indicator=0), payload=b"\xff\xfe")
                ),
                server(Publish(topic_name="a/b", payload=b"\xff\xfe")),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "no UTF-8",
                *opened(),
                client(
                    Publish(topic_name="a/b", properties=Properties(payload_format_indicator=1), payload=b"\xff\xfe")
                ).marked("payload"),
            ),
            conversation(
                "cut inside a character, from the server",
                *opened(),
                server(
                    Publish(topic_name="a/b", properties=Properties(payload_format_indicator=1), payload=b"gr\xc3")
                ).marked("payload"),
            ),
            conversation(
                "a will",
                opened(will=Will("w", b"ok\xed\xa0\x80", properties=Properties(payload_format_indicator=1)))[0].marked(
                    "will.will_payload"
                ),
            ),
        ]
    )

    def check(self, packet: Publish | Connect, at: RuleContext) -> Findings:
        """Decode the payload as strictly as Python does."""
        if isinstance(packet, Publish):
            block, payload, field, name = packet.properties, packet.payload, "payload", f"PUBLISH {at.topic!r}"
        elif packet.will is not None:
            block, payload, field = packet.will.properties, packet.will.will_payload, "will.will_payload"
            name = f"will message {packet.will.will_topic!r}"
        else:
            return None
        if not block or block.payload_format_indicator != 1 or packet.missing:
            return None
        try:
            payload.decode()
        except UnicodeDecodeError as error:
            told = f"{name} is announced as UTF-8, but byte {error.start} of its payload is not"
            return self.report(field, told)
        return None
