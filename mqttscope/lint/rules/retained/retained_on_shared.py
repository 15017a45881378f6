from mqttscope.lint.rules import V5, Findings, Related, RuleContext, examples
from mqttscope.lint.rules.delivery import DeliveryRule, filters_of
from mqttscope.mqtt.packets import Publish


class RetainedOnShared(DeliveryRule):
    """A client receives a retained message because of a Shared Subscription.

    Members of a share divide live messages among themselves.  If each of them received the retained messages when it
    joins, old jobs would be executed again with every restart of a worker.

    Instead, send retained messages only for subscriptions that are not shared.
    """

    code = "RET204"
    versions = (V5,)
    statements = {V5: {"V5-SHARED-no-retained": ""}}
    when = "retain"

    good = examples("""
        a live message
            opened; > subscribe 10 $share/g/a:0; < suback 10 0; < publish a 21.5
        an additional ordinary subscription
            opened; > subscribe 10 $share/g/a:0 a:0; < suback 10 0 0; < publish a 21.5 retain
        an ordinary subscription that has just ended
            opened; > subscribe 10 $share/g/a:0 a:0; < suback 10 0 0; > unsubscribe 11 a; < unsuback 11 0
            < publish a 21.5 retain
        Retain As Published
            opened; > subscribe 10 $share/g/a:0,retain_as_published; < suback 10 0; < publish a 21.5 retain
    """)
    bad = examples("""
        only a shared filter matches
            opened; > subscribe 10 $share/g/a:0; < suback 10 0; < publish a 21.5 retain !retain
        an ordinary subscription also matches but has Retain Handling 2
            opened; > subscribe 10 a:0,retain_handling=2 $share/g/a:0; < suback 10 0 0; < publish a 21.5 retain !retain
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Report if only Shared Subscriptions explain the message."""
        topic = at.topic
        if topic is None or packet.dup:
            return None
        table = at.history.subscriptions
        match = table.matches.get(topic) or table.match(topic)
        if not match.subscriptions or match.retain_as_published or match.ended or not match.known:
            return None
        shared = [subscription for subscription in match.subscriptions if subscription.is_shared]
        if not shared or any(row.asks_for_retained or row.replaced for row in match.subscriptions if not row.is_shared):
            return None
        first = shared[0]
        return self.report(
            "retain",
            f"retained message {topic!r} sent to {at.client_name!r} for the Shared Subscription {filters_of(shared)}",
            related=(Related.to("the SUBSCRIBE", first),),
        )
