from mqttscope.lint.awaiting import AwaitingRule
from mqttscope.lint.message_model import Expected, Messages
from mqttscope.lint.rules import SECOND_NS, V3_1_1, V5, Confidence, Report, RuleContext, examples


class MessageNotDelivered(AwaitingRule):
    """A message that a server has accepted does not reach a subscriber that is connected.

    With QoS 1 and 2 the acknowledgment says that the message is safe, so nobody sends it again.  It is an error where
    the client has got messages of the same publisher and topic, reads what it gets, and has never had so many messages
    in flight that the server may have had to drop some; elsewhere access control or a queue that is full may explain
    it, which is a warning.  Losing messages of QoS 0 is no mistake.

    Instead, deliver what was acknowledged to every matching subscription, or refuse it with a Reason Code.
    """

    code = "DLV410"
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-4.5.0-1": ""},
        V3_1_1: {"MQTT-3.8.3-2": "", "MQTT-4.1.0-2": "", "MQTT-4.5.0-1": ""},
    }
    also = {
        V5: ("MQTT-3.1.2-5", "MQTT-3.8.4-4", "MQTT-4.1.0-1", "MQTT-4.3.2-5", "MQTT-4.3.3-12", "MQTT-4.7.3-4"),
        V3_1_1: ("MQTT-3.3.1-10", "MQTT-3.8.4-3", "MQTT-4.1.0-1", "MQTT-4.7.3-4"),
    }

    good = examples("""
        it is delivered
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1; < puback 1
            @1 < publish a second qos=1 id=1; @1 > puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        QoS 0 as published, and as granted
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second; @2 opened client=c3
            @2 > subscribe 1 a:0; @2 < suback 1 0; +2 > publish a third qos=1 id=1; < puback 1
            @1 < publish a third qos=1 id=1; @1 > puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
            @2 > pingreq
        its own message, and No Local
            @1 opened; @1 > subscribe 1 a:2,no_local; @1 < suback 1 1; +2 @1 > publish a second qos=1 id=1
            @1 < puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        the server refuses it
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1
            < puback 1 code=0x97; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        it has not been acknowledged
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1
            +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        it expires
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            +2 > publish a second qos=1 id=1 message_expiry_interval=10; < puback 1; +20 @1 > pingreq; @1 < pingresp
            +15 @1 > pingreq
        too long for the client
            @1 opened client=c2 maximum_packet_size=90; @1 > subscribe 1 a:2; @1 < suback 1 1; opened
            +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            +2 > publish a secondsecondsecondsecondsecondsecondsecondsecondsecondsecond qos=1 id=1; < puback 1
            +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        it has unsubscribed meanwhile
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1; < puback 1
            @1 > unsubscribe 2 a; @1 < unsuback 2 0; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        while an UNSUBSCRIBE is under way
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; @1 > unsubscribe 2 a
            +2 > publish a second qos=1 id=1; < puback 1; @1 < unsuback 2 0; +20 @1 > pingreq; @1 < pingresp
            +15 @1 > pingreq
        it had only just subscribed
            opened; @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; +0.1 > publish a second qos=1 id=1
            < puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        a wildcard of a client that may not be allowed to read everything
            @1 opened client=c2; @1 > subscribe 1 #:2; @1 < suback 1 1; opened; +2 > publish a second qos=1 id=1
            < puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        Receive Maximum: the client has not answered
            @1 opened client=c2 receive_maximum=1; @1 > subscribe 1 a:2; @1 < suback 1 1; opened
            +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1
            +2 > publish a second qos=1 id=1; < puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        a share, which is one of many
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1; < puback 1
            +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        in bytes that the capture does not have
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1; < puback 1
            @1 lost < publish a second qos=1 id=1; @1 > puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        the connection ends too early
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1; < puback 1
            +20 @1 > pingreq; @1 < pingresp; @1 > fin; +30 > pingreq
        shown at the subscriber before it is shown at the publisher
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; @1 < publish a second qos=1 id=1; @1 > puback 1
            > publish a second qos=1 id=1; < puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        a topic that the publisher may not write to, before 5.0
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a second qos=1 id=1
            < puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        with a payload that came since: nobody can tell them apart
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1; < puback 1
            +2 > publish a second qos=1 id=1; < puback 1; @1 < publish a second qos=1 id=1; @1 > puback 1
            +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
    """)
    bad = examples("""
        the second message of a publisher
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1; < puback 1
            +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq !!
        QoS 2, in 3.1.1
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=2 id=2; < pubrec 2
            > pubrel 2; < pubcomp 2; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq !!
        two of them, judged one after the other
            @1 opened client=c2; @1 > subscribe 1 +:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1; < puback 1
            +20 @1 > pingreq; @1 < pingresp; +1 > publish a third qos=1 id=1; < puback 1; +15 @1 > pingreq !!
            @1 < pingresp; +30 @1 > pingreq !!
        a client that has got nothing of the topic yet: only a warning
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a second qos=1 id=1
            < puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq !!
        after one that is too long for the client, and not the only one since
            @1 opened client=c2 maximum_packet_size=90; @1 > subscribe 1 #:2; @1 < suback 1 1; opened
            +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            +2 > publish a "second"*20 qos=1 id=1; < puback 1; +2 > publish a third qos=1 id=1; < puback 1
            > publish b other; @1 < publish b other; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq !!
        a shorter time-out
            settings timeout=5; @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened
            +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            +2 > publish a second qos=1 id=1; < puback 1; +6 @1 > pingreq !!
    """)

    def judge(self, one: Expected, model: Messages, at: RuleContext) -> Report | None:
        """Say what did not come, unless the client may have got nothing more after one that was too long for it."""
        too_long = model.oversized.get(at.key)
        if too_long is not None and too_long.number < one.sent.number:
            recent = at.history.server.recent
            if not recent or recent[-1].timestamp_ns <= too_long.timestamp_ns:
                return None  # FLW404
        sent, held = one.sent, one.held
        waited = (at.timestamp_ns - one.since_ns) / SECOND_NS
        return self.lost(
            one,
            model,
            at,
            f"message on {sent.topic!r} of {sent.publisher!r} (QoS {sent.qos}) did not reach {at.client_name!r} within "
            f"{waited:,.0f} s, which has subscribed to {held.topic_filter!r} with QoS {held.qos}",
        )
