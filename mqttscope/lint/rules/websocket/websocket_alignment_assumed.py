from mqttscope.lint.examples import examples
from mqttscope.lint.rules import C2S, S2C, V3_1_1, V5, Confidence, Connection, Findings, Rule, RuleContext, Severity
from mqttscope.lint.waiting import side_name


class WebsocketAlignmentAssumed(Rule):
    """A receiver closes the connection right after a WebSocket frame that is not exactly one MQTT packet.

    A frame may contain part of a packet, or several packets.  A receiver that expects one packet per frame fails as
    soon as a library or a proxy splits the stream differently.  Inferred from the circumstances: earlier frames with
    one packet each were accepted, the last frame was different, and the receiver closed within ``timeout`` seconds.  It
    had sent no MQTT packet since the first such frame, and other rules found no fault in the packets.

    Instead, join the payloads of all frames into one stream and decode packets from that stream.
    """

    code = "WSK504"
    severity = Severity.ERROR
    confidence = Confidence.HEURISTIC
    statements = {V5: {"MQTT-6.0.0-2": ""}, V3_1_1: {"MQTT-6.0.0-2": ""}}
    settings = {"timeout": 5}

    good = examples("""
        a packet in two frames is decoded
            upgraded; > frame connect; < frame connack; > frame pingreq; < frame pingresp
            silent > frame part raw 32 06 0001; > frame continuation raw 61 00 0700; < frame puback 7; < fin
        the server sends another reason
            upgraded; > frame connect; < frame connack; > frame pingreq; < frame pingresp; > frame pingreq | pingreq
            < frame disconnect code=0x8b; < fin
        the receiver has accepted such frames before
            upgraded; > frame connect; < frame connack; > frame pingreq; < frame pingresp
            > frame pingreq | pingreq; < frame pingresp | pingresp; > frame pingreq | pingreq; < fin
        the client closes
            upgraded; > frame connect 3.1.1; < frame connack; > frame pingreq; < frame pingresp
            > frame pingreq | pingreq; > fin
    """)
    bad = examples("""
        two packets in one frame
            upgraded; > frame connect; < frame connack; > frame pingreq; < frame pingresp; > frame pingreq | pingreq
            < fin !
        the first half of a packet, in 3.1.1, with a Close frame
            upgraded; > frame connect 3.1.1; < frame connack; > frame pingreq; < frame pingresp
            silent > frame raw 32 06 0001; silent < frame close raw 03 ea; > fin !
    """)

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
        if (
            not sender.odd_frame
            or sender.frames < 2
            or not 0 <= closed_ns - sender.segment_ns <= self.nanoseconds("timeout")
        ):
            return None
        # A packet that the end cut off was valid up to there.
        blamed = [row for row in history.reported if row.sender is receiver.opposite and row.timestamp_ns < closed_ns]
        if blamed or answered_ns > sender.first_odd_ns or (sender.malformed and sender.malformed_ns < closed_ns):
            return None
        return self.report(
            "",
            f"{side_name(receiver)} closed right after a frame that {sender.odd_frame}",
            sender=receiver,
            overdue=True,
        )
