from typing import Any

from mqttscope.lint.awaiting import AwaitingRule, Timers
from mqttscope.lint.message_model import Expected, Messages
from mqttscope.lint.rules import SECOND_NS, V3_1_1, V5, Confidence, Findings, Report, RuleContext, examples
from mqttscope.mqtt.packets import Connack


class OfflineMessageLost(AwaitingRule):
    """A message that was published while a client was away does not reach it when it has come back to its session.

    A session that outlives its connection is there for these messages.  A server may limit how many it keeps, so that
    only up to 64 of them are expected, and only while some connection that is open all the time proves that the server
    did not restart.  It is an error where the client has got messages of the same publisher and topic before.

    Instead, keep messages of QoS 1 and 2 for the subscriptions of sessions without a connection, and deliver them.
    """

    code = "SES411"
    confidence = Confidence.LIKELY
    statements = {V3_1_1: {"MQTT-3.1.2-5": ""}}
    also = {V5: ("MQTT-4.5.0-1",), V3_1_1: ("MQTT-4.5.0-1",)}
    looks_at = (Connack,)

    good = examples("""
        it is delivered
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
        the session is gone
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
        nobody was there all the time: the server may have been restarted
            @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; @1 > disconnect
            @1 > fin; +2 > publish a 21.5 qos=1 id=1; < puback 1; > fin
            +5 @2 opened client=c2 resume session_expiry_interval=3600 < present; +20 @2 > pingreq; @2 < pingresp
            +15 @2 > pingreq
        more than a server may keep
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
        the client has left again
            @3 opened client=c4; @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1
            opened; +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            @1 > disconnect; @1 > fin; +2 > publish a 21.5 qos=1 id=1; < puback 1
            +5 @2 opened client=c2 resume session_expiry_interval=3600 < present; @2 > disconnect; @2 > fin
            +40 > pingreq
    """)
    bad = examples("""
        nothing comes
            @3 opened client=c4; @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1
            opened; +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1
            @1 > disconnect; @1 > fin; +2 > publish a 21.5 qos=1 id=1; < puback 1
            +5 @2 opened client=c2 resume session_expiry_interval=3600 < present; +20 @2 > pingreq; @2 < pingresp
            +15 @2 > pingreq !!
        in 3.1.1, and one of two
            @3 opened client=c4; @1 opened 3.1.1 client=c2 resume; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a first qos=1 id=1; < puback 1; @1 < publish a first qos=1 id=1; @1 > puback 1; @1 > disconnect
            @1 > fin; +2 > publish a 21.5 qos=1 id=1; < puback 1; > publish a other qos=1 id=2; < puback 2
            +5 @2 opened client=c2 resume < present; @2 < publish a other qos=1 id=1; @2 > puback 1; +20 @2 > pingreq
            @2 < pingresp; +15 @2 > pingreq !!
        nothing has come before: only a warning
            @3 opened client=c4; @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1
            @1 > disconnect; @1 > fin; opened; +2 > publish a 21.5 qos=1 id=1; < puback 1
            +5 @2 opened client=c2 resume session_expiry_interval=3600 < present; +20 @2 > pingreq; @2 < pingresp
            +15 @2 > pingreq !!
    """)

    def check(self, packet: Any, at: RuleContext) -> Findings:
        """A client is back: ask about what waits for it when time is up."""
        if not packet.reason_code and at.model(Messages).owed.get(at.client_name):
            timers: Timers = at.memory(self)
            timers.asked[at.key] = True
            at.ask(self, at.timestamp_ns + self.nanoseconds("timeout"))
        return None

    def waiting(self, model: Messages, at: RuleContext) -> dict[tuple[str, int], Expected] | None:
        return model.owed_to.get(at.key)

    def judge(self, one: Expected, model: Messages, at: RuleContext) -> Report | None:
        """Say what has not come."""
        sent = one.sent
        if not model.witnessed(sent.timestamp_ns) or model.waits_behind_a_hole(at):
            return None
        waited = (at.timestamp_ns - one.since_ns) / SECOND_NS
        return self.lost(
            one,
            model,
            at,
            f"message on {sent.topic!r} of {sent.publisher!r} (QoS {sent.qos}), published while {at.client_name!r} "
            f"was away, did not reach it within {waited:,.0f} s after it came back",
        )
