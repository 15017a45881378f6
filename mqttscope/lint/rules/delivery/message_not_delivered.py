from typing import Any

from mqttscope.lint.awaiting import AwaitingRule, Timers
from mqttscope.lint.message_model import SETTLE_NS, Expected, Messages
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
from mqttscope.mqtt.packets import Disconnect, Puback, Pubcomp
from mqttscope.session.connection import Connection


class MessageNotDelivered(AwaitingRule):
    """A message that a server has accepted does not reach a subscriber that is connected.

    With QoS 1 and 2 the acknowledgment says that the message is safe, so nobody sends it again.  It is an error where
    the client has got messages of the same publisher and topic, reads what it gets, and has never had so many messages
    in flight that the server may have had to drop some; elsewhere access control or a queue that is full may explain
    it, which is a warning.  Losing messages of QoS 0 is no mistake.

    At the end of the connection a message is lost without any time-out where a later one of the same publisher, topic
    and QoS was delivered by the same single subscription: a server keeps their order.  Where the client says DISCONNECT
    and the server has sent it anything a second or more after it accepted the message, that is a warning.

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
    looks_at = (Puback, Pubcomp, Disconnect)
    sender = None

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
        a later one is delivered, and the lost one was of another topic, QoS or publisher
            @1 opened client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1; < puback 1
            @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2
            > publish b third qos=1 id=3; < puback 3; @1 < publish b third qos=1 id=2; @1 > puback 2
            > publish a fourth qos=2 id=4; < pubrec 4; > pubrel 4; < pubcomp 4; @1 < publish a fourth qos=1 id=3
            @1 > puback 3; @2 opened client=c3; @2 > publish a fifth qos=1 id=1; @2 < puback 1
            @1 < publish a fifth qos=1 id=4; @1 > puback 4; @1 > disconnect; @1 > fin
        a later one with a payload that came before: nobody can tell which it is
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1; < puback 1
            @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2
            > publish a first qos=1 id=3; < puback 3; @1 < publish a first qos=1 id=2; @1 > puback 2; @1 > disconnect
        a later one by one of two subscriptions
            @1 opened client=c2; @1 > subscribe 1 a:1 #:1; @1 < suback 1 1 1; opened; > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2
            > publish a third qos=1 id=3; < puback 3; @1 < publish a third qos=1 id=2; @1 > puback 2; @1 > disconnect
        a later one, and the lost one may have come before the subscription was known everywhere
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1; < puback 1
            > publish a second qos=1 id=2; < puback 2; @1 < publish a second qos=1 id=1; @1 > puback 1; @1 > disconnect
        a later one, and the lost one was sent again
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1
            opened resume session_expiry_interval=60 < present; > publish a first qos=1 id=1; < puback 1
            @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; > fin
            @2 opened resume session_expiry_interval=60 < present; @2 > publish a second qos=1 id=2 dup
            @2 > publish a third qos=1 id=3; @2 < puback 2; @2 < puback 3; @1 < publish a third qos=1 id=2
            @1 > puback 2; @1 > disconnect
        a later one whose PUBREL came first
            @1 opened client=c2; @1 > subscribe 1 a:2; @1 < suback 1 2; opened; > publish a first qos=2 id=1
            < pubrec 1; > pubrel 1; < pubcomp 1; @1 < publish a first qos=2 id=1; @1 > pubrec 1; @1 < pubrel 1
            @1 > pubcomp 1; > publish a second qos=2 id=2; > publish a third qos=2 id=3; < pubrec 2; < pubrec 3
            > pubrel 2; > pubrel 3; < pubcomp 2; < pubcomp 3; @1 < publish a third qos=2 id=2; @1 > pubrec 2
            @1 < pubrel 2; @1 > pubcomp 2; @1 > disconnect
        a later one, and the lost one may be in bytes that the capture does not have
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1; < puback 1
            @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2
            @1 lost < publish a second qos=1 id=2; > publish a third qos=1 id=3; < puback 3
            @1 < publish a third qos=1 id=3; @1 > puback 3; @1 > disconnect
        a later one, and the lost one was refused
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1; < puback 1
            @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2 code=0x97
            > publish a third qos=1 id=3; < puback 3; @1 < publish a third qos=1 id=2; @1 > puback 2; @1 > disconnect
        a later one, and the lost one may have expired or is too long
            @1 opened client=c2 maximum_packet_size=90; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            > publish a second qos=1 id=2 message_expiry_interval=1; < puback 2; > publish a "long"*20 qos=1 id=3
            < puback 3; > publish a third qos=1 id=4; < puback 4; @1 < publish a third qos=1 id=2; @1 > puback 2
            @1 > disconnect
        a later one, of a share
            @1 opened client=c2; @1 > subscribe 1 $share/g/a:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1
            < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2
            > publish a third qos=1 id=3; < puback 3; @1 < publish a third qos=1 id=2; @1 > puback 2; @1 > disconnect
        the client leaves before it could have come
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1; < puback 1
            @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2; +0.5 @1 > pingreq
            @1 < pingresp; +5 @1 > disconnect
        the connection ends without a DISCONNECT
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1; < puback 1
            @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2; +5 @1 > pingreq
            @1 < pingresp; @1 > fin
        the client leaves, and has not answered what came before
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
        a time-out that is over while retained messages may come: judged after them
            settings timeout=1; @1 opened client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; @1 < publish r x retain
            opened; > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            > publish a second qos=1 id=2; < puback 2; +3 @1 > pingreq; @1 < pingresp; +4 @1 > pingreq !!
        in a short test, after a retained message: a later one is delivered, and the client leaves
            @1 opened client=c2; @1 > subscribe 1 #:1; @1 < suback 1 1; @1 < publish r x retain; opened
            > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            > publish a second qos=1 id=2; < puback 2; > publish a third qos=1 id=3; < puback 3
            @1 < publish a third qos=1 id=2; @1 > puback 2; @1 > disconnect !!
        in a short test: a later one is delivered, and the client leaves
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1; < puback 1
            @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2
            > publish a third qos=1 id=3; < puback 3; @1 < publish a third qos=1 id=2; @1 > puback 2
            @1 > disconnect !!
        the same with QoS 2 in 3.1.1, and the connection breaks
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
        answered after it, and then the client leaves: only a warning
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; > publish a first qos=1 id=1; < puback 1
            @1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2; +2 @1 > pingreq
            @1 < pingresp; @1 > disconnect !!
    """)

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """The server accepts a message; or a side says DISCONNECT, after which nothing more comes."""
        if isinstance(packet, Disconnect):
            return self._judge_early(at, client_leaves=at.from_client)
        return None if at.from_client else super().check(packet, at)

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Judge by order what has not come, unless a DISCONNECT has ended the connection before."""
        found = self._judge_early(at)
        super().check_close(connection, at)
        return found

    def _judge_early(self, at: RuleContext, *, client_leaves: bool = False) -> list[Report]:
        """Judge what was not delivered before the end, although its time-out has not passed."""
        model, found = at.model(Messages), list[Report]()
        timers: Timers = at.memory(self)
        last = timers.judged.get(at.key, -1)
        for one in (self.waiting(model, at) or {}).values():
            if one.number > last and self.is_judged(one, model, at):
                report = self._judge_end(one, model, at, client_leaves=client_leaves)
                if report is not None:
                    found.append(report)
        return found

    def _judge_end(self, one: Expected, model: Messages, at: RuleContext, *, client_leaves: bool) -> Report | None:
        later = model.overtaking(one, at.key)
        doubt = self.doubt(one, model, at, overtaken=later is not None)
        match = steady_match(one.sent.topic, one.sent.timestamp_ns, at)
        if doubt is None or match is None or len(match.subscriptions) != 1:
            return None
        sent, held = one.sent, one.held
        told = (
            f"message on {sent.topic!r} of {sent.publisher!r} (QoS {sent.qos}) did not reach {at.client_name!r}, which "
            f"has subscribed to {held.topic_filter!r} with QoS {held.qos}, before the end of its connection"
        )
        if later is not None:
            told += ", although a later one of the same publisher and topic did"
            return self.report_of(one, told, doubt, Related.to("a later message as delivered", later))
        last_ns = at.server.last_timestamp_ns
        if not client_leaves or doubt or last_ns is None or last_ns < one.since_ns + SETTLE_NS:
            return None
        if at.history.subscriptions.pauses_until_ns(at.timestamp_ns):
            return None
        told += f", although the server sent it other packets up to {(last_ns - one.since_ns) / SECOND_NS:,.1f} s later"
        return self.report_of(one, told, {"severity": Severity.WARNING, "confidence": Confidence.HEURISTIC})

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
