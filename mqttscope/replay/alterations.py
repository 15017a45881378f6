"""Changes that the options of a replay make to a recording, and which differences they cause.

`Alterations` compares the scripts as captured with the scripts as played: entries left out, changed and copied.  From
this follows which recorded deliveries cannot come, and which differences the user's options cause.

If ``--client`` leaves a publisher out, for example, no broker can deliver its messages to the subscriber.  Such a
difference names the option and does not fail the run (`CauseFinder`).  If the broker may be a cause too, the
difference names the option as a possible cause, and does fail the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from mqttscope.mqtt.declare import Malformed
from mqttscope.mqtt.packets import Connack, Connect, Puback, Publish, Pubrec, Subscribe, Unsuback, Unsubscribe
from mqttscope.replay.script import Script, ScriptEntry
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
class AlterationOptions:
    """Options that change what is played."""

    clients: Sequence[str] = ()
    filtered: bool = False
    start_ns: int | None = None
    end_ns: int | None = None
    topics: bool = False
    names: bool = False
    settings: Sequence[str] = ()
    """Paths of fields that are set or left out."""
    copies: int = 1
    credentials: bool = False

    @property
    def parts(self) -> list[str]:
        """Options that leave parts of the recording out."""
        selections = {
            "--client": self.clients,
            "--filter": self.filtered,
            "--start": self.start_ns is not None,
            "--end": self.end_ns is not None,
        }
        return [name for name, selection in selections.items() if selection]

    def left_out_by(self, script: Script, entry: ScriptEntry) -> str:
        """Name of the option that left a recorded packet out."""
        if self.clients and not any(fnmatchcase(script.name, pattern) for pattern in self.clients):
            return "--client"
        if self.start_ns is not None and entry.timestamp_ns < self.start_ns:
            return "--start"
        if self.end_ns is not None and entry.timestamp_ns >= self.end_ns:
            return "--end"
        return "--filter" if self.filtered else next(iter(self.parts), "")

    def sets(self, packet: str) -> bool:
        """Whether options set fields of a packet type: ``publish``."""
        return any(path.startswith(f"{packet}.") for path in self.settings)


class Alterations:
    """A recording, and the changed scripts that are played."""

    def __init__(self, captured: Sequence[Script], played: Sequence[Script], options: AlterationOptions) -> None:
        self.options = options
        self.recorded_filters, self.played_filters = FilterTable(), FilterTable()
        """Subscriptions in the capture, and in the scripts as played."""
        self.sources: dict[Key, list[ScriptEntry]] = {}
        """Messages of clients as played, Wills included, by their key in the capture."""
        self.publishes: dict[Key, list[ScriptEntry]] = {}
        """Messages of clients as played, Wills included, by their key as played."""
        self.left_out: dict[Key, list[tuple[ScriptEntry, str]]] = {}
        """Messages of clients that are not played, with the option that left them out."""
        self.left_out_entries: dict[str, list[tuple[ScriptEntry, str]]] = {}
        """All packets that are not played, by client, with the option that left them out."""
        self.not_retained: dict[str, str] = {}
        """Topics with a retained message that a left-out packet replaced or removed, with the option."""
        self.not_expected: dict[int, Counter[Key]] = {}
        """Deliveries that are no longer expected, by the number of their captured connection."""
        self._captured: dict[ScriptEntry, Script] = {}
        played_entries: set[ScriptEntry] = set()
        for script in played:
            self.played_filters.learn(script)
            for entry in script.entries:
                played_entries.add(_origin(entry))
                if is_published(entry):
                    self.sources.setdefault(key_of(_origin(entry)), []).append(entry)
                    self.publishes.setdefault(key_of(entry), []).append(entry)
        for script in captured:
            self.recorded_filters.learn(script)
            for entry in script.entries:
                self._captured[entry] = script
                if entry not in played_entries:
                    self._leave_out(script, entry)

    def _leave_out(self, script: Script, entry: ScriptEntry) -> None:
        omission = entry, self.options.left_out_by(script, entry)
        self.left_out_entries.setdefault(client_of(script), []).append(omission)
        if is_published(entry):
            key = key_of(entry)
            self.left_out.setdefault(key, []).append(omission)
            if _retained(entry):
                self.not_retained[key[0]] = omission[1]
        elif isinstance(entry.packet, Publish) and not entry.from_client and entry.resends is None:
            self.not_expected.setdefault(script.connection.number, Counter())[key_of(entry)] += 1

    def captured(self, script: Script) -> Script:
        """The captured connection that a played one was made from."""
        first = next(iter(script.entries), None)
        return script if first is None else self._captured.get(_origin(first), script)

    def left_out_of(self, script: Script) -> Sequence[tuple[ScriptEntry, str]]:
        """Packets of a played connection's client that are not played, with the option that left them out."""
        return self.left_out_entries.get(client_of(self.captured(script)), ())

    def preventing_option(self, script: Script, entry: ScriptEntry) -> str:
        """The option that prevents a recorded delivery; empty if the delivery can come."""
        before, options = _origin(entry), self.options
        if not isinstance(before.packet, Publish) or before.topic is None or entry.topic is None:
            return ""
        sources = [source for source in self.sources.get(key_of(before), ()) if _origin(source).place < before.place]
        omitted = [pair for pair in self.left_out.get(key_of(before), ()) if pair[0].place < before.place]
        if omitted and not sources:
            return omitted[0][1]
        if sources and all(key_of(source) != key_of(entry) for source in sources):
            return "--set"
        cleared = all(_retained(_origin(source)) and not _retained(source) for source in sources)
        if before.packet.retain and sources and cleared:
            return "--set"
        recorded_rows = _earlier_rows(before, self.recorded_filters.matching(self.captured(script), before.topic))
        if recorded_rows and not _earlier_rows(entry, self.played_filters.matching(script, entry.topic)):
            for left_out, option in self.left_out_of(script):
                if all(row.entry is left_out for row in recorded_rows):
                    return option
            played_filters = {row.topic_filter for row in self.played_filters.by_client.get(client_of(script), ())}
            if any(row.topic_filter in played_filters for row in recorded_rows):
                return "--map-topic"  # the filter stayed, the topic did not
            return "--set" if options.sets("subscribe") else "--map-topic" if options.topics else ""
        return ""

    def unreachable(self, played: Sequence[Script]) -> set[ScriptEntry]:
        """All recorded deliveries that cannot come, and the server's further packets of their exchanges."""
        unreachable: set[ScriptEntry] = set()
        for script in played:
            for entry in script.entries:
                if entry.from_client:
                    continue
                unsent = isinstance(entry.packet, Publish) and self.preventing_option(script, entry)
                if unsent or entry.answers in unreachable or entry.resends in unreachable:
                    unreachable.add(entry)
        return unreachable


