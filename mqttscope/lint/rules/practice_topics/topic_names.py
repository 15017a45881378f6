"""TOP101 to TOP104: legal but problematic topic names."""

import re
import unicodedata
from collections.abc import Iterator
from typing import ClassVar

from mqttscope.lint.rules import V3_1, Findings, Report, Rule, RuleContext, Severity, examples, packet_name, shown
from mqttscope.lint.topics import NAMING, ReportedTexts, TopicField, named_topics, plain
from mqttscope.mqtt import ControlPacket, Publish
from mqttscope.mqtt.topics import utf8_length

_AWKWARD = re.compile(r"[^!#-&(-\[\]-_a-~]")
"""Any character except printable ASCII without space, quotes and backslash."""
_ILL_FORMED = re.compile("[\ud800-\udfff]")
"""Surrogates, which replace bytes that are not UTF-8; ENC101 reports those."""
_KINDS = (("a space", " "), ("a quote", "\"'`"), ("a backslash", "\\"))
_LIMIT_3_1 = 32_767
"""Maximum number of characters of a topic name in MQTT 3.1."""


class TopicNameRule(Rule):
    """A rule about Topic Names and Topic Filters; each name is reported once per connection."""

    severity = Severity.INFO
    looks_at = NAMING
    Memory = ReportedTexts
    with_share: ClassVar[bool] = False
    """Whether the name of a share is checked as well."""

    def check(self, packet: ControlPacket, at: RuleContext) -> Findings:
        """Check every name in the packet, unless its only name is a valid topic."""
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
        """Whether there is nothing to report; must be fast."""
        raise NotImplementedError

    def describe(self, topic: str) -> str:
        """The problem of a name, or an empty string."""
        raise NotImplementedError

    def judge(self, named: TopicField, topic: str, message: str, at: RuleContext) -> Report:
        return self.report(named.field, message)


class TopicLeadingSlash(TopicNameRule):
    """A topic or topic filter begins with a slash.

    That is legal, but the slash does not mark a root: it adds an empty first level.  Filters without it do not match,
    and it wastes one byte.  Each topic is reported once per connection.

    Instead, begin with the first named level.
    """

    code = "TOP101"

    good = examples("""
        no leading slash
            opened; > publish home/floor1/security/camera2 hi
        a shared subscription without a leading slash
            opened; > subscribe 1 $share/g/home/#:0; < suback 1 0
    """)
    bad = examples("""
        written like a path
            opened; > publish /home/floor1/security/camera2 hi !topic_name; > publish /home/floor1/security/camera2 ho
        in a filter, after the name of a share, and in a Response Topic
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

    That is legal, but nearly always a mistake: an empty variable in the code that builds the topic, or an extra slash.
    It is a different topic from the one without the empty level, so subscribers miss it.  Each topic is reported once
    per connection.

    Instead, put exactly one slash between levels, and do not end with a slash.
    """

    code = "TOP102"

    good = examples("""
        all levels are named
            opened; > publish a/b hi
        a leading slash, which TOP101 reports
            opened; > publish /a/b hi
    """)
    bad = examples("""
        in the middle
            opened; > publish a//b hi !topic_name
        at the end, in a filter too, reported once each
            opened; > publish a/b/ hi !topic_name; > publish a/b/ hi; > subscribe 1 c/:0 !subscriptions[0].topic_filter
            < suback 1 0
        a single slash has two empty levels
            opened; > publish / !topic_name
        two slashes at the beginning
            opened; > publish //a !topic_name
        in a will
            opened will=state/ will_payload=x !will.will_topic
    """)

    def is_fine(self, topic: str) -> bool:
        """Look for a double slash or a trailing slash."""
        return "//" not in topic and topic[-1:] != "/"

    def describe(self, topic: str) -> str:
        places = [*(["inside"] if "//" in topic else ()), *(["at the end"] if topic.endswith("/") else ())]
        return f"has an empty level ({' and '.join(places)})"


class TopicAwkwardCharacters(TopicNameRule):
    """A topic or topic filter contains spaces, quotes, backslashes or non-ASCII characters.

    That is legal, but such names cause problems in shells, queries and configuration files, and are hard to type on
    some keyboards.  Some non-ASCII characters have two encodings that look alike: brokers compare code points, so a
    subscription to one does not match the other.  Each topic is reported once per connection.

    Instead, use ASCII letters, digits, ``-``, ``_`` and ``.``.
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
        an accented letter as two characters
            opened will=küche/state will_payload=x !will.will_topic
    """)

    def is_fine(self, topic: str) -> bool:
        return _AWKWARD.search(topic) is None

    def describe(self, topic: str) -> str:
        problem = "" if _ILL_FORMED.search(topic) else _contents(topic)
        return problem and f"contains {problem}"


