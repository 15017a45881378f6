"""What became of a message for one client, and why it did not arrive."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Protocol, cast

from mqttscope.events import PacketEvent
from mqttscope.explain import describe
from mqttscope.explain.fates import (
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
from mqttscope.lint.rules.practice_operation.message_loop import Loop, Loops, MessageLoop
from mqttscope.mqtt import packets
from mqttscope.mqtt.topics import matches
from mqttscope.mqtt.wire import counted
from mqttscope.session.connection import C2S
from mqttscope.session.matching import FAILURE

MAX_COMPARED = 500_000
"""Maximum number of comparisons of topics with filters that do not match them."""
MAX_COMPARED_LENGTH = 256
"""Maximum number of characters of a topic that filters are compared with by their letters."""
CASE, BLANK = " (upper and lower case differ)", " (only blanks differ)"
LIKE = 0.75
"""How like the topic a filter has to be to be named, from 0 to 1."""
_KEEP = (
    "Connect without Clean Start and, in 5.0, with a Session Expiry Interval; subscribe after each CONNACK with Session"
    " Present 0."
)
_AGAIN = (
    "Subscribe after each CONNACK with Session Present 0.",
    "The client asked to keep its session: look whether the broker stores sessions over restarts, and for how long.",
)
EXACTLY_ONCE = 2
MAX_FOLLOWED = 1_000
"""Maximum number of connections of bridges and of clients with No Local that are followed, the latest ones."""
MAX_LOOPS = 10
"""Maximum number of loops that are reported."""


class _Making(Protocol):
    """Makes the fate of a client, with the place that shows it."""

    def __call__(self, fate: Fate, said: str, *advice: str, frame: int = 0, now: int = 0) -> Delivery: ...


class Watched(Protocol):
    """What was seen of messages and clients (`messages.MessageWatch`)."""

    clients: OrderedDict[tuple[str, str], Subscriber]
    published: dict[int, Published]
    filters: dict[str, dict[tuple[str, str], None]]
    """Clients by what their filters are compared with."""
    now_ns: int
    used_shares: set[tuple[str, str]]
    """Servers and the filters of shares through which they sent messages."""
    compared: int
    """Comparisons of topics with filters so far."""
    uncompared: int
    """Topics beyond `MAX_COMPARED`."""

    def is_whole(self, server: str, topic: str) -> bool: ...


class Deliveries:
    """Decides what became of messages."""

    def __init__(self, watch: Watched) -> None:
        self._watch = watch
        self._near_topics: dict[str, dict[str, tuple[float, str]]] = {}
        """Filters that are like a topic and do not match it, with the difference in words, by topic."""

    def of(self, one: Published, key: tuple[str, str], client: Subscriber) -> list[tuple[Delivery, Held | None]]:
        """The fates for one client, of each copy that it needed; none where it has nothing to do with the message.

        Copies that have the same fate are one, and copies that it need not have had are left out beside others.
        """
        copies = one.got.get(key, {})
        fates: list[tuple[Delivery, Held | None]] = [
            (self._received(one, client, share, got), None) for share, got in copies.items()
        ]
        known = [held for held in one.held.get(key, ()) if held.best(one, key).since_ns <= one.timestamp_ns]
        if not fates and not known:
            nearest = self._without(one, key, client)
            return [] if nearest is None else [(nearest, None)]
        due = [held for held in known if held.best(one, key).applies(one, key)]
        missing = [held for held in due or known if held.share not in copies]
        fates += [(self._missing(one, key, client, held), held) for held in missing if due or not copies]
        concerned = [pair for pair in fates if pair[0].fate not in (Fate.NOT_CONCERNED, Fate.NO_SUBSCRIPTION)]
        by_text = {(pair[0].fate, pair[0].said if pair[1] else ""): pair for pair in reversed(concerned or fates[:1])}
        return list(reversed(by_text.values()))

    def _received(self, one: Published, client: Subscriber, share: str, got: Got) -> Delivery:
        """The fate of a copy that the broker sent."""
        first, got = got, got.best
        after = describe.span(got.timestamp_ns - one.timestamp_ns)
        fate, said, advice = Fate.DELIVERED, f"received it {after} later", tuple[str, ...]()
        sent = f"was sent it {after} later"
        if got is not first:
            earlier = describe.span(first.timestamp_ns - one.timestamp_ns)
            number = got.connection
            said += f", sent again on #{number}: nothing acknowledged it when it was first sent, {earlier} later"
            sent = f"was sent it {earlier} later, and again on #{number}, {after} later"
        is_abandoned = (
            got.is_abandoned
            and client.garbled_ns < got.timestamp_ns
            and (not one.is_with_share(share) if share else got.is_silent)
        )
        if not got.arrived:
            fate, said = Fate.NOT_ACKNOWLEDGED, f"{sent}, and nothing acknowledged it"
            if got.is_left:
                moment = describe.span(abs(got.reader.closed_ns - got.timestamp_ns))
                place = "after" if got.reader.closed_ns >= got.timestamp_ns else "before"
                said += f": it closed its connection itself {moment} {place} that"
            else:
                advice = ("Look at the link of the client at that time: signal, power, NAT.",)
        elif is_abandoned:
            fate = Fate.NOT_ACKNOWLEDGED
            said = f"{sent}, and did not acknowledge it before its connection and its session ended"
            if not share:
                said += ": TCP may have brought it, and the broker cannot send it again"
                advice = ("Let the client keep its session (Session Expiry Interval, or Clean Session 0).",)
        elif got is not first and not got.is_acknowledged:
            fate, said = Fate.NOT_CAPTURED, f"{sent}, and the capture does not have an acknowledgment of it"
        if is_abandoned and share and self._watch.now_ns >= got.reader.closed_ns + SECOND:
            said += "; no other captured member of the share got it, to which a server should send it then (5.0 4.8.2)"
            advice = (*advice, "Look whether the broker sends what a member leaves unacknowledged to another one.")
        return Delivery(client.name, got.connection, fate, said, got.frame, got.timestamp_ns, got.capture, advice)

    def _missing(self, one: Published, key: tuple[str, str], client: Subscriber, held: Held) -> Delivery:
        """The fate of a copy that the client needed and did not get."""
        wanted = held.best(one, key)
        name, number = describe.name(wanted.topic_filter), held.number

        def made(
            fate: Fate, said: str, *advice: str, frame: int = wanted.frame, now: int = wanted.asked_ns
        ) -> Delivery:
            return Delivery(client.name, number, fate, said, frame, now, wanted.capture, advice)

        is_refused = wanted.code is not None and wanted.code >= FAILURE
        if wanted.is_presumed and not is_refused and (one.server, wanted.share) not in self._watch.used_shares:
            return made(
                Fate.NO_SUBSCRIPTION, f"has {name}, through which the broker sent nothing: before MQTT 5.0 a broker may"
                " take that for an ordinary filter, which the topic does not match",
                "Look whether the broker has Shared Subscriptions for MQTT 3.1.1.",
            )  # fmt: skip
        if wanted.ended_ns is not None and wanted.ended_ns <= one.timestamp_ns:
            ago = describe.span(one.timestamp_ns - wanted.ended_ns)
            if wanted.with_session:
                return made(
                    Fate.SESSION_GONE, f"its subscription to {name} had ended with its session {ago} before (Session"
                    " Present 0), and it had not subscribed again", *(_AGAIN if wanted.is_lost else (_KEEP,)),
                    frame=wanted.ended_frame, now=wanted.ended_ns,
                )  # fmt: skip
            return made(
                Fate.UNSUBSCRIBED, f"had ended its subscription to {name} {ago} before", frame=wanted.ended_frame,
                now=wanted.ended_ns,
            )  # fmt: skip
        if is_refused:
            return made(
                Fate.SUBSCRIPTION_REFUSED,
                f"the broker refused its subscription to {name} ({describe.code(wanted.code or 0)})",
                "Allow the subscription in the broker's access rules, and let the client read the codes of a SUBACK.",
            )
        if one.code is not None and one.code >= 0x80:
            return made(
                Fate.MESSAGE_REFUSED, f"the broker refused the message ({describe.code(one.code)})",
                "Allow the publisher to write to the topic (0x87), or raise the quota (0x97).",
            )  # fmt: skip
        if wanted.no_local and key == one.key:
            return made(Fate.NOT_CONCERNED, f"published it itself, and its subscription to {name} has No Local")
        if held.share in one.shares:
            got = "got it" if one.is_with_share(held.share) else "was sent it"
            return made(Fate.NOT_CONCERNED, f"another member of the share {got} ({name})")
        if (
            one.qos == EXACTLY_ONCE
            and not one.released
            and one.answer is not None
            and self._watch.now_ns >= (one.answer.timestamp_ns or 0) + SECOND
            and not one.source.client_side.gapped
        ):
            return made(
                Fate.NOT_RELEASED, f"{one.client} never released it: it sent no PUBREL after the PUBREC",
                "Let the publisher answer each PUBREC with PUBREL, also after it has reconnected.", frame=one.frame,
                now=one.timestamp_ns,
            )  # fmt: skip
        if not one.is_received:
            return made(
                Fate.NOT_RECEIVED, "nothing shows that the broker received the message", frame=one.frame,
                now=one.timestamp_ns,
            )  # fmt: skip
        parts = [
            part for part in client.parts.get(one.topic, ()) if part[0] >= one.timestamp_ns and one.is_like(part[2])
        ]
        # Of several messages nobody can tell which one it is the beginning of.
        if parts and not any(
            other is not one and other.topic == one.topic and other.is_like(parts[0][2]) and key not in other.got
            for other in self._watch.published.values()
        ):
            often = "" if len(parts) == 1 else f" {len(parts)} times"
            return made(
                Fate.CONNECTION_ENDED, f"was sent the beginning of it{often}, and the connection ended before the rest",
                "Look why the connection ended inside the message: it may be larger than the client takes.",
                frame=parts[0][1], now=parts[0][0],
            )  # fmt: skip
        ended_ns, ended_frame = client.ends.get(held.number, (0, 0))
        if held.online and 0 < ended_ns <= one.timestamp_ns:
            held = replace(held, online=False, left_ns=ended_ns, left_frame=ended_frame)
        if held.online:
            return self._online(one, key, client, held, wanted, made)
        return self._offline(one, client, held, wanted, made)

    def _online(
        self, one: Published, key: tuple[str, str], client: Subscriber, held: Held, wanted: Wanted, made: _Making
    ) -> Delivery:
        name = describe.name(wanted.topic_filter)
        if held.largest is not None and one.size > held.largest:
            return made(
                Fate.TOO_LARGE, f"takes packets of at most {held.largest:,} bytes (Maximum Packet Size); this one has"
                f" {one.size:,}", "Raise the Maximum Packet Size of the client, or send smaller messages.",
            )  # fmt: skip
        if held.one_sided or client.gap_ns >= one.timestamp_ns - SECOND:
            return made(Fate.NOT_CAPTURED, "the capture lacks bytes that the broker sent it: it may have come")
        if not one.is_whole:
            return made(Fate.NOT_CAPTURED, "the capture lacks bytes of the message: it may have come")
        until_ns = client.full_until(due_ns(one)) or (held.full and (client.full_until(one.timestamp_ns) or NEVER))
        if until_ns:
            used = "its Receive Maximum was used up: it had not acknowledged earlier messages"
            acknowledge = "Let the client acknowledge messages sooner, or raise its Receive Maximum."
            if not min(one.qos, wanted.qos):
                used += "; a broker may hold back QoS 0 then, too"
            elif until_ns + SECOND <= min(self._watch.now_ns, client.ends.get(held.number, (NEVER, 0))[0]):
                after = describe.span(until_ns - one.timestamp_ns)
                used += f"; it acknowledged one {after} after the message, and the broker did not send it then either"
                return made(Fate.QUOTA_FULL, used, acknowledge, QUEUE)
            return made(Fate.QUOTA_FULL, used, acknowledge)
        # Two connections have no common order: the broker may have taken the later of two packets first.
        if held.number != one.connection:
            if wanted.granted_ns is None or wanted.granted_ns > one.timestamp_ns:
                asked = f"asked for {name} {describe.span(one.timestamp_ns - wanted.asked_ns)} before"
                said = "no SUBACK was captured"
                if wanted.granted_ns is not None:
                    said = f"its SUBACK came {describe.span(wanted.granted_ns - one.timestamp_ns)} after the message"
                return made(Fate.SUBSCRIBED_LATER, f"{asked}, and {said}: the broker may have taken the message first")
            if wanted.ended_ns is not None and not wanted.with_session and wanted.ended_ns <= due_ns(one):
                later = describe.span(wanted.ended_ns - one.timestamp_ns)
                return made(
                    Fate.UNSUBSCRIBED, f"ended its subscription to {name} {later} later", frame=wanted.ended_frame,
                    now=wanted.ended_ns,
                )  # fmt: skip
        backlog = held.backlog(one.timestamp_ns)
        if backlog:
            return made(Fate.STALLED, backlog, "Let the client read what comes, or subscribe to less.")
        if wanted.share:
            return self._of_the_share(one, client, made, wanted)
        if self._is_between(one, key, held.number):
            return made(
                Fate.NOT_SENT, f"should have got it: the broker sent it messages of {one.client} to this topic before"
                " and after, so that no access rule is the reason", QUEUE,
            )  # fmt: skip
        end_ns, end_frame = client.ends.get(held.number, (0, 0))
        after = describe.span(end_ns - one.timestamp_ns)
        if one.timestamp_ns <= end_ns <= due_ns(one):
            back = next((each for each in client.returns if each[0] >= end_ns), None)
            ended = f"its connection ended {after} after the message was published"
            place = {"frame": end_frame, "now": end_ns}
            if back is not None and back[2] and min(one.qos, wanted.qos) and self._watch.now_ns >= back[0] + SECOND:
                return made(
                    Fate.NOT_SENT,
                    f"{ended}; it resumed its session as #{back[3]}, and the broker did not send the message in this"
                    " capture", "Look at the limit of the broker's queue for clients that are away.", **place,
                )  # fmt: skip
            return made(Fate.CONNECTION_ENDED, ended, **place)
        until = f"before its connection ended {after} later" if end_ns > one.timestamp_ns else "in this capture"
        if end_ns <= one.timestamp_ns and self._watch.now_ns < one.timestamp_ns + SECOND:
            return made(Fate.NOT_CAPTURED, self._ends_after(one.timestamp_ns, "the message"))
        window = held.window(one.timestamp_ns, min(self._watch.now_ns, end_ns or NEVER), client.most_in_flight)
        if window and min(one.qos, wanted.qos) and client.garbled_ns == -NEVER:
            # What came to this topic before is no longer forbidden by access rules.
            came = any(other.topic == one.topic and key in other.got for other in self._watch.published.values())
            advice = "Acknowledge each message in the client, or raise the limit of the broker."
            return made(Fate.STALLED, window, advice, *(() if came else suspects(one, queued=True)))
        queue = self._queue(one, key, held, wanted)
        return made(
            Fate.NOT_SENT,
            f"should have got it: it is subscribed to {name}, and the broker did not send it {until}{queue}",
            *suspects(one, queued=bool(queue)),
        )

    def _queue(self, one: Published, key: tuple[str, str], held: Held, wanted: Wanted) -> str:
        """What shows that the broker's queue for the client may have been full; empty if nothing does."""
        if not min(one.qos, wanted.qos):
            return ""
        if held.in_flight:
            return f"; it had not acknowledged {counted(held.in_flight, 'message')} of the broker then"
        before = (other for other in self._watch.published.values() if other.timestamp_ns < one.timestamp_ns)
        away = sum(
            any(not each.online and each.keeps for each in other.held.get(key, ())) and key not in other.got
            for other in before
            if other.qos
        )
        return f"; {away:,} messages for it from when it was away have not been sent either" if away >= MANY else ""

    def _offline(self, one: Published, client: Subscriber, held: Held, wanted: Wanted, made: _Making) -> Delivery:
        back = next((each for each in client.returns if each[0] > one.timestamp_ns), None)
        was, name = "was not connected", describe.name(wanted.topic_filter)
        if held.left_ns:
            was += f" (since {describe.span(one.timestamp_ns - held.left_ns)})"
        place = {"frame": held.left_frame, "now": held.left_ns}
        if not held.keeps:
            return made(
                Fate.SESSION_GONE, f"{was}, and its session had ended with its connection", _KEEP, **place,
            )  # fmt: skip
        if back is not None and not back[2]:
            return made(
                Fate.SESSION_GONE, f"{was}, and came back as #{back[3]} without its session (Session Present 0)",
                *(_AGAIN if client.number == back[3] and client.resumes else (_KEEP,)), **place,
            )  # fmt: skip
        if min(one.qos, wanted.qos) == 0:
            whose = f"its subscription to {name} has QoS 0" if one.qos else "the message has QoS 0"
            which = "Subscribe" if one.qos else "Publish" if wanted.qos else "Publish and subscribe"
            return made(
                Fate.OFFLINE, f"{was}; {whose}, and brokers need not keep messages of QoS 0 for it",
                f"{which} with QoS 1, so that the broker keeps messages for clients that are away.", **place,
            )  # fmt: skip
        if back is None:
            return made(Fate.OFFLINE, f"{was}, and did not come back in the capture", **place)
        if one.expiry is not None and back[0] - one.timestamp_ns >= one.expiry * SECOND:
            return made(
                Fate.EXPIRED, f"{was} for longer than the message was to live ({one.expiry} s)",
                "Raise the Message Expiry Interval of the publisher.", **place,
            )  # fmt: skip
        if self._watch.now_ns < back[0] + SECOND:
            return made(Fate.NOT_CAPTURED, f"{was}; {self._ends_after(back[0], f'it came back as #{back[3]}')}")
        if wanted.share:
            return self._of_the_share(one, client, made, wanted)
        return made(
            Fate.NOT_SENT,
            f"{was}; it resumed its session as #{back[3]}, and the broker did not send the message in this capture",
            "Look at the limit of the broker's queue for clients that are away.", **place,
        )  # fmt: skip

    def _of_the_share(self, one: Published, client: Subscriber, made: _Making, wanted: Wanted) -> Delivery:
        """The fate of a message for a member of a share to which nobody of the share got it."""
        name = describe.name(wanted.topic_filter)
        for key, needs in one.held.items():
            other = self._watch.clients.get(key)
            theirs = next((held for held in needs if held.share == wanted.share), None)
            if other is None or other is client or theirs is None or theirs.online or not theirs.keeps:
                continue
            if theirs.best(one, key).applies(one, key):
                return made(
                    Fate.OTHER_MEMBER, f"{other.name}, which was away with its session, is a member of the share"
                    f" ({name}) too: the broker may have kept its copy for it",
                    "Let members of a share that go away for long end their sessions.",
                )  # fmt: skip
        return made(
            Fate.OTHER_MEMBER,
            f"another member of the share ({name}) may have got its copy, which the capture does not have",
            "Capture at the broker, and look there which clients are members of the share.",
        )

    def _is_between(self, one: Published, key: tuple[str, str], number: int) -> bool:
        """Whether a client was sent messages of the same publisher, topic and QoS before and after this one.

        The later one came on the connection of which this number is, so that its end is no reason.
        """
        alike = [
            other
            for other in self._watch.published.values()
            if key in other.got and (other.key, other.topic, other.qos) == (one.key, one.topic, one.qos)
        ]
        return any(other.timestamp_ns < one.timestamp_ns for other in alike) and any(
            other.timestamp_ns > one.timestamp_ns and copy.connection == number
            for other in alike
            for copy in other.got[key].values()
        )

    def _without(self, one: Published, key: tuple[str, str], client: Subscriber) -> Delivery | None:
        """Nothing matched when it was published: something did later, or something is like it."""
        for wanted in sorted(client.filters.values(), key=lambda each: bool(each.share)):
            if not matches(wanted.plain_filter, one.topic, shared=False):
                continue
            first = wanted.first_after(one.timestamp_ns)
            if first is None and wanted.since_ns > one.timestamp_ns:
                after = describe.span(wanted.asked_ns - one.timestamp_ns)
                said = f"asked for {describe.name(wanted.topic_filter)} {after} later, and the broker refused it"
                return Delivery(
                    client.name, client.number, Fate.SUBSCRIPTION_REFUSED,
                    f"{said} ({describe.code(wanted.code or 0)})", wanted.frame, wanted.asked_ns, wanted.capture,
                )  # fmt: skip
            if first is not None:
                wanted = first
                after = describe.span(wanted.since_ns - one.timestamp_ns)
                early = wanted.asked_ns <= one.timestamp_ns
                when = f", and its connection was accepted {after} later" if early else f" {after} later"
                said = f"subscribed to {describe.name(wanted.topic_filter)}{when}"
                another = wanted.retained and f"sent another one for this SUBSCRIBE (frame {wanted.retained.frame})"
                if self._is_left_out(one, key, client, wanted):
                    return Delivery(
                        client.name, client.number, Fate.NOT_SENT, f"{said}, and the broker did not send it this"
                        f" retained message: it {another}", wanted.frame, wanted.asked_ns, wanted.capture,
                        tuple(suspects(one)),
                    )  # fmt: skip
                if one.is_removal:
                    said += (
                        "; with RETAIN and an empty payload the message removes the retained one of its topic, so that"
                        " later subscribers rightly get none (3.3.1.3)"
                    )
                elif one.retain and wanted.share:
                    said += ": a new Shared Subscription is not sent retained messages (5.0 4.8.2)"
                return Delivery(
                    client.name, client.number, Fate.SUBSCRIBED_LATER, said, wanted.frame, wanted.asked_ns,
                    wanted.capture, () if one.is_removal else (
                        "Subscribe to the topic without $share, too: an ordinary subscription gets retained messages.",
                    ) if one.retain and wanted.share else (
                        f"It was published with RETAIN; the broker {another}: look whether this one was replaced.",
                    ) if one.retain and another else (
                        "It was published with RETAIN: look whether the broker keeps retained messages.",
                    ) if one.retain else (
                        "Subscribe before publishing, or publish with RETAIN what later subscribers need.",
                    ),
                )  # fmt: skip
        near = self.near_of(one.topic)
        like = [each for each in client.filters.values() if each.ended_ns is None and each.plain_filter in near]
        if not like:
            return None
        wanted = max(like, key=lambda each: near[each.plain_filter])
        name, why = describe.name(wanted.topic_filter), near[wanted.plain_filter][1]
        return Delivery(
            client.name, client.number, Fate.NO_SUBSCRIPTION,
            f"has no subscription that it matches; the nearest is {name}{why}", wanted.frame, wanted.asked_ns,
            wanted.capture, (f"Subscribe to what is published: {describe.name(one.topic)}.",),
        )  # fmt: skip

    def _is_left_out(self, one: Published, key: tuple[str, str], client: Subscriber, wanted: Wanted) -> bool:
        """Whether the broker should have answered a SUBSCRIBE with this message, as it did with another one."""
        another, answered_ns = wanted.retained, None if one.answer is None else one.answer.timestamp_ns
        if another is None or answered_ns is None or not one.retain or one.is_removal or (one.code or 0) >= FAILURE:
            return False
        reader, source, until_ns = another.reader, one.source, another.timestamp_ns + SECOND
        largest, expires_ns = reader.client_side.maximum_packet_size, one.timestamp_ns + (one.expiry or NEVER) * SECOND
        is_open = source.closed_how in (None, "capture_end") or source.closed_ns > wanted.asked_ns
        return (
            is_open  # so that the broker did not restart
            and answered_ns <= wanted.asked_ns
            and (one.qos < EXACTLY_ONCE or one.released)
            and not (wanted.no_local and key == one.key)
            and wanted.granted_ns is not None
            and (wanted.code or 0) < FAILURE
            and (largest is None or 2 * one.size <= largest)  # a broker may add properties
            and until_ns < expires_ns
            and until_ns <= min(self._watch.now_ns, client.ends.get(reader.number, (NEVER, 0))[0])
            and until_ns <= (wanted.ended_ns or NEVER)
            and not (reader.one_sided or reader.server_side.gapped or source.client_side.gapped)
            and not reader.server_side.exchanges
            and self._watch.is_whole(one.server, one.topic)
            and not any(
                other is not one
                and other.topic == one.topic
                and (key in other.got or (other.retain and other.latest_ns > one.timestamp_ns - SECOND))
                for other in self._watch.published.values()
            )
        )

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
                found = likeness(topic, plain)
                if found is not None:
                    known[plain] = found
        return known

    def _ends_after(self, moment_ns: int, moment: str) -> str:
        after = describe.span(self._watch.now_ns - moment_ns)
        return f"the capture ends {after} after {moment}: the message may have come later"


