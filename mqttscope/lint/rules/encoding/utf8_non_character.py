"""ENC104."""

import re
from collections.abc import Iterable
from typing import Any

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, conversation, examples, opened
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Rule, packet_name
from mqttscope.lint.strings import WITH_STRINGS, find, shown
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.properties import Properties

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

    good = examples(
        lambda: [
            conversation("an ordinary topic", *opened(), client(Publish(topic_name="a/b", payload=b"hi"))),
            conversation(
                "the characters beside the ranges",
                *opened(),
                client(Publish(topic_name="\ufdcf\ufdf0\ufffd\U00010000\U0010fffd", payload=b"hi")),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "U+FFFF", *opened(), client(Publish(topic_name="a\uffff", payload=b"hi")).marked("topic_name")
            ),
            conversation(
                "the ends of the ranges",
                *opened(),
                client(Publish(topic_name="\ufdd0"), Publish(topic_name="\ufdef"), Publish(topic_name="\U0010fffe"))
                .marked("topic_name", at=0)
                .marked("topic_name", at=1)
                .marked("topic_name", at=2),
            ),
            conversation(
                "in a property",
                *opened(),
                client(Publish(topic_name="a", properties=Properties(content_type="\ufffe"))).marked(
                    "properties.content_type"
                ),
            ),
            conversation(
                "in MQTT 3.1.1", *opened(V3_1_1), client(Publish(topic_name="a\U0001ffff")).marked("topic_name")
            ),
            conversation("in MQTT 3.1", *opened(V3_1), client(Publish(topic_name="a\ufffe")).marked("topic_name")),
        ]
    )

    def check(self, packet: Any, at: RuleContext) -> Iterable[Report]:
        """Look at every string."""
        for hit in find(packet, _NON_CHARACTER):
            yield self.report(
                hit.field,
                f"{packet_name(packet)} {hit.field} {shown(hit.text)} has {hit.code_point}, which is no character, "
                f"at character {hit.index}",
            )
