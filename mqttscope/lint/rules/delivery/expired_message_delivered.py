from mqttscope.lint.message_model import Messages
from mqttscope.lint.rules import SECOND_NS, V5, Confidence, Findings, Needs, Related, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import MessageRule, paired, waited_until_ns
from mqttscope.mqtt import Publish


class ExpiredMessageDelivered(MessageRule):
    """A server delivers a message whose Message Expiry Interval has passed.

    The interval says for how long a message is of use; a command that comes after it may do harm.  Time counts until
    the subscriber connected, or subscribed where the message is retained: what comes later may have waited in the
    network.  It is an error where the delivery still has the interval; without one it may be of another message with
    the same payload, which is a warning.

    Instead, drop the copies of a message for subscribers to whom it has not been sent when its interval is over.
    """

    code = "DLV415"
    severities = (Severity.ERROR, Severity.WARNING)
    versions = (V5,)
    statements = {V5: {"MQTT-3.3.2-5": ""}}
    needs = Needs.OPENING | Needs.WHOLE_SENDER
    settings = {"tolerance": 2}

    good = examples("""
        in time
            @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1; @1 > disconnect
            @1 > fin; opened; +2 > publish a 21.5 qos=1 id=1 message_expiry_interval=100; < puback 1
            +60 @2 opened client=c2 resume session_expiry_interval=3600 < present
            @2 < publish a 21.5 qos=1 id=1 message_expiry_interval=40; @2 > puback 1
        it may have waited in the network
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 message_expiry_interval=10; < puback 1
            +30 @1 < publish a 21.5 qos=1 id=1 message_expiry_interval=10; @1 > puback 1
        published again since
            @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1; @1 > disconnect
            @1 > fin; opened; +2 > publish a 21.5 qos=1 id=1 message_expiry_interval=10; < puback 1
            +40 > publish a 21.5 qos=1 id=1; < puback 1
            +60 @2 opened client=c2 resume session_expiry_interval=3600 < present; @2 < publish a 21.5 qos=1 id=1
            @2 > puback 1
        first sent in time
            @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 message_expiry_interval=10; < puback 1
            @1 < publish a 21.5 qos=1 id=1 message_expiry_interval=10; @1 > fin
            +60 @2 opened client=c2 resume session_expiry_interval=3600 < present
            @2 < publish a 21.5 dup qos=1 id=1 message_expiry_interval=10; @2 > puback 1
        published again in bytes that were lost
            @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1; @1 > disconnect
            @1 > fin; opened; +2 > publish a 21.5 qos=1 id=1 message_expiry_interval=10; < puback 1; +40 > pingreq
            < pingresp; lost > publish a 21.5 qos=1 id=1; > pingreq; < pingresp
            +60 @2 opened client=c2 resume session_expiry_interval=3600 < present
            @2 < publish a 21.5 qos=1 id=1 message_expiry_interval=10; @2 > puback 1
    """)
    bad = examples("""
        to a client that was away
            @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1; @1 > disconnect
            @1 > fin; opened; +2 > publish a 21.5 qos=1 id=1 message_expiry_interval=10; < puback 1
            +60 @2 opened client=c2 resume session_expiry_interval=3600 < present
            @2 < publish a 21.5 qos=1 id=1 message_expiry_interval=0 !; @2 > puback 1
        a retained message, as if it were new
            opened; +2 > publish a 21.5 qos=1 retain id=1 message_expiry_interval=10; < puback 1; +40 > pingreq
            < pingresp; @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1
            @1 < publish a 21.5 qos=1 retain id=1 message_expiry_interval=10 !; @1 > puback 1
        without an interval: only a warning
            @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1; @1 > disconnect
            @1 > fin; opened; +2 > publish a 21.5 qos=1 id=1 message_expiry_interval=10; < puback 1
            +60 @2 opened client=c2 resume session_expiry_interval=3600 < present; @2 < publish a 21.5 qos=1 id=1 !
            @2 > puback 1
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare the time that the message has waited with its interval."""
        found = paired(packet, at)
        if found is None or found.candidates[-1].expiry is None or found.candidates[0].again:
            return None
        sent = found.candidates[-1]
        since_ns = waited_until_ns(packet, sent.topic, at)
        if since_ns is None or found.owner in sent.copies:
            return None
        tolerance = float(self.set["tolerance"])
        over_ns = 0
        for one in found.candidates:
            if one.expiry is None or one.crowded or one.resent or at.is_apart(one.capture):
                return None
            over_ns = max(over_ns, one.timestamp_ns + round((one.expiry + tolerance) * SECOND_NS))
            if one.qos == 2:
                return None  # it may wait for the PUBREL of its publisher
        if since_ns <= over_ns:
            return None
        model = at.model(Messages)
        if model.hides(sent.topic) or model.waits_behind_a_hole(at):
            return None
        block = packet.properties
        left = None if block is None else block.message_expiry_interval
        sure = left is not None and left <= (sent.expiry or 0)
        waited = (since_ns - sent.timestamp_ns) / SECOND_NS
        return self.report(
            "",
            f"message on {sent.topic!r} sent to {found.owner!r} {waited:,.0f} s after {sent.publisher!r} published it "
            f"with a Message Expiry Interval of {sent.expiry:,} s",
            related=(Related.to("the message as published", sent),),
            severity=None if sure else Severity.WARNING,
            confidence=None if sure else Confidence.HEURISTIC,
        )
