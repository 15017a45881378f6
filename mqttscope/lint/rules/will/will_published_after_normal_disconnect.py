"""WIL405."""

from mqttscope.lint.broker_watch import SECOND_NS, doubt
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import examples
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import ALL_VERSIONS, V3_1, V3_1_1, V5, Findings, Rule
from mqttscope.lint.rules.delivery import ALL_SUBSCRIPTIONS
from mqttscope.lint.rules.will import was_there, will_in
from mqttscope.lint.wills import DROPPED, Wills
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Publish


class WillPublishedAfterNormalDisconnect(Rule):
    """A server publishes the will of a client that has left with a normal DISCONNECT.

    With DISCONNECT a client says that all is well and that its will is not wanted.  A server that publishes it all the
    same reports a death that was none.  Clients that say goodbye in the words of their will publish that themselves;
    so nobody may have published the same, and no other will may have the same content.  DISCONNECT 0x04 asks for the
    will, and after a reset, also one after FIN, nobody knows whether the server has read the DISCONNECT.

    Instead, drop the will when a normal DISCONNECT comes.
    """

    code = "WIL405"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING, Severity.INFO)
    confidence = Confidence.LIKELY
    versions = ALL_VERSIONS
    statements = {V5: {"MQTT-3.14.4-3": ""}, V3_1_1: {"MQTT-3.14.4-3": ""}}
    also = {
        V5: ("MQTT-3.1.2-8", "MQTT-3.1.2-10"),
        V3_1_1: ("MQTT-3.1.2-10",),
        V3_1: ("V31-CONNECT-will-published",),
    }
    looks_at = Publish
    sender = Direction.SERVER_TO_CLIENT
    needs = ALL_SUBSCRIPTIONS
    settings = {"window": 60}
    models = (Wills,)
    about = Wills, "topics"

    good = examples("""
        nothing is published
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect; > fin
        DISCONNECT 0x04
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect code=0x04; > fin; @1 < publish dead/c1 gone
        the client itself says the same before it leaves
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > publish dead/c1 gone; > disconnect; > fin; @1 < publish dead/c1 gone
        a message in bytes that were lost
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            lost > publish dead/c1 gone; > disconnect; > fin; @1 < publish dead/c1 gone
        a reset: the server may not have read the DISCONNECT
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect; > reset; @1 < publish dead/c1 gone
        FIN, and a reset when the server still sends: it may not have read the DISCONNECT either
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect; > fin-reset; @1 < publish dead/c1 gone
        another client has the same will
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            @2 opened client=c3 will=dead/c1 will_payload=gone; > disconnect; > fin; @1 < publish dead/c1 gone
        the will of the connection before
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > reset; @2 opened will=dead/c1 will_payload=gone; @2 > disconnect; @2 > fin; @1 < publish dead/c1 gone
        the subscriber came later: it may be an old message of its session
            opened will=dead/c1 will_payload=gone; > disconnect; > fin; @1 opened client=c2; @1 > subscribe 1 dead/#:0
            @1 < suback 1 0; @1 < publish dead/c1 gone
        another content
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect; > fin; @1 < publish dead/c1 bye
        a stored message
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect; > fin; @1 < publish dead/c1 gone retain
    """)
    bad = examples("""
        published after DISCONNECT
            @1 opened client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect; > fin; @1 < publish dead/c1 gone !payload
        in 3.1.1, before the connection is closed
            @1 opened 3.1.1 client=c2; @1 > subscribe 1 dead/#:0; @1 < suback 1 0; opened will=dead/c1 will_payload=gone
            > disconnect; @1 < publish dead/c1 gone !payload
    """)

    def check(self, packet: Publish, at: RuleContext) -> Findings:
        """Look whether the message can be nothing else than a will that was dropped."""
        found = will_in(packet, at)
        if found is None:
            return None
        key, will, _ = found
        phase, left_ns = at.model(Wills).phase_of(key, will, at)
        since_ns = at.timestamp_ns - left_ns
        if phase != DROPPED or not 0 <= since_ns <= float(self.set["window"]) * SECOND_NS or not was_there(left_ns, at):
            return None
        return self.report(
            "payload",
            f"will of {will.client!r} published to {at.client_name!r} although it left with DISCONNECT "
            f"{since_ns / SECOND_NS:,.3f} s before",
            related=(will.connect,),
            **doubt(at, doubtful=at.model(Wills).is_torn(at)),
        )
