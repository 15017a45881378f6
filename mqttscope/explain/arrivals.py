"""How a message came to a client: once or for each subscription, held back on its way, or not taken by its program."""

from __future__ import annotations

from typing import Protocol

from mqttscope.events import PacketEvent
from mqttscope.explain import describe
from mqttscope.explain.fates import NEVER, SECOND, Fate, Got, Published, Subscriber, Wanted
from mqttscope.explain.pauses import PauseWatch
from mqttscope.explain.repetitions import has_answer
from mqttscope.explain.segments import DELAYED_NS
from mqttscope.mqtt import ProtocolVersion, packets
from mqttscope.mqtt.topics import matches
from mqttscope.mqtt.wire import counted, write_variable_byte_integer
from mqttscope.session.inflight import RECEIVED
from mqttscope.session.matching import FAILURE

DISJOINT = (
    "Make the Topic Filters of the client disjoint, or let it expect each message once for each matching subscription."
)
FLUSH = "Let the publisher flush its output after each message, not only with its next packet."
NODELAY = "Set TCP_NODELAY at the broker (mosquitto: set_tcp_nodelay true)."
ALARM = "Look why the broker stopped processing messages: a memory or disk alarm, an overload, or a blocked thread."
BUFFER = "Check how long a packet the client can take (PubSubClient: setBufferSize, MQTT_MAX_PACKET_SIZE)."
KEEP = (
    "Connect without Clean Start and, in 5.0, with a Session Expiry Interval; subscribe after each CONNACK with Session"
    " Present 0."
)
SUBSCRIBE_AGAIN = "Connect with a Session Expiry Interval; subscribe after each CONNACK with Session Present 0."
EXPIRED = "Raise the Session Expiry Interval of the client above its longest absence."
_PACKET_IDENTIFIER = 2
"""Size of a Packet Identifier."""
_TOPIC_ALIAS = 3
"""Size of the property Topic Alias."""
LARGER = "Raise the Maximum Packet Size of the client, or send smaller messages."
ACKNOWLEDGE = "Let the client acknowledge messages sooner, or raise its Receive Maximum."
CLUSTER = "Check whether the servers share sessions; after Session Present 0 a client has to subscribe again."
RETRY = (
    "Look at the retry interval of the broker: MQTT asks a server to send a message again after a reconnect (4.4), and"
    " TCP repeats what is lost before that."
)
AGAIN = (
    "Subscribe after each CONNACK with Session Present 0.",
    "The client asked to keep its session: look whether the broker stores sessions over restarts, and for how long.",
)
_FORGOTTEN = (
    "Look in the broker why it forgot an unacknowledged message of a session that it kept: a server has to send it"
    " again (4.4)."
)
_UNRELEASED = "Look in the broker why it sent no PUBREL: a server has to answer each PUBREC with it (4.3.3)."


class ArrivalWatch(Protocol):
    """Messages and segments of a capture (`messages.MessageWatch`)."""

    published: dict[int, Published]
    now_ns: int
    pauses: PauseWatch


def section(got: Got) -> str:
    """Section of the specification about messages that match several subscriptions."""
    return "5.0 3.3.4" if got.reader.version is ProtocolVersion.V5 else "3.1.1 3.3.5"


def held_back(watch: ArrivalWatch, message: Published, got: Got) -> tuple[str, str, tuple[str, ...]] | None:
    """How the publisher or the broker held a message back: words, the remark, and advice."""
    reader, pause = got.reader, message.pause
    if pause is not None and message.joined:
        after = describe.span(got.timestamp_ns - pause.from_ns)
        rest = f"{message.end - pause.offset:,}"
        text = f", and {after} after the bytes before the last {rest}, which {message.client} had held back"
        return text, "came late, since their publishers held back their last bytes", (FLUSH,)
    waited_ns = watch.pauses.held_ns((reader.server, reader.client), got.capture, got.frame)
    if not waited_ns or got.timestamp_ns - message.latest_ns < DELAYED_NS:
        return None
    text = (
        ": the broker held it back until TCP had acknowledged the small segment before, which took"
        f" {describe.span(waited_ns)} (Nagle's algorithm meets a delayed acknowledgment)"
    )
    return text, "came late, since the broker held back a small segment (Nagle's algorithm)", (NODELAY,)


