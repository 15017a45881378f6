"""SUB520."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Confidence, Report, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Needs, Rule
from mqttscope.lint.shared_checks import unanswered
from mqttscope.session.connection import Connection


class UnsubscribeUnanswered(Rule):
    """A server does not answer an UNSUBSCRIBE.

    An UNSUBACK is due even where no subscription was there to be deleted; without it the packet identifier stays in
    use.  The finding comes at the end of the connection, when the answer has been missing for longer than ``timeout``
    seconds.  It is likely where TCP shows that the server had received the UNSUBSCRIBE, else a guess.

    Instead, answer each UNSUBSCRIBE with an UNSUBACK.
    """

    code = "SUB520"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-3.10.4-4": ""},
        V3_1_1: {"MQTT-3.10.4-4": "", "MQTT-3.10.4-5": ""},
        V3_1: {"V31-UNSUBACK-answer": ""},
    }
    also = {V5: ("MQTT-2.2.1-6", "MQTT-3.10.4-5")}
    needs = Needs.BOTH_DIRECTIONS | Needs.WHOLE
    settings = {"timeout": 30}

    good = examples("""
        answered
            opened; > unsubscribe 10 a; < unsuback 10 0x11; +60 > fin
        the connection ends before long
            opened; > unsubscribe 10 a; +29 > fin
        the client gives up before long
            opened; > unsubscribe 10 a; +5 > disconnect; +40 > fin
        answered late
            opened 3.1.1; > unsubscribe 10 a; +35 < unsuback 10; > fin
        the capture lost bytes of the server
            opened; > unsubscribe 10 a; lost < unsuback 10 0x11; +35 > pingreq; < pingresp; > fin
    """)
    bad = examples("""
        only pings are answered
            opened; > unsubscribe 10 a; +30 > pingreq; < pingresp; > fin !
        nothing comes in 3.1.1
            opened 3.1.1; > unsubscribe 10 a; +31 > fin !
        nothing comes in 3.1
            opened 3.1; > unsubscribe 10 a; +31 < fin !
        another limit
            settings timeout=10; opened; > unsubscribe 10 a; +11 > fin !
    """)

    def check_close(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """What is still open, until the connection ended or a side said that it would."""
        return unanswered(self, at, "unsubscribe", "UNSUBACK")
