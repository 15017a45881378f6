"""DIS504."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import acknowledges, client, closes, conversation, examples, on, opened, server
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Needs, Rule
from mqttscope.lint.waiting import C2S, S2C, SECOND_NS, has_arrived, has_closed, patience_ns, side_name
from mqttscope.mqtt.packets import Disconnect
from mqttscope.session.connection import Connection

_OTHER = opened(client_identifier="c2")
_LATER = on(1, *_OTHER, closes("client", after=60))


class DisconnectReceivedNotClosed(Rule):
    """A side that has received DISCONNECT keeps the connection open.

    Where the sender does not close either, the connection stays and takes a place from others.  The finding
    comes when the receiver has not closed for ``timeout`` seconds, and only where TCP shows that it got the DISCONNECT.

    Instead, close the connection when DISCONNECT comes and the other side has not closed.
    """

    code = "DIS504"
    severity = Severity.WARNING
    statements = {
        V5: {"V5-DISCONNECT-receiver-closes": ""},
        V3_1_1: {"V311-DISCONNECT-server-closes": "server"},
        V3_1: {"V31-DISCONNECT-close": "server"},
    }
    looks_at = Disconnect
    needs = Needs.WHOLE
    settings = {"timeout": 30}

    good = examples(
        lambda: [
            conversation("the sender closes", *opened(), client(Disconnect()), closes("client"), *_LATER),
            conversation(
                "the receiver closes", *opened(V3_1), client(Disconnect()), closes("server", after=2), *_LATER
            ),
            conversation("it never came", *opened(), client(Disconnect()), *_LATER),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "neither side closes",
                *opened(),
                client(Disconnect()),
                acknowledges("server"),
                *on(1, *_OTHER, closes("client", after=60).marked("")),
            ),
            conversation(
                "the client keeps it",
                *opened(),
                server(Disconnect(0x8B)),
                acknowledges("client"),
                *on(1, *_OTHER, closes("client", after=60).marked("")),
            ),
            conversation(
                "in 3.1.1",
                *opened(V3_1_1),
                client(Disconnect()),
                acknowledges("server"),
                closes("server", after=60).marked(""),
            ),
            conversation(
                "in 3.1",
                *opened(V3_1),
                client(Disconnect()),
                acknowledges("server"),
                closes("client", after=40).marked(""),
            ),
        ]
    )

    def check(self, packet: Disconnect, at: RuleContext) -> Findings:
        """Begin to wait."""
        if at.from_client or at.version is V5:
            at.ask(self, at.timestamp_ns + patience_ns(self))
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Look whether the receiver has closed."""
        client, server = at.history.client.disconnect, at.history.server.disconnect
        sent, direction = (client, C2S) if client is not None else (server, S2C)
        if sent is None or (client is not None and server is not None) or has_closed(at, direction.opposite):
            return None
        if not has_arrived(at.history.party(direction), sent.position):
            return None
        waited = (at.timestamp_ns - sent.timestamp_ns) / SECOND_NS
        return self.report(
            "",
            f"{side_name(direction.opposite)} kept the connection open {waited:.0f} s after receiving DISCONNECT",
            sender=direction.opposite,
            related=(Related("the DISCONNECT", sent.packet, sent.frame, sent.timestamp_ns),),
            overdue=True,
        )
