from typing import Any

from mqttscope.lint.awaiting import AwaitingRule, AwaitingTimers
from mqttscope.lint.message_model import ExpectedMessage, Messages
from mqttscope.lint.rules import SECOND_NS, V3_1_1, V5, Confidence, Findings, Report, RuleContext, examples
from mqttscope.mqtt.packets import Connack


class OfflineMessageLost(AwaitingRule):
    """A message published while a client was offline does not reach it after it resumes its session.

    A session that outlives its connection exists for these messages.  A server may limit their number, so only up to 64
    are expected, and only while another connection stays open, which proves that the server did not restart.  An error
    if the client has received messages of the same publisher and topic before.

    Instead, queue messages of QoS 1 and 2 for the subscriptions of disconnected sessions, and deliver them later.
    """

    code = "SES411"
    confidence = Confidence.LIKELY
    statements = {V3_1_1: {"MQTT-3.1.2-5": ""}}
    also = {V5: ("MQTT-4.5.0-1",), V3_1_1: ("MQTT-4.5.0-1",)}
    looks_at = (Connack,)

    good = examples("""
        delivered
            @3 opened client=c4; @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1
            opened; +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            @1 > disconnect; @1 > fin; +2 > publish a 21.5 qos=1 id=1; < puback 1
            +5 @2 opened client=c2 resume session_expiry_interval=3600 < present; @2 < publish a 21.5 qos=1 id=1
            @2 > puback 1; +20 @2 > pingreq; @2 < pingresp; +15 @2 > pingreq
        QoS 0
            @3 opened client=c4; @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1
            opened; +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            @1 > disconnect; @1 > fin; +2 > publish a 21.5
            +5 @2 opened client=c2 resume session_expiry_interval=3600 < present; +20 @2 > pingreq; @2 < pingresp
            +15 @2 > pingreq
        the session has ended
            @3 opened client=c4; @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1
            opened; +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            @1 > disconnect; @1 > fin; +2 > publish a 21.5 qos=1 id=1; < puback 1
            +5 @2 opened client=c2 resume session_expiry_interval=3600; +20 @2 > pingreq; @2 < pingresp
            +15 @2 > pingreq
        it has expired
            @3 opened client=c4; @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1
            opened; +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            @1 > disconnect; @1 > fin; +2 > publish a 21.5 qos=1 id=1 message_expiry_interval=2; < puback 1
            +5 @2 opened client=c2 resume session_expiry_interval=3600 < present; +20 @2 > pingreq; @2 < pingresp
            +15 @2 > pingreq
        no connection stays open: the server may have restarted
            @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; @1 > disconnect
            @1 > fin; +2 > publish a 21.5 qos=1 id=1; < puback 1; > fin
            +5 @2 opened client=c2 resume session_expiry_interval=3600 < present; +20 @2 > pingreq; @2 < pingresp
            +15 @2 > pingreq
        more than a server has to queue
            @3 opened client=c4; @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1
            opened; +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            @1 > disconnect; @1 > fin
            for 1..69: +1.5 > publish a {n} qos=1 id={n}; < puback {n}
            +5 @2 opened client=c2 resume session_expiry_interval=3600 < present; +20 @2 > pingreq; @2 < pingresp
            +15 @2 > pingreq
        the session ends with the connection
            @3 opened client=c4; @1 opened client=c2 session_expiry_interval=0; @1 > subscribe 1 a:1; @1 < suback 1 1
            opened; +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            @1 > disconnect; @1 > fin; +2 > publish a 21.5 qos=1 id=1; < puback 1; @2 opened client=c2; +20 @2 > pingreq
            @2 < pingresp; +15 @2 > pingreq
        the client has disconnected again
            @3 opened client=c4; @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1
            opened; +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            @1 > disconnect; @1 > fin; +2 > publish a 21.5 qos=1 id=1; < puback 1
            +5 @2 opened client=c2 resume session_expiry_interval=3600 < present; @2 > disconnect; @2 > fin
            +40 > pingreq
    """)
    bad = examples("""
        no delivery
            @3 opened client=c4; @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1
            opened; +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            @1 > disconnect; @1 > fin; +2 > publish a 21.5 qos=1 id=1; < puback 1
            +5 @2 opened client=c2 resume session_expiry_interval=3600 < present; +20 @2 > pingreq; @2 < pingresp
            +15 @2 > pingreq !!
        one of two missing, in 3.1.1
            @3 opened client=c4; @1 opened 3.1.1 client=c2 resume; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; @1 > disconnect
            @1 > fin; +2 > publish a 21.5 qos=1 id=1; < puback 1; > publish a other qos=1 id=2; < puback 2
            +5 @2 opened client=c2 resume < present; @2 < publish a other qos=1 id=1; @2 > puback 1; +20 @2 > pingreq
            @2 < pingresp; +15 @2 > pingreq !!
        no earlier deliveries: only a warning
            @3 opened client=c4; @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1
            @1 > disconnect; @1 > fin; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            +5 @2 opened client=c2 resume session_expiry_interval=3600 < present; +20 @2 > pingreq; @2 < pingresp
            +15 @2 > pingreq !!
    """)

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """Start the timeout when a client with waiting messages has reconnected."""
        if not packet.reason_code and at.model(Messages).owed.get(at.client_name):
            timers: AwaitingTimers = at.memory(self)
            timers.asked[at.key] = True
            at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
        return None

    def waiting(self, model: Messages, at: RuleContext) -> dict[tuple[str, int], ExpectedMessage] | None:
        return model.owed_to.get(at.key)

    def judge(self, expected: ExpectedMessage, model: Messages, at: RuleContext) -> Report | None:
        """Report the missing message."""
        sent = expected.sent
        if not model.witnessed(sent.timestamp_ns) or model.waits_behind_a_hole(at):
            return None
        waited = (at.timestamp_ns - expected.since_ns) / SECOND_NS
        return self.lost(
            expected,
            model,
            at,
            f"message on {sent.topic!r} of {sent.publisher!r} (QoS {sent.qos}), published while {at.client_name!r} "
            f"was offline, did not reach it within {waited:,.0f} s after it reconnected",
        )
