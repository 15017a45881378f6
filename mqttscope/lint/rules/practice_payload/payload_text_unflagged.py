import re

from mqttscope.lint.rules import V5, Confidence, Findings, Rule, RuleContext, Severity, examples, shown
from mqttscope.lint.topics import Seen
from mqttscope.mqtt.packets import Publish

MAX_LOOKED_AT = 65_536
"""Longest payload, in bytes, that is read as text."""

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")


class PayloadTextUnflagged(Rule):
    """A PUBLISH carries text, but no Payload Format Indicator says so.

    Without the indicator a payload is unspecified bytes: receivers, bridges and tools have to guess whether to show
    it as text.  Each topic is reported once per connection.

    Instead, set the Payload Format Indicator to 1, and the Content Type where there is one.
    """

    code = "PAY101"
    severity = Severity.INFO
    confidence = Confidence.LIKELY
    versions = (V5,)
    settings = {
        # Bytes, the shortest payload that counts as text.
        "bytes": 2,
    }
    Memory = Seen

    good = examples(r"""
        the text is announced
            opened; > publish a/b "{\"t\":21}" payload_format_indicator=1 content_type=application/json
        bytes that are no text, one byte, none at all
            opened; > publish a/b 0x0001616263 & publish a/b 0xfffe & publish a/b 1 & publish a/b
        the sender says that it is not text
            opened; > publish a/b abc payload_format_indicator=0
    """)
    bad = examples(r"""
        text without a word, reported once for its topic
            opened; > publish a/b "{\"t\":21}" !payload; > publish a/b "{\"t\":22}"
        the Content Type alone is no announcement; two bytes are enough
            opened; > publish a/b ü content_type=text/plain !payload
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Read the payload as text, once for each topic."""
        payload, block = packet.payload, packet.properties
        if not self.set["bytes"] <= len(payload) <= MAX_LOOKED_AT or packet.missing:
            return None
        if block is not None and block.payload_format_indicator is not None:
            return None
        topic = at.topic or ""
        seen: Seen = at.memory(self)
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