def copy_of(
    event: PacketEvent,
    client: Subscriber,
    key: tuple[str, str],
    alike: list[tuple[int, Published]],
    identifiers: list[int],
) -> tuple[int | None, str]:
    """Which message a delivery to a client is a copy of, the oldest one that lacks it, and for which share, if for one.

    What the broker sends again is the same copy.  Messages that were due to the client go before those for which its
    subscription or session had ended, and these before those from before it had one.  A share gets one copy of a
    message, through any of its members.  A client gets one for its other subscriptions, or one for each.
    """
    for number, one in alike:
        for share, copy in one.got.get(key, {}).items():
            if copy.is_repeated_by(event):
                return number, share
    if len(alike) > 1:
        alike.sort(key=lambda pair: (not pair[1].is_due(key, client), key not in pair[1].held))
    topic = event.topic or ""
    matching = [one for one in client.filters.values() if matches(one.plain_filter, topic, shared=False)]
    named = [one for one in matching if one.identifier in (identifiers or (None,))]
    shares = [one.share for one in named or matching if one.share]
    ordinary = [one for one in named or matching if not one.share and one.ended_ns is None]
    if not shares or ordinary:
        for number, one in alike:
            former = one.got.get(key, {}).get("")
            if former is None or not former.best.arrived:
                return number, ""
    for number, one in alike:
        share = next((name for name in shares if name not in one.shares), "")
        if share:
            return number, share
    for number, one in alike:
        copies = one.got.get(key, {})
        # A share may get a message again where the member that had it has not acknowledged it.
        share = next((name for name in shares if name not in copies), "")
        if share:
            return number, share
        if "" in copies and copies[""].copies < len(ordinary):
            return number, ""
    return None, ""


