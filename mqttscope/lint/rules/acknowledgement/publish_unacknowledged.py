from collections.abc import Iterator

from mqttscope.lint.rules import SECOND_NS, V3_1, V3_1_1, V5, Confidence, Report, RuleContext, Severity, examples, shown
from mqttscope.lint.waiting import AnswerRule, OverduePacket, side_name
from mqttscope.mqtt import Direction, Publish
from mqttscope.session.connection import C2S
from mqttscope.session.inflight import SENT

QOS_3 = 3
"""QoS 3 does not exist: the receiver has to close the connection instead of answering."""


class PublishUnacknowledged(AnswerRule):
    """A PUBLISH of QoS 1 or 2 is not answered with PUBACK or PUBREC.

    The sender keeps the message and a place in its send window, and resends it after the next reconnect: it is unknown
    whether the message was delivered.  Reported when the answer has been missing for ``timeout`` seconds on an open
    connection, and only if TCP shows that the receiver got the PUBLISH.  A client may take its time with a message, so
    for a client this is a warning unless it has acknowledged a later message.

    Instead, answer each QoS 1 PUBLISH with PUBACK and each QoS 2 PUBLISH with PUBREC, even if you refuse it.
    """

    code = "ACK515"
    severities = (Severity.ERROR, Severity.WARNING)
    statements = {
        V5: {"MQTT-3.3.4-1": "", "MQTT-4.3.2-4": "", "MQTT-4.3.3-8": "", "MQTT-4.5.0-2": "client"},
        V3_1_1: {"MQTT-3.3.4-1": "", "MQTT-3.3.5-2": "server", "MQTT-4.3.2-2": "", "MQTT-4.5.0-2": "client"},
        V3_1: {"V31-PUBLISH-response": "", "V31-PUBLISH-unauthorised": "server"},
    }
    also = {V5: ("MQTT-2.2.1-5", "MQTT-4.3.3-13"), V3_1_1: ("MQTT-4.1.0-2", "MQTT-4.3.3-2")}
    looks_at = Publish
    when = "qos"

    good = examples("""
        acknowledged
            opened; > publish a qos=1 id=7; < puback 7; +20 > pingreq; < pingresp; +20 > pingreq; < pingresp; > fin
        received, but not yet released
            opened 3.1.1; > publish a qos=2 id=7; < pubrec 7; > pubrel 7; < ack; @1 opened client=c2; +25 @1 > pingreq
        the connection ends before the timeout
            opened; > publish a qos=1 id=7; +20 > pingreq; < pingresp; +5 > fin
        the client disconnects before the timeout
            opened; > publish a qos=1 id=7; +28 > disconnect; < ack; +4 > fin
        the capture ends before the timeout
            opened; > publish a qos=1 id=7; +20 > pingreq; < pingresp
        the server never received it
            opened; > publish a qos=1 id=7; @1 opened client=c2; +60 @1 > pingreq
        the capture lost bytes of the server
            opened; > publish a qos=1 id=7; lost < puback 7; +20 > pingreq; < pingresp; +20 > pingreq; < pingresp; > fin
        TCP acknowledges bytes that the capture lacks
            opened; > publish a qos=1 id=7; lost < puback 7; @1 opened client=c2; +60 @1 > pingreq
        the client is busy sending one packet for 45 s
            opened 3.1.1; < publish b qos=1 id=7; > raw 30 64 0001 "a" 00*37; +15 > raw 00*20; +15 > raw 00*20
            +15 > raw 00*20 & puback 7
    """)
    bad = examples("""
        pings are answered, but not the message
            opened; > publish a qos=1 id=7; +20 > pingreq; < pingresp; +20 > pingreq; < pingresp; > fin !
        a message with the invalid QoS 3, which is not answered, and one with QoS 1
            opened; > raw 36 06 0001 "a" 000800; > publish a qos=1 id=7; < ack; +50 > fin !
        a later message is acknowledged, in MQTT 3.1.1
            opened 3.1.1; > publish a qos=2 id=7; > publish a qos=1 id=8; < puback 8; @1 opened client=c2
            +40 @1 > pingreq !!
        both sides, in MQTT 3.1
            opened 3.1; < publish b qos=1 id=1; > publish a qos=1 id=7; < ack; +50 > fin ! !
        a shorter timeout
            settings timeout=5; opened; > publish a qos=1 id=7; < ack; +9 > fin !
        still missing after the client has sent one packet for 45 s
            opened 3.1.1 keep_alive=0; < publish b qos=1 id=7; > raw 30 64 0001 "a" 00*37; +15 > raw 00*20
            +15 > raw 00*20; +15 > raw 00*20; @1 opened client=c2 keep_alive=0; +60 @1 > pingreq !!
    """)

    def owed(self, at: RuleContext, debtor: Direction) -> Iterator[tuple[int, int]]:
        """Packets without any answer."""
        party, sender = at.history.party(debtor), at.connection.receiver(debtor)
        for owes in (party.owes_puback, party.owes_pubrec):
            for identifier, number in owes.items():
                running = sender.running(identifier, "publish")
                if running is not None and running.phase is SENT and running.packet == number and running.qos != QOS_3:
                    yield identifier, number

    def describe(self, overdue: OverduePacket, at: RuleContext) -> Report | None:
        """Name the packet that was sent and the answer that is missing."""
        exchange = overdue.exchange
        if exchange is None:
            return None
        topic = "an unknown topic" if exchange.topic is None else shown(exchange.topic)
        seconds = (at.timestamp_ns - exchange.timestamp_ns) / SECOND_NS
        answer = "PUBACK" if exchange.qos == 1 else "PUBREC"
        slow = overdue.sender is not C2S and not any(
            ended.packet > overdue.packet for ended in at.history.server.ended.values()
        )
        return self.overdue(
            overdue,
            f"PUBLISH {topic} with packet identifier {overdue.identifier} (QoS {exchange.qos}) got no {answer} within "
            f"{seconds:.0f} s",
            "the PUBLISH",
            severity=Severity.WARNING if slow else None,
            confidence=Confidence.HEURISTIC if slow else None,
            statements=self._cited(exchange.qos, overdue.sender.opposite, at),
        )

    def _cited(self, qos: int, debtor: Direction, at: RuleContext) -> tuple[str, ...]:
        """Statements about messages of this QoS."""
        rows = self.statements_for(at.version, side_name(debtor), None, "")
        if qos == 2 and at.version is V3_1_1:
            rows.append("MQTT-4.3.3-2")
        other = "MQTT-4.3.3-" if qos == 1 else "MQTT-4.3.2-"
        return tuple([row for row in rows if not row.startswith(other)])
