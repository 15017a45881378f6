"""ACK516, ACK517: QoS 2 exchanges that one side does not continue."""

from collections.abc import Iterator
from typing import ClassVar

from mqttscope.lint.rules import V3_1_1, V5, Report, RuleContext, Severity, examples
from mqttscope.lint.waiting import AnswerRule, OverduePacket
from mqttscope.mqtt import Direction, Pubrec, Pubrel


class ReleaseRule(AnswerRule):
    """A packet of a QoS 2 exchange is not followed by the next packet of the exchange."""

    severity = Severity.ERROR
    packet: ClassVar[str]
    answer: ClassVar[str]

    def owed(self, at: RuleContext, debtor: Direction) -> Iterator[tuple[int, int]]:
        yield from getattr(at.history.party(debtor), f"owes_{self.answer.lower()}").items()

    def describe(self, overdue: OverduePacket, at: RuleContext) -> Report | None:
        name = f"{self.packet} with packet identifier {overdue.identifier}"
        return self.overdue(overdue, f"{name} got no {self.answer} within {self.set['timeout']} s", "the PUBLISH")


class PubrecUnanswered(ReleaseRule):
    """A PUBREC is not answered with PUBREL.

    The receiver of a QoS 2 message keeps the packet identifier until PUBREL arrives, and some receivers deliver the
    message only then.  Reported when the PUBREL has been missing for ``timeout`` seconds on an open connection, and
    only if TCP shows that the sender of the message got the PUBREC.  A PUBREC that comes after the PUBREL of its
    exchange, or for an identifier that is not in use on the connection, proves nothing.

    Instead, answer each PUBREC that has a Reason Code below 0x80 with PUBREL, even if the message has expired.
    """

    code = "ACK516"
    packet, answer = "PUBREC", "PUBREL"
    statements = {
        V5: {"MQTT-4.3.3-4": "", "MQTT-3.10.4-3": "server"},
        V3_1_1: {"MQTT-4.3.3-1": "", "MQTT-3.10.4-3": "server"},
    }
    also = {V5: ("MQTT-4.3.3-13",)}
    looks_at = Pubrec
    begun_by_debtor = True

    def owed(self, at: RuleContext, debtor: Direction) -> Iterator[tuple[int, int]]:
        """PUBREC packets of open exchanges that have no PUBREL yet: a further PUBREC is a fault of its sender."""
        side = at.connection.side(debtor)
        for identifier, number in super().owed(at, debtor):
            exchange = side.running(identifier, "publish")
            if exchange is not None and exchange.released_by is None:
                yield identifier, number

    good = examples("""
        a second PUBREC after the exchange has ended
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; +1 < pubrec 7
            +20 > pingreq; < pingresp; +20 > pingreq; < pingresp; > fin
        a second PUBREC after PUBREL, in 3.1.1, by the client
            opened 3.1.1; < publish a qos=2 id=7; > pubrec 7; < pubrel 7; > pubrec 7; < ack; > pubcomp 7; < ack
            +50 > fin
        a PUBREC in a resumed session, for an exchange that had ended
            opened 3.1.1 resume; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; > fin
            +1 @1 opened 3.1.1 resume < present; @1 < pubrec 7; +20 @1 > pingreq; @1 < pingresp; +20 @1 > pingreq
            @1 < pingresp; @1 > fin
        released
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < pubcomp 7; +20 > pingreq; < pingresp
            +20 > pingreq; < pingresp; > fin
        refused
            opened; > publish a qos=2 id=7; < pubrec 7 code=0x87; +20 > pingreq; < pingresp; +20 > pingreq; < pingresp
            > fin
        the connection ends before the timeout
            opened; > publish a qos=2 id=7; < pubrec 7; +20 > pingreq; < pingresp; +5 > fin
        a DISCONNECT before the timeout
            opened; > publish a qos=2 id=7; < pubrec 7; +20 > pingreq; < pingresp; +8 < disconnect code=0x8b; > ack
            +4 < fin
        the client never received it
            opened 3.1.1; > publish a qos=2 id=7; < pubrec 7; @1 opened client=c2; +60 @1 > pingreq
        the capture lost bytes of the client
            opened; > publish a qos=2 id=7; < pubrec 7; lost > pubrel 7; +20 > pingreq; < pingresp; +20 > pingreq
            < pingresp; > fin
    """)
    bad = examples("""
        the client sends other packets instead
            opened; > publish a qos=2 id=7; < pubrec 7; +20 > pingreq; < pingresp; +20 > pingreq; < pingresp; > fin !
        in MQTT 3.1.1, by the server
            opened 3.1.1; < publish a qos=2 id=7; > pubrec 7; < ack; +50 > fin !
        a shorter timeout
            settings timeout=5; opened; > publish a qos=2 id=7; < pubrec 7; > ack; +9 > fin !
    """)


class PubrelUnanswered(ReleaseRule):
    """A PUBREL is not answered with PUBCOMP.

    The sender of a QoS 2 message cannot reuse the packet identifier, and its send window stays smaller by one.
    Reported when the PUBCOMP has been missing for ``timeout`` seconds on an open connection, and only if TCP shows that
    the receiver got the PUBREL.

    Instead, answer each PUBREL with PUBCOMP, even if the packet identifier is unknown, the message has expired or the
    subscription is gone.
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
        the connection ends before the timeout
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; +20 > pingreq; < pingresp; +5 > fin
        a DISCONNECT before the timeout
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; +20 > pingreq; < pingresp; +8 < disconnect code=0x8b
            > ack; +4 < fin
        the server never received it
            opened 3.1.1; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; @1 opened client=c2; +60 @1 > pingreq
        the capture lost bytes of the server
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; lost < pubcomp 7; +20 > pingreq; < pingresp
            +20 > pingreq; < pingresp; > fin
    """)
    bad = examples("""
        the server sends other packets instead
            opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; +20 > pingreq; < pingresp; +20 > pingreq; < pingresp
            > fin !
        in MQTT 3.1.1, by the client
            opened 3.1.1; < publish a qos=2 id=7; > pubrec 7; < pubrel 7; > ack; +50 > fin !
        for a message sent before a reconnect
            opened resume < present; > pubrel 7; +20 > pingreq; < pingresp; +20 > pingreq; < pingresp; > fin !
        a shorter timeout
            settings timeout=5; opened; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < ack; +9 > fin !
    """)