class LoopWatch:
    """Follows messages to clients to which a broker does not send by itself what they have published."""

    def __init__(self) -> None:
        self._followed: OrderedDict[int, Loops] = OrderedDict()
        """By connection: those whose CONNECT has the bridge bit from there on, others from a message on."""
        self._found: dict[tuple[int, str], tuple[str, Loop, int]] = {}
        """Client, loop and frame of the last round that is needed for a report, by connection and topic."""
        self._forgotten = self._left_out = 0

    def begin(self, number: int) -> None:
        """Follow the messages of a connection."""
        if number not in self._followed:
            if len(self._followed) >= MAX_FOLLOWED:
                self._followed.popitem(last=False)
                self._forgotten += 1
            self._followed[number] = Loops()

    def follows(self, number: int) -> bool:
        """Whether the messages of a connection are followed."""
        return number in self._followed

    def feed(self, event: PacketEvent, found: packets.Publish, client: Subscriber) -> None:
        """Take a message that the client sent or was sent."""
        number, topic = event.connection.number, event.topic or ""
        if any(one.no_local and matches(one.plain_filter, topic) for one in client.filters.values()):
            self.begin(number)
        loops = self._followed.get(number)
        if loops is None or found.dup:
            return
        rounds, pause_ns = _setting("rounds"), _setting("seconds") * SECOND
        loop = loops.feed(topic, found.payload, event.timestamp_ns, pause_ns, from_client=event.direction is C2S)
        if loop.rounds < rounds or (number, topic) in self._found:
            return
        if len(self._found) < MAX_LOOPS:
            self._found[number, topic] = client.name, loop, event.frame
        elif loop.rounds == rounds:
            self._left_out += 1

    def sentences(self) -> Iterator[str]:
        """One sentence for each loop."""
        for (number, topic), (name, loop, frame) in self._found.items():
            yield (
                f"The same message to {describe.name(topic)} came back to {name} (#{number}) {loop.rounds:,} times"
                f" within {describe.span(loop.last_ns - loop.began_ns)} (frame {frame}), and its broker does not send"
                " it what it published itself: most probably the message circulates between brokers. Forward each topic"
                " in one direction only."
            )
        if self._left_out:
            yield f"limit: {MAX_LOOPS:,} messages that circulate are shown; further ones: {self._left_out:,}."
        if self._forgotten:
            yield f"limit: {MAX_FOLLOWED:,} connections of bridges are followed; forgotten: {self._forgotten:,}."


