from mqttscope.lint.context import SECOND_NS, RuleContext
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Confidence, Findings, Needs, Related, Rule, Severity, examples
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, filters_of
from mqttscope.mqtt import Direction, Publish


class RetainFlagOnLiveMessage(Rule):
    """A message for an established subscription has RETAIN 1.

    From a server that flag means: this is an old message, sent because you have just subscribed.  Clients skip such
    messages or take them for a first state, and so they miss live ones.  A capture shows it when RETAIN 1 comes long
    after the last SUBSCRIBE (``window`` seconds, or the end of the retained messages that follow it without a pause),
    or more often for a topic than somebody subscribed to it.  Subscriptions with Retain As Published, and bridges
    before 5.0, get the flag as it was published.

    Instead, send live messages with RETAIN 0 unless the subscription has Retain As Published.
    """

    code = "RET202"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-3.3.1-12": ""},
        V3_1_1: {"MQTT-3.3.1-9": ""},
        V3_1: {"V31-PUBLISH-retain-on-subscribe": ""},
    }
    sender = Direction.SERVER_TO_CLIENT
    when = "retain"
    needs = ALL_SUBSCRIPTIONS | Needs.WHOLE_SENDER
    settings = {"window": 30}
    brief = {"window": 1}

    good = examples("""
        a retained message, then live ones
            opened; > subscribe 10 +:0; < suback 10 0; < publish a 21.5 retain; +60 < publish a 21.6
        many retained messages without a pause
            opened 3.1.1; > subscribe 10 +:0; < suback 10 0
            for 0..11: +4 < publish t{n} x retain
        subscribed again in 3.1.1
            opened 3.1.1; > subscribe 10 +:0; < suback 10 0; < publish a 21.5 retain; > subscribe 10 +:0; < suback 10 0
            < publish a 21.5 retain
        one for each of two filters
            opened 3.1.1; > subscribe 10 +:0; < suback 10 0; < publish a 21.5 retain; +60 > subscribe 11 #:0
            < suback 11 0; < publish a 21.5 retain
        Retain As Published
            opened; > subscribe 10 a:0,retain_as_published; < suback 10 0; < publish a 21.5 retain
            +60 < publish a 21.5 retain
        the answer to a SUBSCRIBE, after a message that nobody had asked for
            opened 3.1.1; < publish a 21.5 retain; > subscribe 10 +:0; < suback 10 0; < publish a 21.5 retain
        a bridge
            opened 3.1.1 protocol_level=0x84; > subscribe 10 +:0; < suback 10 0; < publish a 21.5 retain
            +60 < publish a 21.5 retain
    """)
    bad = examples("""
        a minute after the SUBSCRIBE
            opened; > subscribe 10 +:0; < suback 10 0; +60 < publish a 21.5 retain !retain
        the topic's retained message has been sent, in 3.1.1
            opened 3.1.1; > subscribe 10 +:0; < suback 10 0; < publish a 21.5 retain; < publish a 21.6 retain !retain
        in 3.1
            opened 3.1; > subscribe 10 +:0; < suback 10 0; +60 < publish a 21.5 retain !retain
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Whether a SUBSCRIBE is left that the message may answer."""
        topic = at.topic
        if topic is None or packet.dup:
            return None
        table = at.history.subscriptions
        found = table.found.get(topic) or table.match(topic)
        if not found.subscriptions or found.retain_as_published or found.extended or not found.known:
            return None
        asking = [one for one in found.subscriptions if one.asks_for_retained]
        if not asking:
            return None  # other rules judge what none of the subscriptions asks for
        connect = at.history.connect
        if connect is not None and connect.bridge:
            return None
        asking += [one.replaced for one in found.subscriptions if one.replaced and one.replaced.asks_for_retained]
        asking += [one for one in found.ended if one.asks_for_retained]
        last = max(asking, key=lambda one: one.timestamp_ns)
        times = sum(one.times for one in (*found.subscriptions, *found.ended))
        since = (at.timestamp_ns - last.timestamp_ns) / SECOND_NS
        if table.retained.get(topic, 0) >= times:
            why = "its retained message has been sent before"
        elif since > float(self.set["window"]) and not table.is_flood(at.timestamp_ns):
            why = f"the last SUBSCRIBE for it was {since:.0f} s ago"
        else:
            return None
        return self.report(
            "retain",
            f"PUBLISH {topic!r} to {at.client_name!r} has RETAIN 1 although it belongs to the established subscription "
            f"{filters_of(found.subscriptions)}: {why}",
            related=(Related.to("the last SUBSCRIBE for it", last),),
        )
