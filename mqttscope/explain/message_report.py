"""The report about the messages that `messages.MessageWatch` has followed, made when the capture has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mqttscope.explain import describe, model
from mqttscope.explain.arrivals import doubled, section
from mqttscope.explain.causes.case import in_order
from mqttscope.explain.deliveries import Deliveries
from mqttscope.explain.duplicates import published_by_several, undistributed
from mqttscope.explain.fates import (
    EXACTLY_ONCE,
    Delivery,
    Fate,
    Got,
    Loss,
    MessageFate,
    Published,
    Subscriber,
    Trace,
    Wanted,
    is_loss,
    shown_order,
)
from mqttscope.explain.messages import MAX_CLIENTS, MAX_MESSAGES, MessageWatch
from mqttscope.explain.model import Evidence
from mqttscope.explain.nearness import SLASH
from mqttscope.explain.retained_answers import LEAST_ANSWERS, RetainedShortfall
from mqttscope.explain.size_limits import SIZE
from mqttscope.explain.surplus_copies import settle_surplus, surplus_sentences
from mqttscope.mqtt.topics import matches
from mqttscope.mqtt.wire import counted
from mqttscope.session.matching import FAILURE

MAX_SHOWN = 20
"""Maximum number of messages that did not arrive everywhere and are reported one by one."""
MAX_ALIKE = 5
"""Maximum number of messages with one cause that are reported one by one, if not all messages have room."""
MAX_DELIVERED = 3
"""Maximum number of messages that are reported one by one beside these: late ones and copies first."""
NO_SUBSCRIBERS = 0x10
Key = tuple[str, str]
Cause = tuple[str, Fate, tuple[str, ...]]
"""Name of a client, fate, and advice: messages that it missed for one reason."""


class MessageReport:
    """Makes the trace and the losses of a watch."""

    def __init__(self, watch: MessageWatch) -> None:
        self.watch = watch
        settle_surplus(watch)
        self._deliveries = Deliveries(watch)
        self._named: set[tuple[str, Key]] = set()
        """Topics, and clients with a filter that comes near them, that have been reported."""

    def trace(self, of: Callable[[str], bool] | None = None, *, missed: bool = False) -> Trace:
        """Report each message and its deliveries; call it when the capture has ended.

        ``of`` chooses clients by their names; ``missed``: only messages that these wanted and did not get.
        """
        watch = self.watch
        watch.origins.settle()
        fates = [self._fate(message) for message in watch.published.values()]
        if of is not None:
            for fate in fates:
                fate.deliveries = tuple(delivery for delivery in fate.deliveries if of(delivery.client))
        if missed:
            return self._missed(fates, of)
        troubled = [fate for fate in fates if _is_troubled(fate)]
        idle = [fate for fate in fates if _is_idle(fate)]
        remarkable = [fate for fate in fates if _is_remarkable(fate)]
        worth = [*_without_repeats(troubled), *(fate for fate in idle if not fate.is_covered)]
        shown, hidden = _chosen(worth)
        if not shown or remarkable:
            chosen = {id(fate) for fate in shown}
            others = [fate for fate in (remarkable or fates) if id(fate) not in chosen]
            shown += others[: min(MAX_DELIVERED, max(0, MAX_SHOWN - len(shown)))]
        shown.sort(key=lambda fate: fate.published.timestamp_ns if fate.published else 0)
        lines: list[str] = []
        shape = describe.name(watch.topic_filter)
        if fates:
            good = len(fates) - len(troubled) - len(idle) + watch.good
            total = len(fates) + watch.good + watch.unwanted
            every, nobody = "every captured client that wanted them", "were delivered to no captured client"
            if of is not None:
                every, nobody = "all of these clients that wanted them", "were not for them"
            lines.append(
                f"{counted(total, 'message')} to {shape} in the capture: {good:,} went to {every}, {len(troubled):,}"
                f" did not, {len(idle) + watch.unwanted:,} {nobody}."
            )
        elif not (watch.origins.has_unknown or watch.origins.kinds or watch.has_foreign):
            lines.append(f"The capture contains no message to {shape}.")
            lines += watch.instead()
        lines += watch.unfinished.sentences()
        lines += [
            f"The capture also has messages to {describe.name(topic)}, which is another topic{SLASH}."
            for topic in watch.with_other_slashes()
            if fates
        ]
        lines += self._vain(of)
        lines += watch.loops.sentences()
        lines += watch.forwards.sentences()
        lines += watch.changes.sentences(list(watch.published.values()))
        lines += watch.renamed.sentences() if troubled else ()
        lines += watch.copies.sentences(watch.clients, watch.now_ns)
        lines += published_by_several(watch.published.values(), watch.clients)
        lines += undistributed(watch.published.values(), watch.clients)
        lines += [shortfall.sentence(watch.now_ns) for shortfall in self._deliveries.answers.shortfalls()]
        lines += self._deliveries.answers.vain_removals()
        arrived = len(fates) - len(troubled) - len(idle) + watch.good
        arrived -= sum(not _is_idle(fate) and not _is_troubled(fate) for fate in shown)
        if arrived > 0:
            lines.append(f"{counted(arrived, 'message')} that arrived {describe.are(arrived)} not shown.")
        lines += hidden
        single = {id(fate) for fate in _without_repeats(troubled)}
        repeated = [fate for fate in troubled if id(fate) not in single]
        lines += self._folded(repeated, sum(fate.is_covered for fate in idle))
        lines += self._remarks(remarkable)
        lines += self._unanswered()
        lines += self._not_repeated(of)
        lines += watch.origins.sentences(watch.published.values(), watch.clients, watch.now_ns)
        lines += watch.origins.system.sentences(watch.topic_filter, watch.clients, is_empty=not watch.published)
        lines += watch.origins.retained_wills.remarks(watch.now_ns)
        lines += _near(fates, shown)
        incomplete = sum(not client.complete for client in watch.clients.values())
        if incomplete:
            lines.append(
                f"{counted(incomplete, 'client')} may have subscriptions that were made before the capture began."
            )
        lines += self._deliveries.answers.limits()
        lines += _limits(watch)
        return Trace(shown, lines)

    def _missed(self, fates: list[MessageFate], of: Callable[[str], bool] | None) -> Trace:
        """Report the messages that clients did not get."""
        troubled = [fate for fate in fates if any(delivery.is_trouble for delivery in fate.deliveries)]
        for fate in troubled:
            fate.deliveries = tuple(delivery for delivery in fate.deliveries if delivery.is_trouble)
        lines = [f"{counted(len(troubled), 'message')} did not arrive; --message TOPIC shows the others."]
        shown, hidden = _chosen(troubled)
        return Trace(shown, [*(lines if troubled else ()), *hidden, *self._vain(of), *self.doubled(of)])

    def doubled(self, of: Callable[[str], bool] | None = None) -> Iterator[str]:
        """A sentence for each client that got messages once for each of several matching subscriptions, or oftener."""
        yield from surplus_sentences(self.watch, of)
        rows: dict[Key, list[tuple[Published, Got, tuple[Wanted, ...]]]] = {}
        for message in self.watch.published.values():
            for key, copies in message.got.items():
                client = self.watch.clients.get(key)
                if client is None or (of is not None and not of(client.name)):
                    continue
                for share, got in copies.items():
                    due = doubled(message, key, share, got)
                    if due:
                        rows.setdefault(key, []).append((message, got, due))
        for number, (key, all_of) in enumerate(rows.items()):
            message, got, due = all_of[0]
            if number == model.MAX_REPORTED:
                yield describe.more_not_shown(len(rows) - model.MAX_REPORTED)
                return
            names = describe.listed([describe.name(wanted.topic_filter) for wanted in due])
            yield (
                f"{self.watch.clients[key].name} got {counted(len(all_of), 'message')} more than once, once for each"
                f" matching subscription ({names}); the first: {describe.name(message.topic)}, frame {got.frame}. The"
                f" specification allows that ({section(got)}): make the Topic Filters disjoint."
            )

    def _vain(self, of: Callable[[str], bool] | None) -> Iterator[str]:
        """Sentences about UNSUBSCRIBE packets that changed nothing, if messages of their filter came afterwards.

        All subscriptions of the client are known, without one to this Topic Filter.  An UNSUBACK with success
        disproves that in MQTT 5.0; in 3.1.1 it has no code.
        """
        count = 0
        for key, client in self.watch.clients.items():
            if (of is not None and not of(client.name)) or not client.complete:
                continue
            for row in client.vain:
                came = [
                    (message, copy)
                    for message in self.watch.published.values()
                    for copy in message.got.get(key, {}).values()
                    if row.timestamp_ns < message.timestamp_ns
                    and matches(row.topic_filter, message.topic, shared=False)
                ]
                still = {} if not came or row.is_denied else {
                    wanted.topic_filter: wanted
                    for held in came[0][0].held.get(key, ())
                    for wanted in held.subscriptions
                    if wanted.asked_ns < row.timestamp_ns and wanted.applies(came[0][0], key)
                }  # fmt: skip
                if not still:
                    continue
                count += 1
                if count > model.MAX_REPORTED:
                    yield describe.more_not_shown(1)
                    return
                names = [f"{describe.name(name)} (frame {wanted.frame})" for name, wanted in still.items()]
                place = f"{describe.name(row.topic_filter)} (frame {row.frame})"
                many = counted(len(came), "message")
                yield (
                    f"{client.name} sent UNSUBSCRIBE for {place} without a subscription to it: that changed nothing."
                    f" Its subscription to {describe.listed(names)} still matches: {many} came afterwards, the first in"
                    f" frame {came[0][1].frame}."
                    " Unsubscribe with the Topic Filter of the subscription."
                )

    @staticmethod
    def _folded(repeated: list[MessageFate], near: int) -> Iterator[str]:
        """Sentences about messages that are not shown because another one stands for them."""
        groups = [
            {delivery.group[1] for delivery in fate.deliveries if delivery.group is not None} for fate in repeated
        ]
        large = sum(any(group.startswith(SIZE) for group in names) for names in groups)
        grouped = len(repeated) - large
        if large:
            yield f"{counted(large, 'more message')} that a size limit kept back {describe.are(large)} not shown."
        if grouped:
            yield (
                f"{grouped:,} more of the retained messages that the broker left out {describe.are(grouped)} not shown."
            )
        if near:
            yield (
                f"{near:,} of the messages that no captured client got {describe.are(near)} not shown:"
                " the filters that come near their topics are named once."
            )

    @staticmethod
    def _remarks(remarkable: list[MessageFate]) -> Iterator[str]:
        """A sentence for each reason why messages came late or more than once."""
        kinds: dict[str, tuple[set[int], MessageFate, Delivery]] = {}
        for number, fate in enumerate(remarkable):
            for delivery in fate.deliveries:
                if delivery.remark:
                    kinds.setdefault(delivery.remark, (set(), fate, delivery))[0].add(number)
        for remark, (numbers, fate, delivery) in kinds.items():
            which = "One of the messages" if len(numbers) == 1 else f"{len(numbers):,} of the messages"
            yield f"{which} {remark}; the first: {fate.topic} to {delivery.client}, frame {delivery.frame}."

    def _unanswered(self) -> Iterator[str]:
        """A sentence for each broker that answered no PUBLISH with QoS 2, though a client sent one again."""
        servers = dict.fromkeys(
            message.server
            for message in self.watch.published.values()
            if message.qos == EXACTLY_ONCE and message.repetition is not None and message.answer is None
        )
        for server in servers:
            if server not in self.watch.exactly_once:
                yield (
                    f"The broker {server} sent no PUBREC in this capture, so that clients have to send their messages"
                    " with QoS 2 again: check whether it supports QoS 2, or publish with QoS 1."
                )

    def _not_repeated(self, of: Callable[[str], bool] | None) -> Iterator[str]:
        """Sentences about clients that subscribed again with a new session.

        Each had got the last message of a topic before; it was published without RETAIN, and no other message of
        the topic came since.  A client that remembers the message by itself does not miss it.
        """
        watch = self.watch
        rows: dict[Key, tuple[list[Published], Wanted]] = {}
        for number, message in watch.published.items():
            if message.retain or watch.latest.get((message.server, message.topic)) != number:
                continue
            for key in message.got:
                client = watch.clients.get(key)
                if client is None or key == message.key or (of is not None and not of(client.name)):
                    continue
                wanted = _asked_again(client, message)
                if wanted is not None:
                    rows.setdefault(key, ([], wanted))[0].append(message)
        for number, (key, (messages, wanted)) in enumerate(rows.items()):
            if number == model.MAX_REPORTED:
                yield describe.more_not_shown(len(rows) - model.MAX_REPORTED)
                return
            first = messages[0]
            many = len(messages)
            yield (
                f"{watch.clients[key].name} subscribed again as #{wanted.connection} with a new session (frame"
                f" {wanted.frame}, Session Present 0), and got nothing of {counted(many, 'topic')} since: the last"
                f" {'message of each was' if many > 1 else 'message was'} published before that, without RETAIN; the"
                f" first: {describe.name(first.topic)}, frame {first.frame}. Publish with RETAIN what clients need when"
                " they start again."
            )

    def _fate(self, message: Published) -> MessageFate:
        """The fate of a message for all clients that it concerns."""
        watch, deliveries, is_repeated = self.watch, list[Delivery](), False
        near = self._deliveries.near_of(message.topic)
        keys = [*message.got, *message.held, *watch.matching(message.topic)]
        keys += [key for plain in near for key in watch.filters[plain]]
        for key in dict.fromkeys(keys):
            client = watch.clients.get(key)
            if client is None or client.server != message.server:
                continue
            for delivery, _ in self._deliveries.of(message, key, client):
                if delivery.fate is Fate.NO_SUBSCRIPTION:
                    if (message.topic, key) in self._named:
                        is_repeated = True
                        continue
                    self._named.add((message.topic, key))
                deliveries.append(delivery)
        deliveries.sort(key=shown_order)
        missed = {delivery.client for delivery in deliveries if delivery.is_trouble}
        reached = {delivery.client for delivery in deliveries if delivery.fate is Fate.DELIVERED}
        trouble, got, partly = len(missed - reached), len(reached), len(missed & reached)
        evidence = list(self._evidence(message))
        summary = f"delivered to {counted(got, 'client')}" if got else "delivered to no captured client"
        if trouble:
            summary = f"{summary}, not to {trouble:,}" if got else f"not delivered to {counted(trouble, 'client')}"
        if partly:
            summary += f"; a further copy is missing for {partly:,}"
        is_refused = message.code is not None and message.code >= FAILURE
        if is_refused:
            summary = f"refused by the broker ({describe.code(message.code or 0)})"
        if not deliveries:
            like = "; clients with one like it are named with an earlier message" if is_repeated else ", or one like it"
            evidence.append(Evidence(f"no captured client had a subscription that it matches{like}"))
        left = len(deliveries) - model.MAX_REPORTED
        if left > 0:
            evidence.append(Evidence(f"{counted(left, 'more client')} {describe.are(left)} not shown"))
        is_named_before = is_repeated and not deliveries and not is_refused
        return MessageFate(
            describe.name(message.topic), summary, message, tuple(evidence), tuple(deliveries[:model.MAX_REPORTED]),
            is_named_before,
        )  # fmt: skip

    def _evidence(self, message: Published) -> Iterator[Evidence]:
        """The publishing of a message, and the answer of the broker."""
        retained = ", retained" if message.retain else ""
        text = f"{message.client} published it with QoS {message.qos}{retained} ({counted(message.size, 'byte')})"
        yield Evidence.at(text, message)
        pause = message.pause
        if pause is not None:
            rest, length = message.end - pause.offset, describe.span(pause.length_ns)
            why = (
                f"together with its {message.joined}: it most probably does not flush its output"
                if message.joined else "late, or a segment was lost before it came to the place of the capture"
            )  # fmt: skip
            yield Evidence(
                f"{message.client} had sent the bytes before the last {rest:,} {length} earlier (frame"
                f" {pause.from_frame}), and TCP had acknowledged them; it sent these {why}"
            )
        if message.forward is not None:
            yield Evidence(f"most probably {message.client} forwarded it: {message.forward.text}")
        again, places = message.repetition, [] if message.answer is None else [message.answer]
        if again is not None:
            answered_ns = 0 if message.answer is None else message.answer.timestamp_ns or 0
            text = again.by_publisher(message.client, message.timestamp_ns, answered_ns)
            places.append(Evidence(text, again.last_frame, again.last_ns))
        yield from in_order(places)
        if message.answer is None:
            yield Evidence(
                self.watch.unknown_answer if message.is_answer_unknown
                else "no acknowledgement of the broker was captured" if message.qos
                else "with QoS 0 nothing shows whether the broker got it"
            )  # fmt: skip
        if message.code == NO_SUBSCRIBERS:
            yield Evidence("the broker reports that no client had a subscription for it then")

    def losses(self) -> Iterator[Loss]:
        """Report requests and messages that did not reach clients, as far as the capture shows it.

        A message that a client missed because it was not meant to be connected is not among them, and neither is one
        with a topic that had this payload more than once: either of them may be the missing one.
        """
        watch = self.watch
        for key, client in watch.clients.items():
            for wanted in client.filters.values():
                if (wanted.code or 0) >= FAILURE:
                    text = f"the broker refused its subscription to {describe.name(wanted.topic_filter)}"
                    yield Loss(
                        client.name, wanted.connection, Fate.SUBSCRIPTION_REFUSED, wanted.topic_filter,
                        f"{text} ({describe.code(wanted.code or 0)})", wanted.frame, wanted.asked_ns, wanted.capture,
                    )  # fmt: skip
                shortfall = None
                if wanted.answers >= LEAST_ANSWERS:
                    shortfall = self._deliveries.answers.shortfall(key, client, wanted)
                if shortfall is not None:
                    yield _left_out(shortfall)
        for message in watch.published.values():
            yield from self._losses_of(message)

    def _losses_of(self, message: Published) -> Iterator[Loss]:
        """Report the clients that did not get a message, or its refusal."""
        watch = self.watch
        place = message.frame, message.timestamp_ns, message.capture
        if (message.code or 0) >= FAILURE:
            text = f"the broker refused its message to {describe.name(message.topic)}"
            yield Loss(
                message.client, message.connection, Fate.MESSAGE_REFUSED, message.topic,
                f"{text} ({describe.code(message.code or 0)})", *place,
            )  # fmt: skip
            return
        if len(watch.expected[message.server, message.topic, message.checksum]) > 1:
            return
        text = f"did not get the message to {describe.name(message.topic)} of {message.client}"
        for key in dict.fromkeys((*message.held, *(watch.matching(message.topic) if message.retain else ()))):
            reader = watch.clients.get(key)
            if reader is None or reader.server != message.server:
                continue
            for delivery, held in self._deliveries.of(message, key, reader):
                if held is not None and is_loss(delivery.fate, message, held, reader):
                    yield Loss(
                        reader.name, held.number, delivery.fate, message.topic, f"{text}: {delivery.outcome}", *place
                    )
                elif held is None and delivery.fate is Fate.NOT_SENT and delivery.group is None:
                    yield Loss(
                        reader.name, reader.number, delivery.fate, message.topic, f"{text}: {delivery.outcome}", *place
                    )  # a retained message, for a later subscription


def _limits(watch: MessageWatch) -> Iterator[str]:
    """A sentence for each limit that was reached."""
    if watch.beyond:
        yield f"limit: {MAX_MESSAGES:,} messages are followed; earlier ones that are not: {watch.beyond:,}."
    if watch.dropped:
        yield f"limit: {MAX_CLIENTS:,} clients are followed; forgotten: {watch.dropped:,}."
    if watch.forgotten:
        yield (
            "limit: the report about clients may be wrong; forgotten subscriptions and connections:"
            f" {watch.forgotten:,}."
        )
    if watch.unfollowed:
        yield (
            f"limit: {model.MAX_REPORTED} UNSUBSCRIBE packets without a subscription are followed of each client;"
            f" further ones: {watch.unfollowed:,}."
        )
    if watch.pauses.forgotten:
        yield f"limit: not all pauses of senders are shown; forgotten: {watch.pauses.forgotten:,}."
    if watch.unheld or watch.uncompared:
        yield "limit: for some messages, not all clients with a matching or similar subscription are shown."


def _left_out(shortfall: RetainedShortfall) -> Loss:
    """The loss of the retained messages that a broker did not send for a SUBSCRIBE."""
    wanted, first = shortfall.wanted, shortfall.missing[0]
    text = (
        f"got {shortfall.came:,} of {shortfall.total:,} retained messages for {describe.name(wanted.topic_filter)}, and"
        f" not {describe.name(first.topic)}"
    )
    return Loss(
        shortfall.client.name, wanted.connection, Fate.NOT_SENT, first.topic, text, wanted.frame, wanted.asked_ns,
        wanted.capture,
    )  # fmt: skip


def _asked_again(client: Subscriber, message: Published) -> Wanted | None:
    """The subscription of a client to a topic after a message, in a session that began after it."""
    began = {number: back_ns for back_ns, _, present, number in client.returns if not present}
    for wanted in client.filters.values() if began else ():
        is_new = began.get(wanted.connection, 0) > message.last_ns and wanted.asked_ns > message.last_ns
        is_granted = wanted.granted_ns is not None and (wanted.code or 0) < FAILURE
        if is_new and is_granted and not wanted.share and matches(wanted.plain_filter, message.topic, shared=False):
            return wanted
    return None


def _without_repeats(troubled: list[MessageFate]) -> list[MessageFate]:
    """Messages that did not arrive; of the retained messages that one SUBSCRIBE left out only the first."""
    groups: set[object] = set()
    worth = []
    for fate in troubled:
        trouble = [delivery.group for delivery in fate.deliveries if delivery.is_trouble]
        if None in trouble or not groups.issuperset(trouble):
            worth.append(fate)
        groups.update(trouble)
    return worth


def _near(fates: list[MessageFate], shown: list[MessageFate]) -> Iterator[str]:
    """Sentences about clients with a filter that comes near the topic of a message that is not shown."""
    full = {id(fate) for fate in shown}
    near = [
        f"{delivery.client} {delivery.outcome} ({fate.topic})."
        for fate in fates
        if id(fate) not in full
        for delivery in fate.deliveries
        if delivery.fate is Fate.NO_SUBSCRIPTION
    ]
    yield from near[: model.MAX_REPORTED]
    if len(near) > model.MAX_REPORTED:
        yield describe.more_not_shown(len(near) - model.MAX_REPORTED)


def _is_remarkable(fate: MessageFate) -> bool:
    """Whether a message came late, more than once, or through another broker."""
    is_forwarded = fate.published is not None and fate.published.forward is not None
    return is_forwarded or any(delivery.remark for delivery in fate.deliveries)


def _is_troubled(fate: MessageFate) -> bool:
    """Whether a client wanted the message and did not get it."""
    return any(delivery.is_trouble for delivery in fate.deliveries)


def _is_idle(fate: MessageFate) -> bool:
    """Whether no client got the message or missed it."""
    return all(_is_aside(delivery) for delivery in fate.deliveries)


def _causes(fate: MessageFate) -> Iterator[tuple[Cause, Delivery]]:
    """The causes of the clients that missed a message, each with its first delivery."""
    causes: dict[Cause, Delivery] = {}
    for delivery in fate.deliveries:
        if delivery.is_trouble:
            causes.setdefault((delivery.client, delivery.fate, delivery.advice), delivery)
    yield from causes.items()


def _chosen(fates: list[MessageFate]) -> tuple[list[MessageFate], list[str]]:
    """The messages that are shown, and a sentence for each cause of others.

    If not all of them have room, each cause has its first messages before any cause has more, and these come before
    messages that no client missed.
    """
    if len(fates) <= MAX_SHOWN:
        return list(fates), []
    rows: dict[Cause, list[tuple[MessageFate, Delivery]]] = {}
    ranked = []
    for fate in fates:
        ranks = []
        for cause, delivery in _causes(fate):
            row = rows.setdefault(cause, [])
            ranks.append(len(row))
            row.append((fate, delivery))
        if not ranks or min(ranks) < MAX_ALIKE:
            ranked.append((min(ranks, default=MAX_ALIKE), fate))
    shown = [fate for _, fate in sorted(ranked, key=lambda pair: pair[0])[:MAX_SHOWN]]
    chosen, hidden = {id(fate) for fate in shown}, []
    for (client, _, _), row in rows.items():
        left = sum(id(fate) not in chosen for fate, _ in row)
        if left:
            frames = [fate.published.frame for fate, _ in row if fate.published is not None]
            where = f"frames {frames[0]:,} to {frames[-1]:,}" if len(frames) > 1 else f"frame {frames[0]:,}"
            hidden.append(
                f"{client}: {counted(len(row), 'message')} with this cause ({where}), {left:,} not shown; the first:"
                f" {row[0][1].outcome}."
            )
    idle = sum(id(fate) not in chosen and not _is_troubled(fate) for fate in fates)
    if len(hidden) > model.MAX_REPORTED:
        hidden[model.MAX_REPORTED :] = [describe.more_not_shown(len(hidden) - model.MAX_REPORTED)]
    if idle:
        hidden.append(f"{counted(idle, 'message')} that no captured client got {describe.are(idle)} not shown.")
    return shown, hidden


def _is_aside(delivery: Delivery) -> bool:
    """Whether a client neither got the message nor missed it."""
    return delivery.fate is not Fate.DELIVERED and not delivery.is_trouble
