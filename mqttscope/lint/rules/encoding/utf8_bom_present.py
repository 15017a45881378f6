"""ENC110."""

import re
from collections.abc import Iterable
from typing import Any

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import V3_1_1, V5, Rule, packet_name
from mqttscope.lint.strings import WITH_STRINGS, find, shown

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

    good = examples("""
        without it
            opened; > publish a/b 0xefbbbf
    """)
    bad = examples(r"""
        at the beginning of a topic
            opened; > publish "\ufeffa/b" hi !topic_name
        in the middle of one, in MQTT 3.1.1
            opened 3.1.1; > publish "a/\ufeffb" hi !topic_name
        in MQTT 3.1
            opened 3.1; > publish "\ufeffa" !topic_name
    """)

    def check(self, packet: Any, at: RuleContext) -> Iterable[Report]:
        """Look at every string."""
        for hit in find(packet, _BOM):
            yield self.report(
                hit.field,
                f"{packet_name(packet)} {hit.field} {shown(hit.text)} has U+FEFF at character {hit.index}: "
                "legal, but invisible and part of the string",
            )
