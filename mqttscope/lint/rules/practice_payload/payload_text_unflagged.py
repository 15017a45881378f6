import re

from mqttscope.lint.rules import V5, Confidence, Findings, Rule, RuleContext, Severity, examples, shown
from mqttscope.lint.topics import ReportedTexts
from mqttscope.mqtt.packets import Publish

MAX_LOOKED_AT = 65_536
"""Maximum payload length to check, in bytes."""

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")


class PayloadTextUnflagged(Rule):
    """A PUBLISH carries text without a Payload Format Indicator.

    Without the indicator a payload is unspecified bytes: receivers, bridges and tools have to guess whether to show it
    as text.  Each topic is reported once per connection.

    Instead, set the Payload Format Indicator to 1, and the Content Type if you have one.
    """

    code = "PAY101"
    severity = Severity.INFO
    confidence = Confidence.LIKELY
    versions = (V5,)
    settings = {
        # Bytes: shortest payload that counts as text.
        "bytes": 2,
    }
    Memory = ReportedTexts

    good = examples(r"""
        the text is announced
            opened; > publish a/b "{\"t\":21}" payload_format_indicator=1 content_type=application/json
        bytes that are not text, a single byte, an empty payload
            opened; > publish a/b 0x0001616263 & publish a/b 0xfffe & publish a/b 1 & publish a/b
        announced as not text
            opened; > publish a/b abc payload_format_indicator=0
    """)
    bad = examples(r"""
        text without an indicator, reported once per topic
            opened; > publish a/b "{\"t\":21}" !payload; > publish a/b "{\"t\":22}"
        Content Type without an indicator, and only two bytes
            opened; > publish a/b ü content_type=text/plain !payload
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Try to decode the payload as text, once for each topic."""
        payload, block = packet.payload, packet.properties
        if not self.set["bytes"] <= len(payload) <= MAX_LOOKED_AT or packet.missing:
            return None
        if block is not None and block.payload_format_indicator is not None:
            return None
        topic = at.topic or ""
        seen: ReportedTexts = at.memory(self)
        if topic in seen.texts:
            return None
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            return None
        if _CONTROL.search(text) is not None:
            return None
        seen.first(topic)
        return self.report(
            "payload", f"PUBLISH {shown(topic)}: payload is UTF-8 text but Payload Format Indicator is absent"
        )
