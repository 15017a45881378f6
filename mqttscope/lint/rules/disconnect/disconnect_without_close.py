"""DIS503."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import acknowledges, client, closes, conversation, examples, lost, on, opened, server
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V3_1_1, V5, Findings, Needs, Rule
from mqttscope.lint.waiting import C2S, S2C, SECOND_NS, has_arrived, has_closed, patience_ns, side_name
from mqttscope.mqtt.constants import PacketType, reason_name
from mqttscope.mqtt.packets import Disconnect
from mqttscope.session.connection import Connection

_LATER = on(1, *opened(client_identifier="c2"), closes("client", after=20))


class DisconnectWithoutClose(Rule):
    """A side sends DISCONNECT and leaves the connection open.

    The other side keeps what belongs to the connection, and may wait for it to end.  The finding comes when neither
    side has closed within ``timeout`` seconds, by FIN, RST or the Close frame of a WebSocket, and only where TCP shows
    that the DISCONNECT has come.

    Instead, close the connection right after DISCONNECT.
    """

    code = "DIS503"
    severity = Severity.ERROR
    statements = {
        V5: {"MQTT-3.14.4-2": "", "MQTT-4.13.2-1": "server"},
        V3_1_1: {"MQTT-3.14.4-1": "client"},
    }
    also = {V5: ("MQTT-4.12.1-2",)}
    looks_at = Disconnect
    needs = Needs.WHOLE
    settings = {"timeout": 5}

    good = examples(
        lambda: [
            conversation("closed", *opened(), client(Disconnect()), closes("client"), *_LATER),
            conversation(
                "closed a little later",
                *opened(),
                server(Disconnect(0x8B)),
                acknowledges("client"),
                closes("server", after=4),
                *_LATER,
            ),
            conversation(
                "the other side closes first", *opened(V3_1_1), client(Disconnect()), closes("server", after=1), *_LATER
            ),
            conversation("it never came", *opened(), client(Disconnect()), *_LATER),
            conversation("the capture ends before long", *opened(), client(Disconnect()), acknowledges("server")),
            conversation(
                "the other side has acknowledged more than the capture has",
                *opened(),
                server(Disconnect(0x8B)),
                lost(server(Disconnect(0x8B))),
                *_LATER,
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "the server",
                *opened(),
                server(Disconnect(0x82)),
                acknowledges("client"),
                *on(1, *opened(client_identifier="c2"), closes("client", after=20).marked("")),
            ),
            conversation(
                "the client, until the server closes, in 3.1.1",
                *opened(V3_1_1),
                client(Disconnect()),
                acknowledges("server"),
                closes("server", after=10).marked(""),
            ),
            conversation(
                "another limit",
                *opened(),
                client(Disconnect()),
                acknowledges("server"),
                closes("client", after=4).marked(""),
                settings={"timeout": 2},
            ),
        ]
    )

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        """Begin to wait."""
        if at.from_client or at.version is V5:
            at.ask(self, at.timestamp_ns + patience_ns(self))
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Look whether anybody has closed."""
        if has_closed(at, C2S) or has_closed(at, S2C):
            return None
        left = [
            (sent.timestamp_ns, sent.packet, direction, sent)
            for direction in (C2S, S2C)
            if (sent := at.history.party(direction).disconnect) is not None
        ]
        if not left:
            return None
        _, _, direction, sent = min(left, key=lambda row: row[:2])
        if not has_arrived(at.history.party(direction), sent.position):
            return None
        reason = ""
        if at.version is V5:
            reason = f" 0x{sent.reason_code:02x} ({reason_name(PacketType.DISCONNECT, sent.reason_code, V5)})"
        waited = (at.timestamp_ns - sent.timestamp_ns) / SECOND_NS
        return self.report(
            "",
            f"{side_name(direction)} sent DISCONNECT{reason} but left the connection open for {waited:.0f} s",
            sender=direction,
            related=(Related("the DISCONNECT", sent.packet, sent.frame, sent.timestamp_ns),),
            overdue=True,
        )
