from mqttscope.lint.message_model import Messages, share_of
from mqttscope.lint.rules import V5, Findings, Needs, Related, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, MessageRule, pairing_of
from mqttscope.mqtt import Publish
from mqttscope.session.matching import FAILURE

_SHOWN = 4
"""Maximum number of members named in a finding."""


class SharedDeliveredToSeveral(MessageRule):
    """A message of a Shared Subscription goes to more than one of its members.

    The members of a Shared Subscription divide the work, so each message is for one member: if two receive it, the work
    is done twice.  Another copy is allowed if the first member's connection has ended, or for an ordinary subscription
    of the member.  Reported only if the payload identifies the message among all others of its topic.

    Instead, choose one member for each message, and another member only if the connection of the first has ended.
    """

    code = "DLV419"
    severity = Severity.ERROR
    versions = (V5,)
    statements = {V5: {"V5-SHARED-exactly-one": ""}}
    needs = ALL_SUBSCRIPTIONS | Needs.WHOLE_SENDER

    good = examples("""
        one member
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; @2 opened client=c3
            @2 > subscribe 1 $share/g/a:1; @2 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            > publish a other qos=1 id=2; < puback 2; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
            @2 < publish a other qos=1 id=1; @2 > puback 1
        the first member is gone
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; @2 opened client=c3
            @2 > subscribe 1 $share/g/a:1; @2 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            @1 < publish a 21.5 qos=1 id=1; @1 > reset; @2 < publish a 21.5 qos=1 id=1; @2 > puback 1
        an additional ordinary subscription
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1 a:1; @1 < suback 1 1 1; @2 opened client=c3
            @2 > subscribe 1 $share/g/a:1; @2 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            @1 < publish a 21.5 qos=1 id=1; @1 > puback 1; @2 < publish a 21.5 qos=1 id=1; @2 > puback 1
        another Shared Subscription
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; @2 opened client=c3
            @2 > subscribe 1 $share/h/a:1; @2 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            @1 < publish a 21.5 qos=1 id=1; @1 > puback 1; @2 < publish a 21.5 qos=1 id=1; @2 > puback 1
        the same payload published again
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; @2 opened client=c3
            @2 > subscribe 1 $share/g/a:1; @2 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            > publish a 21.5 qos=1 id=1; < puback 1; @1 < publish a 21.5 qos=1 id=1; @1 > puback 1
            @2 < publish a 21.5 qos=1 id=1; @2 > puback 1
    """)
    bad = examples("""
        two members
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; @2 opened client=c3
            @2 > subscribe 1 $share/g/a:1; @2 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            @1 < publish a 21.5 qos=1 id=1; @1 > puback 1; @2 < publish a 21.5 qos=1 id=1 !; @2 > puback 1
        a wildcard, QoS 0
            @1 opened client=c2; @1 > subscribe 1 $share/g/#:1; @1 < suback 1 1; @2 opened client=c3
            @2 > subscribe 1 $share/g/#:1; @2 < suback 1 1; opened; +2 > publish a 21.5; @1 < publish a 21.5
            @2 < publish a 21.5 !
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for other members of the share that have received the message."""
        pairing = pairing_of(packet, at)
        if pairing is None or pairing.retained or not at.model(Messages).table.shared:
            return None
        sent = pairing.sole
        if sent is None or pairing.owner in sent.copies:
            return None
        share = share_of(sent.topic, at)
        if not share:
            return None
        before = []
        for owner, copies in sent.copies.items():
            for copy in copies:
                history = at.history_of(copy.key)
                if copy.share != share or history is None:
                    continue
                identifier = copy.packet_identifier
                ended = None if identifier is None else history.server.ended.get(identifier)
                if ended is not None and ended.reason_code >= FAILURE:
                    continue  # DLV418
                before.append((owner, copy))
                break
        if not before:
            return None
        names = ", ".join(repr(owner) for owner, _ in before[:_SHOWN])
        first = before[0][1]
        return self.report(
            "",
            f"message on {sent.topic!r} is sent to {pairing.owner!r} as well as to {names}, all members of the shared "
            f"subscription {share!r}",
            related=(
                Related.to("the message as published", sent),
                Related.to("the message as delivered before", first),
            ),
        )
