"""Which differences follow from the user's own options, and how sure that is.

Somebody who leaves the publisher out with ``--client`` gets no messages at the subscriber: no broker could deliver
them.  Such differences name the option, and do not count.  Where the broker may have its part in it, the option is
named as a possible cause, and the difference counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from mqttscope.mqtt.declare import Malformed
from mqttscope.mqtt.packets import Connack, Connect, Puback, Publish, Pubrec, Subscribe, Unsuback, Unsubscribe
from mqttscope.mqtt.topics import parse_shared
from mqttscope.replay.alterations import Alterations, Key, client_of, is_published, key_of, origin, retained
from mqttscope.replay.script import Entry, Script
from mqttscope.replay.verify.difference import Difference, DifferenceKind

NO_SUBSCRIBERS, NO_SUBSCRIPTION = 0x10, 0x11
_OF_ANSWERS = (
    DifferenceKind.REASON_CODE,
    DifferenceKind.GRANTED_QOS,
    DifferenceKind.PROPERTY,
    DifferenceKind.SESSION_PRESENT,
    DifferenceKind.MISSING_ANSWER,
    DifferenceKind.UNEXPECTED_ANSWER,
)


_TOPICS = ("publish.topic_name", "connect.will.will_topic")
_PAYLOADS = ("publish.payload", "connect.will.will_payload")


class Cause(NamedTuple):
    """An option that a difference follows from."""

    option: str
    certain: bool


def _certain(option: str) -> Cause | None:
    return Cause(option, True) if option else None


Told = tuple[str, int, object, str]
"""What tells the differences of one turn apart from those of another."""


def mark_later_turn(differences: Iterable[Difference], seen: set[Told], made: Iterable[Script]) -> None:
    """Name ``--loop`` where a difference of a later turn was not there in the first: ``seen`` has those of that one.

    A session or a retained message that an earlier turn left behind has to be there.
    """
    scripts = list(made)
    lasting = {
        client_of(one) for one in scripts if not one.connection.clean_start or one.connection.session_expiry_interval
    }
    kept = {key_of(entry) for one in scripts for entry in one.entries if is_published(entry) and retained(entry)}
    for one in differences:
        if one.option or told(one) in seen:
            continue
        left = one.kind is DifferenceKind.SESSION_PRESENT and one.found and client_of(one.script) in lasting
        packet = one.live.packet if one.kind is DifferenceKind.EXTRA_DELIVERY and one.live is not None else None
        stored = isinstance(packet, Publish) and packet.retain and one.live is not None and key_of(one.live) in kept
        one.option, one.certain = "--loop", bool(left or stored)


def told(one: Difference) -> Told:
    """What a difference says, but for its turn."""
    what: object = id(one.recorded)
    if one.recorded is None and one.live is not None:
        what = key_of(one.live) if isinstance(one.live.packet, Publish) else one.live.type
    return str(one.kind), id(one.script), what, one.field


class Causes:
    """Finds them for one turn of a replay."""

    def __init__(self, made: Alterations) -> None:
        self.made = made
        self.options = made.options
        self._used: Counter[tuple[str, int, Key]] = Counter()
        """How many extra deliveries were explained, by the rule, the connection and the message."""

    def mark(self, differences: Iterable[Difference]) -> None:
        """Name the options that differences follow from."""
        for one in differences:
            cause = self._cause(one)
            if cause is not None:
                one.option, one.certain = cause

    def _cause(self, one: Difference) -> Cause | None:
        recorded, live = one.recorded, one.live
        if one.kind is DifferenceKind.MISSING_DELIVERY and recorded is not None:
            return _certain(self.made.cannot_come(one.script, recorded)) or self._touched(one.script, recorded)
        if one.kind is DifferenceKind.EXTRA_DELIVERY and live is not None:
            return self._extra(one.script, live)
        if one.kind is DifferenceKind.CLOSE:
            return self._close(one)
        delivery = recorded is not None and isinstance(recorded.packet, Publish)
        if delivery and live is not None and recorded is not None:
            return self._changed(one, recorded, live)
        if one.kind in _OF_ANSWERS and (recorded or live) is not None:
            return self._answer(one)
        return None

    # Deliveries

    def _extra(self, script: Script, live: Entry) -> Cause | None:
        """A message that the recording does not have."""
        made, key = self.made, key_of(live)
        sources = made.publishes.get(key, [])
        before = {key_of(origin(one)) for one in sources} | {key}
        captured = made.captured(script)
        for one in before:
            if self._within("left out", script, one, self._no_longer_expected(captured, script, one)):
                return Cause(self._who_left_out(captured, one), True)
        if not sources:
            return None
        if self._set_anew(sources, key):
            # Whoever subscribes to them gets each once.
            wanted = made.subscribes.matching(script, key[0])
            return Cause("--set", self._within("set", script, key, len(sources) if wanted else 0))
        packet = live.packet
        newly = [one for one in sources if retained(one) and not retained(origin(one))]
        if isinstance(packet, Publish) and packet.retain and len(newly) == len(sources):
            return Cause("--set", True)
        then = any(made.subscribed.matching(captured, one[0]) for one in before)
        if not then and made.subscribes.matching(script, key[0]):
            return Cause("--set" if self.options.sets("subscribe") else "--map-topic", True)
        copies = self.options.copies
        if copies > 1 and len(sources) >= copies:
            # Every copy publishes it, and a broker delivers what any of them publishes.
            fair = sum(_deliveries(captured, one) for one in before) * (copies - 1)
            return Cause("--clients", self._within("copies", script, key, fair))
        return self._touched(script, live)

    def _within(self, rule: str, script: Script, key: Key, most: int) -> bool:
        """Whether one more is explained by a rule that explains so many."""
        place = rule, script.connection.number, key
        self._used[place] += 1
        return self._used[place] <= most

    def _no_longer_expected(self, captured: Script, script: Script, key: Key) -> int:
        """How many deliveries of a message the connection had that were left out; with those of left-out members."""
        found = self.made.not_expected.get(captured.connection.number, Counter())[key]
        shares = {
            row.topic_filter for row in self.made.subscribes.matching(script, key[0]) if parse_shared(row.topic_filter)
        }
        if not shares:
            return found
        for client, rows in self.made.subscribed.of.items():
            if client != client_of(captured) and any(row.topic_filter in shares for row in rows):
                gone = self.made.left_out_entries.get(client, ())
                found += sum(_delivers(entry, key) for entry, _ in gone)
        return found

    def _who_left_out(self, captured: Script, key: Key) -> str:
        for gone in (self.made.left_out_entries.get(client_of(captured), ()), *self.made.left_out_entries.values()):
            for entry, option in gone:
                if _delivers(entry, key):
                    return option
        return next(iter(self.options.parts), "")

    def _set_anew(self, sources: list[Entry], key: Key) -> bool:
        """Whether all of these messages have their topic or payload from --set."""
        topics = any(one in _TOPICS for one in self.options.settings)
        payloads = any(one in _PAYLOADS for one in self.options.settings)
        return bool(sources) and all(
            (topics and key_of(origin(one))[0] != key[0]) or (payloads and key_of(origin(one))[1] != key[1])
            for one in sources
        )

    def _changed(self, one: Difference, recorded: Entry, live: Entry) -> Cause | None:
        """A field of a message that --set gave another value, which is what came."""
        sources = self.made.sources.get(key_of(origin(recorded)), [])
        if not sources or not self.options.settings:
            return None
        now = {repr(_field(source, one.field)) for source in sources}
        same = any(_field(source, one.field) == _field(origin(source), one.field) for source in sources)
        if one.field and not same and now == {repr(_field(live, one.field))}:
            return Cause("--set", True)
        return self._perhaps_set(one.script, recorded, sources)

    def _perhaps_set(self, script: Script, entry: Entry, sources: list[Entry]) -> Cause | None:
        """Whether --set changed a message, the subscription that it came from, or the connection."""
        if not self.options.settings:
            return None
        rows = self.made.subscribes.matching(script, entry.topic or "")
        changed = any(_is_set(one) for one in (*sources, *(row.entry for row in rows)))
        return Cause("--set", False) if changed or self.options.sets("connect") else None

    def _touched(self, script: Script, entry: Entry) -> Cause | None:
        """An option that may have its part in what became of a message."""
        made, before = self.made, origin(entry)
        sources = [*made.sources.get(key_of(before), ()), *made.publishes.get(key_of(entry), ())]
        gone = made.left_out.get(key_of(before), ())
        if gone:
            return Cause(gone[0][1], False)
        if made.left_out_of(script):
            return Cause(made.left_out_of(script)[0][1], False)
        if isinstance(entry.packet, Publish) and entry.packet.retain and before.topic in made.not_retained:
            return Cause(made.not_retained[before.topic], False)
        set_ = self._perhaps_set(script, entry, sources)
        if set_ is None and self.options.copies > 1 and len(sources) > 1:
            return Cause("--clients", False)
        return set_

    # Answers and ends

    def _answer(self, one: Difference) -> Cause | None:
        """An answer to a request that an option changed, or whose outcome depends on what was left out."""
        entry = one.recorded or one.live
        assert entry is not None
        request = entry.answers or (entry.source.answers if entry.source is not None else None)
        if request is not None and not request.from_client:
            return None
        packet = entry.packet
        if one.kind is DifferenceKind.SESSION_PRESENT:
            return self._session(one)
        if isinstance(packet, Puback | Pubrec) and NO_SUBSCRIBERS in (one.expected, one.found) and request is not None:
            return self._subscribers(one, request)
        if isinstance(packet, Unsuback) and one.found == NO_SUBSCRIPTION and request is not None:
            return self._unsubscribed(one.script, request)
        if isinstance(packet, Connack) and self.options.credentials and one.kind is DifferenceKind.REASON_CODE:
            return Cause("--user", False)
        if request is not None and _is_set(request):
            mine = request.packet
            if not isinstance(mine, Malformed) and self.options.sets(mine.packet_type.name.lower()):
                return Cause("--set", False)
            if self.options.names and isinstance(mine, Connect):
                return Cause("--map-client", False)
        return None

    def _session(self, one: Difference) -> Cause | None:
        """A session of an earlier connection that is not played, or of one that now has the same name."""
        captured = self.made.captured(one.script)
        gone = [how for entry, how in self.made.left_out_of(one.script) if isinstance(entry.packet, Connect)
                and entry.place < captured.opened_place]  # fmt: skip
        if one.expected and gone:
            return Cause(gone[-1], True)
        if self.options.sets("connect"):
            return Cause("--set", False)
        return Cause("--map-client", False) if self.options.names else None

    def _subscribers(self, one: Difference, request: Entry) -> Cause | None:
        """Whether anybody subscribes to a message (5.0 3.4.2.1) depends on who is there."""
        topic, before = request.topic or "", origin(request).topic or ""
        if one.found == NO_SUBSCRIBERS and not any(self.made.subscribes.anybody(topic)):
            for row in self.made.subscribed.anybody(before):
                for gone in self.made.left_out_entries.values():
                    for entry, how in gone:
                        if entry is row.entry and row.place < origin(request).place:
                            return Cause(how, True)
        if self.options.parts and self.made.left_out_entries:
            return Cause(self.options.parts[0], False)
        if self.options.copies > 1:
            return Cause("--clients", False)
        moved = self.options.topics and topic != before
        return Cause("--map-topic", False) if moved else Cause("--set", False) if self.options.settings else None

    def _unsubscribed(self, script: Script, request: Entry) -> Cause | None:
        packet = request.packet
        wanted = set(packet.topic_filters) if isinstance(packet, Unsubscribe) else set()
        for entry, how in self.made.left_out_of(script):
            asked = entry.packet
            if isinstance(asked, Subscribe) and wanted.intersection(row.topic_filter for row in asked.subscriptions):
                return Cause(how, True)
        return None

    def _close(self, one: Difference) -> Cause | None:
        """Who takes whose session over depends on which clients have which name."""
        script, captured = one.script, self.made.captured(one.script)
        names = self.options.names or self.options.sets("connect")
        if names and client_of(script) != client_of(captured):
            return Cause("--map-client" if self.options.names else "--set", False)
        ended = captured.ended_place
        for entry, how in self.made.left_out_of(script):
            taken_over = isinstance(entry.packet, Connect) and captured.opened_place < entry.place <= ended
            if taken_over and captured.ending.by == "server":
                return Cause(how, True)
        if any(entry.origin is not None and _is_set(entry) for entry in script.entries) and self.options.settings:
            return Cause("--set", False)
        return None


def _deliveries(script: Script, key: Key) -> int:
    return sum(_delivers(entry, key) for entry in script.entries)


def _delivers(entry: Entry, key: Key) -> bool:
    return not entry.from_client and isinstance(entry.packet, Publish) and key_of(entry) == key


def _is_set(entry: Entry) -> bool:
    """Whether an option changed a packet."""
    return entry.origin is not None and entry.packet is not entry.origin.packet


def _field(entry: Entry, path: str) -> object:
    """A field of a message by its path, of a Will where it is a CONNECT."""
    packet = entry.packet
    if isinstance(packet, Connect) and is_published(entry):
        packet, path = packet.will, path.replace("qos", "will_qos").replace("retain", "will_retain")  # type: ignore[assignment]
    name, _, rest = path.partition(".")
    found = getattr(packet, name, None)
    return getattr(found, rest, None) if rest else found
