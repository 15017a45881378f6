from collections.abc import Iterable

from mqttscope.lint.rules import V3_1_1, V5, Connection, Report, Rule, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import problems
from mqttscope.mqtt.constants import Direction


class WebsocketNonBinaryFrame(Rule):
    """A WebSocket text message carries MQTT, which must be sent in binary messages.

    Receivers check that text messages are UTF-8, but MQTT packets are not text.  The connection breaks at the first
    packet that is not valid UTF-8; a strict receiver closes it at once.  Ping, pong and close frames are not affected.

    Instead, send MQTT in binary messages (opcode 2).
    """

    code = "WSK201"
    severity = Severity.ERROR
    statements = {V5: {"MQTT-6.0.0-1": ""}, V3_1_1: {"MQTT-6.0.0-1": ""}}

    good = examples("""
        binary frames
            upgraded; > frame connect; < frame connack; > frame pingreq; < frame pingresp; > fin
        WebSocket pings
            upgraded; > frame connect 3.1.1; < frame connack; silent > frame ping raw 68 69
            silent < frame pong raw 68 69; > fin
    """)
    bad = examples("""
        a PINGREQ in a text frame
            upgraded; > frame connect; < frame connack; > frame text pingreq; < frame pingresp; > fin !
        text frames from both sides, in MQTT 3.1.1
            upgraded; > frame connect 3.1.1; < frame connack; > frame text pingreq; < frame text pingresp
            > frame text pingreq; < frame text pingresp; > fin ! !
    """)

    def check_close(self, connection: Connection, at: RuleContext) -> Iterable[Report]:
        """Report each side once, at the end, when all faulty frames are known."""
        texts = [problem for problem in problems(connection) if problem["reason"] == "text_frame"]
        for from_client in (True, False):
            frames = [problem["frame"] for problem in texts if problem["from_client"] is from_client]
            if frames:
                more = f", one of {len(frames)}" if len(frames) > 1 else ""
                yield self.report(
                    "",
                    f"WebSocket text message carries MQTT data, only binary messages may (frame {frames[0]}{more})",
                    sender=Direction.CLIENT_TO_SERVER if from_client else Direction.SERVER_TO_CLIENT,
                )