class OptionCause(NamedTuple):
    """An option that causes a difference."""

    option: str
    certain: bool


class CauseFinder:
    """Finds the options that cause the differences of a replay."""

    def __init__(self, alterations: Alterations) -> None:
        self.alterations = alterations
        self.options = alterations.options
        self._used: Counter[tuple[str, int, Key]] = Counter()
        """Number of extra deliveries already explained, by rule, connection and message."""

    def mark(self, differences: Iterable[Difference]) -> None:
        """Set ``option`` and ``certain`` of each difference that an option causes."""
        for difference in differences:
            cause = self._cause(difference)
            if cause is not None:
                difference.option, difference.certain = cause

    def _cause(self, difference: Difference) -> OptionCause | None:
        recorded, live = difference.recorded, difference.live
        if difference.kind is DifferenceKind.MISSING_DELIVERY and recorded is not None:
            option = self.alterations.preventing_option(difference.script, recorded)
            return OptionCause(option, True) if option else self._possible_cause(difference.script, recorded)
        if difference.kind is DifferenceKind.EXTRA_DELIVERY and live is not None:
            return self._extra(difference.script, live)
        if difference.kind is DifferenceKind.CLOSE:
            return self._close(difference)
        delivery = recorded is not None and isinstance(recorded.packet, Publish)
        if delivery and live is not None and recorded is not None:
            return self._changed(difference, recorded, live)
        if difference.kind in _OF_ANSWERS and (recorded or live) is not None:
            return self._answer(difference)
        return None

    # Deliveries

    def _extra(self, script: Script, live: ScriptEntry) -> OptionCause | None:
        """The cause of a delivery that the recording does not have."""
        alterations, key = self.alterations, key_of(live)
        sources = alterations.publishes.get(key, [])
        before = {key_of(_origin(source)) for source in sources} | {key}
        captured = alterations.captured(script)
        for recorded_key in before:
            if self._within("left out", script, recorded_key, self._left_out_count(captured, script, recorded_key)):
                return OptionCause(self._option_leaving_out(captured, recorded_key), True)
        if not sources:
            return None
        if self._are_all_replaced(sources, key):
            # Each subscriber gets each of them once.
            rows = alterations.played_filters.matching(script, key[0])
            return OptionCause("--set", self._within("set", script, key, len(sources) if rows else 0))
        packet = live.packet
        newly_retained = [source for source in sources if _retained(source) and not _retained(_origin(source))]
        if isinstance(packet, Publish) and packet.retain and len(newly_retained) == len(sources):
            return OptionCause("--set", True)
        was_subscribed = any(alterations.recorded_filters.matching(captured, topic) for topic, *_ in before)
        if not was_subscribed and alterations.played_filters.matching(script, key[0]):
            return OptionCause("--set" if self.options.sets("subscribe") else "--map-topic", True)
        copies = self.options.copies
        if copies > 1 and len(sources) >= copies:
            # Every copy publishes the message, and a broker delivers all of these to each subscriber.
            recorded = sum(_delivers(entry, old_key) for old_key in before for entry in captured.entries)
            return OptionCause("--clients", self._within("copies", script, key, recorded * (copies - 1)))
        return self._possible_cause(script, live)

    def _within(self, rule: str, script: Script, key: Key, limit: int) -> bool:
        """Whether a rule that explains ``limit`` deliveries explains one more."""
        place = rule, script.connection.number, key
        self._used[place] += 1
        return self._used[place] <= limit

    def _left_out_count(self, captured: Script, script: Script, key: Key) -> int:
        """Number of left-out deliveries of a message: to this client, and to others on its shared subscriptions."""
        count = self.alterations.not_expected.get(captured.connection.number, Counter())[key]
        shares = {row.topic_filter for row in self.alterations.played_filters.matching(script, key[0]) if row.shared}
        if not shares:
            return count
        for client, rows in self.alterations.recorded_filters.by_client.items():
            if client != client_of(captured) and any(row.topic_filter in shares for row in rows):
                omitted = self.alterations.left_out_entries.get(client, ())
                count += sum(_delivers(entry, key) for entry, _ in omitted)
        return count

    def _option_leaving_out(self, captured: Script, key: Key) -> str:
        left_out = self.alterations.left_out_entries
        for omitted in (left_out.get(client_of(captured), ()), *left_out.values()):
            for entry, option in omitted:
                if _delivers(entry, key):
                    return option
        return next(iter(self.options.parts), "")

    def _are_all_replaced(self, sources: list[ScriptEntry], key: Key) -> bool:
        """Whether all of these messages got their topic or payload from --set."""
        topics = any(path in _TOPICS for path in self.options.settings)
        payloads = any(path in _PAYLOADS for path in self.options.settings)
        return bool(sources) and all(
            (topics and key_of(_origin(source))[0] != key[0]) or (payloads and key_of(_origin(source))[1] != key[1])
            for source in sources
        )

    def _changed(self, difference: Difference, recorded: ScriptEntry, live: ScriptEntry) -> OptionCause | None:
        """``--set``, if it set the value that the live message has."""
        sources = self.alterations.sources.get(key_of(_origin(recorded)), [])
        if not sources or not self.options.settings:
            return None
        path = difference.field
        now = {repr(_field(source, path)) for source in sources}
        unchanged = any(_field(source, path) == _field(_origin(source), path) for source in sources)
        if path and not unchanged and now == {repr(_field(live, path))}:
            return OptionCause("--set", True)
        return self._possible_setting(difference.script, recorded, sources)

    def _possible_setting(self, script: Script, entry: ScriptEntry, sources: list[ScriptEntry]) -> OptionCause | None:
        """``--set`` as a possible cause, if it changed the message, its subscription or the connection."""
        if not self.options.settings:
            return None
        rows = self.alterations.played_filters.matching(script, entry.topic or "")
        changed = any(_is_set(changed_entry) for changed_entry in (*sources, *(row.entry for row in rows)))
        return OptionCause("--set", False) if changed or self.options.sets("connect") else None

    def _possible_cause(self, script: Script, entry: ScriptEntry) -> OptionCause | None:
        """An option that may have affected a message."""
        alterations, before = self.alterations, _origin(entry)
        sources = [*alterations.sources.get(key_of(before), ()), *alterations.publishes.get(key_of(entry), ())]
        omitted = alterations.left_out.get(key_of(before), ())
        if omitted:
            return OptionCause(omitted[0][1], False)
        if alterations.left_out_of(script):
            return OptionCause(alterations.left_out_of(script)[0][1], False)
        if isinstance(entry.packet, Publish) and entry.packet.retain and before.topic in alterations.not_retained:
            return OptionCause(alterations.not_retained[before.topic], False)
        set_ = self._possible_setting(script, entry, sources)
        if set_ is None and self.options.copies > 1 and len(sources) > 1:
            return OptionCause("--clients", False)
        return set_

    # Answers and ends

    def _answer(self, difference: Difference) -> OptionCause | None:
        """The cause of a changed answer: its request was changed, or its result depends on left-out packets."""
        entry = difference.recorded or difference.live
        assert entry is not None
        request = entry.answers or (entry.source.answers if entry.source is not None else None)
        if request is not None and not request.from_client:
            return None
        packet = entry.packet
        if difference.kind is DifferenceKind.SESSION_PRESENT:
            return self._session(difference)
        codes = difference.expected, difference.actual
        if isinstance(packet, Puback | Pubrec) and NO_SUBSCRIBERS in codes and request is not None:
            return self._subscribers(difference, request)
        if isinstance(packet, Unsuback) and difference.actual == NO_SUBSCRIPTION and request is not None:
            return self._unsubscribed(difference.script, request)
        if isinstance(packet, Connack) and self.options.credentials and difference.kind is DifferenceKind.REASON_CODE:
            return OptionCause("--user", False)
        if request is not None and _is_set(request):
            packet_sent = request.packet
            if not isinstance(packet_sent, Malformed) and self.options.sets(packet_sent.packet_type.name.lower()):
                return OptionCause("--set", False)
            if self.options.names and isinstance(packet_sent, Connect):
                return OptionCause("--map-client", False)
        return None

    def _session(self, difference: Difference) -> OptionCause | None:
        """The cause of a changed Session Present: an earlier connection is left out, or clients have new names."""
        captured = self.alterations.captured(difference.script)
        left_out = self.alterations.left_out_of(difference.script)
        earlier = (pair for pair in left_out if pair[0].place < captured.opened_place)
        options_used = [option for entry, option in earlier if isinstance(entry.packet, Connect)]
        if difference.expected and options_used:
            return OptionCause(options_used[-1], True)
        if self.options.sets("connect"):
            return OptionCause("--set", False)
        return OptionCause("--map-client", False) if self.options.names else None

    def _subscribers(self, difference: Difference, request: ScriptEntry) -> OptionCause | None:
        """The cause of a changed *No matching subscribers* (5.0 3.4.2.1): other clients subscribe now."""
        topic, before = request.topic or "", _origin(request).topic or ""
        if difference.actual == NO_SUBSCRIBERS and not any(self.alterations.played_filters.subscriptions_to(topic)):
            for row in self.alterations.recorded_filters.subscriptions_to(before):
                for omitted in self.alterations.left_out_entries.values():
                    for entry, option in omitted:
                        if entry is row.entry and entry.place < _origin(request).place:
                            return OptionCause(option, True)
        if self.options.parts and self.alterations.left_out_entries:
            return OptionCause(self.options.parts[0], False)
        if self.options.copies > 1:
            return OptionCause("--clients", False)
        if self.options.topics and topic != before:
            return OptionCause("--map-topic", False)
        return OptionCause("--set", False) if self.options.settings else None

    def _unsubscribed(self, script: Script, request: ScriptEntry) -> OptionCause | None:
        packet = request.packet
        filters = set(packet.topic_filters) if isinstance(packet, Unsubscribe) else set()
        for entry, option in self.alterations.left_out_of(script):
            rows = entry.packet.subscriptions if isinstance(entry.packet, Subscribe) else ()
            if filters.intersection(row.topic_filter for row in rows):
                return OptionCause(option, True)
        return None

    def _close(self, difference: Difference) -> OptionCause | None:
        """The cause of a changed end: the connection that takes over is left out, or clients have new names."""
        script, captured = difference.script, self.alterations.captured(difference.script)
        names = self.options.names or self.options.sets("connect")
        if names and client_of(script) != client_of(captured):
            return OptionCause("--map-client" if self.options.names else "--set", False)
        ended = captured.ended_place
        for entry, option in self.alterations.left_out_of(script):
            taken_over = isinstance(entry.packet, Connect) and captured.opened_place < entry.place <= ended
            if taken_over and captured.ending.by == "server":
                return OptionCause(option, True)
        if any(entry.origin is not None and _is_set(entry) for entry in script.entries) and self.options.settings:
            return OptionCause("--set", False)
        return None


