"""ENC103, ENC104, ENC110: legal but problematic characters in UTF-8 strings."""

import re
from collections.abc import Iterable
from typing import Any, ClassVar

from mqttscope.lint.rules import V3_1_1, V5, Report, Rule, RuleContext, Severity, examples, packet_name, shown
from mqttscope.lint.strings import CONTROL, WITH_STRINGS, PatternMatch, find

_LAST_OF_PLANES = "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))


class CharacterRule(Rule):
    """A rule about characters in strings that match a pattern."""

    looks_at = WITH_STRINGS
    when = "odd_strings"
    signs = ("unprintable",)
    pattern: ClassVar[re.Pattern[str]]

    def check(self, packet: Any, at: RuleContext) -> Iterable[Report]:
        for hit in find(packet, self.pattern):
            text = f"{packet_name(packet)} {hit.field} {shown(hit.text)} has {self.describe(hit)}"
            yield self.report(hit.field, text)

    def describe(self, hit: PatternMatch) -> str:
        raise NotImplementedError


class Utf8ControlCharacter(CharacterRule):
    """A UTF-8 string field contains a control character.

    The characters U+0001 to U+001F and U+007F to U+009F are not forbidden, but a receiver may treat the packet as
    malformed and close the connection.  They are invisible in logs: a topic that ends with a line break looks like the
    right one, but its messages reach no subscribers.  The usual cause is a shell script that takes a topic from
    ``echo``.

    Instead, remove line breaks and other control characters from names, and send binary data in the payload.
    """

    code = "ENC103"
    pattern = CONTROL
    severity = Severity.WARNING
    statements = {V5: {"V5-STRING-control-characters": ""}, V3_1_1: {"V311-STRING-control-characters": ""}}

    good = examples(r"""
        the neighbours of the ranges, U+0020, U+007E and U+00A0
            opened; > publish "a ~\u00a0" 0x017f
    """)
    bad = examples(r"""
        a tab
            opened; > publish "a\tb" hi !topic_name
        a line break after the topic, in MQTT 3.1.1
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

    def describe(self, hit: PatternMatch) -> str:
        where = "at its end" if hit.index == len(hit.text) - 1 else f"at character {hit.index}"
        return f"the control character {hit.code_point} {where}"


class Utf8NonCharacter(CharacterRule):
    """A UTF-8 string field contains a Unicode non-character.

    U+FDD0 to U+FDEF and the last two code points of every plane are reserved for internal use by programs.  Receivers
    may treat the packet as malformed.  U+FFFE is usually a byte order mark in the wrong byte order.

    Instead, send only characters; keep such markers inside the program.
    """

    code = "ENC104"
    pattern = re.compile(f"[\ufdd0-\ufdef{_LAST_OF_PLANES}]")
    severity = Severity.WARNING
    statements = {V5: {"V5-STRING-non-characters": ""}}
    also = {V3_1_1: ("V311-STRING-control-characters",)}

    good = examples(r"""
        an ordinary topic
            opened; > publish a/b hi
        the neighbours of the ranges
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

    def describe(self, hit: PatternMatch) -> str:
        return f"the Unicode non-character {hit.code_point} at character {hit.index}"


class Utf8BomPresent(CharacterRule):
    """A UTF-8 string field contains U+FEFF, which is legal, invisible and significant.

    A receiver keeps the bytes EF BB BF as part of the string, so a topic filter without them does not match.  Usually
    an editor wrote them as a byte order mark at the start of a configuration file.

    Instead, read configuration files with a decoder that removes the byte order mark.
    """

    code = "ENC110"
    pattern = re.compile("\ufeff")
    severity = Severity.INFO
    also = {V5: ("MQTT-1.5.4-3",), V3_1_1: ("MQTT-1.5.3-3",)}

    good = examples("""
        without it
            opened; > publish a/b 0xefbbbf
    """)
    bad = examples(r"""
        at the beginning of a topic
            opened; > publish "\ufeffa/b" hi !topic_name
        in the middle of a topic, in MQTT 3.1.1
            opened 3.1.1; > publish "a/\ufeffb" hi !topic_name
        in MQTT 3.1
            opened 3.1; > publish "\ufeffa" !topic_name
    """)

    def describe(self, hit: PatternMatch) -> str:
        return f"U+FEFF at character {hit.index}: legal, but invisible and part of the string"
