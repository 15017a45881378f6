from collections.abc import Iterator
from dataclasses import dataclass, field

from mqttscope.lint.finding import Report, Severity
from mqttscope.lint.rules import V5, Connection, Findings, Needs, Rule, RuleContext, examples, properties_lost, shown
from mqttscope.mqtt import Direction, Publish
from mqttscope.mqtt.topics import utf8_length

MAX_TOPICS = 1_000
"""Maximum number of topics counted per side; later ones are ignored."""
ALIAS_BYTES = 3
"""Size of a Topic Alias in a PUBLISH."""


@dataclass(slots=True)
class SpelledTopicCount:
    """PUBLISH packets with one topic spelled out."""

    number: int = 0
    bytes: int = 0
    """Total size of these packets."""


@dataclass(slots=True)
class SpelledTopicCounts:
    """Spelled-out topics of both sides."""

    client: dict[str, SpelledTopicCount] = field(default_factory=dict)
    server: dict[str, SpelledTopicCount] = field(default_factory=dict)


class AliasWouldHelp(Rule):
    """A sender spells out the same topic again and again although the receiver accepts Topic Aliases.

    An alias replaces the name by three bytes from the second message on.  With short payloads the name is most of the
    traffic, which matters if data volume costs money or radio time costs battery.  Reported once for each side, when
    the connection ends, for as many topics as the receiver accepts aliases.

    Instead, set a Topic Alias with the first PUBLISH and leave the Topic Name empty in later ones.
    """

    code = "TOP209"
    severity = Severity.INFO
    versions = (V5,)
    needs = Needs.OPENING
    settings = {
        # Minimum number of PUBLISH packets with one spelled-out topic.
        "repeats": 100,
    }
    Memory = SpelledTopicCounts

    good = examples("""
        an alias is used
            opened < topic_alias_maximum=10; > publish plant1/line4/machine7/temperature topic_alias=1
            > for 1..100: publish - topic_alias=1; > disconnect; > fin
        99 times
            opened < topic_alias_maximum=10; > for 1..99: publish plant1/line4/machine7/temperature; > disconnect; > fin
        the server accepts no aliases
            opened; > for 1..100: publish plant1/line4/machine7/temperature; > disconnect; > fin
        a name that is not longer than an alias
            opened < topic_alias_maximum=10; > for 1..100: publish a/b; > disconnect; > fin
    """)
    bad = examples("""
        100 times
            opened < topic_alias_maximum=10; > for 1..100: publish plant1/line4/machine7/temperature 21.5; > disconnect
            > fin !
        by the server too, with several topics in one finding
            settings repeats=3; opened topic_alias_maximum=2 < topic_alias_maximum=1
            < publish plant1/line4/machine7/temperature/0 & publish plant1/line4/machine7/temperature/1 &
                publish plant1/line4/machine7/temperature/2 & publish plant1/line4/machine7/temperature/0 &
                publish plant1/line4/machine7/temperature/1 & publish plant1/line4/machine7/temperature/2 &
                publish plant1/line4/machine7/temperature/0 & publish plant1/line4/machine7/temperature/1 &
                publish plant1/line4/machine7/temperature/2
            > publish plant1/line4/machine7/temperature & publish plant1/line4/machine7/temperature &
                publish plant1/line4/machine7/temperature
            > disconnect; > fin ! !
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Count packets that could have used an alias."""
        topic = packet.topic_name
        if not topic or not at.receiver.topic_alias_maximum or packet.dup or properties_lost(packet, at):
            return None
        block = packet.properties
        if block is not None and block.topic_alias is not None:
            return None
        memory: SpelledTopicCounts = at.memory(self)
        table = memory.client if at.from_client else memory.server
        counted = table.get(topic)
        if counted is None:
            if len(table) >= MAX_TOPICS:
                return None
            counted = table[topic] = SpelledTopicCount()
        counted.number += 1
        counted.bytes += len(packet.raw) + packet.missing
        return None

    def check_close(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """Add up the bytes that aliases would have saved."""
        if self.code not in at.history.memories:
            return
        memory: SpelledTopicCounts = at.memory(self)
        for sender, table in (
            (Direction.CLIENT_TO_SERVER, memory.client),
            (Direction.SERVER_TO_CLIENT, memory.server),
        ):
            repeated = [(topic, count) for topic, count in table.items() if count.number >= self.set["repeats"]]
            rows = [(_saved(topic, count), topic, count) for topic, count in repeated]
            rows = sorted((row for row in rows if row[0] > 0), key=lambda row: (-row[0], row[1]))
            rows = rows[: connection.receiver(sender).topic_alias_maximum]
            if rows:
                yield self.report("", _message(rows), sender=sender)


def _saved(topic: str, counted: SpelledTopicCount) -> int:
    return (counted.number - 1) * (utf8_length(topic) - ALIAS_BYTES) - ALIAS_BYTES


def _message(rows: list[tuple[int, str, SpelledTopicCount]]) -> str:
    saved, topic, counted = rows[0]
    text = (
        f"{counted.number:,} PUBLISH repeat {shown(topic)} ({utf8_length(topic)} bytes); an alias would save "
        f"{saved:,} bytes ({100 * saved // max(1, counted.bytes)} %)"
    )
    if len(rows) > 1:
        total = sum(row[0] for row in rows)
        text += f", aliases for this and {len(rows) - 1} more topics {total:,} bytes"
    return text
