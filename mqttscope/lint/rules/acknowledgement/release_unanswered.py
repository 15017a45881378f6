"""ACK516, ACK517: exchanges of QoS 2 that a side does not continue."""

from collections.abc import Iterator
from typing import ClassVar

from mqttscope.lint.rules import V3_1_1, V5, Report, RuleContext, Severity, examples
from mqttscope.lint.waiting import AnswerRule, Overdue
from mqttscope.mqtt import Direction, Pubrec, Pubrel


class ReleaseRule(AnswerRule):
    """A packet of an exchange of QoS 2 without the packet that follows it."""

    severity = Severity.ERROR
    packet: ClassVar[str]
    answer: ClassVar[str]

    def owed(self, at: RuleContext, debtor: Direction) -> Iterator[tuple[int, int]]:
        yield from getattr(at.history.party(debtor), f"owes_{self.answer.lower()}").items()

    def describe(self, one: Overdue, at: RuleContext) -> Report | None:
        name = f"{self.packet} with packet identifier {one.identifier}"
        return self.overdue(one, f"{name} got no {self.answer} within {self.set['timeout']} s", "the PUBLISH")


class PubrecUnanswered(ReleaseRule):
    """A PUBREC gets no PUBREL.

    The receiver of a QoS 2 message keeps its packet identifier until PUBREL comes, and some deliver the message only
    then.  The finding comes when the PUBREL has been missing for ``timeout`` seconds while the connection lives, and
    only where TCP shows that the sender of the message got the PUBREC.

    Instead, answer each PUBREC with a Reason Code below 0x80 with PUBREL, also after the message has expired.
    """

    code = "ACK516"
    packet, answer = "PUBREC", "PUBREL"
    statements = {V5: {"MQTT-3.10.4-3": "server", "MQTT-4.3.3-4": ""}, V3_1_1: {"MQTT-3.10.4-3": "server"}}
    also = {V5: ("MQTT-4.3.3-13",), V3_1_1: ("MQTT-4.3.3-1",)}
    looks_at = Pubrec
    begun_by_debtor = True

    good = examples("""
        released
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; +20 > pingreq; < pingresp
            +20 > pingreq; < pingresp; > fin
        refused
            opened; > publish a qos=2 id=7; < pubrec 7 code=0x87; +20 > pingreq; < pingresp; +20 > pingreq; < pingresp
            > fin
        the connection ends before long
            opened; > publish a qos=2 id=7; < pubrec 7; +20 > pingreq; < pingresp; +5 > fin
        somebody takes leave before long
            opened; > publish a qos=2 id=7; < pubrec 7; +20 > pingreq; < pingresp; +8 < disconnect code=0x8b; > ack
            +4 < fin
        the client never got it
            opened 3.1.1; > publish a qos=2 id=7; < pubrec 7; @1 opened client=c2; +60 @1 > pingreq
        the capture lost bytes of the client
            opened; > publish a qos=2 id=7; < pubrec 7; lost > pubrel 7; +20 > pingreq; < pingresp; +20 > pingreq
            < pingresp; > fin
    """)
    bad = examples("""
        the client continues
            opened; > publish a qos=2 id=7; < pubrec 7; +20 > pingreq; < pingresp; +20 > pingreq; < pingresp; > fin !
        in MQTT 3.1.1, by the server
            opened 3.1.1; < publish a qos=2 id=7; > pubrec 7; < ack; +50 > fin !
        another limit
            settings timeout=5; opened; > publish a qos=2 id=7; < pubrec 7; > ack; +9 > fin !
    """)


class PubrelUnanswered(ReleaseRule):
    """A PUBREL gets no PUBCOMP.

    The sender of a QoS 2 message cannot use the packet identifier again, and its window stays smaller by one.  The
    finding comes when the PUBCOMP has been missing for ``timeout`` seconds while the connection lives, and only where
    TCP shows that the receiver got the PUBREL.

    Instead, answer each PUBREL with PUBCOMP, also where the packet identifier is not known, the message has expired or
    the subscription is gone.
    """

    code = "ACK517"
    packet, answer = "PUBREL", "PUBCOMP"
    statements = {V5: {"MQTT-4.3.3-11": "", "MQTT-4.3.3-13": ""}}
    also = {V3_1_1: ("MQTT-4.3.3-2",)}
    looks_at = Pubrel

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
