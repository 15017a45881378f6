from mqttscope.lint.rules import V5, Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt.packets import Connect, Publish


class PayloadNotUtf8(Rule):
    """A payload is not the UTF-8 text that its Payload Format Indicator announces.

    A receiver may check it and answer with 0x99 (Payload format invalid); a receiver that does not check shows garbage
    or fails to decode.  UTF-8 payloads may contain any character, even U+0000 and control characters.

    Instead, encode the text as UTF-8, or omit the indicator for binary payloads.
    """

    code = "PUB107"
    severity = Severity.ERROR
    reason_code = 0x99
    versions = (V5,)
    statements = {V5: {"V5-WILL-payload-utf8": "connect", "V5-PUBLISH-payload-utf8": "publish"}}
    when = "properties"
    always = (Connect,)
    signs = {Publish: ("payload_format_indicator",)}

    good = examples("""
        UTF-8 text with control characters
            opened; > publish a/b 0x6772c3bc6e0007 payload_format_indicator=1
        binary, with indicator 0
            opened will=w will_payload=0xff will.payload_format_indicator=0
            > publish a/b 0xfffe payload_format_indicator=0; < publish a/b 0xfffe
    """)
    bad = examples("""
        not UTF-8
            opened; > publish a/b 0xfffe payload_format_indicator=1 !payload
        cut inside a character, from the server
            opened; < publish a/b 0x6772c3 payload_format_indicator=1 !payload
        a will
            > connect will=w will_payload=0x6f6beda080 will.payload_format_indicator=1 !will.will_payload
    """)

    def check(self, packet: Publish | Connect, at: RuleContext) -> Findings:
        """Decode the payload strictly."""
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
            text = f"{name} is announced as UTF-8, but byte {error.start} of its payload is not"
            return self.report(field, text)
        return None
