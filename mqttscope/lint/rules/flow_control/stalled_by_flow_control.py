from mqttscope.lint.context import SECOND_NS, RuleContext
from mqttscope.lint.rules import V5, Confidence, Findings, Needs, Related, Rule, Severity, examples, packet_name
from mqttscope.mqtt.packets import Puback, Pubrec
from mqttscope.session.inflight import SENT

RELEASED_NS = SECOND_NS
"""How soon after its quota is back a side must answer for that to be the reason."""


class StalledByFlowControl(Rule):
    """A side answers nothing while its own send quota is used up, and continues as soon as it has quota again.

    The Receive Maximum of the other side limits PUBLISH packets of QoS 1 and 2 and nothing else.  A side that holds
    back acknowledgments and pings as well can lock up with a peer that does the same.  It is a guess from the times:
    no packet came for ``timeout`` seconds or longer although an answer was due, and the first one came within a second
    of the acknowledgment that gave quota back.

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
        answered while there is no quota
            settings timeout=10; opened < receive_maximum=1; > publish a qos=1 id=1; < publish b qos=1 id=9; > puback 9
            +25 < puback 1
        slow, and not because of the quota
            settings timeout=10; opened < receive_maximum=2; > publish a qos=1 id=1; < publish b qos=1 id=9
            +25 < puback 1; > puback 9
        other packets come meanwhile
            settings timeout=10; opened < receive_maximum=1; > publish a qos=1 id=1; < publish b qos=1 id=9
            +12 > pingreq; < pingresp; +8 < puback 1; > puback 9
        it takes its time after the quota is back
            settings timeout=10; opened < receive_maximum=1; > publish a qos=1 id=1; < publish b qos=1 id=9
            +9 < puback 1; +10 > puback 9; > fin
    """)
    bad = examples("""
        the client
            opened < receive_maximum=1; > publish a qos=1 id=1; < publish b qos=1 id=9; +40 < puback 1; > puback 9 !
        the server
            opened receive_maximum=1; < publish b qos=1 id=9; > publish a qos=2 id=1; +40 > puback 9; < pubrec 1 !
    """)

    def check(self, packet: Puback | Pubrec, at: RuleContext) -> Findings:
        """Compare how long the answer took with the time when quota came back."""
        answered = at.receiver.running(packet.packet_identifier, "publish")
        if (
            answered is None
            or at.timestamp_ns - answered.timestamp_ns < self.nanoseconds("timeout")
            or answered.phase is not SENT
        ):
            return None
        ended = [one for one in at.party.ended.values() if one.answer_ns > answered.timestamp_ns]
        since = max(answered.timestamp_ns, at.sender.last_timestamp_ns or 0)
        if not ended or not at.knew(ended[-1].answer):
            return None
        free = min(one.answer_ns for one in ended)
        before = [one for one in at.sender.exchanges.values() if one.kind == "publish" and one.timestamp_ns <= since]
        used = len(before) + sum(one.timestamp_ns <= since for one in ended)
        if used < at.receiver.receive_maximum or at.timestamp_ns - free > RELEASED_NS:
            return None
        if free - since < self.nanoseconds("timeout"):
            return None
        who = "client" if at.from_client else "server"
        first = ended[0].answer
        return self.report(
            "",
            f"{who} answered nothing for {(free - since) / SECOND_NS:.0f} s while its send quota was 0, and sent "
            f"{packet_name(packet)} as soon as it had quota again",
            related=(Related.to("what it answers", answered), Related.to("what gave quota back", first)),
        )
