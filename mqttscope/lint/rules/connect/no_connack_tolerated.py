"""CON531."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import (
    acknowledges,
    client,
    closes,
    conversation,
    examples,
    make_connect,
    on,
    opened,
    server,
)
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Needs, Rule
from mqttscope.lint.waiting import C2S, SECOND_NS, has_arrived, is_over, patience_ns
from mqttscope.mqtt.packets import Auth, Connack, Connect
from mqttscope.mqtt.properties import Properties
from mqttscope.session.connection import Connection

_OTHER = opened(client_identifier="c2", keep_alive=0)


class NoConnackTolerated(Rule):
    """A client waits for its CONNACK without end.

    A server that does not answer will not do so later.  The client is not connected, and nobody tries again.  The
    finding comes when neither CONNACK nor AUTH has come for ``timeout`` seconds and the client has not closed, and only
    where TCP shows that the server is there.

    Instead, close the connection after a reasonable time and connect again.
    """

    code = "CON531"
    severity = Severity.WARNING
    statements = {V5: {"V5-CONNACK-timeout": ""}, V3_1_1: {"V311-CONNACK-timeout": ""}}
    also = {V3_1: ("V31-CONNECT-timeout",)}
    looks_at = Connect
    sender = C2S
    needs = Needs.WHOLE
    settings = {
        # Libraries give up after 5 to 60 seconds.
        "timeout": 60
    }

    good = examples(
        lambda: [
            conversation("closed", client(make_connect()), acknowledges("server"), closes("client", after=20)),
            conversation("answered", *opened(keep_alive=0), *on(1, *_OTHER, closes("client", after=90))),
            conversation(
                "AUTH is an answer, too",
                client(make_connect(properties=Properties(authentication_method="m"))),
                server(Auth(0x18, Properties(authentication_method="m"))),
                *on(1, *_OTHER, closes("client", after=90)),
            ),
            conversation(
                "the server is not there", client(make_connect()), *on(1, *_OTHER, closes("client", after=90))
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "two minutes", client(make_connect()), acknowledges("server"), closes("client", after=120).marked("")
            ),
            conversation(
                "in 3.1.1, and it comes in the end",
                client(make_connect(V3_1_1)),
                acknowledges("server"),
                server(Connack(), after=120).marked("", at=None),
            ),
            conversation(
                "in 3.1",
                client(make_connect(V3_1)),
                acknowledges("server"),
                *on(1, *_OTHER, closes("client", after=90).marked("")),
            ),
        ]
    )

    def check(self, packet: Connect, at: RuleContext) -> Findings:
        """Begin to wait."""
        if at.history.connect is None:
            at.ask(self, at.timestamp_ns + patience_ns(self))
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Look whether anything has come, or the client has given up."""
        sent = at.history.connect_sent
        if sent is None or is_over(at) or at.server.packets or at.history.server.malformed:
            return None
        if not has_arrived(at.history.client, sent.position):
            return None
        return self.report(
            "",
            f"client waited {(at.timestamp_ns - sent.timestamp_ns) / SECOND_NS:.0f} s for CONNACK without closing",
            sender=C2S,
            related=(Related("the CONNECT", sent.packet, sent.frame, sent.timestamp_ns),),
            overdue=True,
        )