def unprocessed(watch: ArrivalWatch, message: Published, key: tuple[str, str]) -> str:
    """Words about a message that only the TCP of its broker acknowledged, after others that reached a client; or empty.

    The broker had acknowledged and delivered earlier messages of this publisher to this topic, so that access rules
    are not the reason.  An acknowledgment of a later message of this connection contradicts it, and so does a delivery.
    """
    source = message.source
    if not message.qos or message.answer is not None or message.is_answer_unknown or message.got:
        return ""
    over_ns = min(watch.now_ns, source.closed_ns or NEVER)
    if source.one_sided or source.server_side.gapped or over_ns < message.last_ns + SECOND:
        return ""
    alike = [
        other
        for other in watch.published.values()
        if (other.topic, other.key) == (message.topic, message.key) and other.answer is not None
    ]
    before = sum(key in other.got for other in alike if other.timestamp_ns < message.timestamp_ns)
    if not before or any(other.source is source and other.timestamp_ns > message.timestamp_ns for other in alike):
        return ""
    return (
        f"the broker did not acknowledge it either, although it had acknowledged {counted(before, 'message')} of"
        f" {message.client} to this topic that came to this client: TCP brought it to the broker's host, and the broker"
        " most probably did not process it"
    )


def unheard(got: Got, copies: list[Got], now_ns: int) -> str:
    """Words about a message with QoS 0 that a client most probably dropped because of its length; else empty.

    ``copies``: all messages of the topic that the client was sent.  It sent a message within a second after at least
    two shorter ones, and never within a second after at least two that are this long.  A reply to one of the longer
    ones disproves it, and so does an end within that second.
    """
    if got.needs_answer or got.reply or not got.is_acknowledged:
        return ""
    over_ns = min(now_ns, got.reader.closed_ns or NEVER)
    replied = [copy.size for copy in copies if copy.reply]
    silent = [copy.size for copy in copies if not copy.reply and copy.timestamp_ns + SECOND <= over_ns]
    if len(replied) < 2 or len(silent) < 2 or max(replied) >= min(silent) or got.size < min(silent):
        return ""
    return (
        f"; TCP of the client acknowledged it, and its program most probably dropped it: it sent a message within"
        f" 1 s after each of {len(replied):,} shorter ones (up to {max(replied):,} bytes), and never after one of"
        f" {len(silent):,} with {min(silent):,} bytes or more"
    )


def doubled(message: Published, key: tuple[str, str], share: str, got: Got) -> tuple[Wanted, ...]:
    """The subscriptions of a client that each brought it a copy of one message; empty if there was one copy.

    The copies came within a second of each other, without DUP and without RETAIN, and the client had just as
    many matching subscriptions that the broker had not refused.  Copies that may come from a publisher which sent
    the message again, or through another broker, prove nothing; a second copy with the same Subscription
    Identifier contradicts it.
    """
    held = next((each for each in message.held.get(key, ()) if each.share == share), None)
    if share or held is None or not got.beside or got.passed_on or got.echo or message.repetition is not None:
        return ()
    if got.surplus:
        return ()
    due = tuple(wanted for wanted in held.subscriptions if wanted.applies(message, key))
    return due if len(due) == 1 + len(got.beside) else ()


def doubled_text(message: Published, key: tuple[str, str], share: str, got: Got) -> str:
    """Words about a message that came once for each subscription; empty if it did not."""
    due = doubled(message, key, share, got)
    if not due:
        return ""
    frames = describe.listed([f"{frame:,}" for frame in (got.frame, *got.beside)])
    names = describe.listed([describe.name(wanted.topic_filter) for wanted in due])
    return (
        f", {1 + len(got.beside)} times (frames {frames}), once for each matching subscription ({names}): the"
        f" specification allows that ({section(got)})"
    )


