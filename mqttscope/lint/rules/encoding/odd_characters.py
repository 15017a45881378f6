"""ENC103, ENC104, ENC110: characters that are legal in a UTF-8 string and cause trouble."""

import re
from collections.abc import Iterable
from typing import Any, ClassVar

from mqttscope.lint.rules import V3_1_1, V5, Report, Rule, RuleContext, Severity, examples, packet_name, shown
from mqttscope.lint.strings import WITH_STRINGS, Hit, find

_LAST_OF_PLANES = "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))


class CharacterRule(Rule):
    """A character in a string, by a pattern."""

    looks_at = WITH_STRINGS
    when = "odd_strings"
    signs = ("unprintable",)
    pattern: ClassVar[re.Pattern[str]]

    def check(self, packet: Any, at: RuleContext) -> Iterable[Report]:
        for hit in find(packet, self.pattern):
            text = f"{packet_name(packet)} {hit.field} {shown(hit.text)} has {self.describe(hit)}"
            yield self.report(hit.field, text)

    def describe(self, hit: Hit) -> str:
        raise NotImplementedError


class Utf8ControlCharacter(CharacterRule):
    """A UTF-8 string field holds a control character.

    The characters U+0001 to U+001F and U+007F to U+009F are not forbidden, but a receiver may treat the packet as
    malformed and close the connection.  They are invisible in logs, so that a topic with a line end at its end looks
    like another one that nobody receives messages of.  Shell scripts that take a topic from ``echo`` are the usual
    cause.

    Instead, remove line ends and other control characters from names, and send binary data in the payload.
    """

    code = "ENC103"
    pattern = re.compile("[\x01-\x1f\x7f-\x9f]")
    severity = Severity.WARNING
    statements = {V5: {"V5-STRING-control-characters": ""}, V3_1_1: {"V311-STRING-control-characters": ""}}

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

    def describe(self, hit: Hit) -> str:
        where = "at its end" if hit.index == len(hit.text) - 1 else f"at character {hit.index}"
        return f"the control character {hit.code_point} {where}"


class Utf8NonCharacter(CharacterRule):
    """A UTF-8 string field holds a code point that Unicode sets aside as no character.

    U+FDD0 to U+FDEF and the last two code points of every plane are for the inner use of programs.  Receivers may
    treat a packet with one as malformed.  U+FFFE is mostly a byte order mark read the wrong way round.

    Instead, send characters only; keep such markers inside the program.
    """

    code = "ENC104"
    pattern = re.compile(f"[\ufdd0-\ufdef{_LAST_OF_PLANES}]")
    severity = Severity.WARNING
    statements = {V5: {"V5-STRING-non-characters": ""}}
    also = {V3_1_1: ("V311-STRING-control-characters",)}

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

    def describe(self, hit: Hit) -> str:
        return f"{hit.code_point}, which is no character, at character {hit.index}"


class Utf8BomPresent(CharacterRule):
    """A UTF-8 string field holds U+FEFF, which is legal, invisible and significant.

    A receiver keeps the bytes EF BB BF as part of the string, so a topic filter without them does not match.  Mostly
    an editor wrote them as a byte order mark at the beginning of the file that the text was read from.

    Instead, read configuration files with a decoder that drops the byte order mark.
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
        in the middle of one, in MQTT 3.1.1
            opened 3.1.1; > publish "a/\ufeffb" hi !topic_name
        in MQTT 3.1
            opened 3.1; > publish "\ufeffa" !topic_name
    """)

    def describe(self, hit: Hit) -> str:
        return f"U+FEFF at character {hit.index}: legal, but invisible and part of the string"
