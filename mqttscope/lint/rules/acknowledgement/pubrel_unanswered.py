"""ACK517."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Confidence, Report, Severity
from mqttscope.lint.rule import V3_1_1, V5, Needs
from mqttscope.lint.waiting import AnswerRule, Overdue, Waiting
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Pubrel


class PubrelUnanswered(AnswerRule):
    """A PUBREL gets no PUBCOMP.

    The sender of a QoS 2 message cannot use the packet identifier again, and its window stays smaller by one.  The
    finding comes when the PUBCOMP has been missing for ``timeout`` seconds while the connection lives, and only where
    TCP shows that the receiver got the PUBREL.

    Instead, answer each PUBREL with PUBCOMP, also where the packet identifier is not known, the message has expired or
    the subscription is gone.
    """

    code = "ACK517"
    severity = Severity.ERROR
    confidence = Confidence.LIKELY
    statements = {V5: {"MQTT-4.3.3-11": "", "MQTT-4.3.3-13": ""}}
    also = {V3_1_1: ("MQTT-4.3.3-2",)}
    looks_at = Pubrel
    needs = Needs.BOTH_DIRECTIONS | Needs.WHOLE
    settings = {"timeout": 30}
    Memory = Waiting

    good = examples("""
        completed
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; +20 > pingreq; < pingresp
            +20 > pingreq; < pingresp; > fin
        the connection ends before long
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; +20 > pingreq; < pingresp; +5 > fin
        somebody takes leave before long
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; +20 > pingreq; < pingresp; +8 < disconnect code=0x8b
            > ack; +4 < fin
        the server never got it
            opened 3.1.1; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; @1 opened client=c2; +60 @1 > pingreq
        the capture lost bytes of the server
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; lost < pubcomp 7; +20 > pingreq; < pingresp
            +20 > pingreq; < pingresp; > fin
    """)
    bad = examples("""
        the server continues
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; +20 > pingreq; < pingresp; +20 > pingreq; < pingresp
            > fin !
        in MQTT 3.1.1, by the client
            opened 3.1.1; < publish a qos=2 id=7; > pubrec 7; < pubrel 7; > ack; +50 > fin !
        of a message from before a reconnect
            opened resume < present; > pubrel 7; +20 > pingreq; < pingresp; +20 > pingreq; < pingresp; > fin !
        another limit
            settings timeout=5; opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < ack; +9 > fin !
    """)

    def owed(self, at: RuleContext, debtor: Direction) -> Iterator[tuple[int, int]]:
        """PUBREL packets that a side has not answered."""
        yield from at.history.party(debtor).owes_pubcomp.items()

    def describe(self, one: Overdue, at: RuleContext) -> Report | None:
        """Say what did not come."""
        told = f"PUBREL with packet identifier {one.identifier} got no PUBCOMP within {self.set['timeout']} s"
        return self.overdue(one, told, "the PUBLISH")
