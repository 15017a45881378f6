"""DLV418."""

from dataclasses import dataclass, field

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, on, opened, server
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.message_model import Messages, share_of
from mqttscope.lint.rule import V5, Findings, Needs, Rule
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, message, paired, publishes, subscriber
from mqttscope.mqtt.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from mqttscope.session.matching import FAILURE

MAX_REFUSED = 1_000
"""Messages that a member of a share refused and that are remembered; older ones are not followed."""


@dataclass(slots=True)
class Refused:
    """A message that a member of a share refused."""

    owner: str
    share: str
    reason_code: int
    packet: int
    frame: int
    timestamp_ns: int


@dataclass(slots=True)
class Refusals:
    """By the number of the message."""

    by_message: dict[int, Refused] = field(default_factory=dict)


_SHARE = "$share/g/a"
_MEMBERS = (*subscriber(V5, _SHARE), *subscriber(V5, _SHARE, connection=2, identifier="c3"))
_MEMBERS_2 = (
    *subscriber(V5, _SHARE, granted=2),
    *subscriber(V5, _SHARE, granted=2, connection=2, identifier="c3"),
)
_SENT_2 = (
    client(message(qos=2), after=2),
    server(Pubrec(1)),
    client(Pubrel(1)),
    server(Pubcomp(1)),
)


class SharedMessageRedelivered(Rule):
    """A message of a Shared Subscription that one member has refused, or has begun to take, goes to another one.

    A member that answers with an error says that the message is bad, so that a server which offers it to one after the
    other makes them all fail.  A QoS 2 message that is under way when the connection of its member breaks belongs to
    the session of that member, which may have taken it.  One of QoS 1 may go to another member then.

    Instead, drop what a member refuses, and keep QoS 2 messages for the member that they were sent to.
    """

    code = "DLV418"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    versions = (V5,)
    statements = {V5: {"MQTT-4.8.2-5": "", "MQTT-4.8.2-6": ""}}
    looks_at = (Publish, Puback, Pubrec)
    when = {Puback: "reason_code", Pubrec: "reason_code"}
    needs = ALL_SUBSCRIPTIONS | Needs.WHOLE_SENDER
    models = (Messages,)
    about = (Messages, "topics")
    signs = {Publish: ("from_server",)}
    Memory = Refusals

    good = examples(
        lambda: [
            conversation(
                "it is dropped",
                *_MEMBERS,
                *opened(),
                *publishes(message()),
                *on(1, server(message()), client(Puback(1, reason_code=0x80))),
                *publishes(message(b"other")),
                *on(2, server(message(b"other")), client(Puback(1))),
            ),
            conversation(
                "the member is gone, and QoS 1 goes to another one",
                *_MEMBERS,
                *opened(),
                *publishes(message()),
                *on(1, server(message()), closes("client", "reset")),
                *on(2, server(message()), client(Puback(1))),
            ),
            conversation(
                "an ordinary subscription has a copy of its own",
                *subscriber(V5, _SHARE),
                *subscriber(connection=2, identifier="c3"),
                *opened(),
                *publishes(message()),
                *on(1, server(message()), client(Puback(1, reason_code=0x80))),
                *on(2, server(message()), client(Puback(1))),
            ),
            conversation(
                "published again",
                *_MEMBERS,
                *opened(),
                *publishes(message()),
                *on(1, server(message()), client(Puback(1, reason_code=0x80))),
                *publishes(message()),
                *on(2, server(message()), client(Puback(1))),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "refused by one, offered to the next",
                *_MEMBERS,
                *opened(),
                *publishes(message()),
                *on(1, server(message()), client(Puback(1, reason_code=0x80))),
                *on(2, server(message()).marked(""), client(Puback(1))),
            ),
            conversation(
                "QoS 2, refused",
                *_MEMBERS_2,
                *opened(),
                *_SENT_2,
                *on(1, server(message(qos=2)), client(Pubrec(1, reason_code=0x99))),
                *on(2, server(message(qos=2)).marked(""), client(Pubrec(1))),
            ),
            conversation(
                "QoS 2, under way when the connection broke",
                *_MEMBERS_2,
                *opened(),
                *_SENT_2,
                *on(1, server(message(qos=2)), closes("client", "reset")),
                *on(2, server(message(qos=2)).marked(""), client(Pubrec(1))),
            ),
        ]
    )

    def check(self, packet: Publish | Puback | Pubrec, at: RuleContext) -> Findings:
        """Note what is refused, and compare it with what the server sends to others."""
        if not isinstance(packet, Publish):
            if at.from_client and (packet.reason_code or 0) >= FAILURE:
                self._refused(packet, at)
            return None
        if at.from_client:
            return None
        found = paired(packet, at)
        if found is None or found.retained or not at.model(Messages).table.shared:
            return None
        sent = found.sole
        share = share_of(found.topic.name, at)
        if sent is None or not share or found.owner in sent.copies:
            return None
        memory: Refusals = at.memory(self)
        refused = memory.by_message.get(sent.number)
        related = [Related("the message as published", sent.packet, sent.frame, sent.timestamp_ns)]
        if refused is not None and refused.share == share and refused.owner != found.owner:
            related.append(Related("the refusal", refused.packet, refused.frame, refused.timestamp_ns))
            return self.report(
                "",
                f"shared subscription {share!r}: a message on {sent.topic!r} that {refused.owner!r} refused with "
                f"0x{refused.reason_code:02x} is sent to {found.owner!r}",
                statements=("MQTT-4.8.2-6",),
                related=tuple(related),
            )
        for owner, copies in sent.copies.items():
            for one in copies:
                if one.share == share and one.qos == 2 and at.history_of(one.key) is None:
                    related.append(Related("the message as sent before", one.packet, one.frame, one.timestamp_ns))
                    return self.report(
                        "",
                        f"shared subscription {share!r}: a QoS 2 message on {sent.topic!r} that was sent to {owner!r} "
                        f"before its connection ended is sent to {found.owner!r}",
                        statements=("MQTT-4.8.2-5",),
                        related=tuple(related),
                    )
        return None

    def _refused(self, packet: Puback | Pubrec, at: RuleContext) -> None:
        exchange = at.server.exchanges.get(packet.packet_identifier)
        topic = None if exchange is None else exchange.topic
        known = None if topic is None else at.model(Messages).topics.get(topic)
        checksum = at.history.server.checksums.get(packet.packet_identifier)
        if known is None or checksum is None:
            return
        share = share_of(known.name, at)
        alike = known.contents.get(checksum, ())
        if not share or len(alike) != 1:
            return
        memory: Refusals = at.memory(self)
        place = (at.number, at.event.frame, at.timestamp_ns)
        memory.by_message[alike[0].number] = Refused(at.client_name, share, packet.reason_code or 0, *place)
        if len(memory.by_message) > MAX_REFUSED:
            del memory.by_message[next(iter(memory.by_message))]
