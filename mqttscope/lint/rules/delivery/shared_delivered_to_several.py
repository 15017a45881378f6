from mqttscope.lint.message_model import Messages, share_of
from mqttscope.lint.rules import V5, Findings, Needs, Related, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, MessageRule, paired
from mqttscope.mqtt import Publish
from mqttscope.session.matching import FAILURE

_SHOWN = 4
"""Members that a message names."""


class SharedDeliveredToSeveral(MessageRule):
    """A message of a Shared Subscription goes to more than one of its members.

    The members of a share divide the work, so each message is for one of them: what two of them do is done twice.
    Another copy is allowed where the first member's connection has ended, and for an ordinary subscription that a
    member holds too.  The payload has to tell the message from all others of its topic.

    Instead, choose one member for each message, and another one only when the connection of the first has ended.
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
        the first one is gone
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; @2 opened client=c3
            @2 > subscribe 1 $share/g/a:1; @2 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            @1 < publish a 21.5 qos=1 id=1; @1 > reset; @2 < publish a 21.5 qos=1 id=1; @2 > puback 1
        an ordinary subscription beside it
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1 a:1; @1 < suback 1 1 1; @2 opened client=c3
            @2 > subscribe 1 $share/g/a:1; @2 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            @1 < publish a 21.5 qos=1 id=1; @1 > puback 1; @2 < publish a 21.5 qos=1 id=1; @2 > puback 1
        another share
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; @2 opened client=c3
            @2 > subscribe 1 $share/h/a:1; @2 < suback 1 1; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            @1 < publish a 21.5 qos=1 id=1; @1 > puback 1; @2 < publish a 21.5 qos=1 id=1; @2 > puback 1
        the same payload again
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
        """Look which members of the share have got the message."""
        found = paired(packet, at)
        if found is None or found.retained or not at.model(Messages).table.shared:
            return None
        sent = found.sole
        if sent is None or found.owner in sent.copies:
            return None
        share = share_of(sent.topic, at)
        if not share:
            return None
        before = []
        for owner, copies in sent.copies.items():
            for one in copies:
                history = at.history_of(one.key)
                if one.share != share or history is None:
                    continue
                identifier = one.packet_identifier
                ended = None if identifier is None else history.server.ended.get(identifier)
                if ended is not None and ended.reason_code >= FAILURE:
                    continue  # DLV418
                before.append((owner, one))
                break
        if not before:
            return None
        names = ", ".join(repr(owner) for owner, _ in before[:_SHOWN])
        first = before[0][1]
        return self.report(
            "",
            f"message on {sent.topic!r} is sent to {found.owner!r} as well as to {names}, all members of the shared "
            f"subscription {share!r}",
            related=(
                Related.to("the message as published", sent),
                Related.to("the message as delivered before", first),
            ),
        )
