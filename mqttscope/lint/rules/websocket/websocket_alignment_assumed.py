"""WSK504."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, framed, server, silent_frame, web_opened
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.rule import V3_1_1, V5, Findings, Rule
from mqttscope.lint.waiting import C2S, S2C, patience_ns, side_name
from mqttscope.mqtt.codec import encode
from mqttscope.mqtt.packets import Disconnect, Pingreq, Pingresp, Puback, Publish
from mqttscope.net.websocket import BINARY, CLOSE, CONTINUATION
from mqttscope.session.connection import Connection

_PUBLISH = encode(Publish(qos=1, topic_name="a", packet_identifier=7), V5)


class WebsocketAlignmentAssumed(Rule):
    """A receiver closes the connection right after a WebSocket frame that is not one MQTT packet.

    A frame may hold a part of a packet, or several.  A receiver that takes each frame for one packet fails as soon as a
    library or a proxy cuts the stream in another way.  It is a guess from what comes together: frames with one packet
    each were taken before, the last frame was none, and the receiver closed within ``timeout`` seconds without saying
    anything in MQTT and without another rule finding fault with what came.

    Instead, feed the payload of all frames into one stream and read packets from that.
    """

    code = "WSK504"
    severity = Severity.ERROR
    confidence = Confidence.HEURISTIC
    statements = {V5: {"MQTT-6.0.0-2": ""}, V3_1_1: {"MQTT-6.0.0-2": ""}}
    settings = {"timeout": 5}

    good = examples(
        lambda: [
            conversation(
                "a packet in two frames is read",
                *web_opened(),
                client(framed(Pingreq())),
                server(framed(Pingresp(), masked=False)),
                silent_frame("client", _PUBLISH[:4], opcode=BINARY, fin=False),
                client(framed(_PUBLISH[4:], opcode=CONTINUATION)),
                server(framed(Puback(7), masked=False)),
                closes("server"),
            ),
            conversation(
                "the server says another reason",
                *web_opened(),
                client(framed(Pingreq())),
                server(framed(Pingresp(), masked=False)),
                client(framed(Pingreq(), Pingreq())),
                server(framed(Disconnect(0x8B), masked=False)),
                closes("server"),
            ),
            conversation(
                "the client closes",
                *web_opened(V3_1_1),
                client(framed(Pingreq())),
                server(framed(Pingresp(), masked=False)),
                client(framed(Pingreq(), Pingreq())),
                closes("client"),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "two packets in one frame",
                *web_opened(),
                client(framed(Pingreq())),
                server(framed(Pingresp(), masked=False)),
                client(framed(Pingreq(), Pingreq())),
                closes("server").marked(""),
            ),
            conversation(
                "the first half of a packet, in 3.1.1, with a Close frame",
                *web_opened(V3_1_1),
                client(framed(Pingreq())),
                server(framed(Pingresp(), masked=False)),
                silent_frame("client", _PUBLISH[:4], opcode=BINARY),
                silent_frame("server", b"\x03\xea", opcode=CLOSE),
                closes("client").marked(""),
            ),
        ]
    )

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Compare the end with the last frame before it."""
        if connection.websocket is None or connection.gaps:
            return None
        history = at.history
        if history.client.disconnect is not None or history.server.disconnect is not None:
            return None
        by_server, by_client = history.server.closing_ns, history.client.closing_ns
        if by_server and (not by_client or by_server <= by_client):
            receiver, closed_ns = S2C, by_server
        elif by_client:
            receiver, closed_ns = C2S, by_client
        elif connection.closed_how in ("fin", "reset") and connection.closed_by is not None:
            receiver, closed_ns = C2S if connection.closed_by == "client" else S2C, connection.closed_ns
        else:
            return None
        sender = history.party(receiver.opposite)
        answered_ns = connection.side(receiver).last_timestamp_ns or 0
        if not sender.odd_frame or sender.frames < 2 or not 0 <= closed_ns - sender.segment_ns <= patience_ns(self):
            return None
        # A packet that is cut off by the end was whole as far as it came.
        blamed = [one for one in history.reported if one.sender is receiver.opposite and one.timestamp_ns < closed_ns]
        if blamed or answered_ns > sender.segment_ns or (sender.malformed and sender.malformed_ns < closed_ns):
            return None
        return self.report(
            "",
            f"{side_name(receiver)} closed right after a frame that {sender.odd_frame}",
            sender=receiver,
            overdue=True,
        )
