"""ENC104."""

import re
from collections.abc import Iterable
from typing import Any

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import V3_1_1, V5, Rule, packet_name
from mqttscope.lint.strings import WITH_STRINGS, find, shown

_LAST_OF_PLANES = "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
_NON_CHARACTER = re.compile(f"[\ufdd0-\ufdef{_LAST_OF_PLANES}]")


class Utf8NonCharacter(Rule):
    """A UTF-8 string field holds a code point that Unicode sets aside as no character.

    U+FDD0 to U+FDEF and the last two code points of every plane are for the inner use of programs.  Receivers may
    treat a packet with one as malformed.  U+FFFE is mostly a byte order mark read the wrong way round.

    Instead, send characters only; keep such markers inside the program.
    """

    code = "ENC104"
    severity = Severity.WARNING
    statements = {V5: {"V5-STRING-non-characters": ""}}
    also = {V3_1_1: ("V311-STRING-control-characters",)}
    looks_at = WITH_STRINGS
    when = "odd_strings"
    signs = ("unprintable",)

    good = examples(r"""
        an ordinary topic
            opened; > publish a/b hi
        the characters beside the ranges
            opened; > publish "﷏ﷰ�𐀀\udbff\udffd" hi
    """)
    bad = examples(r"""
        U+FFFF
            opened; > publish "a\uffff" hi !topic_name
        the ends of the ranges
            opened; > publish "\ufdd0" !topic_name & publish "\ufdef" !topic_name & publish "\udbff\udffe" !topic_name
        in a property
            opened; > publish a content_type="\ufffe" !properties.content_type
        in MQTT 3.1.1
            opened 3.1.1; > publish "a\ud83f\udfff" !topic_name
        in MQTT 3.1
            opened 3.1; > publish "a\ufffe" !topic_name
    """)

    def check(self, packet: Any, at: RuleContext) -> Iterable[Report]:
        """Look at every string."""
        for hit in find(packet, _NON_CHARACTER):
            yield self.report(
                hit.field,
                f"{packet_name(packet)} {hit.field} {shown(hit.text)} has {hit.code_point}, which is no character, "
                f"at character {hit.index}",
            )
