"""ENC110."""

import re
from collections.abc import Iterable
from typing import Any

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Rule, packet_name
from mqttscope.lint.strings import WITH_STRINGS, find, shown
from mqttscope.mqtt.packets import Publish

_BOM = re.compile("\ufeff")


class Utf8BomPresent(Rule):
    """A UTF-8 string field holds U+FEFF, which is legal, invisible and significant.

    A receiver keeps the bytes EF BB BF as part of the string, so a topic filter without them does not match.  Mostly
    an editor wrote them as a byte order mark at the beginning of the file that the text was read from.

    Instead, read configuration files with a decoder that drops the byte order mark.
    """

    code = "ENC110"
    severity = Severity.INFO
    also = {V5: ("MQTT-1.5.4-3",), V3_1_1: ("MQTT-1.5.3-3",)}
    looks_at = WITH_STRINGS
    when = "odd_strings"
    signs = ("unprintable",)

    good = examples(
        lambda: [
            conversation("without it", *opened(), client(Publish(topic_name="a/b", payload=b"\xef\xbb\xbf"))),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "at the beginning of a topic",
                *opened(),
                client(Publish(topic_name="\ufeffa/b", payload=b"hi")).marked("topic_name"),
            ),
            conversation(
                "in the middle of one, in MQTT 3.1.1",
                *opened(V3_1_1),
                client(Publish(topic_name="a/\ufeffb", payload=b"hi")).marked("topic_name"),
            ),
            conversation("in MQTT 3.1", *opened(V3_1), client(Publish(topic_name="\ufeffa")).marked("topic_name")),
        ]
    )

    def check(self, packet: Any, at: RuleContext) -> Iterable[Report]:
        """Look at every string."""
        for hit in find(packet, _BOM):
            yield self.report(
                hit.field,
                f"{packet_name(packet)} {hit.field} {shown(hit.text)} has U+FEFF at character {hit.index}: "
                "legal, but invisible and part of the string",
            )
