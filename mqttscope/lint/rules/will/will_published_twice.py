"""WIL407."""

from mqttscope.lint.broker_watch import SECOND_NS, doubt
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import ALL_VERSIONS, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.lint.rules.will import was_there, will_in
from mqttscope.lint.wills import DUE, Wills
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish


class WillPublishedTwice(Rule):
    """A subscriber gets the will of one client twice for one end of its connection.

    A will is dropped once it is published; a server that keeps it publishes it again when it notices the end of the
    connection in a second way.  A subscriber with one matching subscription gets one copy.  Messages that are sent
    again with DUP, clients that share a will, and publishers of the same content are left out.

    Instead, drop the will as it is published.
    """

    code = "WIL407"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    confidence = Confidence.HEURISTIC
    versions = ALL_VERSIONS
    statements = {V5: {"MQTT-3.1.2-10": ""}, V3_1_1: {"MQTT-3.1.2-10": ""}}
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS
    settings = {"window": 60}
    models = (Wills,)
    about = Wills, "topics"

    good = examples("""
        once
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            > reset; @1 < publish dead/c1 gone
        two subscriptions
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; @1 > subscribe 2 +/c1:1; @1 < suback 2 1
            opened will=dead/c1 will_payload=gone; > reset; @1 < publish dead/c1 gone; @1 < publish dead/c1 gone
        two clients with one will
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            @2 opened client=c3 will=dead/c1 will_payload=gone; > reset; @2 > reset; @1 < publish dead/c1 gone
            @1 < publish dead/c1 gone
        gone twice
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            > reset; @1 < publish dead/c1 gone; @2 opened will=dead/c1 will_payload=gone; @2 > reset
            @1 < publish dead/c1 gone
        somebody says the same
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            > reset; @1 < publish dead/c1 gone; +1 @1 > publish dead/c1 gone; @1 < publish dead/c1 gone
        sent again
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1
            opened will=dead/c1 will_payload=gone will_qos=1; > reset; @1 < publish dead/c1 gone qos=1 id=7
            +20 @1 < publish dead/c1 gone dup qos=1 id=7; @1 > puback 7
        asked for the stored one
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1
            opened will=dead/c1 will_payload=gone will_retain; > reset; @1 < publish dead/c1 gone
            @1 > subscribe 2 dead/#:1; @1 < suback 2 1; @1 < publish dead/c1 gone retain
    """)
    bad = examples("""
        twice
            @1 opened client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            > reset; @1 < publish dead/c1 gone; @1 < publish dead/c1 gone !payload
        once when the client is gone and once a while later, in 3.1.1
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 dead/#:1; @1 < suback 1 1; opened will=dead/c1 will_payload=gone
            > reset; @1 < publish dead/c1 gone; +40 @1 > nothing; @1 < publish dead/c1 gone !payload
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Count the copies."""
        found = will_in(packet, at)
        if found is None:
            return None
        key, will, match = found
        copies = will.copies.get(at.key, 0)
        if not copies or packet.retain or len(match.subscriptions) > 1 or match.ended or match.replaces:
            return None
        phase, ended_ns = at.model(Wills).phase_of(key, will, at)
        since_ns = at.timestamp_ns - ended_ns
        if phase != DUE or since_ns > float(self.set["window"]) * SECOND_NS or not was_there(ended_ns, at):
            return None
        return self.report(
            "payload",
            f"will of {will.client!r} published to {at.client_name!r} {copies + 1} times for one closed connection",
            related=(will.connect,),
            **doubt(at, doubtful=at.model(Wills).is_torn(at)),
        )
