from mqttscope.lint.rules import V5, Findings, Related, RuleContext, examples
from mqttscope.lint.rules.delivery import DeliveryRule, filters_of
from mqttscope.mqtt.packets import Publish


class RetainedOnShared(DeliveryRule):
    """A client gets a retained message because of a Shared Subscription.

    Members of a group share live messages.  If each of them got the retained ones when it joins, a job that was done
    long ago would be done again with every restart of a worker.

    Instead, send retained messages only for subscriptions that are not shared.
    """

    code = "RET204"
    versions = (V5,)
    statements = {V5: {"V5-SHARED-no-retained": ""}}
    when = "retain"

    good = examples("""
        a live message
            opened; > subscribe 10 $share/g/a:0; < suback 10 0; < publish a 21.5
        an ordinary subscription as well
            opened; > subscribe 10 $share/g/a:0 a:0; < suback 10 0 0; < publish a 21.5 retain
        an ordinary subscription that has just ended
            opened; > subscribe 10 $share/g/a:0 a:0; < suback 10 0 0; > unsubscribe 11 a; < unsuback 11 0
            < publish a 21.5 retain
        Retain As Published
            opened; > subscribe 10 $share/g/a:0,retain_as_published; < suback 10 0; < publish a 21.5 retain
    """)
    bad = examples("""
        only a share matches
            opened; > subscribe 10 $share/g/a:0; < suback 10 0; < publish a 21.5 retain !retain
        the ordinary subscription that matches too asks for none
            opened; > subscribe 10 a:0,retain_handling=2 $share/g/a:0; < suback 10 0 0; < publish a 21.5 retain !retain
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """One is shared, and none of the others asks for retained messages or has Retain As Published."""
        topic = at.topic
        if topic is None or packet.dup:
            return None
        table = at.history.subscriptions
        found = table.found.get(topic) or table.match(topic)
        if not found.subscriptions or found.retain_as_published or found.ended or not found.known:
            return None
        shared = [one for one in found.subscriptions if one.is_shared]
        if not shared or any(one.asks_for_retained or one.replaced for one in found.subscriptions if not one.is_shared):
            return None
        first = shared[0]
        return self.report(
            "retain",
            f"retained message {topic!r} sent to {at.client_name!r} for the Shared Subscription {filters_of(shared)}",
            related=(Related.to("the SUBSCRIBE", first),),
        )
