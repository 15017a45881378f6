from dataclasses import dataclass, field

from mqttscope.lint.examples import examples
from mqttscope.lint.message_model import Messages, share_of
from mqttscope.lint.rules import V5, Confidence, Findings, Needs, Related, Rule, RuleContext, Severity, forget_oldest
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, pairing_of
from mqttscope.mqtt.packets import Puback, Publish, Pubrec
from mqttscope.session.matching import FAILURE

MAX_REFUSED = 1_000
"""Maximum number of refused messages kept; older ones are not checked."""


@dataclass(slots=True)
class MemberRefusal:
    """The refusal of a message by a member of a Shared Subscription."""

    owner: str
    share: str
    reason_code: int
    packet: int
    frame: int
    timestamp_ns: int


@dataclass(slots=True)
class MemberRefusals:
    """Refusals by message number."""

    by_message: dict[int, MemberRefusal] = field(default_factory=dict)


class SharedMessageRedelivered(Rule):
    """A Shared Subscription message that one member refused, or began to receive, is sent to another member.

    A member that answers with an error has found a bad message; if the server offers it to one member after another,
    all of them fail.  A QoS 2 message in flight when the connection of its member breaks belongs to the session of that
    member, which may have received it.  Only a QoS 1 message may be sent to another member then.

    Instead, drop messages that a member refuses, and keep QoS 2 messages for the member that they were sent to.
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
    Memory = MemberRefusals

    good = examples("""
        dropped
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; @2 opened client=c3
            @2 > subscribe 1 $share/g/a:1; @2 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            @1 < publish a 21.5 qos=1 id=1; @1 > puback 1 code=0x80; +2 > publish a other qos=1 id=1; < puback 1
            @2 < publish a other qos=1 id=1; @2 > puback 1
        the member is gone, and QoS 1 goes to another member
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; @2 opened client=c3
            @2 > subscribe 1 $share/g/a:1; @2 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            @1 < publish a 21.5 qos=1 id=1; @1 > reset; @2 < publish a 21.5 qos=1 id=1; @2 > puback 1
        an additional ordinary subscription
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
        refused by one member, offered to the next
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; @2 opened client=c3
            @2 > subscribe 1 $share/g/a:1; @2 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            @1 < publish a 21.5 qos=1 id=1; @1 > puback 1 code=0x80; @2 < publish a 21.5 qos=1 id=1 !; @2 > puback 1
        QoS 2, refused
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:2; @1 < suback 1 2; @2 opened client=c3
            @2 > subscribe 1 $share/g/a:2; @2 < suback 1 2; opened; +2 > publish a 21.5 qos=2 id=1; < pubrec 1
            > pubrel 1; < pubcomp 1; @1 < publish a 21.5 qos=2 id=1; @1 > pubrec 1 code=0x99
            @2 < publish a 21.5 qos=2 id=1 !; @2 > pubrec 1
        QoS 2, in flight when the connection broke
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:2; @1 < suback 1 2; @2 opened client=c3
            @2 > subscribe 1 $share/g/a:2; @2 < suback 1 2; opened; +2 > publish a 21.5 qos=2 id=1; < pubrec 1
            > pubrel 1; < pubcomp 1; @1 < publish a 21.5 qos=2 id=1; @1 > reset; @2 < publish a 21.5 qos=2 id=1 !
            @2 > pubrec 1
    """)

    def check(self, packet: Publish | Puback | Pubrec, at: RuleContext) -> Findings:
        """Store refusals, and compare deliveries to other members with them."""
        if not isinstance(packet, Publish):
            if at.from_client and (packet.reason_code or 0) >= FAILURE:
                self._refused(packet, at)
            return None
        if at.from_client:
            return None
        pairing = pairing_of(packet, at)
        if pairing is None or pairing.retained or not at.model(Messages).table.shared:
            return None
        sent = pairing.sole
        share = share_of(pairing.topic.name, at)
        if sent is None or not share or pairing.owner in sent.copies:
            return None
        memory: MemberRefusals = at.memory(self)
        refused = memory.by_message.get(sent.number)
        related = [Related.to("the message as published", sent)]
        if refused is not None and refused.share == share and refused.owner != pairing.owner:
            related.append(Related.to("the refusal", refused))
            return self.report(
                "",
                f"shared subscription {share!r}: a message on {sent.topic!r} that {refused.owner!r} refused with "
                f"0x{refused.reason_code:02x} is sent to {pairing.owner!r}",
                statements=("MQTT-4.8.2-6",),
                related=tuple(related),
            )
        for owner, copies in sent.copies.items():
            for copy in copies:
                if copy.share == share and copy.qos == 2 and at.history_of(copy.key) is None:
                    related.append(Related.to("the message as sent before", copy))
                    return self.report(
                        "",
                        f"shared subscription {share!r}: a QoS 2 message on {sent.topic!r} that was sent to {owner!r} "
                        f"before its connection ended is sent to {pairing.owner!r}",
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
        memory: MemberRefusals = at.memory(self)
        place = (at.number, at.event.frame, at.timestamp_ns)
        memory.by_message[alike[0].number] = MemberRefusal(at.client_name, share, packet.reason_code or 0, *place)
        forget_oldest(memory.by_message, MAX_REFUSED)
