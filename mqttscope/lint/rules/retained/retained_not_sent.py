from mqttscope.lint.broker_watch import doubt
from mqttscope.lint.retained_store import MissingMessage, RetainedStore, WaitingRule, waited_s
from mqttscope.lint.rules import V3_1_1, V5, Confidence, Report, RuleContext, Severity, examples
from mqttscope.mqtt import Direction


class RetainedNotSent(WaitingRule):
    """A subscriber does not receive a retained message that matches its new subscription.

    New subscribers learn the state of a topic from its retained message; without it they have no state until the next
    change.  Only messages of QoS 1 and 2 are expected, since a server may drop others at any time, and only while
    another connection stays open, which proves that the server did not restart.  A server may silently enforce read and
    write permissions.  So it is an error only if the client has received messages on the topic, and the server has
    explicitly accepted the message or sent it to other clients.  It is a warning in three other cases: the filter
    equals the topic; the client received messages on the topic on earlier connections; or the server answered a
    wildcard with other retained messages, and neither client has a user name for access rules.

    Instead, send the matching retained messages with every SUBSCRIBE that asks for them.
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
        sent
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain; +31 @1 > pingreq
        sent before the SUBACK
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < publish a 21 retain; @1 < suback 1 0; +31 @1 > pingreq
        Retain Handling 2, an existing subscription, and a Shared Subscription
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain; @1 > subscribe 2 a:0,retain_handling=1; @1 < suback 2 0
            @2 opened client=c3; @2 > subscribe 1 a:0,retain_handling=2; @2 < suback 1 0; @2 > subscribe 2 $share/g/a:0
            @2 < suback 2 0; +31 @2 > pingreq; +31 @1 > pingreq
        QoS 0, which a server may drop
            opened; > publish a 21 retain; @1 opened client=c2; @1 > subscribe 1 a:0; @1 < suback 1 0; +31 @1 > pingreq
        cleared before the SUBSCRIBE
            opened; > publish a 21 qos=1 retain id=1; < puback 1; > publish a retain; @1 opened client=c2
            @1 > subscribe 1 a:0; @1 < suback 1 0; +31 @1 > pingreq
        cleared after the SUBSCRIBE
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
        no connection stays open: the server may have restarted
            opened; > publish a 21 qos=1 retain id=1; < puback 1; > fin; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; +31 @1 > pingreq
        wildcard subscription of a client that may lack read permission
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 #:0
            @1 < suback 1 0; +31 @1 > pingreq
        another message for the wildcard, but access rules may use a user name
            opened; > publish a 21 qos=1 retain id=1; < puback 1; > publish b 22 qos=1 retain id=2; < puback 2
            @1 opened client=c2 user_name=alice; @1 > subscribe 1 +:0; @1 < suback 1 0; @1 < publish b 22 retain
            +31 @1 > pingreq
        another message for the wildcard, but the publisher has a user name
            opened user_name=alice; > publish a 21 qos=1 retain id=1; < puback 1
            > publish b 22 qos=1 retain id=2; < puback 2; @1 opened client=c2; @1 > subscribe 1 +:0; @1 < suback 1 0
            @1 < publish b 22 retain; +31 @1 > pingreq
        another message for the wildcard, but before 5.0 acceptance is not confirmed
            opened 3.1.1; > publish a 21 qos=1 retain id=1; < puback 1; > publish b 22 qos=1 retain id=2; < puback 2
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 +:0; @1 < suback 1 0; @1 < publish b 22 retain; +31 @1 > pingreq
        a live message for the wildcard
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 +:0
            @1 < suback 1 0; > publish b 22 qos=1 id=2; < puback 2; @1 < publish b 22; +31 @1 > pingreq
        another message for the wildcard, but this one was replaced by a QoS 0 message
            opened; > publish a 21 qos=1 retain id=1; < puback 1; > publish b 22 qos=1 retain id=2; < puback 2
            > publish a 23 retain; @1 opened client=c2; @1 > subscribe 1 +:0; @1 < suback 1 0; @1 < publish b 22 retain
            +31 @1 > pingreq
        wildcard of a client with the same identifier but another user name, which may lack read permission
            @1 opened client=c2 user_name=alice; @1 > subscribe 1 +:0; @1 < suback 1 0; opened; +2 > nothing
            > publish a 21 qos=1 retain id=1; < puback 1; @1 < publish a 21; @1 > disconnect; @1 > fin
            @2 opened client=c2 user_name=bob; @2 > subscribe 1 +:0; @2 < suback 1 0; +31 @2 > pingreq
        wildcard: the topic that the client received live is cleared
            @1 opened client=c2; @1 > subscribe 1 +:0; @1 < suback 1 0; opened; +2 > nothing
            > publish a 21 qos=1 retain id=1; < puback 1; @1 < publish a 21; @1 > disconnect; @1 > fin
            > publish a retain; @2 opened client=c2; @2 > subscribe 1 +:0; @2 < suback 1 0; +31 @2 > pingreq
        wildcard: the client received the topic live, but the capture may lack the answer to the SUBSCRIBE
            @1 opened client=c2; @1 > subscribe 1 +:0; @1 < suback 1 0; opened; +2 > nothing
            > publish a 21 qos=1 retain id=1; < puback 1; @1 < publish a 21; @1 > disconnect; @1 > fin
            @2 opened client=c2; @2 > subscribe 1 +:0; @2 < suback 1 0; lost @2 < publish a 21 retain
            @2 > pingreq; @2 < pingresp; +31 @2 > pingreq
        a live message from an uncaptured client may have replaced the retained one
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 22; +31 @1 > pingreq
        the retained message itself, without RETAIN
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21; > publish a 22; @1 < publish a 22; +31 @1 > pingreq
        replaced by a live message
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; > publish a 22 retain; @1 < publish a 22; +31 @1 > pingreq
        an empty will may have removed it
            @2 opened client=c3; opened will=a will_qos=1 will_retain; > publish a 21 qos=1 retain id=1; < puback 1
            > reset; @1 opened client=c2; @1 > subscribe 1 a:0; @1 < suback 1 0; +31 @1 > pingreq
        the server has not acknowledged it
            opened; > publish a 21 qos=1 retain id=1; @1 opened client=c2; @1 > subscribe 1 a:0; @1 < suback 1 0
            +31 @1 > pingreq
        a message from a client with lost bytes
            opened; > publish a 21 qos=1 retain id=1; < puback 1; lost > publish a retain; > pingreq; < pingresp
            +3 > pingreq; < pingresp; @1 opened client=c2; @1 > subscribe 1 a:0; @1 < suback 1 0; +31 @1 > pingreq
        larger than the client accepts
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2 maximum_packet_size=20
            @1 > subscribe 1 a:0; @1 < suback 1 0; +31 @1 > pingreq
        one copy for a topic and a wildcard
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0 +:0
            @1 < suback 1 0 0; @1 < publish a 21 retain; +31 @1 > pingreq
        the subscription to the topic has ended, and the wildcard may be forbidden
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0 +:0
            @1 < suback 1 0 0; @1 > unsubscribe 2 a; @1 < unsuback 2 0; +31 @1 > pingreq
        the connection ends before the timeout
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 > fin; +31 > pingreq
    """)
    bad = examples("""
        missing after a second SUBSCRIBE
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain; @1 > subscribe 2 a:0; @1 < suback 2 0; +31 @1 > pingreq !!
        missing after a reconnect, with a wildcard
            opened 3.1.1; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 +:0
            @1 < suback 1 0; @1 < publish a 21 retain; @1 > fin; @2 opened client=c2; @2 > subscribe 1 +:0
            @2 < suback 1 0; +31 @2 > pingreq !!
        judged at the end of the connection
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain; @1 > subscribe 2 a:0; @1 < suback 2 0; +40 @1 > fin !
        to a client without earlier messages on the topic: only a warning
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; +31 @1 > pingreq !!
        with an additional matching wildcard in the same SUBSCRIBE: only a warning
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0 +:0
            @1 < suback 1 0 0; +31 @1 > pingreq !!
        with an additional matching wildcard in a later SUBSCRIBE: only a warning
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 > subscribe 2 +:0; @1 < suback 2 0; +31 @1 > pingreq !!
        wildcard, and the client received the topic live on the previous connection: only a warning
            @1 opened client=c2; @1 > subscribe 1 +:0; @1 < suback 1 0; opened; +2 > nothing
            > publish a 21 qos=1 retain id=1; < puback 1; @1 < publish a 21; @1 > disconnect; @1 > fin
            @2 opened client=c2; @2 > subscribe 1 +:0; @2 < suback 1 0; +31 @2 > pingreq !!
        another message for the wildcard, clients without user names: only a warning
            opened; > publish a 21 qos=1 retain id=1; < puback 1; > publish b 22 qos=1 retain id=2; < puback 2
            @1 opened client=c2; @1 > subscribe 1 +:0; @1 < suback 1 0; @1 < publish b 22 retain; +31 @1 > pingreq !!
        only a live message that is not retained
            opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2; @1 > subscribe 1 a:0
            @1 < suback 1 0; > publish a 22; @1 < publish a 22; +31 @1 > pingreq !!
        a shorter timeout
            settings timeout=5; opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 opened client=c2
            @1 > subscribe 1 a:0; @1 < suback 1 0; +6 @1 > pingreq !!
    """)

    def judge(self, vain: MissingMessage, store: RetainedStore, at: RuleContext) -> Report | None:
        """Report the message, with the certainty that the server should have sent it."""
        topic, expected, retained = vain.topic, vain.expected, vain.message
        before = "MQTT-3.8.4-4" if vain.subscribed.existed else "MQTT-3.3.1-9"
        if vain.subscribed.retain_handling == 1:
            before = "MQTT-3.3.1-10"
        return self.report(
            "",
            f"SUBSCRIBE {expected.topic_filter!r} of {at.client_name!r}: retained message on {topic!r} was not sent "
            f"within {waited_s(expected, at):,.0f} s",
            statements=(before,) if at.version is V5 else None,
            related=vain.related,
            sender=Direction.SERVER_TO_CLIENT,
            overdue=True,
            topic=topic,
            **doubt(at, doubtful=not (vain.reader and (retained.proven or retained.granted))),
        )
