from mqttscope.lint.context import SECOND_NS, RuleContext
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Confidence, Findings, Needs, Related, Rule, Severity, examples
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS, filters_of
from mqttscope.mqtt import Direction, Publish


class RetainFlagOnLiveMessage(Rule):
    """A message for an established subscription has RETAIN 1.

    From a server that flag means: this is an old message, sent because you have just subscribed.  Clients skip such
    messages or treat them as an initial state, and so miss live ones.  Reported if RETAIN 1 arrives more than
    ``window`` seconds after the last SUBSCRIBE and after the series of retained messages that it started.  Also
    reported if it arrives more often for a topic than the client subscribed to it.  Subscriptions with Retain As
    Published, and bridges before 5.0, receive the publisher's flag.

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
        many retained messages in an uninterrupted series
            opened 3.1.1; > subscribe 10 +:0; < suback 10 0
            for 0..11: +4 < publish t{n} x retain
        a series that the client's closed receive window held up
            opened 3.1.1 keep_alive=0; > subscribe 10 +:0; < suback 10 0; < publish a 21.5 retain; > full; +90 > full
            +60 < publish b 21.6 retain; +4 < publish c 21.7 retain
        subscribed again in 3.1.1
            opened 3.1.1; > subscribe 10 +:0; < suback 10 0; < publish a 21.5 retain; > subscribe 10 +:0; < suback 10 0
            < publish a 21.5 retain
        one message for each of two filters
            opened 3.1.1; > subscribe 10 +:0; < suback 10 0; < publish a 21.5 retain; +60 > subscribe 11 #:0
            < suback 11 0; < publish a 21.5 retain
        Retain As Published
            opened; > subscribe 10 a:0,retain_as_published; < suback 10 0; < publish a 21.5 retain
            +60 < publish a 21.5 retain
        the answer to a SUBSCRIBE, after an unsolicited message
            opened 3.1.1; < publish a 21.5 retain; > subscribe 10 +:0; < suback 10 0; < publish a 21.5 retain
        a bridge
            opened 3.1.1 protocol_level=0x84; > subscribe 10 +:0; < suback 10 0; < publish a 21.5 retain
            +60 < publish a 21.5 retain
    """)
    bad = examples("""
        one minute after the SUBSCRIBE
            opened; > subscribe 10 +:0; < suback 10 0; +60 < publish a 21.5 retain !retain
        the retained message was already sent, in 3.1.1
            opened 3.1.1; > subscribe 10 +:0; < suback 10 0; < publish a 21.5 retain; < publish a 21.6 retain !retain
        a live message came after the closed receive window had opened
            opened 3.1.1 keep_alive=0; > subscribe 10 +:0; < suback 10 0; < publish a 21.5 retain; > full
            +60 < publish b 21.6; < publish c 21.7 retain !retain
        in 3.1
            opened 3.1; > subscribe 10 +:0; < suback 10 0; +60 < publish a 21.5 retain !retain
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look for a SUBSCRIBE that the message may answer."""
        topic = at.topic
        if topic is None or packet.dup:
            return None
        table = at.history.subscriptions
        match = table.matches.get(topic) or table.match(topic)
        if not match.subscriptions or match.retain_as_published or match.extended or not match.known:
            return None
        asking = [subscription for subscription in match.subscriptions if subscription.asks_for_retained]
        if not asking:
            return None  # no subscription asks for retained messages; other rules check that
        connect = at.history.connect
        if connect is not None and connect.bridge:
            return None
        asking += [row.replaced for row in match.subscriptions if row.replaced and row.replaced.asks_for_retained]
        asking += [subscription for subscription in match.ended if subscription.asks_for_retained]
        last = max(asking, key=lambda subscription: subscription.timestamp_ns)
        times = sum(subscription.times for subscription in (*match.subscriptions, *match.ended))
        since = (at.timestamp_ns - last.timestamp_ns) / SECOND_NS
        if table.retained.get(topic, 0) >= times:
            why = "its retained message was already sent"
        elif since > float(self.set["window"]) and not table.is_flood(at.timestamp_ns):
            why = f"the last SUBSCRIBE for it was {since:.0f} s ago"
        else:
            return None
        return self.report(
            "retain",
            f"PUBLISH {topic!r} to {at.client_name!r} has RETAIN 1 although it belongs to the established subscription "
            f"{filters_of(match.subscriptions)}: {why}",
            related=(Related.to("the last SUBSCRIBE for it", last),),
        )
