from mqttscope.lint.broker_watch import doubt
from mqttscope.lint.retained_store import RetainedStore, Vain, WaitingRule, waited_s
from mqttscope.lint.rules import V3_1_1, V5, Confidence, Report, RuleContext, Severity, examples
from mqttscope.mqtt import Direction


class RetainedNotSent(WaitingRule):
    """A subscriber does not get a retained message that matches its new subscription.

    New subscribers learn the state of a topic from its retained message; without it they know nothing until the next
    change.  Only messages of QoS 1 and 2 are expected, since a server may drop others at any time; and only while a
    connection that is open all the time proves that the server did not restart.  A server may filter silently what a
    client is not allowed to read or to write, so it is an error only where the same client has got messages of the
    topic, and where the server has accepted the message in so many words or has sent it to others.  It is a warning
    where the filter is the topic, where the client has got messages of the topic on earlier connections, or where the
    server has answered a wildcard with other retained messages, and neither client has a user name that access rules go
    by.

    Instead, send the retained messages that match with every SUBSCRIBE that asks for them.
    """

    code = "RET406"
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    statements = {V5: {"MQTT-3.3.1-9": "", "MQTT-3.8.4-4": ""}, V3_1_1: {"MQTT-3.3.1-6": ""}}
    also = {
        V5: ("MQTT-3.1.2-15", "MQTT-3.3.1-8", "MQTT-3.3.1-10"),
        V3_1_1: ("MQTT-3.1.2-17", "MQTT-3.3.1-12", "MQTT-3.8.4-3"),
    }

    good = examples("""
        it is sent
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain; +31 @1 > pingreq
        it is sent before the SUBACK
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < publish a 21 retain; @1 < suback 1 0; +31 @1 > pingreq
        Retain Handling 2, a subscription that existed, and a shared one
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain; @1 > subscribe 2 a:0,retain_handling=1; @1 < suback 2 0
            @2 opened client=c3; @2 > subscribe 1 a:0,retain_handling=2; @2 < suback 1 0; @2 > subscribe 2 $share/g/a:0
            @2 < suback 2 0; +31 @2 > pingreq; +31 @1 > pingreq
        QoS 0, which a server may drop
            opened; > publish a 21 retain; @1 opened client=c2; @1 > subscribe 1 a:0; @1 < suback 1 0; +31 @1 > pingreq
        cleared before
            opened; > publish a 21 qos=1 retain id=1; < puback 1; > publish a retain; @1 opened client=c2
            @1 > subscribe 1 a:0; @1 < suback 1 0; +31 @1 > pingreq
        cleared meanwhile
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; > publish a retain; +31 @1 > pingreq
        expired
            opened; > publish a 21 qos=1 retain id=1 message_expiry_interval=20; < puback 1; +15 > pingreq; < pingresp
            @1 opened client=c2; @1 > subscribe 1 a:0; @1 < suback 1 0; +31 @1 > pingreq
        refused by the server
            opened; > publish a 21 qos=1 retain id=1; < puback 1 code=0x97; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; +31 @1 > pingreq
        the subscription is refused
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0x87; +31 @1 > pingreq
        nobody was there all the time: the server may have been restarted
            opened; > publish a 21 qos=1 retain id=1; < puback 1; > fin; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; +31 @1 > pingreq
        a wildcard of a client that may not be allowed to read everything
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 #:0
            @1 < suback 1 0; +31 @1 > pingreq
        a wildcard that brings another one, and access rules may go by a user name
            opened; > publish a 21 qos=1 retain id=1; < puback 1; > publish b 22 qos=1 retain id=2; < puback 2
            @1 opened client=c2 user_name=alice; @1 > subscribe 1 +:0; @1 < suback 1 0; @1 < publish b 22 retain
            +31 @1 > pingreq
        a wildcard that brings another one, and the publisher has a user name
            opened user_name=alice; > publish a 21 qos=1 retain id=1; < puback 1
            > publish b 22 qos=1 retain id=2; < puback 2; @1 opened client=c2; @1 > subscribe 1 +:0; @1 < suback 1 0
            @1 < publish b 22 retain; +31 @1 > pingreq
        a wildcard that brings another one, and before 5.0 nothing says that the server took this one
            opened 3.1.1; > publish a 21 qos=1 retain id=1; < puback 1; > publish b 22 qos=1 retain id=2; < puback 2
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 +:0; @1 < suback 1 0; @1 < publish b 22 retain; +31 @1 > pingreq
        a wildcard that brings a live message
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 +:0
            @1 < suback 1 0; > publish b 22 qos=1 id=2; < puback 2; @1 < publish b 22; +31 @1 > pingreq
        a wildcard that brings another one, and this one was replaced by a message of QoS 0
            opened; > publish a 21 qos=1 retain id=1; < puback 1; > publish b 22 qos=1 retain id=2; < puback 2
            > publish a 23 retain; @1 opened client=c2; @1 > subscribe 1 +:0; @1 < suback 1 0; @1 < publish b 22 retain
            +31 @1 > pingreq
        a wildcard of another user's client of the same name, which may not be allowed to read everything
            @1 opened client=c2 user_name=alice; @1 > subscribe 1 +:0; @1 < suback 1 0; opened; +2 > nothing
            > publish a 21 qos=1 retain id=1; < puback 1; @1 < publish a 21; @1 > disconnect; @1 > fin
            @2 opened client=c2 user_name=bob; @2 > subscribe 1 +:0; @2 < suback 1 0; +31 @2 > pingreq
        a wildcard, and what the client got live before is cleared
            @1 opened client=c2; @1 > subscribe 1 +:0; @1 < suback 1 0; opened; +2 > nothing
            > publish a 21 qos=1 retain id=1; < puback 1; @1 < publish a 21; @1 > disconnect; @1 > fin
            > publish a retain; @2 opened client=c2; @2 > subscribe 1 +:0; @2 < suback 1 0; +31 @2 > pingreq
        a wildcard, and the client got the topic live before, but the answer to the SUBSCRIBE may be lost
            @1 opened client=c2; @1 > subscribe 1 +:0; @1 < suback 1 0; opened; +2 > nothing
            > publish a 21 qos=1 retain id=1; < puback 1; @1 < publish a 21; @1 > disconnect; @1 > fin
            @2 opened client=c2; @2 > subscribe 1 +:0; @2 < suback 1 0; lost @2 < publish a 21 retain
            @2 > pingreq; @2 < pingresp; +31 @2 > pingreq
        a live message of somebody who was not captured, which may be the retained one by now
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 22; +31 @1 > pingreq
        the retained message itself, without RETAIN
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21; > publish a 22; @1 < publish a 22; +31 @1 > pingreq
        replaced by a message that came live
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; > publish a 22 retain; @1 < publish a 22; +31 @1 > pingreq
        an empty will may have removed it
            @2 opened client=c3; opened will=a will_qos=1 will_retain; > publish a 21 qos=1 retain id=1; < puback 1
            > reset; @1 opened client=c2; @1 > subscribe 1 a:0; @1 < suback 1 0; +31 @1 > pingreq
        the server has not acknowledged it
            opened; > publish a 21 qos=1 retain id=1; @1 opened client=c2; @1 > subscribe 1 a:0; @1 < suback 1 0
            +31 @1 > pingreq
        a message of a client whose bytes are lost
            opened; > publish a 21 qos=1 retain id=1; < puback 1; lost > publish a retain; > pingreq; < pingresp
            +3 > pingreq; < pingresp; @1 opened client=c2; @1 > subscribe 1 a:0; @1 < suback 1 0; +31 @1 > pingreq
        larger than the client takes
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2 maximum_packet_size=20
            @1 > subscribe 1 a:0; @1 < suback 1 0; +31 @1 > pingreq
        one copy for a topic and a wildcard
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0 +:0
            @1 < suback 1 0 0; @1 < publish a 21 retain; +31 @1 > pingreq
        the subscription to the topic has ended, and the wildcard may be forbidden
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0 +:0
            @1 < suback 1 0 0; @1 > unsubscribe 2 a; @1 < unsuback 2 0; +31 @1 > pingreq
        the connection ends too early
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 > fin; +31 > pingreq
    """)
    bad = examples("""
        asked for again in vain
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain; @1 > subscribe 2 a:0; @1 < suback 2 0; +31 @1 > pingreq !!
        in vain after a reconnect, of a wildcard
            opened 3.1.1; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 +:0
            @1 < suback 1 0; @1 < publish a 21 retain; @1 > fin; @2 opened client=c2; @2 > subscribe 1 +:0
            @2 < suback 1 0; +31 @2 > pingreq !!
        judged at the end of the connection
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain; @1 > subscribe 2 a:0; @1 < suback 2 0; +40 @1 > fin !
        by a client that has got nothing of the topic yet: only a warning
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; +31 @1 > pingreq !!
        beside a wildcard that matches as well, in one SUBSCRIBE: only a warning
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0 +:0
            @1 < suback 1 0 0; +31 @1 > pingreq !!
        beside a wildcard that matches as well, asked for later: only a warning
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 > subscribe 2 +:0; @1 < suback 2 0; +31 @1 > pingreq !!
        of a wildcard, by a client that got the topic live on the connection before: only a warning
            @1 opened client=c2; @1 > subscribe 1 +:0; @1 < suback 1 0; opened; +2 > nothing
            > publish a 21 qos=1 retain id=1; < puback 1; @1 < publish a 21; @1 > disconnect; @1 > fin
            @2 opened client=c2; @2 > subscribe 1 +:0; @2 < suback 1 0; +31 @2 > pingreq !!
        of a wildcard that brings another one, to clients without user names: only a warning
            opened; > publish a 21 qos=1 retain id=1; < puback 1; > publish b 22 qos=1 retain id=2; < puback 2
            @1 opened client=c2; @1 > subscribe 1 +:0; @1 < suback 1 0; @1 < publish b 22 retain; +31 @1 > pingreq !!
        beside a live message that is not retained
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; > publish a 22; @1 < publish a 22; +31 @1 > pingreq !!
        a shorter time-out
            settings timeout=5; opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2
            @1 > subscribe 1 a:0; @1 < suback 1 0; +6 @1 > pingreq !!
    """)

    def judge(self, vain: Vain, store: RetainedStore, at: RuleContext) -> Report | None:
        """Say how sure it is that the server should have sent it."""
        topic, one, kept = vain.topic, vain.expected, vain.kept
        before = "MQTT-3.8.4-4" if vain.subscribed.existed else "MQTT-3.3.1-9"
        if vain.subscribed.retain_handling == 1:
            before = "MQTT-3.3.1-10"
        return self.report(
            "",
            f"SUBSCRIBE {one.topic_filter!r} of {at.client_name!r}: retained message on {topic!r} was not sent within "
            f"{waited_s(one, at):,.0f} s",
            statements=(before,) if at.version is V5 else None,
            related=vain.related,
            sender=Direction.SERVER_TO_CLIENT,
            overdue=True,
            topic=topic,
            **doubt(at, doubtful=not (vain.reader and (kept.proven or kept.granted))),
        )
