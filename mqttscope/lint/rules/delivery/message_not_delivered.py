from typing import Any

from mqttscope.lint.awaiting import AwaitingRule, AwaitingTimers
from mqttscope.lint.message_model import SETTLE_NS, ExpectedMessage, Messages
from mqttscope.lint.rules import (
    SECOND_NS,
    V3_1_1,
    V5,
    Confidence,
    Findings,
    Related,
    Report,
    RuleContext,
    Severity,
    examples,
)
from mqttscope.lint.rules.delivery import steady_match
from mqttscope.lint.shared_checks import count
from mqttscope.lint.subscriber_table import HeldSubscription
from mqttscope.mqtt.packets import Disconnect, Puback, Pubcomp
from mqttscope.session.connection import Connection


class MessageNotDelivered(AwaitingRule):
    """A message that a server has accepted does not reach a connected subscriber.

    With QoS 1 and 2 the acknowledgement promises delivery, so the publisher does not resend the message.  An error if
    the client has received messages of the same publisher and topic, is reading its input, and its messages in flight
    never gave the server a reason to drop some.  Otherwise access control or a full queue may explain the loss, and the
    finding is a warning.  The loss of QoS 0 messages is not reported.

    A server keeps the order of messages.  So a message is also lost if the connection ends after the same single
    subscription received a later message of the same publisher, topic and QoS.  If the client sends DISCONNECT, and the
    server sent it any packet a second or more after accepting the message, that is a warning.

    Instead, deliver every acknowledged message to all matching subscriptions, or refuse it with a Reason Code.
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
    looks_at = (Puback, Pubcomp, Disconnect)
    sender = None

    good = examples("""
        delivered
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1; < puback 1
            @1 < publish a second qos=1 id=1; @1 > puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        published or granted with QoS 0
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second; @2 opened client=c3
            @2 > subscribe 1 a:0; @2 < suback 1 0; +2 > publish a third qos=1 id=1; < puback 1
            @1 < publish a third qos=1 id=1; @1 > puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
            @2 > pingreq
        the client closes its receive window: the server has to wait
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1; < puback 1
            +1 @1 > full; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        the client's own message, with No Local
            @1 opened; @1 > subscribe 1 a:2,no_local; @1 < suback 1 1; +2 @1 > publish a second qos=1 id=1
            @1 < puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        the server refuses it
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1
            < puback 1 code=0x97; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        not acknowledged
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1
            +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        it expires
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            +2 > publish a second qos=1 id=1 message_expiry_interval=10; < puback 1; +20 @1 > pingreq; @1 < pingresp
            +15 @1 > pingreq
        too large for the client
            @1 opened client=c2 maximum_packet_size=90; @1 > subscribe 1 a:2; @1 < suback 1 1; opened
            +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            +2 > publish a secondsecondsecondsecondsecondsecondsecondsecondsecondsecond qos=1 id=1; < puback 1
            +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        unsubscribed in between
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1; < puback 1
            @1 > unsubscribe 2 a; @1 < unsuback 2 0; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        during an UNSUBSCRIBE
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; @1 > unsubscribe 2 a
            +2 > publish a second qos=1 id=1; < puback 1; @1 < unsuback 2 0; +20 @1 > pingreq; @1 < pingresp
            +15 @1 > pingreq
        subscribed only just before
            opened; @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; +0.1 > publish a second qos=1 id=1
            < puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        wildcard subscription of a client that may lack read permission
            @1 opened client=c2; @1 > subscribe 1 #:2; @1 < suback 1 1; opened; +2 > publish a second qos=1 id=1
            < puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        Receive Maximum reached: the client has not acknowledged
            @1 opened client=c2 receive_maximum=1; @1 > subscribe 1 a:2; @1 < suback 1 1; opened
            +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1
            +2 > publish a second qos=1 id=1; < puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        a Shared Subscription with several members
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1; < puback 1
            +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        perhaps delivered in lost bytes
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1; < puback 1
            @1 lost < publish a second qos=1 id=1; @1 > puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        the connection ends too early
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1; < puback 1
            +20 @1 > pingreq; @1 < pingresp; @1 > fin; +30 > pingreq
        the capture shows the delivery before the publication
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; @1 < publish a second qos=1 id=1; @1 > puback 1
            > publish a second qos=1 id=1; < puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        a topic that the publisher may not write to, before 5.0
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a second qos=1 id=1
            < puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        a later delivery with an equal payload cannot be distinguished
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1; < puback 1
            +2 > publish a second qos=1 id=1; < puback 1; @1 < publish a second qos=1 id=1; @1 > puback 1
            +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq
        a later message is delivered, but with another topic, QoS or publisher
            @1 opened client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1; < puback 1
            @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2
            > publish b third qos=1 id=3; < puback 3; @1 < publish b third qos=1 id=2; @1 > puback 2
            > publish a fourth qos=2 id=4; < pubrec 4; > pubrel 4; < pubcomp 4; @1 < publish a fourth qos=1 id=3
            @1 > puback 3; @2 opened client=c3; @2 > publish a fifth qos=1 id=1; @2 < puback 1
            @1 < publish a fifth qos=1 id=4; @1 > puback 4; @1 > disconnect; @1 > fin
        a later delivery with the payload of an earlier message: either is possible
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1; < puback 1
            @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2
            > publish a first qos=1 id=3; < puback 3; @1 < publish a first qos=1 id=2; @1 > puback 2; @1 > disconnect
        a later message, through one of two subscriptions
            @1 opened client=c2; @1 > subscribe 1 a:1 #:1; @1 < suback 1 1 1; opened; > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2
            > publish a third qos=1 id=3; < puback 3; @1 < publish a third qos=1 id=2; @1 > puback 2; @1 > disconnect
        a later message, but perhaps published before the subscription was active everywhere
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1; < puback 1
            > publish a second qos=1 id=2; < puback 2; @1 < publish a second qos=1 id=1; @1 > puback 1; @1 > disconnect
        a later message, but the missing one was resent
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1
            opened resume session_expiry_interval=60 < present; > publish a first qos=1 id=1; < puback 1
            @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; > fin
            @2 opened resume session_expiry_interval=60 < present; @2 > publish a second qos=1 id=2 dup
            @2 > publish a third qos=1 id=3; @2 < puback 2; @2 < puback 3; @1 < publish a third qos=1 id=2
            @1 > puback 2; @1 > disconnect
        a later message with an earlier PUBREC
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 2; opened; > publish a first qos=2 id=1
            < pubrec 1; > pubrel 1; < pubcomp 1; @1 < publish a first qos=2 id=1; @1 > pubrec 1; @1 < pubrel 1
            @1 > pubcomp 1; > publish a second qos=2 id=2; > publish a third qos=2 id=3; < pubrec 2; < pubrec 3
            > pubrel 2; > pubrel 3; < pubcomp 2; < pubcomp 3; @1 < publish a third qos=2 id=2; @1 > pubrec 2
            @1 < pubrel 2; @1 > pubcomp 2; @1 > disconnect
        a later message, but the missing one may be in lost bytes
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1; < puback 1
            @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2
            @1 lost < publish a second qos=1 id=2; > publish a third qos=1 id=3; < puback 3
            @1 < publish a third qos=1 id=3; @1 > puback 3; @1 > disconnect
        a later message, but the missing one was refused
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1; < puback 1
            @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2 code=0x97
            > publish a third qos=1 id=3; < puback 3; @1 < publish a third qos=1 id=2; @1 > puback 2; @1 > disconnect
        a later message, but the missing one may have expired or be too large
            @1 opened client=c2 maximum_packet_size=90; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            > publish a second qos=1 id=2 message_expiry_interval=1; < puback 2; > publish a "long"*20 qos=1 id=3
            < puback 3; > publish a third qos=1 id=4; < puback 4; @1 < publish a third qos=1 id=2; @1 > puback 2
            @1 > disconnect
        a later message, on a Shared Subscription
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2
            > publish a third qos=1 id=3; < puback 3; @1 < publish a third qos=1 id=2; @1 > puback 2; @1 > disconnect
        the client disconnects before it could arrive
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1; < puback 1
            @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2; +0.5 @1 > pingreq
            @1 < pingresp; +5 @1 > disconnect
        the connection ends without a DISCONNECT
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1; < puback 1
            @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2; +5 @1 > pingreq
            @1 < pingresp; @1 > fin
        the client disconnects without acknowledging earlier messages
            @1 opened client=c2 receive_maximum=1; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; > publish a second qos=1 id=2
            < puback 2; +5 @1 > pingreq; @1 < pingresp; @1 > disconnect
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
        two messages, reported one after the other
            @1 opened client=c2; @1 > subscribe 1 +:2; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; +2 > publish a second qos=1 id=1; < puback 1
            +20 @1 > pingreq; @1 < pingresp; +1 > publish a third qos=1 id=1; < puback 1; +15 @1 > pingreq !!
            @1 < pingresp; +30 @1 > pingreq !!
        a client without earlier messages on the topic: only a warning
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened; +2 > publish a second qos=1 id=1
            < puback 1; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq !!
        after a message that was too large for the client, followed by others
            @1 opened client=c2 maximum_packet_size=90; @1 > subscribe 1 #:2; @1 < suback 1 1; opened
            +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            +2 > publish a "second"*20 qos=1 id=1; < puback 1; +2 > publish a third qos=1 id=1; < puback 1
            > publish b other; @1 < publish b other; +20 @1 > pingreq; @1 < pingresp; +15 @1 > pingreq !!
        a shorter timeout
            settings timeout=5; @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 1; opened
            +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            +2 > publish a second qos=1 id=1; < puback 1; +6 @1 > pingreq !!
        a timeout during the initial retained messages: reported after them
            settings timeout=1; @1 opened client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; @1 < publish r x retain
            opened; > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            > publish a second qos=1 id=2; < puback 2; +3 @1 > pingreq; @1 < pingresp; +4 @1 > pingreq !!
        in a short test, after a retained message: a later message is delivered, and the client disconnects
            @1 opened client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; @1 < publish r x retain; opened
            > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            > publish a second qos=1 id=2; < puback 2; > publish a third qos=1 id=3; < puback 3
            @1 < publish a third qos=1 id=2; @1 > puback 2; @1 > disconnect !!
        in a short test: a later message is delivered, and the client disconnects
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1; < puback 1
            @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2
            > publish a third qos=1 id=3; < puback 3; @1 < publish a third qos=1 id=2; @1 > puback 2
            @1 > disconnect !!
        a later message with QoS 2 in 3.1.1, and the connection breaks
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 #:2; @1 < suback 1 2; opened; > publish a first qos=2 id=1
            < pubrec 1; > pubrel 1; < pubcomp 1; @1 < publish a first qos=2 id=1; @1 > pubrec 1; @1 < pubrel 1
            @1 > pubcomp 1; > publish a second qos=2 id=2; < pubrec 2; > pubrel 2; < pubcomp 2
            > publish a third qos=2 id=3; < pubrec 3; > pubrel 3; < pubcomp 3; @1 < publish a third qos=2 id=2
            @1 > pubrec 2; @1 < pubrel 2; @1 > pubcomp 2; @1 > reset !!
        published before the first one was accepted
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1
            > publish a second qos=1 id=2; > publish a third qos=1 id=3; @1 < publish a first qos=1 id=1
            @1 < publish a third qos=1 id=2; < puback 1; < puback 2; < puback 3; @1 > puback 1; @1 > puback 2
            @1 > disconnect !!
        other packets follow, and then the client disconnects: only a warning
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1; < puback 1
            @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2; +2 @1 > pingreq
            @1 < pingresp; @1 > disconnect !!
    """)

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """Start the timeout when the server accepts the message; judge early when a side sends DISCONNECT."""
        if isinstance(packet, Disconnect):
            return self._judge_early(at, client_leaves=at.from_client)
        return None if at.from_client else super().check(packet, at)

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Judge undelivered messages by order, unless a DISCONNECT came before."""
        reports = self._judge_early(at)
        super().check_close(connection, at)
        return reports

    def _judge_early(self, at: RuleContext, *, client_leaves: bool = False) -> list[Report]:
        """Judge undelivered messages at the end of the connection, before their timeout."""
        model, reports = at.model(Messages), list[Report]()
        timers: AwaitingTimers = at.memory(self)
        last = timers.judged.get(at.key, -1)
        for expected in (self.waiting(model, at) or {}).values():
            if expected.number > last and self.is_judged(expected, model, at):
                report = self._judge_end(expected, model, at, client_leaves=client_leaves)
                if report is not None:
                    reports.append(report)
        return reports

    def _judge_end(
        self, expected: ExpectedMessage, model: Messages, at: RuleContext, *, client_leaves: bool
    ) -> Report | None:
        later = model.overtaking(expected, at.key)
        doubt = self.doubt(expected, model, at, overtaken=later is not None)
        match = steady_match(expected.sent.topic, expected.sent.timestamp_ns, at)
        if doubt is None or match is None or len(match.subscriptions) != 1:
            return None
        sent, held = expected.sent, expected.held
        text = (
            f"message on {sent.topic!r} of {sent.publisher!r} (QoS {sent.qos}) did not reach {at.client_name!r}, which "
            f"is subscribed to {held.topic_filter!r} with QoS {held.qos}, before the end of its connection"
        )
        if later is not None:
            text += ", although a later message of the same publisher and topic did"
            return _cited(
                self.report_of(expected, text, doubt, Related.to("a later message as delivered", later)), held, at
            )
        last_ns = at.server.last_timestamp_ns
        if not client_leaves or doubt or last_ns is None or last_ns < expected.since_ns + SETTLE_NS:
            return None
        if at.history.subscriptions.pauses_until_ns(at.timestamp_ns):
            return None
        seconds = (last_ns - expected.since_ns) / SECOND_NS
        text += f", although the server sent it other packets up to {seconds:,.1f} s later"
        doubt = {"severity": Severity.WARNING, "confidence": Confidence.HEURISTIC}
        return _cited(self.report_of(expected, text, doubt), held, at)

    def judge(self, expected: ExpectedMessage, model: Messages, at: RuleContext) -> Report | None:
        """Report a missing message, unless the client stopped receiving after one that was too large for it."""
        too_long = model.oversized.get(at.key)
        if too_long is not None and too_long.number < expected.sent.number:
            recent = at.history.server.recent
            if not recent or recent[-1].timestamp_ns <= too_long.timestamp_ns:
                return None  # FLW404
        sent, held = expected.sent, expected.held
        waited = (at.timestamp_ns - expected.since_ns) / SECOND_NS
        text = (
            f"message on {sent.topic!r} of {sent.publisher!r} (QoS {sent.qos}) did not reach {at.client_name!r}, which "
            f"is subscribed to {held.topic_filter!r} with QoS {held.qos}, within {waited:,.0f} s"
        )
        if at.server.in_flight:
            open_ = count(at.server.in_flight, "message")
            text += f"; the client has left {open_} unacknowledged, and some servers send no more then"
        report = self.lost(expected, model, at, text)
        return None if report is None else _cited(report, held, at)


def _cited(report: Report, held: HeldSubscription, at: RuleContext) -> Report:
    """The report, without the statement of 3.1.1 about wildcards if the filter contains no wildcard."""
    if at.version is V3_1_1 and not {"+", "#"} & set(held.plain_filter):
        report.statements = ("MQTT-4.1.0-2", "MQTT-4.5.0-1")
    return report