def _earlier_rows(entry: ScriptEntry, rows: list[RecordedFilter]) -> list[RecordedFilter]:
    return [row for row in rows if row.entry.place < entry.place]


def _delivers(entry: ScriptEntry, key: Key) -> bool:
    return not entry.from_client and isinstance(entry.packet, Publish) and key_of(entry) == key


def _is_set(entry: ScriptEntry) -> bool:
    return entry.origin is not None and entry.packet is not entry.origin.packet


def _field(entry: ScriptEntry, path: str) -> object:
    """A field of a message by its path; for a CONNECT, of its Will."""
    packet = entry.packet
    if isinstance(packet, Connect) and is_published(entry):
        packet, path = packet.will, path.replace("qos", "will_qos").replace("retain", "will_retain")  # type: ignore[assignment]
    name, _, rest = path.partition(".")
    value = getattr(packet, name, None)
    return getattr(value, rest, None) if rest else value


def _origin(entry: ScriptEntry) -> ScriptEntry:
    return entry.origin or entry


def _retained(entry: ScriptEntry) -> bool:
    """Whether RETAIN is set in a message of a client, or in the Will of a CONNECT."""
    packet = entry.packet
    if isinstance(packet, Connect):
        return packet.will is not None and packet.will.will_retain
    return isinstance(packet, Publish) and packet.retain