def _setting(name: str) -> int:
    """A threshold of the rule."""
    return cast(int, MessageLoop.settings[name])


def likeness(topic: str, plain: str) -> tuple[float, str] | None:
    """How like a topic a filter is that does not match it, from 0 to 1, and the difference; ``None``: not at all."""
    if matches(plain, topic, shared=False):
        return None
    if matches(plain.lower(), topic.lower(), shared=False):
        return 1.0, CASE
    if matches("".join(plain.split()), "".join(topic.split()), shared=False):
        return 1.0, BLANK
    bare = plain.strip("/")
    if bare and matches(bare, topic.strip("/"), shared=False):
        return 1.0, " (a slash at an end is a level of its own)"
    if matches(plain.rstrip("/") + "/#", topic, shared=False):
        return 1.0, " (without /# it has no levels below)"
    if abs(len(plain) - len(topic)) > len(topic) * (1 - LIKE) or len(topic) > MAX_COMPARED_LENGTH:
        return None
    pair = SequenceMatcher(None, plain, topic, autojunk=False)
    if pair.quick_ratio() < LIKE:
        return None
    ratio = pair.ratio()
    return (ratio, "") if ratio >= LIKE else None


def nearest(topics: Iterable[str], topic_filter: str) -> list[str]:
    """Names of the topics that come nearest to a filter; those that differ only by case or blanks are named alone."""
    near = [(found, topic) for topic in topics if (found := likeness(topic, topic_filter)) is not None]
    near = [row for row in near if row[0][1] in (CASE, BLANK)] or sorted(near, key=lambda row: -row[0][0])
    return [f"{describe.name(topic)}{why}" for (_, why), topic in near]
