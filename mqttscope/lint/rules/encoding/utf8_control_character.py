"""ENC103."""

import re
from collections.abc import Iterable
from typing import Any

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import V3_1_1, V5, Rule, packet_name
from mqttscope.lint.strings import WITH_STRINGS, find, shown

_CONTROL = re.compile("[\x01-\x1f\x7f-\x9f]")


class Utf8ControlCharacter(Rule):
    """A UTF-8 string field holds a control character.

    The characters U+0001 to U+001F and U+007F to U+009F are not forbidden, but a receiver may treat the packet as
    malformed and close the connection.  They are invisible in logs, so that a topic with a line end at its end looks
    like another one that nobody receives messages of.  Shell scripts that take a topic from ``echo`` are the usual
    cause.

    Instead, remove line ends and other control characters from names, and send binary data in the payload.
    """

    code = "ENC103"
    severity = Severity.WARNING
    statements = {V5: {"V5-STRING-control-characters": ""}, V3_1_1: {"V311-STRING-control-characters": ""}}
    looks_at = WITH_STRINGS
    when = "odd_strings"
    signs = ("unprintable",)

    good = examples(r"""
        the characters beside the ranges, U+0020, U+007E and U+00A0
            opened; > publish "a ~\u00a0" 0x017f
    """)
    bad = examples(r"""
        a tabulator
            opened; > publish "a\tb" hi !topic_name
        a line end after the topic, in MQTT 3.1.1
            opened 3.1.1; > publish "a/b\n" hi !topic_name
        the ends of the ranges, in MQTT 3.1
            opened 3.1
            > publish "a\u0001" !topic_name & publish "a\u001f" !topic_name & publish "a\u007f" !topic_name &
                publish "a\u009f" !topic_name
        in several fields
            opened
            > subscribe 1 a:0 "b\u001b":0 user_property=k:"\r\n" !properties.user_property
                !subscriptions[1].topic_filter
            < suback 1 0 0
    """)

    def check(self, packet: Any, at: RuleContext) -> Iterable[Report]:
        """Look at every string."""
        for hit in find(packet, _CONTROL):
            where = "at its end" if hit.index == len(hit.text) - 1 else f"at character {hit.index}"
            told = f"{packet_name(packet)} {hit.field} {shown(hit.text)} has the control character"
            yield self.report(hit.field, f"{told} {hit.code_point} {where}")
