from mqttscope.lint.broker_watch import doubt
from mqttscope.lint.retained_store import MissingMessage, RetainedStore, WaitingRule, waited_s
from mqttscope.lint.rules import V3_1_1, Confidence, Report, RuleContext, Severity, examples
from mqttscope.mqtt import Direction


class RetainedLostWithSession(WaitingRule):
    """A retained message is no longer sent after the session of its publisher has ended.

    Retained messages belong to their topic, not to a session: they serve clients that arrive when the publisher is
    gone.  Reported if a client receives the message while the publisher is connected, but not after the publisher's
    session has ended with its connection.  Nothing else may have happened on the topic.

    Instead, keep retained messages when sessions end.
    """

    code = "RET410"
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    confidence = Confidence.HEURISTIC
    statements = {V3_1_1: {"MQTT-3.1.2-7": ""}}

    good = examples("""
        still sent
            @1 opened 3.1.1 client=c2; opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain; > disconnect; > fin; @1 > subscribe 2 a:0; @1 < suback 2 0
            @1 < publish a 21 retain; +31 @1 > pingreq
        the session is kept and has not ended
            @1 opened client=c2; opened session_expiry_interval=3600; > publish a 21 qos=1 retain id=1; < puback 1
            @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 21 retain; > disconnect; > fin; @1 > subscribe 2 a:0
            @1 < suback 2 0; +25 @1 > pingreq; @1 < pingresp
        cleared before the publisher disconnected
            @1 opened 3.1.1 client=c2; opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain; > publish a retain; > disconnect; > fin; @1 > subscribe 2 a:0
            @1 < suback 2 0; +31 @1 > pingreq
    """)
    bad = examples("""
        lost with its publisher
            @1 opened 3.1.1 client=c2; opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain; > disconnect; > fin; @1 > subscribe 2 a:0; @1 < suback 2 0
            +31 @1 > pingreq !!
        in 5.0, with Session Expiry Interval 0
            @1 opened client=c2; opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain; > disconnect; > fin; @1 > subscribe 2 a:0; @1 < suback 2 0
            +31 @1 > pingreq !!
    """)

    def judge(self, vain: MissingMessage, store: RetainedStore, at: RuleContext) -> Report | None:
        """Check that the end of the publisher's session is the only event that explains the loss."""
        retained = vain.message
        if not (vain.reader and retained.proven and retained.volatile) or retained.outlived:
            return None
        if retained.key in store.witnesses or retained.client == at.client_name:
            return None
        return self.report(
            "",
            f"retained message on {vain.topic!r} was not sent to {at.client_name!r} within "
            f"{waited_s(vain.expected, at):,.0f} s after the session of its publisher {retained.client!r} ended",
            related=vain.related,
            sender=Direction.SERVER_TO_CLIENT,
            overdue=True,
            topic=vain.topic,
            **doubt(at, doubtful=store.is_torn(at)),
        )
