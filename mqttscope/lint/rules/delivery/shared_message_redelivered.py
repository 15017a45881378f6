from dataclasses import dataclass, field

from mqttscope.lint.examples import examples
from mqttscope.lint.message_model import Messages, share_of
from mqttscope.lint.rules import V5, Confidence, Findings, Needs, Related, Rule, RuleContext, Severity, forget_oldest
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, paired
from mqttscope.mqtt.packets import Puback, Publish, Pubrec
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
    when = {Puback: "reason_code", Pubrec: "reason_code"}
    needs = ALL_SUBSCRIPTIONS | Needs.WHOLE_SENDER
    models = (Messages,)
    about = (Messages, "topics")
    signs = {Publish: ("from_server",)}
    Memory = Refusals

    good = examples("""
        it is dropped
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; @2 opened client=c3
            @2 > subscribe 1 $share/g/a:1; @2 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            @1 < publish a 21.5 qos=1 id=1; @1 > puback 1 code=0x80; +2 > publish a other qos=1 id=1; < puback 1
            @2 < publish a other qos=1 id=1; @2 > puback 1
        the member is gone, and QoS 1 goes to another one
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; @2 opened client=c3
            @2 > subscribe 1 $share/g/a:1; @2 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            @1 < publish a 21.5 qos=1 id=1; @1 > reset; @2 < publish a 21.5 qos=1 id=1; @2 > puback 1
        an ordinary subscription has a copy of its own
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; @2 opened client=c3
            @2 > subscribe 1 a:1; @2 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            @1 < publish a 21.5 qos=1 id=1; @1 > puback 1 code=0x80; @2 < publish a 21.5 qos=1 id=1; @2 > puback 1
        published again
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; @2 opened client=c3
            @2 > subscribe 1 $share/g/a:1; @2 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            @1 < publish a 21.5 qos=1 id=1; @1 > puback 1 code=0x80; +2 > publish a 21.5 qos=1 id=1; < puback 1
            @2 < publish a 21.5 qos=1 id=1; @2 > puback 1
    """)
    bad = examples("""
        refused by one, offered to the next
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; @2 opened client=c3
            @2 > subscribe 1 $share/g/a:1; @2 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            @1 < publish a 21.5 qos=1 id=1; @1 > puback 1 code=0x80; @2 < publish a 21.5 qos=1 id=1 !; @2 > puback 1
        QoS 2, refused
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:2; @1 < suback 1 2; @2 opened client=c3
            @2 > subscribe 1 $share/g/a:2; @2 < suback 1 2; opened; +2 > publish a 21.5 qos=2 id=1; < pubrec 1
            > pubrel 1; < pubcomp 1; @1 < publish a 21.5 qos=2 id=1; @1 > pubrec 1 code=0x99
            @2 < publish a 21.5 qos=2 id=1 !; @2 > pubrec 1
        QoS 2, under way when the connection broke
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:2; @1 < suback 1 2; @2 opened client=c3
            @2 > subscribe 1 $share/g/a:2; @2 < suback 1 2; opened; +2 > publish a 21.5 qos=2 id=1; < pubrec 1
            > pubrel 1; < pubcomp 1; @1 < publish a 21.5 qos=2 id=1; @1 > reset; @2 < publish a 21.5 qos=2 id=1 !
            @2 > pubrec 1
    """)

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
        related = [Related.to("the message as published", sent)]
        if refused is not None and refused.share == share and refused.owner != found.owner:
            related.append(Related.to("the refusal", refused))
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
                    related.append(Related.to("the message as sent before", one))
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
        forget_oldest(memory.by_message, MAX_REFUSED)
