from mqttscope.lint.message_model import Messages
from mqttscope.lint.rules import SECOND_NS, V5, Confidence, Findings, Needs, Related, RuleContext, Severity, examples
from mqttscope.lint.rules.delivery import MessageRule, pairing_of, waited_until_ns
from mqttscope.mqtt import Publish


class ExpiredMessageDelivered(MessageRule):
    """A server delivers a message after its Message Expiry Interval has passed.

    The interval limits how long a message is useful; a command that arrives later may do harm.  The time counts until
    the subscriber connected, or subscribed if the message is retained: after that the message may have waited in the
    network.  An error if the delivered message still has the property.  Without it, it may be another message with the
    same payload, and the finding is a warning.

    Instead, when the interval is over, drop all copies that have not been sent yet.
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
        possibly delayed in the network
            @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened
            +2 > publish a 21.5 qos=1 id=1 message_expiry_interval=10; < puback 1
            +30 @1 < publish a 21.5 qos=1 id=1 message_expiry_interval=10; @1 > puback 1
        published again in between
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
        perhaps published again in lost bytes
            @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1; @1 > disconnect
            @1 > fin; opened; +2 > publish a 21.5 qos=1 id=1 message_expiry_interval=10; < puback 1; +40 > pingreq
            < pingresp; lost > publish a 21.5 qos=1 id=1; > pingreq; < pingresp
            +60 @2 opened client=c2 resume session_expiry_interval=3600 < present
            @2 < publish a 21.5 qos=1 id=1 message_expiry_interval=10; @2 > puback 1
    """)
    bad = examples("""
        to a client that was offline
            @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1; @1 > disconnect
            @1 > fin; opened; +2 > publish a 21.5 qos=1 id=1 message_expiry_interval=10; < puback 1
            +60 @2 opened client=c2 resume session_expiry_interval=3600 < present
            @2 < publish a 21.5 qos=1 id=1 message_expiry_interval=0 !; @2 > puback 1
        a retained message, as if it were new
            opened; +2 > publish a 21.5 qos=1 retain id=1 message_expiry_interval=10; < puback 1; +40 > pingreq
            < pingresp; @1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1
            @1 < publish a 21.5 qos=1 retain id=1 message_expiry_interval=10 !; @1 > puback 1
        without the property: only a warning
            @1 opened client=c2 session_expiry_interval=3600; @1 > subscribe 1 a:1; @1 < suback 1 1; @1 > disconnect
            @1 > fin; opened; +2 > publish a 21.5 qos=1 id=1 message_expiry_interval=10; < puback 1
            +60 @2 opened client=c2 resume session_expiry_interval=3600 < present; @2 < publish a 21.5 qos=1 id=1 !
            @2 > puback 1
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Compare the time that the message waited with its interval."""
        pairing = pairing_of(packet, at)
        if pairing is None or pairing.candidates[-1].expiry is None or pairing.candidates[0].again:
            return None
        sent = pairing.candidates[-1]
        since_ns = waited_until_ns(packet, sent.topic, at)
        if since_ns is None or pairing.owner in sent.copies:
            return None
        tolerance = float(self.set["tolerance"])
        over_ns = 0
        for published in pairing.candidates:
            if published.expiry is None or published.crowded or published.resent or at.is_apart(published.capture):
                return None
            over_ns = max(over_ns, published.timestamp_ns + round((published.expiry + tolerance) * SECOND_NS))
            if published.qos == 2:
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
            f"message on {sent.topic!r} sent to {pairing.owner!r} {waited:,.0f} s after {sent.publisher!r} published "
            f"it with a Message Expiry Interval of {sent.expiry:,} s",
            related=(Related.to("the message as published", sent),),
            severity=None if sure else Severity.WARNING,
            confidence=None if sure else Confidence.HEURISTIC,
        )