def copy_of(
    event: PacketEvent,
    client: Subscriber,
    key: tuple[str, str],
    alike: list[tuple[int, Published]],
    identifiers: list[int],
) -> tuple[int | None, str]:
    """The message that a delivery to a client is a copy of: the oldest one that lacks it, with its share, if any.

    A PUBLISH that the broker sends again is the same copy.  Messages that were due to the client go before messages
    after the end of its subscription or session, and these before messages from before it had one.  A share gets one
    copy of a message, through any of its members.  A client gets one for its other subscriptions, or one for each.
    """
    for number, published in alike:
        for share, copy in published.got.get(key, {}).items():
            if copy.is_repeated_by(event) or copy.is_resent_by(event):
                return number, share
    if len(alike) > 1:
        alike.sort(key=lambda pair: (not pair[1].is_due(key, client), key not in pair[1].held))
    topic = event.topic or ""
    matching = [wanted for wanted in client.filters.values() if matches(wanted.plain_filter, topic, shared=False)]
    named = [wanted for wanted in matching if wanted.identifier in (identifiers or (None,))]
    shares = [wanted.share for wanted in named or matching if wanted.share]
    ordinary = [wanted for wanted in named or matching if not wanted.share and wanted.ended_ns is None]
    if not shares or ordinary:
        for number, published in alike:
            former = published.got.get(key, {}).get("")
            if former is None or not former.best.arrived:
                return number, ""
    for number, published in alike:
        share = next((name for name in shares if name not in published.shares), "")
        if share:
            return number, share
    for number, published in alike:
        copies = published.got.get(key, {})
        # A share may get a message again where the member that had it has not acknowledged it.
        share = next((name for name in shares if name not in copies), "")
        if share:
            return number, share
        times = 1 if published.repetition is None else 1 + published.repetition.count
        came = 0 if "" not in copies else copies[""].named[tuple(identifiers)]
        if "" in copies and came < len(ordinary) * times:
            return number, ""
        again = next((name for name in shares if name in copies and copies[name].copies < times), "")
        if again:
            return number, again
    for number, message in alike:
        for share, copy in message.got.get(key, {}).items():
            if copy.is_repeated_by(event, is_exact=False) or copy.is_resent_by(event, is_exact=False):
                return number, share
    return None, ""


def is_sent_again(earlier: Published, event: PacketEvent, packet: packets.Publish, checksum: int) -> bool:
    """Whether a PUBLISH is the last one of its publisher with this Packet Identifier, sent again.

    Topic, payload and QoS are equal, and DUP is set.  Without DUP the identifier must still be in use: the first has
    no acknowledgment in a capture without a gap, or TCP shows that the publisher had not received the acknowledgment.
    A client that sends an equal message with its first identifier on each connection looks alike: it is one message
    for its readers, too.
    """
    if (earlier.topic, earlier.checksum, earlier.qos) != (event.topic, checksum, packet.qos):
        return False
    if packet.dup:
        return True
    source = earlier.source
    if earlier.answer is not None:
        return source is event.connection and has_answer(source, earlier.answer_position, from_client=True) is False
    history = source.history
    if source is event.connection and history is not None and not history.client.in_step():
        return False  # it had got bytes that the capture does not have
    is_whole = not (source.one_sided or source.server_side.gapped or source.unseen_bytes)
    return is_whole and not earlier.is_answer_unknown


def lapse(client: Subscriber, got: Got, now_ns: int) -> tuple[str, str] | None:
    """Why a message that was left unacknowledged cannot come again, and advice.

    ``None`` if it may come, or may have been answered.  TCP may have brought it to the host of the client; its program
    has not taken it as far as MQTT shows.  The next connection of the client decides: without the session the broker
    cannot send it again, and with the session it has to (5.0 and 3.1.1, 4.4), within a second here.
    """
    reader = got.reader
    if not got.needs_answer or got.is_answered or reader.closed_how in (None, "", "capture_end"):
        return None
    if reader.one_sided or reader.client_side.gapped or not reader.keeps_session:
        return None
    back = next((row for row in client.returns if row[0] > got.timestamp_ns and row[3] != got.connection), None)
    if back is None:
        return None
    back_ns, _, is_present, number = back
    if not is_present:
        text = f"it came back as #{number} without its session (Session Present 0), and was not sent it again"
        return text, AGAIN[1] if client.resumes else KEEP
    until_ns = min(now_ns, client.ends.get(number, (NEVER, 0))[0])
    if until_ns < back_ns + SECOND or client.gap_ns >= back_ns:
        return None
    return f"it resumed its session as #{number}, and the broker did not send the message again (4.4)", _FORGOTTEN


def unreleased(got: Got, now_ns: int) -> tuple[str, str] | None:
    """Words about a broker that sent no PUBREL after the PUBREC of a client, and advice; ``None`` if it did, or may."""
    reader = got.reader
    exchange = reader.server_side.exchanges.get(got.identifier or 0)
    if exchange is None or exchange.phase is not RECEIVED or exchange.timestamp_ns != got.timestamp_ns:
        return None
    if reader.one_sided or reader.server_side.gapped or now_ns < got.answered_ns + SECOND:
        return None
    ended_ns = reader.closed_ns if reader.closed_how not in (None, "", "capture_end") else now_ns
    if ended_ns < got.answered_ns + SECOND:
        return None  # the connection ended before an answer was due
    return "; the broker sent no PUBREL after its PUBREC, and some clients deliver a message only then", _UNRELEASED


