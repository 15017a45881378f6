"""Retained messages that a broker has, and did not send for a SUBSCRIBE."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from mqttscope.explain import describe
from mqttscope.explain.book import MOMENT_NS
from mqttscope.explain.causes.mqtt import REFUSED
from mqttscope.explain.fates import (
    EXACTLY_ONCE,
    NEVER,
    SECOND,
    Delivery,
    Fate,
    Published,
    Subscriber,
    Wanted,
    suspects,
)
from mqttscope.explain.model import MAX_REPORTED, Explanation
from mqttscope.explain.origins import Origins
from mqttscope.explain.pauses import PauseWatch
from mqttscope.explain.retained_excuses import excuse_of
from mqttscope.mqtt.topics import compile_filter
from mqttscope.session.connection import host_of
from mqttscope.session.matching import FAILURE

LEAST_ANSWERS = 10
"""Minimum number of retained messages that came for a SUBSCRIBE, beside others that did not come."""
LEAST_MISSING = 2
"""Minimum number of retained messages that did not come for it."""
MAX_COMPARED = 1_000
"""Maximum number of subscriptions that are compared with all retained messages."""
LIMIT = (
    "Raise the limit of the broker for messages that wait for a client (mosquitto: max_inflight_messages and"
    " max_queued_messages together)."
)
ACCESS = "Look whether the broker's access rules let the client read this topic; a SUBACK need not refuse that."
KEEPS = "It was published with RETAIN: look whether the broker keeps retained messages."
WILDCARDS = (
    "Look whether the broker sends retained messages for filters with wildcards (some do not, RabbitMQ among them), or"
    " subscribe to the topic itself."
)
LOST = "Look whether the broker lost or removed the retained message in between."
UNANSWERED = "Look in the broker why it did not answer this SUBSCRIBE with the retained message."
PERSISTENCE = (
    "Let the broker store retained messages over restarts (mosquitto: persistence true), or publish them again after"
    " each reconnect."
)
Key = tuple[str, str]


class RetainedWatch(Protocol):
    """Messages and subscriptions of a capture (`messages.MessageWatch`)."""

    published: dict[int, Published]
    clients: OrderedDict[Key, Subscriber]
    now_ns: int
    origins: Origins
    pauses: PauseWatch
    stops: deque[Explanation]
    """The last ends of connections because their broker stopped."""
    wildcard_answers: set[str]
    """Hosts of the brokers that sent a retained message for a filter with a wildcard."""

    def is_whole(self, server: str, topic: str) -> bool: ...


@dataclass(slots=True)
class RetainedShortfall:
    """Retained messages that a broker should have sent for a SUBSCRIBE, beside others that came."""

    client: Subscriber
    wanted: Wanted
    came: int
    missing: list[Published]

    @property
    def total(self) -> int:
        """Number of all of them."""
        return self.came + len(self.missing)

    def sentence(self, now_ns: int) -> str:
        """A sentence about all of them."""
        wanted, answer = self.wanted, self.wanted.retained
        first = self.missing[0]
        waited = ""
        if answer is not None:
            until_ns = min(now_ns, self.client.ends.get(answer.connection, (NEVER, 0))[0])
            waited = f" in the {describe.span(until_ns - wanted.last_answer_ns)} after the last of these"
        return (
            f"{self.client.name} subscribed to {describe.name(wanted.topic_filter)} (frame {wanted.frame}) and got"
            f" {self.came:,} of {self.total:,} retained messages that the broker had acknowledged; the other"
            f" {len(self.missing):,} did not come{waited}, and no captured message replaced them. The first:"
            f" {describe.name(first.topic)}, frame {first.frame}. Most probably the broker limits the messages that"
            f" wait for a client, or it had lost these by then. {LIMIT}"
        )


class RetainedAnswers:
    """Compares the retained messages of a capture with the answers to SUBSCRIBE packets, when the capture has ended."""

    def __init__(self, watch: RetainedWatch) -> None:
        self._watch = watch
        self._by_topic: dict[tuple[str, str], list[Published]] = {}
        """Messages with RETAIN 1 that no broker refused, by host of the broker and topic, oldest first."""
        for message in watch.published.values():
            if message.retain and (message.code or 0) < FAILURE:
                self._by_topic.setdefault((message.server, message.topic), []).append(message)
        self._shortfalls: dict[tuple[Key, str], RetainedShortfall | None] = {}
        """Results by the client and its Topic Filter."""
        self._left_out = 0

    def replacement(self, message: Published, until_ns: int) -> Published | None:
        """The next message with RETAIN 1 to the topic, if it was published before a time."""
        rows = self._by_topic.get((message.server, message.topic), ())
        later = next((row for row in rows if row.timestamp_ns > message.timestamp_ns), None)
        return later if later is not None and later.timestamp_ns <= until_ns else None

    def _kept_ns(self, message: Published) -> int:
        """Until when the broker certainly kept a message: the last delivery that can only be of it, with RETAIN 1."""
        proof_ns = 0 if message.proof is None else message.proof.timestamp_ns or 0
        is_proven = self.replacement(message, proof_ns) is None
        return max(message.timestamp_ns, proof_ns) if is_proven else message.timestamp_ns

    def shortfall(self, key: Key, client: Subscriber, wanted: Wanted) -> RetainedShortfall | None:
        """The retained messages that a broker left out beside at least `LEAST_ANSWERS` others, if it did.

        Each has been acknowledged, was the last one of its topic, does not expire, and was not followed by another
        one of the topic.  The client acknowledged whatever it was sent, and its connection lasted for a second after
        the last answer.  Nothing shows from outside why a broker stops: it may also have lost messages, or its access
        rules may forbid some of them.
        """
        if wanted.answers < LEAST_ANSWERS:
            return None
        place = key, wanted.topic_filter
        if place not in self._shortfalls:
            if len(self._shortfalls) >= MAX_COMPARED:
                self._left_out += 1
                return None
            self._shortfalls[place] = self._compare(key, client, wanted)
        return self._shortfalls[place]

    def shortfalls(self) -> Iterator[RetainedShortfall]:
        """All that were found."""
        return (shortfall for shortfall in self._shortfalls.values() if shortfall is not None)

    def vain_removals(self) -> Iterator[str]:
        """A sentence for each topic with an empty message with RETAIN 0 while the broker keeps a retained message.

        The specification lets only an empty message with RETAIN 1 remove that (3.3.1.3).
        """
        empty = {
            (message.server, message.topic): message
            for message in self._watch.published.values()
            if message.is_empty and not message.retain
        }
        shown = 0
        for place, message in empty.items():
            rows = self._by_topic.get(place, [])
            before = [row for row in rows if row.timestamp_ns < message.timestamp_ns][-1:]
            next_ns = min((row.timestamp_ns for row in rows if row.timestamp_ns > message.timestamp_ns), default=NEVER)
            copies = self._watch.origins.retained_copies.get(place, [])
            later = [copy for copy in copies if message.timestamp_ns < (copy.timestamp_ns or 0) < next_ns]
            earlier = [copy for copy in copies if (copy.timestamp_ns or 0) < message.timestamp_ns]
            if later:
                known = f"{later[-1].text} the retained message of the topic afterwards (frame {later[-1].frame})"
            elif before and not before[0].is_removal:
                known = f"the broker had one, of frame {before[0].frame}"
            elif earlier and not before:
                known = f"the broker had one: {earlier[-1].text} it in frame {earlier[-1].frame}"
            else:
                continue
            shown += 1
            if shown > MAX_REPORTED:
                yield describe.more_not_shown(1)
                return
            yield (
                f"{message.client} published an empty message to {describe.name(message.topic)} with RETAIN 0 (frame"
                f" {message.frame}), which does not remove a retained message (3.3.1.3), and {known}. To remove it,"
                " publish the empty message with RETAIN 1."
            )

    def limits(self) -> Iterator[str]:
        """A sentence if subscriptions or stops of brokers were left out."""
        if len(self._watch.stops) == self._watch.stops.maxlen:
            yield f"limit: the last {len(self._watch.stops):,} ends because a broker stopped are remembered."
        if self._left_out:
            yield (
                f"limit: retained messages are compared with the answers to {MAX_COMPARED:,} subscriptions; further"
                f" comparisons: {self._left_out:,}."
            )

    def _compare(self, key: Key, client: Subscriber, wanted: Wanted) -> RetainedShortfall | None:
        answer = wanted.retained
        if answer is None or wanted.granted_ns is None:
            return None
        reader, until_ns = answer.reader, wanted.last_answer_ns + SECOND
        if until_ns > min(self._watch.now_ns, client.ends.get(reader.number, (NEVER, 0))[0], wanted.ended_ns or NEVER):
            return None
        if reader.one_sided or reader.server_side.gapped or reader.server_side.exchanges:
            return None
        came, missing = 0, []
        matches, largest = compile_filter(wanted.plain_filter), reader.client_side.maximum_packet_size
        for (server, topic), rows in self._by_topic.items():
            if server != client.server or not matches(topic):
                continue
            message = rows[-1]
            if key in message.got:
                came += any(copy.timestamp_ns >= wanted.asked_ns for copy in message.got[key].values())
            elif len(rows) == 1 and is_stored(message, wanted.asked_ns, until_ns, largest):
                missing.append(message)
        if came < LEAST_ANSWERS or len(missing) < LEAST_MISSING:
            return None
        return RetainedShortfall(client, wanted, came, missing)

    def fate(self, message: Published, key: Key, client: Subscriber, wanted: Wanted, text: str) -> Delivery:
        """The fate of a retained message for a client that subscribed later; ``text``: when it did."""
        result = Delivery(
            client.name, client.number, Fate.SUBSCRIBED_LATER, text, wanted.frame, wanted.asked_ns, wanted.capture
        )
        kept_ns, is_refused = self._kept_ns(message), (message.code or 0) >= FAILURE
        later = self.replacement(message, wanted.asked_ns)
        will = self._watch.origins.replacement(message, kept_ns, wanted.asked_ns)
        shortfall = self.shortfall(key, client, wanted)
        place = message.server, message.topic
        due = self._watch.origins.due_will(place, kept_ns, wanted.asked_ns, self._watch.clients)
        excuse = excuse_of(message, client, wanted, due)
        if later is not None and is_released(later) and not is_refused:
            result.outcome += f"; by then frame {later.frame} had replaced this retained message"
            result.fate = Fate.NOT_CONCERNED
        elif will is not None and not is_refused:
            result.outcome += (
                f"; by then the will of {will.name} (frame {will.frame}) had replaced this retained message"
            )
            result.fate = Fate.NOT_CONCERNED
        elif excuse is not None:
            result.outcome, result.fate, result.advice = result.outcome + excuse.text, excuse.fate, excuse.advice
        elif shortfall is not None and message in shortfall.missing:
            many = f"{shortfall.came:,} of {shortfall.total:,} retained messages"
            result.outcome += f", and the broker sent it {many} for that, without this one"
            result.fate, result.advice, result.group = Fate.NOT_SENT, (LIMIT, ACCESS), (key, wanted.topic_filter)
        elif wanted.retained is None:
            self._withhold(result, message, key, client, wanted)
        elif self._is_left_out(message, key, client, wanted):
            result.outcome += (
                ", and the broker did not send it this retained message: it sent another one for this SUBSCRIBE (frame"
                f" {wanted.retained.frame})"
            )
            result.fate, result.advice = Fate.NOT_SENT, tuple(suspects(message))
        else:
            another = f"the broker sent another one for this SUBSCRIBE (frame {wanted.retained.frame})"
            result.advice = (f"It was published with RETAIN; {another}: look whether this one was replaced.",)
        return result

    def later(self, message: Published, key: Key, client: Subscriber) -> Iterator[Delivery]:
        """The fates of a retained message for further subscriptions of a client that had got it and then did not.

        On the same connection, the client subscribed to this Topic Filter before: each SUBSCRIBE asks for the message
        again (3.8.4), with Retain Handling 0 also if the subscription exists.
        """
        copies = message.got.get(key, {}).values()
        if not message.retain or message.is_removal or not copies:
            return
        last_ns = max(copy.last.timestamp_ns for copy in copies)
        numbers = {copy.last.connection for copy in copies}
        for wanted in client.filters.values():
            is_again = wanted.connection not in numbers or (wanted.begun or wanted.before) is not None
            is_later = wanted.asked_ns > last_ns and is_again and not wanted.is_answered
            if (
                not is_later
                or wanted.code is None
                or wanted.code >= FAILURE
                or wanted.share
                or not compile_filter(wanted.plain_filter)(message.topic)
            ):
                continue
            after = describe.span(wanted.asked_ns - message.timestamp_ns)
            where = "" if wanted.connection in numbers else f" on #{wanted.connection}"
            text = f"subscribed to {describe.name(wanted.topic_filter)} again{where}, {after} later"
            result = self.fate(message, key, client, wanted, text)
            if result.fate is Fate.NOT_SENT:
                yield result

    def stop(self, server: str, from_ns: int, until_ns: int) -> Explanation | None:
        """The first end of the last stop of a broker between two times; ``server``: its host.

        One connection proves that only if the broker refused a new one.  A proxy in front of a broker that stops looks
        alike.
        """
        ends = [end for end in self._watch.stops if host_of(end.server) == server and from_ns < end.ended_ns < until_ns]
        ends.sort(key=lambda end: end.ended_ns)
        together = [end for end in ends if ends[-1].ended_ns - end.ended_ns <= MOMENT_NS]
        is_proven = len(together) > 1 or (bool(together) and REFUSED in together[0].first.headline)
        return together[0] if is_proven else None

    def _stop(self, message: Published, wanted: Wanted) -> Explanation | None:
        """The stop of the broker before a SUBSCRIBE that most probably cost it its retained messages.

        A retained message from before the stop that it sends afterwards contradicts that.
        """
        stop = self.stop(message.server, message.latest_ns, wanted.asked_ns)
        for other in self._watch.published.values() if stop is not None else ():
            proof_ns = 0 if other.proof is None else other.proof.timestamp_ns or 0
            if stop is not None and other.server == message.server and other.timestamp_ns < stop.ended_ns < proof_ns:
                return None
        return stop

    def _withhold(self, result: Delivery, message: Published, key: Key, client: Subscriber, wanted: Wanted) -> None:
        """Complete the fate of a retained message where the broker did not send any for a SUBSCRIBE.

        Another client that got the message with RETAIN 1 because of its own SUBSCRIBE proves that the broker kept it:
        after this SUBSCRIBE, if it got it later; until shortly before, if it got it earlier and no captured message to
        the topic has RETAIN 1 since.  A PUBLISH or a restart that the capture does not have would disprove that, and
        access rules may forbid one client what they allow another one: "did not send it" is all that is claimed.
        If the broker stopped after the earlier proof, it most probably lost the message then.
        """
        proof, until_ns = message.proof, wanted.asked_ns + SECOND
        end_ns = client.ends.get(wanted.connection, (NEVER, 0))[0]
        over_ns = min(self._watch.now_ns, end_ns)
        proof_ns = 0 if proof is None else proof.timestamp_ns or 0
        is_proven = proof_ns > wanted.asked_ns or self._watch.is_whole(message.server, message.topic)
        if proof is None or not is_proven or self.replacement(message, proof_ns) is not None:
            result.advice = (KEEPS,)
            if proof is None and self._is_due(message, key, client, wanted):
                over = "the capture ends" if self._watch.now_ns < end_ns else "its connection ended"
                result.outcome += (
                    ", and the broker did not send it this retained message (3.3.1.3) in the"
                    f" {describe.span(over_ns - wanted.asked_ns)} until {over}"
                )
                result.fate, result.advice = Fate.NOT_SENT, (KEEPS, ACCESS)
                return
            stop = self._stop(message, wanted) if self._watch.is_whole(message.server, message.topic) else None
            if stop is not None and message.answer is not None:
                result.outcome += f"{stop_text(stop, '; between these, ')}: it may have lost its retained messages then"
                result.advice = (PERSISTENCE,)
            return
        proven = f"the broker kept it: {proof.text} (frame {proof.frame})"
        is_due = wanted.asks_for_retained and wanted.granted_ns is not None and client.gap_ns < wanted.asked_ns
        if is_due and until_ns > over_ns:
            which = "the capture" if self._watch.now_ns < end_ns else "its connection"
            result.outcome += f"; {which} ends {describe.span(over_ns - wanted.asked_ns)} after that, and {proven}"
        elif not is_due or message.expires_ns <= until_ns or (wanted.ended_ns or NEVER) < until_ns:
            result.outcome += f"; {proven}"
        elif (stop := self._stop(message, wanted)) is not None and proof_ns < stop.ended_ns:
            result.outcome += (
                f", and the broker did not send it this retained message: {proof.text} (frame {proof.frame})"
                f"{stop_text(stop, ', then ')}, and most probably lost its retained messages by that"
            )
            result.fate, result.advice = Fate.NOT_SENT, (PERSISTENCE,)
        elif key in message.got:
            result.outcome += f", and the broker did not send it this retained message (3.3.1.3); {proven}"
            result.fate = Fate.NOT_SENT
            result.advice = (LOST if proof_ns < wanted.asked_ns else UNANSWERED,)
        else:
            result.outcome += f", and the broker did not send it this retained message (3.3.1.3); {proven}"
            is_wildcard = "+" in wanted.plain_filter or "#" in wanted.plain_filter
            is_usual = is_wildcard and client.server in self._watch.wildcard_answers
            result.fate = Fate.NOT_SENT
            result.advice = (WILDCARDS, ACCESS) if is_wildcard and not is_usual else (ACCESS,)

    def _is_due(self, message: Published, key: Key, client: Subscriber, wanted: Wanted) -> bool:
        """Whether a broker should have sent a message for a SUBSCRIBE, without a proof that it kept the message.

        It had acknowledged the message with success, and no stop, will, later message or other origin is known that
        removed or replaced the copy.
        """
        until_ns, source = wanted.asked_ns + SECOND, message.source
        return (
            is_stored(message, wanted.asked_ns, until_ns, wanted.largest)
            and wanted.asks_for_retained
            and not (wanted.no_local and key == message.key)
            and wanted.granted_ns is not None
            and (wanted.code or 0) < FAILURE
            and client.gap_ns < wanted.asked_ns
            and not client.full_until(wanted.asked_ns)
            and until_ns <= min(self._watch.now_ns, client.ends.get(wanted.connection, (NEVER, 0))[0])
            and until_ns <= (wanted.ended_ns or NEVER)
            and source.retain_available
            and (source.closed_by != "server" or source.closed_ns > wanted.asked_ns)
            and self._watch.is_whole(message.server, message.topic)
            and self._stop(message, wanted) is None
            and self.replacement(message, NEVER) is None
        )

    def _is_left_out(self, message: Published, key: Key, client: Subscriber, wanted: Wanted) -> bool:
        """Whether the broker should have answered a SUBSCRIBE with this message, as it did with another one."""
        another = wanted.retained
        if another is None:
            return False
        reader, source, until_ns = another.reader, message.source, another.timestamp_ns + SECOND
        is_open = source.closed_how in (None, "capture_end") or source.closed_ns > wanted.asked_ns
        return (
            is_open  # so that the broker did not restart
            and is_stored(message, wanted.asked_ns, until_ns, reader.client_side.maximum_packet_size)
            and not (wanted.no_local and key == message.key)
            and wanted.granted_ns is not None
            and (wanted.code or 0) < FAILURE
            and until_ns <= min(self._watch.now_ns, client.ends.get(reader.number, (NEVER, 0))[0])
            and until_ns <= (wanted.ended_ns or NEVER)
            and not (reader.one_sided or reader.server_side.gapped)
            and not reader.server_side.exchanges
            and self._watch.is_whole(message.server, message.topic)
            and not any(
                other is not message
                and other.topic == message.topic
                and (key in other.got or (other.retain and other.latest_ns > message.timestamp_ns - SECOND))
                for other in self._watch.published.values()
            )
        )


def stop_text(stop: Explanation | None, before: str) -> str:
    """A stop of a broker as words after others; empty without a stop."""
    if stop is None:
        return ""
    headline = stop.first.headline
    return f"{before}{headline[0].lower()}{headline[1:].removesuffix('.')} (frame {stop.ended_frame})"


def is_released(message: Published) -> bool:
    """Whether its broker may not wait for PUBREL before it takes the message (4.3.3)."""
    return message.qos < EXACTLY_ONCE or message.released


def is_stored(message: Published, asked_ns: int, until_ns: int, largest: int | None) -> bool:
    """Whether a broker had acknowledged a retained message by a time, and a client could get it until another time."""
    answered_ns = None if message.answer is None else message.answer.timestamp_ns
    return (
        answered_ns is not None
        and answered_ns <= asked_ns
        and message.retain
        and not message.is_removal
        and (message.code or 0) < FAILURE
        and is_released(message)
        and (largest is None or 2 * message.size <= largest)  # a broker may add properties
        and until_ns < message.expires_ns
        and not message.source.client_side.gapped
    )
