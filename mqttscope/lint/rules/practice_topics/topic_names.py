"""TOP101 to TOP104: names of topics that are legal and cause trouble."""

import re
import unicodedata
from collections.abc import Iterator
from typing import ClassVar

from mqttscope.lint.rules import V3_1, Findings, Report, Rule, RuleContext, Severity, examples, packet_name, shown
from mqttscope.lint.topics import NAMING, Named, Seen, named_topics, plain
from mqttscope.mqtt import ControlPacket, Publish
from mqttscope.mqtt.topics import utf8_length

_AWKWARD = re.compile(r"[^!#-&(-\[\]-_a-~]")
"""Anything but printable ASCII without space, quotes and backslash."""
_ILL_FORMED = re.compile("[\ud800-\udfff]")
"""What stands for bytes that are no UTF-8: another rule's matter."""
_KINDS = (("a space", " "), ("a quote", "\"'`"), ("a backslash", "\\"))
_LIMIT_3_1 = 32_767
"""Most characters of a topic name in MQTT 3.1."""


class TopicNameRule(Rule):
    """A Topic Name or Topic Filter, reported once per connection."""

    severity = Severity.INFO
    looks_at = NAMING
    Memory = Seen
    with_share: ClassVar[bool] = False
    """Whether the name of a share is looked at as well."""

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Look at every name in the packet, unless its topic is its only one and fine."""
        if type(packet) is Publish and not packet.properties and self.is_fine(packet.topic_name):
            return None
        return self._judged(packet, at)

    def _judged(self, packet: ControlPacket, at: RuleContext) -> Iterator[Report]:
        for named in named_topics(packet):
            text = plain(named.text) if named.is_filter and not self.with_share else named.text
            words = "" if self.is_fine(text) else self.describe(text)
            if words and at.memory(self).first(named.text):
                yield self.judge(named, text, f"{packet_name(packet)}: {shown(named.text)} {words}", at)

    def is_fine(self, topic: str) -> bool:
        """Whether there is nothing to report; it must be quick."""
        raise NotImplementedError

    def describe(self, topic: str) -> str:
        """What is wrong with a name; empty if nothing is."""
        raise NotImplementedError

    def judge(self, named: Named, topic: str, message: str, at: RuleContext) -> Report:
        return self.report(named.field, message)


class TopicLeadingSlash(TopicNameRule):
    """A topic or topic filter begins with a slash.

    That is legal, but the slash does not mean a root: it makes an empty first level.  Filters that others write
    without it do not match, and the name is a byte longer for nothing.  Each topic is reported once per connection.

    Instead, begin with the first level that has a name.
    """

    code = "TOP101"

    good = examples("""
        no slash at the beginning
            opened; > publish home/floor1/security/camera2 hi
        a shared subscription without one
            opened; > subscribe 1 $share/g/home/#:0; < suback 1 0
    """)
    bad = examples("""
        written like a path
            opened; > publish /home/floor1/security/camera2 hi !topic_name; > publish /home/floor1/security/camera2 ho
        in a filter, after the name of a share, and where answers are wanted
            opened; > subscribe 1 a:0 /b/#:0 !subscriptions[1].topic_filter; < suback 1 0 0
            > subscribe 2 $share/g//c:0 !subscriptions[0].topic_filter; < suback 2 0
            > publish a response_topic=/r !properties.response_topic
        in a will
            opened will=/state/c1 will_payload=offline !will.will_topic
        delivered by the server
            opened; < publish /a 1 !topic_name
    """)

    def is_fine(self, topic: str) -> bool:
        return topic[:1] != "/"

    def describe(self, topic: str) -> str:
        return "begins with '/' (empty first level)"


class TopicEmptyLevel(TopicNameRule):
    """A topic or topic filter has an empty level inside or at its end.

    That is legal, and nearly always a slip: a variable that was empty when the topic was put together, or a slash too
    many.  The topic is another one than without the level, so that subscribers miss it.  Each topic is reported once
    per connection.

    Instead, put one slash between levels and none after the last.
    """

    code = "TOP102"

    good = examples("""
        each level has a name
            opened; > publish a/b hi
        a slash at the beginning is another rule's matter
            opened; > publish /a/b hi
    """)
    bad = examples("""
        inside
            opened; > publish a//b hi !topic_name
        at the end, in a filter too, reported once each
            opened; > publish a/b/ hi !topic_name; > publish a/b/ hi; > subscribe 1 c/:0 !subscriptions[0].topic_filter
            < suback 1 0
        a single slash has two empty levels
            opened; > publish / !topic_name
        two at the beginning
            opened; > publish //a !topic_name
        in a will
            opened will=state/ will_payload=x !will.will_topic
    """)

    def is_fine(self, topic: str) -> bool:
        """Look for two slashes, and for one at the end."""
        return "//" not in topic and topic[-1:] != "/"

    def describe(self, topic: str) -> str:
        places = [*(["inside"] if "//" in topic else ()), *(["at the end"] if topic.endswith("/") else ())]
        return f"has an empty level ({' and '.join(places)})"


class TopicAwkwardCharacters(TopicNameRule):
    """A topic or topic filter holds spaces, quotes, backslashes or characters beyond ASCII.

    That is legal, but such names break in shells, in queries and in configuration files, and people cannot type them
    on every keyboard.  Some characters beyond ASCII can be written in two ways that look the same: brokers compare
    code points, so the subscription for the one does not get the other.  Each topic is reported once per connection.

    Instead, use letters, digits, ``-``, ``_`` and ``.`` of ASCII.
    """

    code = "TOP103"
    with_share = True

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

    def is_fine(self, topic: str) -> bool:
        return _AWKWARD.search(topic) is None

    def describe(self, topic: str) -> str:
        what = "" if _ILL_FORMED.search(topic) else _what(topic)
        return what and f"contains {what}"


def _what(text: str) -> str:
    kinds = [name for name, characters in _KINDS if any(character in text for character in characters)]
    beyond = [character for character in dict.fromkeys(text) if character > "\x7f"]
    if beyond:
        kinds.append("non-ASCII " + " ".join(f"U+{ord(character):04X}" for character in beyond[:5]))
    if unicodedata.normalize("NFKC", text) != text:
        kinds.append("characters that Unicode normalisation changes")
    elif unicodedata.normalize("NFD", text) != text:
        kinds.append("characters that can be written in two ways")
    return ", ".join(kinds)


class TopicOversize(TopicNameRule):
    """A topic or topic filter has very many levels or very many bytes.

    The name travels in every message and is matched against every subscription.  Managed brokers refuse it beyond
    limits of their own.  MQTT 3.1 ends at 32,767 characters, half of what later versions allow.  Each topic is
    reported once per connection.

    Instead, keep names short and put what describes a message into its payload.
    """

    code = "TOP104"
    severities = (Severity.WARNING, Severity.INFO)
    statements = {V3_1: {"V31-PUBLISH-topic-length": "publish.topic_name"}}
    settings = {
        # Levels, the most that are not reported; AWS IoT Core takes seven slashes.
        "levels": 8,
        # Bytes of UTF-8, the most that are not reported; AWS IoT Core takes 256.
        "bytes": 256,
    }

    good = examples("""
        eight levels
            opened; > publish a/b/c/d/e/f/g/h hi
        256 bytes
            opened; > publish "a"*254"ü"
        the name of a share is no level
            opened; > subscribe 1 $share/g/a/b/c/d/e/f/g/#:0; < suback 1 0
        levels as configured
            settings levels=9; opened; > publish a/b/c/d/e/f/g/h/i
    """)
    bad = examples("""
        nine levels, reported once
            opened; > publish a/b/c/d/e/f/g/h/i hi !topic_name; > publish a/b/c/d/e/f/g/h/i ho
        257 bytes in 256 characters
            opened; > publish "a"*255"ü" !topic_name
        a filter of nine levels
            opened; > subscribe 1 a/b/c/d/e/f/g/h/#:0 !subscriptions[0].topic_filter; < suback 1 0
        more than MQTT 3.1 has
            opened 3.1; > publish "a"*32768 !topic_name
    """)

    def is_fine(self, topic: str) -> bool:
        """Two comparisons clear nearly all topics."""
        return bool(len(topic) * 4 <= self.set["bytes"] and topic.count("/") < self.set["levels"])

    def describe(self, topic: str) -> str:
        levels, length = topic.count("/") + 1, utf8_length(topic)
        is_large = levels > self.set["levels"] or length > self.set["bytes"]
        return f"has {levels} levels / {length} bytes" if is_large else ""

    def judge(self, named: Named, topic: str, message: str, at: RuleContext) -> Report:
        """MQTT 3.1 has a limit of its own."""
        if at.version is not V3_1 or len(topic) <= _LIMIT_3_1 or named.field != "topic_name":
            return self.report(named.field, message, statements=())
        message += f", MQTT 3.1 allows {_LIMIT_3_1:,} characters"
        return self.report(named.field, message, severity=Severity.WARNING)
