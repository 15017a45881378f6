from mqttscope.lint.context import SECOND_NS, RuleContext
from mqttscope.lint.rules import V5, Confidence, Findings, Needs, Related, Rule, Severity, examples, packet_name
from mqttscope.mqtt.packets import Puback, Pubrec
from mqttscope.session.inflight import SENT

RELEASED_NS = SECOND_NS
"""Maximum time between new quota and an answer that waited for it."""


class StalledByFlowControl(Rule):
    """A side sends no answers while its send quota is used up, and resumes when it has quota again.

    The Receive Maximum of the other side limits only PUBLISH packets of QoS 1 and 2.  A side that also holds back
    acknowledgements and pings can deadlock with a peer that does the same.  Inferred from the times: no packet was sent
    for ``timeout`` seconds or longer although an answer was due, and the first one followed within a second of the
    acknowledgement that restored quota.

    Instead, let only PUBLISH packets wait for quota, in a queue of their own.
    """

    code = "FLW505"
    severity = Severity.ERROR
    confidence = Confidence.HEURISTIC
    versions = (V5,)
    statements = {V5: {"MQTT-3.3.4-8": "client", "MQTT-3.3.4-10": "server", "MQTT-4.9.0-3": ""}}
    needs = Needs.OPENING | Needs.BOTH_DIRECTIONS | Needs.WHOLE
    settings = {"timeout": 30}

    good = examples("""
        answered without quota
            settings timeout=10; opened < receive_maximum=1; > publish a qos=1 id=1; < publish b qos=1 id=9; > puback 9
            +25 < puback 1
        slow, but not because of the quota
            settings timeout=10; opened < receive_maximum=2; > publish a qos=1 id=1; < publish b qos=1 id=9
            +25 < puback 1; > puback 9
        other packets are sent meanwhile
            settings timeout=10; opened < receive_maximum=1; > publish a qos=1 id=1; < publish b qos=1 id=9
            +12 > pingreq; < pingresp; +8 < puback 1; > puback 9
        slow to answer even with new quota
            settings timeout=10; opened < receive_maximum=1; > publish a qos=1 id=1; < publish b qos=1 id=9
            +9 < puback 1; +10 > puback 9; > fin
    """)
    bad = examples("""
        by the client
            opened < receive_maximum=1; > publish a qos=1 id=1; < publish b qos=1 id=9; +40 < puback 1; > puback 9 !
        by the server
            opened receive_maximum=1; < publish b qos=1 id=9; > publish a qos=2 id=1; +40 > puback 9; < pubrec 1 !
    """)

    def check(self, packet: Puback | Pubrec, at: RuleContext) -> Findings:
        """Compare the delay of the answer with the time when quota was restored."""
        answered = at.receiver.running(packet.packet_identifier, "publish")
        if (
            answered is None
            or at.timestamp_ns - answered.timestamp_ns < self.nanoseconds("timeout")
            or answered.phase is not SENT
        ):
            return None
        ended = [exchange for exchange in at.party.ended.values() if exchange.answer_ns > answered.timestamp_ns]
        since = max(answered.timestamp_ns, at.sender.last_timestamp_ns or 0)
        if not ended or not at.knew(ended[-1].answer):
            return None
        free = min(exchange.answer_ns for exchange in ended)
        before = [row for row in at.sender.exchanges.values() if row.kind == "publish" and row.timestamp_ns <= since]
        used = len(before) + sum(exchange.timestamp_ns <= since for exchange in ended)
        if used < at.receiver.receive_maximum or at.timestamp_ns - free > RELEASED_NS:
            return None
        if free - since < self.nanoseconds("timeout"):
            return None
        who = "client" if at.from_client else "server"
        first = ended[0].answer
        return self.report(
            "",
            f"{who} sent no answers for {(free - since) / SECOND_NS:.0f} s while its send quota was 0, and sent "
            f"{packet_name(packet)} as soon as it had quota again",
            related=(Related.to("the answered packet", answered), Related.to("the packet that restored quota", first)),
        )
