"""TOP103."""

import re
import unicodedata
from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rule import Findings, Rule, packet_name
from mqttscope.lint.strings import shown
from mqttscope.lint.topics import NAMING, Seen, named_topics
from mqttscope.mqtt.declare import ControlPacket
from mqttscope.mqtt.packets import Publish

_AWKWARD = re.compile(r"[^!#-&(-\[\]-_a-~]")
"""Anything but printable ASCII without space, quotes and backslash."""
_ILL_FORMED = re.compile("[\ud800-\udfff]")
"""What stands for bytes that are no UTF-8: another rule's matter."""
_KINDS = (("a space", " "), ("a quote", "\"'`"), ("a backslash", "\\"))


class TopicAwkwardCharacters(Rule):
    """A topic or topic filter holds spaces, quotes, backslashes or characters beyond ASCII.

    That is legal, but such names break in shells, in queries and in configuration files, and people cannot type them
    on every keyboard.  Some characters beyond ASCII can be written in two ways that look the same: brokers compare
    code points, so the subscription for the one does not get the other.  Each topic is reported once per connection.

    Instead, use letters, digits, ``-``, ``_`` and ``.`` of ASCII.
    """

    code = "TOP103"
    severity = Severity.INFO
    looks_at = NAMING
    Memory = Seen

    good = examples("""
        a dash
            opened; > publish living-room/temp hi
        wildcards and shares
            opened; > subscribe 1 $share/g/a_b/+/C.9/#:0; < suback 1 0
    """)
    bad = examples(r"""
        a space, reported once
            opened; > publish "living room/temp" hi !topic_name; > publish "living room/temp" ho
        quotes and backslashes
            opened
            > subscribe 1 a'b:0 "\"a\"":0 "a\\b":0 !subscriptions[0].topic_filter !subscriptions[1].topic_filter
                !subscriptions[2].topic_filter
            < suback 1 0 0 0
        beyond ASCII
            opened; > publish küche/temp !topic_name
        one letter written as two characters
            opened will=küche/state will_payload=x !will.will_topic
    """)

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """One search clears nearly all topics."""
        if type(packet) is Publish and not packet.properties and _AWKWARD.search(packet.topic_name) is None:
            return None
        return self._found(packet, at)

    def _found(self, packet: ControlPacket, at: RuleContext) -> Iterator[Report]:
        for named in named_topics(packet):
            if _ILL_FORMED.search(named.text) is not None:
                continue
            if _AWKWARD.search(named.text) is not None and at.memory(self).first(named.text):
                what = _what(named.text)
                if what:
                    yield self.report(named.field, f"{packet_name(packet)}: {shown(named.text)} contains {what}")


def _what(text: str) -> str:
    told = [name for name, characters in _KINDS if any(one in text for one in characters)]
    beyond = [one for one in dict.fromkeys(text) if one > "\x7f"]
    if beyond:
        told.append("non-ASCII " + " ".join(f"U+{ord(one):04X}" for one in beyond[:5]))
    if unicodedata.normalize("NFKC", text) != text:
        told.append("characters that Unicode normalisation changes")
    elif unicodedata.normalize("NFD", text) != text:
        told.append("characters that can be written in two ways")
    return ", ".join(told)
