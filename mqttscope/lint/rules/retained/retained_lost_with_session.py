from mqttscope.lint.broker_watch import doubt
from mqttscope.lint.retained_store import RetainedStore, Vain, WaitingRule, waited_s
from mqttscope.lint.rules import V3_1_1, Confidence, Report, RuleContext, Severity, examples
from mqttscope.mqtt import Direction


class RetainedLostWithSession(WaitingRule):
    """A retained message that was there is not sent any more once the session of its publisher has ended.

    Retained messages belong to their topic and not to a session: they are there for those who come when the publisher
    is gone.  Reported where a client gets the message while the publisher is connected, and asks for it in vain after
    that one has left with a session that ends with the connection, nothing else having happened to the topic.

    Instead, keep retained messages when sessions end.
    """

    code = "RET410"
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    confidence = Confidence.HEURISTIC
    statements = {V3_1_1: {"MQTT-3.1.2-7": ""}}

    good = examples("""
        it is still there
            @1 opened 3.1.1 client=c2; opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain; > disconnect; > fin; @1 > subscribe 2 a:0; @1 < suback 2 0
            @1 < publish a 21 retain; +31 @1 > pingreq
        the session is kept, so that it did not end
            @1 opened client=c2; opened session_expiry_interval=3600; > publish a 21 qos=1 retain id=1; < puback 1
            @1 > subscribe 1 a:0; @1 < suback 1 0; @1 < publish a 21 retain; > disconnect; > fin; @1 > subscribe 2 a:0
            @1 < suback 2 0; +25 @1 > pingreq; @1 < pingresp
        cleared before the publisher left
            @1 opened 3.1.1 client=c2; opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain; > publish a retain; > disconnect; > fin; @1 > subscribe 2 a:0
            @1 < suback 2 0; +31 @1 > pingreq
    """)
    bad = examples("""
        gone with its publisher
            @1 opened 3.1.1 client=c2; opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain; > disconnect; > fin; @1 > subscribe 2 a:0; @1 < suback 2 0
            +31 @1 > pingreq !!
        in 5.0, with Session Expiry Interval 0
            @1 opened client=c2; opened; > publish a 21 qos=1 retain id=1; < puback 1; @1 > subscribe 1 a:0
            @1 < suback 1 0; @1 < publish a 21 retain; > disconnect; > fin; @1 > subscribe 2 a:0; @1 < suback 2 0
            +31 @1 > pingreq !!
    """)

    def judge(self, vain: Vain, store: RetainedStore, at: RuleContext) -> Report | None:
        """Look whether the end of the publisher's session is all that has happened."""
        kept = vain.kept
        if not (vain.reader and kept.proven and kept.volatile) or kept.outlived:
            return None
        if kept.key in store.witnesses or kept.client == at.client_name:
            return None
        return self.report(
            "",
            f"retained message on {vain.topic!r} is not sent to {at.client_name!r} within "
            f"{waited_s(vain.expected, at):,.0f} s after the session of its publisher {kept.client!r} has ended",
            related=vain.related,
            sender=Direction.SERVER_TO_CLIENT,
            overdue=True,
            topic=vain.topic,
            **doubt(at, doubtful=store.is_torn(at)),
        )
