"""ERR503."""

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import (
    client,
    closes,
    conversation,
    examples,
    hexadecimal,
    make_connect,
    on,
    opened,
    server,
)
from mqttscope.lint.finding import Related, Severity
from mqttscope.lint.rule import V5, Findings, Needs, Rule
from mqttscope.lint.waiting import C2S, S2C, patience_ns, side_name
from mqttscope.mqtt.packets import Disconnect, Publish
from mqttscope.session.connection import Connection

_QOS_3 = hexadecimal("36 0a 00 03 61 2f 62 00 0a 00 68 69")


class CloseWithoutReason(Rule):
    """A side closes the connection for a violation and does not say why.

    Whoever made the mistake sees a connection that breaks, and connects again to do the same.  It counts where the
    other side closes without DISCONNECT within ``timeout`` seconds of a packet in which another rule has found a
    violation for certain that the specification names a Reason Code for.  Before CONNACK no reason is due.

    Instead, send DISCONNECT with the Reason Code that names the violation, then close.
    """

    code = "ERR503"
    severity = Severity.INFO
    versions = (V5,)
    statements = {V5: {"V5-ERROR-reason": ""}}
    needs = Needs.WHOLE
    reads_findings = True
    settings = {"timeout": 5}

    # A violation is an error: what excuses a side is in the bad examples, on connections of its own.
    good = examples(
        lambda: [
            conversation("no violation", *opened(), client(Publish(topic_name="a")), closes("server")),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "the server",
                *opened(),
                client(_QOS_3),
                closes("server").marked(""),
                *on(
                    1,
                    *opened(client_identifier="it says why"),
                    client(_QOS_3),
                    server(Disconnect(0x81)),
                    closes("server"),
                ),
                *on(2, *opened(client_identifier="the other one closes"), client(_QOS_3), closes("client")),
                *on(3, *opened(client_identifier="much later"), client(_QOS_3), closes("server", after=40)),
                *on(
                    4,
                    client(hexadecimal("10 0f 00 04 4d 51 54 54 05 03 00 3c 00 00 02 63 31")),
                    closes("server"),
                ),
            ),
            conversation(
                "the server, for a second CONNECT",
                *opened(),
                client(make_connect()),
                closes("server", "reset").marked(""),
            ),
            conversation(
                "the client",
                *opened(),
                server(hexadecimal("36 08 00 01 61 00 0a 00 68 69")),
                closes("client").marked(""),
            ),
        ]
    )

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Who has closed, what was found before, and what was said."""
        how, who, history = connection.closed_how, connection.closed_by, at.history
        if how not in ("fin", "reset") or who is None or history.connack is None or history.connack.reason_code:
            return None
        if history.client.disconnect is not None or history.server.disconnect is not None:
            return None
        receiver = C2S if who == "client" else S2C
        since_ns = connection.closed_ns - patience_ns(self)
        found = [
            one
            for one in history.reported
            if one.sender is receiver.opposite and one.certain and one.reason_code and one.timestamp_ns >= since_ns
        ]
        if not found:
            return None
        last = found[-1]
        return self.report(
            "",
            f"{side_name(receiver)} closed after {last.rule} without a DISCONNECT reason, 0x{last.reason_code:02x}",
            sender=receiver,
            related=(Related("the violation", last.packet, last.frame, last.timestamp_ns),),
            overdue=True,
        )