def _contents(text: str) -> str:
    kinds = [name for name, characters in _KINDS if any(character in text for character in characters)]
    beyond = [character for character in dict.fromkeys(text) if character > "\x7f"]
    if beyond:
        kinds.append("non-ASCII " + " ".join(f"U+{ord(character):04X}" for character in beyond[:5]))
    if unicodedata.normalize("NFKC", text) != text:
        kinds.append("characters that Unicode normalisation changes")
    elif unicodedata.normalize("NFD", text) != text:
        kinds.append("characters with two possible encodings")
    return ", ".join(kinds)


class TopicOversize(TopicNameRule):
    """A topic or topic filter has very many levels or very many bytes.

    The name is part of every message and is compared with every subscription.  Managed brokers refuse names above their
    own limits.  MQTT 3.1 allows 32,767 characters, half of the limit of later versions.  Each topic is reported once
    per connection.

    Instead, keep names short and put descriptions into the payload.
    """

    code = "TOP104"
    severities = (Severity.WARNING, Severity.INFO)
    statements = {V3_1: {"V31-PUBLISH-topic-length": "publish.topic_name"}}
    settings = {
        # Maximum number of levels; AWS IoT Core allows seven slashes.
        "levels": 8,
        # Maximum number of UTF-8 bytes; AWS IoT Core allows 256.
        "bytes": 256,
    }

    good = examples("""
        eight levels
            opened; > publish a/b/c/d/e/f/g/h hi
        256 bytes
            opened; > publish "a"*254"ü"
        the name of a share does not count as a level
            opened; > subscribe 1 $share/g/a/b/c/d/e/f/g/#:0; < suback 1 0
        a higher limit for levels
            settings levels=9; opened; > publish a/b/c/d/e/f/g/h/i
    """)
    bad = examples("""
        nine levels, reported once
            opened; > publish a/b/c/d/e/f/g/h/i hi !topic_name; > publish a/b/c/d/e/f/g/h/i ho
        257 bytes in 256 characters
            opened; > publish "a"*255"ü" !topic_name
        a filter of nine levels
            opened; > subscribe 1 a/b/c/d/e/f/g/h/#:0 !subscriptions[0].topic_filter; < suback 1 0
        more than MQTT 3.1 allows
            opened 3.1; > publish "a"*32768 !topic_name
    """)

    def is_fine(self, topic: str) -> bool:
        """Check upper bounds only, which is fast."""
        return bool(len(topic) * 4 <= self.set["bytes"] and topic.count("/") < self.set["levels"])

    def describe(self, topic: str) -> str:
        levels, length = topic.count("/") + 1, utf8_length(topic)
        is_large = levels > self.set["levels"] or length > self.set["bytes"]
        return f"has {levels} levels / {length} bytes" if is_large else ""

    def judge(self, named: TopicField, topic: str, message: str, at: RuleContext) -> Report:
        """Add the limit of MQTT 3.1 if the topic exceeds it."""
        if at.version is not V3_1 or len(topic) <= _LIMIT_3_1 or named.field != "topic_name":
            return self.report(named.field, message, statements=())
        message += f", MQTT 3.1 allows {_LIMIT_3_1:,} characters"
        return self.report(named.field, message, severity=Severity.WARNING)
