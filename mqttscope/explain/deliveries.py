"""The fate of a message for one client, and why it did not arrive."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import replace
from typing import Protocol

from mqttscope.explain import describe
from mqttscope.explain.arrivals import (
    ACKNOWLEDGE,
    AGAIN,
    ALARM,
    BUFFER,
    CLUSTER,
    EXPIRED,
    KEEP,
    LARGER,
    RETRY,
    SUBSCRIBE_AGAIN,
    held_back,
    lapse,
    limit_after_return,
    not_ended,
    over_limit,
    unheard,
    uninvited,
    unprocessed,
    unreleased,
)
from mqttscope.explain.changed_topics import ChangedTopics, advice
from mqttscope.explain.duplicates import members_beside
from mqttscope.explain.fates import (
    EXACTLY_ONCE,
    IGNORED_NS,
    MANY,
    NEVER,
    QUEUE,
    SECOND,
    Delivery,
    Fate,
    Got,
    Held,
    Published,
    Subscriber,
    Wanted,
    due_ns,
    suspects,
)
from mqttscope.explain.model import Explanation
from mqttscope.explain.nearness import MAX_COMPARED_LENGTH, likeness
from mqttscope.explain.origins import Origins
from mqttscope.explain.pauses import PauseWatch
from mqttscope.explain.retained_answers import ACCESS, RetainedAnswers, stop_text
from mqttscope.explain.size_limits import SIZE, SizeLimit, size_limit
from mqttscope.explain.surplus_copies import several_copies
from mqttscope.mqtt import PacketType
from mqttscope.mqtt.topics import matches
from mqttscope.mqtt.wire import counted
from mqttscope.session.matching import FAILURE

MAX_COMPARED = 500_000
"""Maximum number of comparisons of topics with filters that do not match them."""


class _Making(Protocol):
    """Makes the fate of a client, with the place that shows it."""

    def __call__(self, fate: Fate, text: str, *advice: str, frame: int = 0, now: int = 0) -> Delivery: ...


class Watched(Protocol):
    """The messages and clients that `messages.MessageWatch` has read."""

    clients: OrderedDict[tuple[str, str], Subscriber]
    published: dict[int, Published]
    filters: dict[str, dict[tuple[str, str], None]]
    """Clients by what their filters are compared with."""
    now_ns: int
    short_sessions: OrderedDict[int, str]
    """Why the session of a connection ends with it, as words, by the number of the connection."""
    origins: Origins
    pauses: PauseWatch
    changes: ChangedTopics
    stops: deque[Explanation]
    used_shares: set[tuple[str, str]]
    """Servers and the shares that they sent messages to."""
    compared: int
    """Number of comparisons of topics with filters."""
    uncompared: int
    """Topics beyond `MAX_COMPARED`."""

    wildcard_answers: set[str]
    """Hosts of the brokers that sent a retained message for a filter with a wildcard."""
    exactly_once: set[str]
    """Hosts of the brokers that sent a PUBREC."""

    def is_whole(self, server: str, topic: str) -> bool: ...


class Deliveries:
    """Decides what became of messages."""

    def __init__(self, watch: Watched) -> None:
        self._watch = watch
        self.answers = RetainedAnswers(watch)
        self._sent: dict[tuple[str, str, tuple[str, str]], list[Got]] = {}
        """Messages that were sent to clients, by host of the broker, topic and client."""
        self._changes: set[tuple[str, str]] | None = None
        """Changes of topics that brokers most probably make."""
        self._sizes: dict[tuple[str, tuple[str, str]], SizeLimit | None] = {}
        """Size limits by topic and client."""
        self._servers: dict[str, list[str]] | None = None
        """Hosts of the servers of each Client Identifier."""
        self._near_topics: dict[str, dict[str, tuple[float, str]]] = {}
        """Filters that are like a topic and do not match it, with the difference in words, by topic."""

    def of(self, message: Published, key: tuple[str, str], client: Subscriber) -> list[tuple[Delivery, Held | None]]:
        """The fates of the copies that a client needed; an empty list if the message does not concern the client.

        Copies with equal fates are combined, and optional copies are left out if there are others.
        """
        copies = message.got.get(key, {})
        fates: list[tuple[Delivery, Held | None]] = [
            (self._received(message, key, client, share, got), None) for share, got in copies.items()
        ]
        known = [held for held in message.held.get(key, ()) if held.best(message, key).since_ns <= message.timestamp_ns]
        if not fates and not known:
            nearest = self._without(message, key, client)
            return [] if nearest is None else [(nearest, None)]
        due = [held for held in known if held.best(message, key).applies(message, key)]
        missing = [held for held in due or known if held.share not in copies]
        fates += [(self._missing(message, key, client, held), held) for held in missing if due or not copies]
        fates += [(later, None) for later in self.answers.later(message, key, client)]
        concerned = [pair for pair in fates if pair[0].fate not in (Fate.NOT_CONCERNED, Fate.NO_SUBSCRIPTION)]
        by_text = {
            (pair[0].fate, pair[0].outcome if pair[1] else ""): pair for pair in reversed(concerned or fates[:1])
        }
        return list(reversed(by_text.values()))

    def _received(self, message: Published, key: tuple[str, str], client: Subscriber, share: str, got: Got) -> Delivery:
        """The fate of a copy that the broker sent."""
        first, got = got, got.best
        after = describe.span(got.timestamp_ns - message.timestamp_ns)
        waited, advice = self._waited(message, key, client, share, first)
        sent, again = f"was sent it {after} later", ""
        if got is not first:
            earlier = describe.span(first.timestamp_ns - message.timestamp_ns)
            number = got.connection
            again = f", sent again on #{number}: nothing acknowledged it when it was first sent, {earlier} later"
            sent = f"was sent it {earlier} later, and again on #{number}, {after} later"
        more, remark = "", "waited for a member of a share that was away" if share and waited else ""
        if first.echo:
            more, remark = first.echo, "came more than once, most probably through another broker"
        late = held_back(self._watch, message, got)
        if late:
            more, remark, advice = late
        dropped = "" if share else unheard(got, self._copies(message, key), self._watch.now_ns)
        if dropped:
            more += dropped
            remark, advice = "came to the host of a client, and its program most probably dropped them", (BUFFER,)
        if first.passed_on:
            times = "once" if first.passed_on == 1 else f"{first.passed_on:,} times"
            more = f", and {times} more: the broker passed on what {message.client} had sent again{more}"
            remark = "came more than once, since their publishers sent them again"
        several = several_copies(message, key, share, first)
        if several and not more:
            more, remark, advice = several
        if share:
            more += members_beside(message, key, share, self._watch.clients)
        if got.repetition is not None:
            more = got.repetition.by_broker(got.timestamp_ns, got.answered_ns) + more
            advice, remark = (*advice, RETRY), "came more than once, since the broker sent them again"
        more = (uninvited(message, client, got) or not_ended(message, client)) + more
        held = unreleased(got, self._watch.now_ns)
        if held:
            more, remark, advice = more + held[0], "got no PUBREL of the broker", (held[1],)
        fate, text = Fate.DELIVERED, f"received it {after} later{waited}{again}{more}"
        lapsed = None if share else lapse(client, first.last, self._watch.now_ns)
        is_abandoned = (
            got.is_abandoned
            and client.garbled_ns < got.timestamp_ns
            and (not message.is_with_share(share) if share else got.is_silent)
        )
        if not got.arrived:
            fate, text = Fate.NOT_ACKNOWLEDGED, f"{sent}, and nothing acknowledged it"
            if got.is_left:
                moment = describe.span(abs(got.reader.closed_ns - got.timestamp_ns))
                place = "after" if got.reader.closed_ns >= got.timestamp_ns else "before"
                text += f": it closed its connection itself {moment} {place} that"
            else:
                advice = ("Look at the link of the client at that time: signal, power, NAT.",)
        elif is_abandoned:
            fate = Fate.NOT_ACKNOWLEDGED
            text = f"{sent}, and did not acknowledge it before its connection and its session ended"
            if not share:
                text += ": TCP may have brought it, and the broker cannot send it again"
                advice = ("Let the client keep its session (Session Expiry Interval, or Clean Session 0).",)
        elif lapsed is not None and client.garbled_ns < got.timestamp_ns:
            fate, advice = Fate.NOT_ACKNOWLEDGED, (lapsed[1],)
            text = f"{sent}, and did not acknowledge it before its connection ended; {lapsed[0]}"
        elif got.ignored_ns >= IGNORED_NS and client.garbled_ns < got.timestamp_ns:
            fate, wrong = Fate.NOT_ACKNOWLEDGED, client.zero_answer(got.timestamp_ns)
            text = f"{sent}, and did not acknowledge it in the {describe.span(got.ignored_ns)} in which it sent other"
            text += " packets: TCP brought it, and the program of the client most probably dropped it"
            advice = ("Check how the client handles several packets of one read, and messages that it cannot handle.",)
            if wrong:
                text = f"{sent}, and answered {wrong}, so that the broker has no acknowledgment and may send it again"
                advice = ("Let the client answer with the Packet Identifier of the message.",)
        elif got is not first and not got.is_acknowledged:
            fate, text = Fate.NOT_CAPTURED, f"{sent}, and the capture does not have an acknowledgment of it"
        if is_abandoned and share and self._watch.now_ns >= got.reader.closed_ns + SECOND:
            text += "; no other captured member of the share got it, to which a server should send it then (5.0 4.8.2)"
            advice = (*advice, "Look whether the broker sends what a member leaves unacknowledged to another one.")
        return Delivery(
            client.name, got.connection, fate, text, got.frame, got.timestamp_ns, got.capture, advice,
            remark=remark if fate is Fate.DELIVERED else "",
        )  # fmt: skip

    def _copies(self, message: Published, key: tuple[str, str]) -> list[Got]:
        """All messages of the topic that a client was sent."""
        place = message.server, message.topic, key
        if place not in self._sent:
            self._sent[place] = [
                copy
                for other in self._watch.published.values()
                if (other.server, other.topic) == place[:2]
                for copy in other.got.get(key, {}).values()
            ]
        return self._sent[place]

    def _not_again(self, message: Published) -> str:
        publisher = self._watch.clients.get(message.key)
        for now_ns, frame, _, number in publisher.returns if publisher and message.qos else ():
            if now_ns > message.last_ns and message.repetition is None:
                return f", and {message.client}, back as #{number} (frame {frame}), did not send it again"
        return ""

    def _waited(
        self, message: Published, key: tuple[str, str], client: Subscriber, share: str, got: Got
    ) -> tuple[str, tuple[str, ...]]:
        """Why a message came on a later connection than the last message before it, and advice.

        The session of the client outlived that connection, which had ended before the message was published.  Other
        members of a share that were connected then could have got the message: a broker may choose any member with a
        session (5.0 4.8.2), and that breaks no rule.
        """
        held = next((each for each in message.held.get(key, ()) if each.share == share), None)
        if held is None or held.number == got.connection:
            return "", ()
        is_cut = 0 < client.ends.get(held.number, (0, 0))[0] <= message.timestamp_ns
        keeps = held.keeps or (held.reader is not None and bool(held.reader.keeps_session))
        if (held.online and not is_cut) or not keeps:
            return "", ()
        text = f" on #{got.connection}: it was away when the message was published, and the broker kept it"
        if not share:
            return text, ()
        others = [
            member.name
            for other, needs in message.held.items()
            if other != key and any(each.share == share and each.online for each in needs)
            if (member := self._watch.clients.get(other)) is not None
        ]
        text += f" for this member of the share ({describe.name(share)})"
        if others:
            names = ", ".join(others[:2]) + (f" and {len(others) - 2:,} more" if len(others) > 2 else "")
            text += f", although {names} {'was' if len(others) == 1 else 'were'} connected"
        return text, ("Let members of a share unsubscribe, or end their sessions, before they go away.",)

    def _missing(self, message: Published, key: tuple[str, str], client: Subscriber, held: Held) -> Delivery:
        """The fate of a copy that the client needed and did not get."""
        wanted = held.best(message, key)
        name, number = describe.name(wanted.topic_filter), held.number

        def make(
            fate: Fate, text: str, *advice: str, frame: int = wanted.frame, now: int = wanted.asked_ns
        ) -> Delivery:
            return Delivery(client.name, number, fate, text, frame, now, wanted.capture, advice)

        is_refused = wanted.code is not None and wanted.code >= FAILURE
        if wanted.is_presumed and not is_refused and (message.server, wanted.share) not in self._watch.used_shares:
            return make(
                Fate.NO_SUBSCRIPTION, f"has {name}, through which the broker sent nothing: before MQTT 5.0 a broker may"
                " take that for an ordinary filter, which the topic does not match",
                "Look whether the broker has Shared Subscriptions for MQTT 3.1.1.",
            )  # fmt: skip
        if wanted.ended_ns is not None and wanted.ended_ns <= message.timestamp_ns:
            ago = describe.span(message.timestamp_ns - wanted.ended_ns)
            if wanted.with_session:
                return make(
                    Fate.SESSION_GONE, f"its subscription to {name} had ended with its session {ago} before (Session"
                    " Present 0), and it had not subscribed again", *(AGAIN if wanted.is_lost else (KEEP,)),
                    frame=wanted.ended_frame, now=wanted.ended_ns,
                )  # fmt: skip
            return make(
                Fate.UNSUBSCRIBED, f"had ended its subscription to {name} {ago} before", frame=wanted.ended_frame,
                now=wanted.ended_ns,
            )  # fmt: skip
        if is_refused:
            return make(
                Fate.SUBSCRIPTION_REFUSED,
                f"the broker refused its subscription to {name} ({describe.code(wanted.code or 0)})",
                "Allow the subscription in the broker's access rules, and let the client read the codes of a SUBACK.",
            )
        if message.code is not None and message.code >= 0x80:
            return make(
                Fate.MESSAGE_REFUSED, f"the broker refused the message ({describe.code(message.code)})",
                "Allow the publisher to write to the topic (0x87), or raise the quota (0x97).",
            )  # fmt: skip
        if wanted.no_local and key == message.key:
            return make(Fate.NOT_CONCERNED, f"published it itself, and its subscription to {name} has No Local")
        if held.share in message.shares:
            got = "got it" if message.is_with_share(held.share) else "was sent it"
            return make(Fate.NOT_CONCERNED, f"another member of the share {got} ({name})")
        if (
            message.qos == EXACTLY_ONCE
            and not message.released
            and message.answer is not None
            and self._watch.now_ns >= (message.answer.timestamp_ns or 0) + SECOND
            and not message.source.client_side.gapped
        ):
            return make(
                Fate.NOT_RELEASED, f"{message.client} never released it: it sent no PUBREL after the PUBREC",
                "Let the publisher answer each PUBREC with PUBREL, also after it has reconnected.", frame=message.frame,
                now=message.timestamp_ns,
            )  # fmt: skip
        cut = self._cut_off(message)
        if cut:
            return make(
                Fate.NOT_RECEIVED, cut, f"Look why the broker closed that connection: explain --connection"
                f" {message.source.number}.", frame=message.source.closed_frame, now=message.source.closed_ns,
            )  # fmt: skip
        if not message.is_received:
            return make(
                Fate.NOT_RECEIVED, f"nothing shows that the broker received the message{self._not_again(message)}",
                frame=message.frame, now=message.timestamp_ns,
            )  # fmt: skip
        if waits := unprocessed(self._watch, message, key):
            return make(Fate.NOT_RECEIVED, waits, ALARM, frame=message.frame, now=message.timestamp_ns)
        parts = [
            part
            for part in client.parts.get(message.topic, ())
            if part[0] >= message.timestamp_ns and message.is_like(part[2])
        ]
        # The beginning may belong to any of several messages.
        if parts and not any(
            other is not message
            and other.topic == message.topic
            and other.is_like(parts[0][2])
            and key not in other.got
            for other in self._watch.published.values()
        ):
            often = "" if len(parts) == 1 else f" {len(parts)} times"
            return make(
                Fate.CONNECTION_ENDED, f"was sent the beginning of it{often}, and the connection ended before the rest",
                "Look why the connection ended inside the message: it may be larger than the client takes.",
                frame=parts[0][1], now=parts[0][0],
            )  # fmt: skip
        ended_ns, ended_frame = client.ends.get(held.number, (0, 0))
        if held.online and 0 < ended_ns <= message.timestamp_ns:
            held = replace(held, online=False, left_ns=ended_ns, left_frame=ended_frame)
        if held.online:
            return self._online(message, key, client, held, wanted, make)
        return self._offline(message, client, held, wanted, make)

    def _cut_off(self, message: Published) -> str:
        """Words about a broker that closed the connection of the publisher right after the message; else empty.

        The broker sent nothing but DISCONNECT after the message, and nobody got it.  With QoS 0 it has to be the last
        packet of the publisher.  An answer or a delivery disproves it; a broker that took the message and crashed
        within the second looks alike.
        """
        source = message.source
        closed_after_ns = source.closed_ns - message.last_ns
        if source.closed_by != "server" or source.disconnect_by == "client" or not 0 <= closed_after_ns <= SECOND:
            return ""
        if message.answer is not None or message.is_answer_unknown or message.got:
            return ""
        if source.one_sided or source.server_side.gapped:
            return ""
        if source.disconnect_by != "server" and (source.server_side.last_timestamp_ns or 0) > message.last_ns:
            return ""
        if not message.qos and (source.client_side.last_timestamp_ns or 0) > message.last_ns:
            return ""
        why = ""
        if source.disconnect_by == "server":
            reason = describe.reason(PacketType.DISCONNECT, source.disconnect_reason or 0, source.version)
            why = f" with DISCONNECT {reason}"
        after = f"{describe.span(closed_after_ns)} after the message (frame {source.closed_frame})"
        never = " and never acknowledged it" if message.qos else ""
        text = f"the broker closed the connection of {message.client}{why} {after}{never}"
        return f"{text}: nothing shows that it took it"

    def _online(
        self, message: Published, key: tuple[str, str], client: Subscriber, held: Held, wanted: Wanted, make: _Making
    ) -> Delivery:
        name = describe.name(wanted.topic_filter)
        if limit_text := over_limit(message, client, wanted, held.largest):
            return make(Fate.TOO_LARGE, limit_text, LARGER)
        if held.one_sided or client.gap_ns >= message.timestamp_ns - SECOND:
            return make(Fate.NOT_CAPTURED, "the capture lacks bytes that the broker sent it: it may have come")
        if not message.is_whole:
            return make(Fate.NOT_CAPTURED, "the capture lacks bytes of the message: it may have come")
        renamed = self._renamed(message, key, wanted, make)
        if renamed is not None:
            return renamed
        until_ns = client.full_until(due_ns(message)) or (
            held.full and (client.full_until(message.timestamp_ns) or NEVER)
        )
        if until_ns:
            used = "its Receive Maximum was used up: it had not acknowledged earlier messages"
            if not min(message.qos, wanted.qos):
                used += "; a broker may hold back QoS 0 then, too"
            elif until_ns + SECOND <= min(self._watch.now_ns, client.ends.get(held.number, (NEVER, 0))[0]):
                after = describe.span(until_ns - message.timestamp_ns)
                used += f"; it acknowledged one {after} after the message, and the broker did not send it then either"
                return make(Fate.QUOTA_FULL, used, ACKNOWLEDGE, QUEUE)
            return make(Fate.QUOTA_FULL, used, ACKNOWLEDGE)
        # Two connections have no common order: the broker may have taken the later of two packets first.
        if held.number != message.connection:
            if wanted.granted_ns is None or wanted.granted_ns > message.timestamp_ns:
                asked = f"asked for {name} {describe.span(message.timestamp_ns - wanted.asked_ns)} before"
                is_late = message.timestamp_ns - wanted.asked_ns >= SECOND and client.gap_ns < wanted.asked_ns
                if wanted.granted_ns is None and is_late:
                    return self._unanswered(wanted, asked, make)
                text = "no SUBACK was captured"
                if wanted.granted_ns is not None:
                    text = (
                        f"its SUBACK came {describe.span(wanted.granted_ns - message.timestamp_ns)} after the message"
                    )
                return make(Fate.SUBSCRIBED_LATER, f"{asked}, and {text}: the broker may have taken the message first")
            if wanted.ended_ns is not None and not wanted.with_session and wanted.ended_ns <= due_ns(message):
                later = describe.span(wanted.ended_ns - message.timestamp_ns)
                return make(
                    Fate.UNSUBSCRIBED, f"ended its subscription to {name} {later} later", frame=wanted.ended_frame,
                    now=wanted.ended_ns,
                )  # fmt: skip
        backlog = held.backlog(message.timestamp_ns)
        if backlog:
            return make(Fate.STALLED, backlog, "Let the client read what comes, or subscribe to less.")
        if wanted.share:
            return self._of_the_share(message, client, make, wanted)
        limit = self._size_limit(message, key)
        if limit is not None and message.size >= limit.smallest:
            result = make(Fate.NOT_SENT, f"should have got it: {limit.text}", limit.advice)
            result.group = key, f"{SIZE}{message.topic}"
            return result
        if self._is_between(message, key, held.number):
            return make(
                Fate.NOT_SENT, f"should have got it: the broker sent it messages of {message.client} to this topic"
                " before and after, so that no access rule is the reason", QUEUE,
            )  # fmt: skip
        end_ns, end_frame = client.ends.get(held.number, (0, 0))
        after = describe.span(end_ns - message.timestamp_ns)
        if message.timestamp_ns <= end_ns <= due_ns(message):
            back = next((each for each in client.returns if each[0] >= end_ns), None)
            ended = f"its connection ended {after} after the message was published"
            place = {"frame": end_frame, "now": end_ns}
            if back is not None and back[2] and min(message.qos, wanted.qos) and self._watch.now_ns >= back[0] + SECOND:
                return make(
                    Fate.NOT_SENT,
                    f"{ended}; it resumed its session as #{back[3]}, and the broker did not send the message in this"
                    " capture", "Look at the limit of the broker's queue for clients that are away.", **place,
                )  # fmt: skip
            return make(Fate.CONNECTION_ENDED, ended, **place)
        until = f"before its connection ended {after} later" if end_ns > message.timestamp_ns else "in this capture"
        if end_ns <= message.timestamp_ns and self._watch.now_ns < message.timestamp_ns + SECOND:
            return make(Fate.NOT_CAPTURED, self._ends_after(message.timestamp_ns, "the message"))
        # Access rules most probably allow this topic: other messages of this publisher came to it.
        came = any(
            (other.topic, other.key) == (message.topic, message.key) and key in other.got
            for other in self._watch.published.values()
        )
        advice = "Acknowledge each message in the client, or raise the limit of the broker."
        window = held.window(message.timestamp_ns, min(self._watch.now_ns, end_ns or NEVER), client.most_in_flight)
        if window and min(message.qos, wanted.qos) and client.garbled_ns == -NEVER:
            return make(Fate.STALLED, window, advice, *(() if came else suspects(message, queued=True)))
        queue = self._queue(message, key, held, wanted)
        forbidden = "" if queue or came else self._forbidden(message, key, client, held, wanted)
        if forbidden:
            return make(
                Fate.NOT_SENT,
                f"should have got it: it is subscribed to {name}, and the broker did not send it {until}; {forbidden}",
                ACCESS,
            )
        return make(
            Fate.NOT_SENT,
            f"should have got it: it is subscribed to {name}, and the broker did not send it {until}{queue}",
            *(
                (QUEUE, advice)
                if came and held.in_flight and queue
                else suspects(message, queued=bool(queue), is_allowed=came)
            ),
        )

    def _size_limit(self, message: Published, key: tuple[str, str]) -> SizeLimit | None:
        """The size limit that a client meets with the messages of a topic."""
        place = message.topic, key
        if place not in self._sizes:
            messages = self._watch.published.values()
            self._sizes[place] = size_limit(messages, key, message.topic, self._watch.now_ns)
        return self._sizes[place]

    def _renamed(self, message: Published, key: tuple[str, str], wanted: Wanted, make: _Making) -> Delivery | None:
        """The fate of a message that the broker sent with another topic, if that explains what the client got."""
        if self._changes is None:
            self._changes = self._watch.changes.proven(self._watch.published.values())
        copies = [] if message.got else self._watch.changes.of(message, self._changes)
        if not copies:
            return None
        own = next((copy for copy in copies if copy.key == key), None)
        copy = own or copies[0]
        after, name = describe.span(copy.timestamp_ns - message.timestamp_ns), describe.name(copy.topic)
        how = f"the broker most probably changes the topic ({copy.how})"
        if own is not None:
            text = f"received its payload {after} later as {name} instead (frame {copy.frame}): {how}"
        elif matches(wanted.plain_filter, copy.topic, shared=False):
            return None
        else:
            text = (
                f"its subscription to {describe.name(wanted.topic_filter)} does not match {name}; the broker sent this"
                f" payload under that topic to {copy.client} {after} later (frame {copy.frame}): {how}"
            )
        return make(Fate.TOPIC_CHANGED, text, advice(copy.how), frame=copy.frame, now=copy.timestamp_ns)

    def _forbidden(
        self, message: Published, key: tuple[str, str], client: Subscriber, held: Held, wanted: Wanted
    ) -> str:
        """Evidence that an access rule keeps a client from a topic, or empty.

        The client got none of at least two messages to the topic that were due to it, another client got all of them,
        and after this one the broker sent the client messages of other topics, with QoS 1 or 2 if this one has it.
        These contradict a full queue and a limit of the rate.
        """
        alike = [
            other
            for other in self._watch.published.values()
            if (other.server, other.topic) == (message.server, message.topic)
            and any(each.online and each.best(other, key).applies(other, key) for each in other.held.get(key, ()))
        ]
        readers = set(message.got).intersection(*(other.got for other in alike)) - {key}
        if len(alike) < 2 or any(key in other.got for other in alike) or not readers:
            return ""
        is_sure = bool(min(message.qos, wanted.qos))
        others = client.sent_surely - held.sent[1] if is_sure else client.sent - held.sent[0]
        others += sum(
            other.topic != message.topic
            and (not is_sure or copy.needs_answer)
            and copy.timestamp_ns > message.timestamp_ns
            for other in self._watch.published.values()
            for copy in other.got.get(key, {}).values()
        )
        if not others:
            return ""
        reader = min(self._watch.clients[other].name for other in readers if other in self._watch.clients)
        return (
            f"it got none of the {len(alike):,} messages to this topic, {reader} got all, and the broker sent it"
            f" {counted(others, 'other message')} after this one: most probably an access rule, and no full queue"
        )

    @staticmethod
    def _unanswered(wanted: Wanted, asked: str, make: _Making) -> Delivery:
        """The fate of a message for which a client had asked for long, without a SUBACK."""
        if wanted.rival:
            return make(
                Fate.SUBSCRIBED_LATER,
                f"{asked}, with the Packet Identifier of its SUBSCRIBE in frame {wanted.rival}, which was not answered;"
                " not each of them got a SUBACK, and nothing shows that the broker has this subscription",
                "Give each SUBSCRIBE a Packet Identifier that is not in use, or put all Topic Filters into one"
                " SUBSCRIBE.",
            )
        return make(
            Fate.SUBSCRIBED_LATER, f"{asked}, and no SUBACK was captured: nothing shows that the broker has the"
            " subscription", "Look in the log of the broker for this SUBSCRIBE; a client should wait for the SUBACK.",
        )  # fmt: skip

    def _queue(self, message: Published, key: tuple[str, str], held: Held, wanted: Wanted) -> str:
        """Evidence that the broker's queue for the client may have been full, or empty."""
        if not min(message.qos, wanted.qos):
            return ""
        if held.in_flight:
            return f"; it had not acknowledged {counted(held.in_flight, 'message')} of the broker then"
        before = (other for other in self._watch.published.values() if other.timestamp_ns < message.timestamp_ns)
        away = sum(
            any(not each.online and each.keeps for each in other.held.get(key, ())) and key not in other.got
            for other in before
            if other.qos
        )
        return f"; {away:,} messages for it from when it was away have not been sent either" if away >= MANY else ""

    def _offline(self, message: Published, client: Subscriber, held: Held, wanted: Wanted, make: _Making) -> Delivery:
        back = next((each for each in client.returns if each[0] > message.timestamp_ns), None)
        was, name = "was not connected", describe.name(wanted.topic_filter)
        if held.left_ns:
            was += f" (since {describe.span(message.timestamp_ns - held.left_ns)})"
        place = {"frame": held.left_frame, "now": held.left_ns}
        if not held.keeps:
            why = self._watch.short_sessions.get(held.number, "")
            return make(
                Fate.SESSION_GONE,
                f"{was}, and its session had ended with its connection" + (f": {why}" if why else ""),
                SUBSCRIBE_AGAIN if "no Session Expiry" in why and client.resumes else KEEP, **place,
            )  # fmt: skip
        if back is not None and not back[2] and back[0] >= held.expires_ns:
            interval = f"Session Expiry Interval {(held.expires_ns - held.left_ns) // SECOND:,} s"
            text = f"{was}, and its session had expired before it came back as #{back[3]} ({interval})"
            return make(Fate.SESSION_GONE, text, EXPIRED, **place)
        if back is not None and not back[2]:
            return make(
                Fate.SESSION_GONE, f"{was}, and came back as #{back[3]} without its session (Session Present 0)"
                + stop_text(self.answers.stop(message.server, held.left_ns - 1, back[0]), "; between these, "),
                *(AGAIN if client.number == back[3] and client.resumes else (KEEP,)), **place,
            )  # fmt: skip
        if min(message.qos, wanted.qos) == 0:
            whose = f"its subscription to {name} has QoS 0" if message.qos else "the message has QoS 0"
            which = "Subscribe" if message.qos else "Publish" if wanted.qos else "Publish and subscribe"
            return make(
                Fate.OFFLINE, f"{was}; {whose}, and brokers need not keep messages of QoS 0 for it",
                f"{which} with QoS 1, so that the broker keeps messages for clients that are away.", **place,
            )  # fmt: skip
        if back is None:
            return make(Fate.OFFLINE, f"{was}, and did not come back in the capture", **place)
        if message.expiry is not None and back[0] - message.timestamp_ns >= message.expiry * SECOND:
            return make(
                Fate.EXPIRED, f"{was} for longer than the message was to live ({message.expiry} s)",
                "Raise the Message Expiry Interval of the publisher.", **place,
            )  # fmt: skip
        if self._watch.now_ns < back[0] + SECOND:
            return make(Fate.NOT_CAPTURED, f"{was}; {self._ends_after(back[0], f'it came back as #{back[3]}')}")
        if wanted.share:
            return self._of_the_share(message, client, make, wanted)
        limit = limit_after_return(message, client, wanted, back[0], back[3], self._watch.now_ns)
        if limit is not None:
            return make(limit[0], f"{was}; {limit[1]}", limit[2], **place)
        return make(
            Fate.NOT_SENT,
            f"{was}; it resumed its session as #{back[3]}, and the broker did not send the message in this capture",
            "Look at the limit of the broker's queue for clients that are away.", **place,
        )  # fmt: skip

    def _of_the_share(self, message: Published, client: Subscriber, make: _Making, wanted: Wanted) -> Delivery:
        """The fate of a message that no captured member of the share received."""
        name = describe.name(wanted.topic_filter)
        for key, needs in message.held.items():
            other = self._watch.clients.get(key)
            theirs = next((held for held in needs if held.share == wanted.share), None)
            if other is None or other is client or theirs is None or theirs.online or not theirs.keeps:
                continue
            if theirs.best(message, key).applies(message, key):
                return make(
                    Fate.OTHER_MEMBER, f"{other.name}, which was away with its session, is a member of the share"
                    f" ({name}) too: the broker may have kept its copy for it",
                    "Let members of a share that go away for long end their sessions.",
                )  # fmt: skip
        return make(
            Fate.OTHER_MEMBER,
            f"another member of the share ({name}) may have got its copy, which the capture does not have",
            "Capture at the broker, and look there which clients are members of the share.",
        )

    def _is_between(self, message: Published, key: tuple[str, str], number: int) -> bool:
        """Whether a client was sent messages of this publisher, topic and QoS before and after this message.

        The later one came on the connection with this number, so the end of that connection is not the reason.
        """
        alike = [
            other
            for other in self._watch.published.values()
            if key in other.got and (other.key, other.topic, other.qos) == (message.key, message.topic, message.qos)
        ]
        return any(other.timestamp_ns < message.timestamp_ns for other in alike) and any(
            other.timestamp_ns > message.timestamp_ns and copy.connection == number
            for other in alike
            for copy in other.got[key].values()
        )

    def _without(self, message: Published, key: tuple[str, str], client: Subscriber) -> Delivery | None:
        """Nothing matched when it was published: something did later, or something is like it."""
        for wanted in sorted(client.filters.values(), key=lambda each: bool(each.share)):
            if not matches(wanted.plain_filter, message.topic, shared=False):
                continue
            first = wanted.first_after(message.timestamp_ns)
            if first is None and wanted.since_ns > message.timestamp_ns:
                after = describe.span(wanted.asked_ns - message.timestamp_ns)
                text = f"asked for {describe.name(wanted.topic_filter)} {after} later, and the broker refused it"
                return Delivery(
                    client.name, client.number, Fate.SUBSCRIPTION_REFUSED,
                    f"{text} ({describe.code(wanted.code or 0)})", wanted.frame, wanted.asked_ns, wanted.capture,
                )  # fmt: skip
            if first is not None:
                wanted = first
                after = describe.span(wanted.since_ns - message.timestamp_ns)
                early = wanted.asked_ns <= message.timestamp_ns
                when = f", and its connection was accepted {after} later" if early else f" {after} later"
                text = f"subscribed to {describe.name(wanted.topic_filter)}{when}"
                if message.retain and not message.is_removal and not wanted.share:
                    return self.answers.fate(message, key, client, wanted, text)
                moved = self._moved(message, key, client)
                if moved:
                    return Delivery(
                        client.name, client.number, Fate.SESSION_GONE, f"{moved}; {text}", client.began[1],
                        client.began[0], wanted.capture, (CLUSTER,),
                    )  # fmt: skip
                fate = Fate.SUBSCRIBED_LATER
                advice = "Subscribe before publishing, or publish with RETAIN what later subscribers need."
                forward = message.forward
                if forward is not None and forward.retained and not message.retain and message.proof is None:
                    text += (
                        f": {forward.retained} with RETAIN 1, and {forward.client} forwarded it with RETAIN 0 (frame"
                        f" {message.frame}), so that this broker does not keep it"
                    )
                    advice = (
                        "Configure the bridge to forward RETAIN; a client gets live messages with RETAIN 1 only with"
                        " Retain As Published (5.0) or, from some brokers, the bridge bit."
                    )
                if message.is_removal:
                    text += (
                        "; with RETAIN and an empty payload the message removes the retained one of its topic, so that"
                        " later subscribers rightly get none (3.3.1.3)"
                    )
                    advice, fate = "", Fate.NOT_CONCERNED
                elif message.retain:
                    text += ": a new Shared Subscription is not sent retained messages (5.0 4.8.2)"
                    advice = (
                        "Subscribe to the topic without $share, too: an ordinary subscription gets retained messages."
                    )
                return Delivery(
                    client.name, client.number, fate, text, wanted.frame, wanted.asked_ns, wanted.capture,
                    (advice,) if advice else (),
                )  # fmt: skip
        near = self.near_of(message.topic)
        like = [each for each in client.filters.values() if each.ended_ns is None and each.plain_filter in near]
        if not like:
            return None
        wanted = max(like, key=lambda each: near[each.plain_filter])
        name, why = describe.name(wanted.topic_filter), near[wanted.plain_filter][1]
        return Delivery(
            client.name, client.number, Fate.NO_SUBSCRIPTION,
            f"has no subscription that it matches; the nearest is {name}{why}", wanted.frame, wanted.asked_ns,
            wanted.capture, (f"Subscribe to what is published: {describe.name(message.topic)}.",),
        )  # fmt: skip

    def _moved(self, message: Published, key: tuple[str, str], client: Subscriber) -> str:
        """Words about a session with a matching subscription that a client had on another server; else empty.

        The session was to outlive the connection to that server, which ended before the message.  A client with the
        same Client Identifier, from the same host, then asked this server for its session (Clean Start 0 or Clean
        Session 0), and this server had none.  Session Present 1 contradicts that.
        """
        back_ns, frame, is_present, resumes = client.began
        if not client.is_named or is_present or not resumes:
            return ""
        if self._servers is None:
            self._servers = {}
            for server, identifier in self._watch.clients:
                self._servers.setdefault(identifier, []).append(server)
        for server in self._servers.get(key[1], ()):
            other = self._watch.clients[server, key[1]]
            is_over = other.keeps and other.connection is None and 0 < other.left_ns <= message.timestamp_ns
            if server == key[0] or other.address != client.address or not is_over or other.left_ns > back_ns:
                continue
            for wanted in other.filters.values():
                is_granted = wanted.granted_ns is not None and (wanted.code or 0) < FAILURE and wanted.ended_ns is None
                if is_granted and not wanted.share and matches(wanted.plain_filter, message.topic, shared=False):
                    ago = describe.span(message.timestamp_ns - other.left_ns)
                    return (
                        f"had a subscription to {describe.name(wanted.topic_filter)} on {server} (frame {wanted.frame})"
                        f" in a session that it wanted to keep, until its connection ended {ago} before (frame"
                        f" {other.left_frame}); this server had no session of it when it asked for that (Session"
                        f" Present 0, frame {frame})"
                    )
        return ""

    def near_of(self, topic: str) -> dict[str, tuple[float, str]]:
        """Filters that are like a topic and do not match it: how much, and the difference in words."""
        known = self._near_topics.get(topic)
        if known is None:
            known = self._near_topics[topic] = {}
            self._watch.uncompared += len(topic) > MAX_COMPARED_LENGTH
            for plain in self._watch.filters:
                if self._watch.compared >= MAX_COMPARED:
                    self._watch.uncompared += 1
                    break
                self._watch.compared += 1
                degree = likeness(topic, plain)
                if degree is not None:
                    known[plain] = degree
        return known

    def _ends_after(self, moment_ns: int, moment: str) -> str:
        after = describe.span(self._watch.now_ns - moment_ns)
        return f"the capture ends {after} after {moment}: the message may have come later"
