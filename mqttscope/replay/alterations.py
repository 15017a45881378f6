"""What the options of a replay made of a recording, and which differences follow from that, and how sure that is.

`Alterations` has the scripts as they were captured and as they are played side by side: what was left out, changed, and
copied.  From this follows which recorded deliveries cannot come, and which differences are the user's own doing.

Somebody who leaves the publisher out with ``--client`` gets no messages at the subscriber: no broker could deliver
them.  Such differences name the option, and do not count (`Causes`).  Where the broker may have its part in it, the
option is named as a possible cause, and the difference counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from mqttscope.mqtt.declare import Malformed
from mqttscope.mqtt.packets import Connack, Connect, Puback, Publish, Pubrec, Subscribe, Unsuback, Unsubscribe
from mqttscope.replay.script import Entry, Script
from mqttscope.replay.verify.difference import Difference, DifferenceKind
from mqttscope.replay.verify.run import FilterTable, Key, RecordedFilter, client_of, is_published, key_of

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


@dataclass(slots=True)
class Options:
    """The options that change what is played."""

    clients: Sequence[str] = ()
    filtered: bool = False
    start_ns: int | None = None
    end_ns: int | None = None
    topics: bool = False
    names: bool = False
    settings: Sequence[str] = ()
    """Paths that are set or left out."""
    copies: int = 1
    credentials: bool = False

    @property
    def parts(self) -> list[str]:
        """Those that leave parts of the recording out."""
        given = {
            "--client": self.clients,
            "--filter": self.filtered,
            "--start": self.start_ns is not None,
            "--end": self.end_ns is not None,
        }
        return [name for name, one in given.items() if one]

    def left_out_by(self, script: Script, entry: Entry) -> str:
        """Which option left a recorded packet out."""
        if self.clients and not any(fnmatchcase(script.name, one) for one in self.clients):
            return "--client"
        if self.start_ns is not None and entry.timestamp_ns < self.start_ns:
            return "--start"
        if self.end_ns is not None and entry.timestamp_ns >= self.end_ns:
            return "--end"
        return "--filter" if self.filtered else next(iter(self.parts), "")

    def sets(self, packet: str) -> bool:
        """Whether fields of a type of packet are set: ``publish``."""
        return any(one.startswith(f"{packet}.") for one in self.settings)


class Alterations:
    """A recording, and what is played of it."""

    def __init__(self, captured: Sequence[Script], played: Sequence[Script], options: Options) -> None:
        self.options = options
        self.subscribed, self.subscribes = FilterTable(), FilterTable()
        """In the capture, and in what is played."""
        self.sources: dict[Key, list[Entry]] = {}
        """What is played of the messages of clients, their Wills included, by what they were in the capture."""
        self.publishes: dict[Key, list[Entry]] = {}
        """The same, by what they are now."""
        self.left_out: dict[Key, list[tuple[Entry, str]]] = {}
        """Messages of clients that are not played, and by which option."""
        self.left_out_entries: dict[str, list[tuple[Entry, str]]] = {}
        """All packets that are not played, by their client."""
        self.not_retained: dict[str, str] = {}
        """Topics whose retained message was replaced or removed by what is not played, and by which option."""
        self.not_expected: dict[int, Counter[Key]] = {}
        """By the number of a captured connection: deliveries that are no longer expected."""
        self._captured: dict[Entry, Script] = {}
        kept: set[Entry] = set()
        for script in played:
            self.subscribes.learn(script)
            for entry in script.entries:
                kept.add(_origin(entry))
                if is_published(entry):
                    self.sources.setdefault(key_of(_origin(entry)), []).append(entry)
                    self.publishes.setdefault(key_of(entry), []).append(entry)
        for script in captured:
            self.subscribed.learn(script)
            for entry in script.entries:
                self._captured[entry] = script
                if entry not in kept:
                    self._leave_out(script, entry)

    def _leave_out(self, script: Script, entry: Entry) -> None:
        told = entry, self.options.left_out_by(script, entry)
        self.left_out_entries.setdefault(client_of(script), []).append(told)
        if is_published(entry):
            key = key_of(entry)
            self.left_out.setdefault(key, []).append(told)
            if _retained(entry):
                self.not_retained[key[0]] = told[1]
        elif isinstance(entry.packet, Publish) and not entry.from_client and entry.resends is None:
            self.not_expected.setdefault(script.connection.number, Counter())[key_of(entry)] += 1

    def captured(self, script: Script) -> Script:
        """The captured connection that a played one was made of."""
        first = next(iter(script.entries), None)
        return script if first is None else self._captured.get(_origin(first), script)

    def left_out_of(self, script: Script) -> Sequence[tuple[Entry, str]]:
        """What is not played of the client of a played connection, and by which option."""
        return self.left_out_entries.get(client_of(self.captured(script)), ())

    def cannot_come(self, script: Script, entry: Entry) -> str:
        """The option because of which a recorded delivery cannot come; empty where it can."""
        before, options = _origin(entry), self.options
        if not isinstance(before.packet, Publish) or before.topic is None or entry.topic is None:
            return ""
        sources = [one for one in self.sources.get(key_of(before), ()) if _origin(one).place < before.place]
        gone = [how for one, how in self.left_out.get(key_of(before), ()) if one.place < before.place]
        if gone and not sources:
            return gone[0]
        if sources and all(key_of(one) != key_of(entry) for one in sources):
            return "--set"
        if before.packet.retain and sources and all(_retained(_origin(one)) and not _retained(one) for one in sources):
            return "--set"
        then = _up_to(before, self.subscribed.matching(self.captured(script), before.topic))
        if then and not _up_to(entry, self.subscribes.matching(script, entry.topic)):
            unasked = [how for one, how in self.left_out_of(script) if all(row.entry is one for row in then)]
            if unasked:
                return unasked[0]
            mine = {row.topic_filter for row in self.subscribes.of.get(client_of(script), ())}
            if any(row.topic_filter in mine for row in then):
                return "--map-topic"  # the filter stayed, the topic did not
            return "--set" if options.sets("subscribe") else "--map-topic" if options.topics else ""
        return ""

    def unreachable(self, played: Sequence[Script]) -> set[Entry]:
        """All recorded deliveries that cannot come, and what a server says about them."""
        found: set[Entry] = set()
        for script in played:
            for entry in script.entries:
                if entry.from_client:
                    continue
                unsent = isinstance(entry.packet, Publish) and self.cannot_come(script, entry)
                if unsent or entry.answers in found or entry.resends in found:
                    found.add(entry)
        return found


class Cause(NamedTuple):
    """An option that a difference follows from."""

    option: str
    certain: bool


class Causes:
    """Finds them for a replay."""

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
            option = self.made.cannot_come(one.script, recorded)
            return Cause(option, True) if option else self._touched(one.script, recorded)
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
        before = {key_of(_origin(one)) for one in sources} | {key}
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
        newly = [one for one in sources if _retained(one) and not _retained(_origin(one))]
        if isinstance(packet, Publish) and packet.retain and len(newly) == len(sources):
            return Cause("--set", True)
        then = any(made.subscribed.matching(captured, one[0]) for one in before)
        if not then and made.subscribes.matching(script, key[0]):
            return Cause("--set" if self.options.sets("subscribe") else "--map-topic", True)
        copies = self.options.copies
        if copies > 1 and len(sources) >= copies:
            # Every copy publishes it, and a broker delivers what any of them publishes.
            fair = sum(_delivers(entry, one) for one in before for entry in captured.entries) * (copies - 1)
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
        shares = {row.topic_filter for row in self.made.subscribes.matching(script, key[0]) if row.shared}
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
            (topics and key_of(_origin(one))[0] != key[0]) or (payloads and key_of(_origin(one))[1] != key[1])
            for one in sources
        )

    def _changed(self, one: Difference, recorded: Entry, live: Entry) -> Cause | None:
        """A field of a message that --set gave another value, which is what came."""
        sources = self.made.sources.get(key_of(_origin(recorded)), [])
        if not sources or not self.options.settings:
            return None
        now = {repr(_field(source, one.field)) for source in sources}
        same = any(_field(source, one.field) == _field(_origin(source), one.field) for source in sources)
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
        made, before = self.made, _origin(entry)
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
        topic, before = request.topic or "", _origin(request).topic or ""
        if one.found == NO_SUBSCRIBERS and not any(self.made.subscribes.anybody(topic)):
            for row in self.made.subscribed.anybody(before):
                for gone in self.made.left_out_entries.values():
                    for entry, how in gone:
                        if entry is row.entry and entry.place < _origin(request).place:
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


def _up_to(entry: Entry, rows: list[RecordedFilter]) -> list[RecordedFilter]:
    return [row for row in rows if row.entry.place < entry.place]


def _delivers(entry: Entry, key: Key) -> bool:
    return not entry.from_client and isinstance(entry.packet, Publish) and key_of(entry) == key


def _is_set(entry: Entry) -> bool:
    return entry.origin is not None and entry.packet is not entry.origin.packet


def _field(entry: Entry, path: str) -> object:
    """A field of a message by its path, of a Will where it is a CONNECT."""
    packet = entry.packet
    if isinstance(packet, Connect) and is_published(entry):
        packet, path = packet.will, path.replace("qos", "will_qos").replace("retain", "will_retain")  # type: ignore[assignment]
    name, _, rest = path.partition(".")
    found = getattr(packet, name, None)
    return getattr(found, rest, None) if rest else found


def _origin(entry: Entry) -> Entry:
    """The packet of the capture that an entry comes from."""
    return entry.origin or entry


def _retained(entry: Entry) -> bool:
    """Whether a message of a client, or the Will of a CONNECT, is to be retained."""
    packet = entry.packet
    if isinstance(packet, Connect):
        return packet.will is not None and packet.will.will_retain
    return isinstance(packet, Publish) and packet.retain