def alias_bytes(topic: str, publish: packets.Publish) -> int:
    """Bytes that a PUBLISH to a topic lacks because of its Topic Alias, which its receiver does not forward."""
    if publish.properties is None or publish.properties.topic_alias is None:
        return 0
    return (0 if publish.topic_name else len(topic.encode())) - _TOPIC_ALIAS


def _copy_sizes(message: Published, client: Subscriber, wanted: Wanted) -> tuple[int, int]:
    """Minimum and maximum size of the PUBLISH that brings a message to a client with MQTT 5.0, in bytes.

    A copy has no Packet Identifier with QoS 0, and the properties that its publisher sent (5.0 3.3.2.3).  A broker may
    replace the topic by an alias of the client, or send it with one, and add the Subscription Identifier.
    """
    rest = next(message.size - head for head in (2, 3, 4, 5) if head == 5 or message.size - head < 1 << 7 * (head - 1))
    is_known, has_block = message.source.version_known, message.source.version is ProtocolVersion.V5
    most = rest + message.alias_bytes + (not has_block or not is_known)
    least = rest + message.alias_bytes + (not has_block and is_known)
    if message.qos and not wanted.qos:
        most, least = most - _PACKET_IDENTIFIER, least - _PACKET_IDENTIFIER
    elif message.qos and wanted.granted_ns is None:
        least -= _PACKET_IDENTIFIER  # the broker may have granted QoS 0
    if wanted.identifier is not None:
        most += 1 + len(write_variable_byte_integer(wanted.identifier))
    if client.takes_aliases:
        most, least = most + _TOPIC_ALIAS, least - max(0, len(message.topic.encode()) - _TOPIC_ALIAS)
    return (
        1 + len(write_variable_byte_integer(least)) + least,
        1 + len(write_variable_byte_integer(most)) + most,
    )


def over_limit(message: Published, client: Subscriber, wanted: Wanted, largest: int | None) -> str:
    """Words about a copy that is larger than the Maximum Packet Size of a client, or may be; empty if it is not."""
    least, most = _copy_sizes(message, client, wanted)
    if largest is None or most <= largest:
        return ""
    text = f"takes packets of at most {largest:,} bytes (Maximum Packet Size); the copy of this message has"
    if least > largest:
        return f"{text} {'' if least == most else 'at least '}{least:,}"
    return f"{text} {least:,} to {most:,}, so that it may be too large"


def limit_after_return(
    message: Published, client: Subscriber, wanted: Wanted, back_ns: int, number: int, now_ns: int
) -> tuple[Fate, str, str] | None:
    """A limit of the connection that resumed the session of a client, as fate, words and advice."""
    if text := over_limit(message, client, wanted, client.largest.get(number)):
        return Fate.TOO_LARGE, f"as #{number} it {text}", LARGER
    over_ns = min(now_ns, client.ends.get(number, (NEVER, 0))[0])
    if any(from_ns >= back_ns and until_ns >= over_ns for from_ns, until_ns in client.full):
        text = f"its Receive Maximum was used up after it had come back as #{number}: it did not acknowledge earlier"
        return Fate.QUOTA_FULL, f"{text} messages", ACKNOWLEDGE
    return None


def not_ended(message: Published, client: Subscriber) -> str:
    """Words about an UNSUBSCRIBE before the message that the broker refused; empty without one."""
    for wanted in client.filters.values():
        end = wanted.refused_end
        if end is not None and end[0] <= message.timestamp_ns and matches(wanted.plain_filter, message.topic):
            name = describe.name(wanted.topic_filter)
            return (
                f", after its UNSUBSCRIBE of {name}, which the broker refused ({describe.code(end[2])}, frame {end[1]})"
            )
    return ""


def uninvited(message: Published, client: Subscriber, got: Got) -> str:
    """Words about a broker that sends a message although it refused all subscriptions that match; else empty."""
    rows = [wanted for wanted in client.filters.values() if matches(wanted.plain_filter, message.topic, shared=False)]
    is_refused = all((row.code or 0) >= FAILURE and row.before is None for row in rows)
    if not rows or not is_refused or not client.complete or rows[0].asked_ns > got.timestamp_ns:
        return ""
    refused = f"{describe.name(rows[0].topic_filter)} ({describe.code(rows[0].code or 0)})"
    return f", although the broker had refused its subscription to {refused}"
