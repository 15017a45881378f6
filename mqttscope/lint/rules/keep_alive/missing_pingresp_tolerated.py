"""KAL505."""

from mqttscope.events import PacketEvent
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import acknowledges, client, closes, conversation, examples, lost, on, opened, server
from mqttscope.lint.finding import Confidence, Related, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Needs, Rule
from mqttscope.lint.rules.keep_alive.pingreq_unanswered import Ping, follow, waits
from mqttscope.lint.waiting import C2S, SECOND_NS, has_arrived, is_over, patience_ns
from mqttscope.mqtt.packets import Disconnect, Pingreq, Pingresp, Publish
from mqttscope.session.connection import Connection

_LATER = on(1, *opened(client_identifier="c2", keep_alive=0), closes("client", after=90))
_SENDS = client(Publish(topic_name="a"), after=40)


class MissingPingrespTolerated(Rule):
    """A client continues with a connection on which its PINGREQ was not answered.

    The server may be gone, or take the client for gone: what is sent then is lost.  The finding comes when the client
    sends something ``timeout`` seconds after a PINGREQ that has had no answer.

    Instead, close the connection when PINGRESP does not come within a reasonable time, and connect again.
    """

    code = "KAL505"
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    statements = {V5: {"V5-PINGRESP-timeout": ""}, V3_1_1: {"V311-PINGRESP-timeout": ""}}
    also = {V3_1: ("V31-PINGREQ-answer",)}
    looks_at = Pingreq
    sender = C2S
    needs = Needs.BOTH_DIRECTIONS | Needs.WHOLE
    settings = {
        # Many clients look once in a Keep Alive, which is 60 seconds by default.
        "timeout": 60
    }
    Memory = Ping

    good = examples(
        lambda: [
            conversation(
                "answered", *opened(), client(Pingreq()), server(Pingresp()), _SENDS, _SENDS, closes("client")
            ),
            conversation("it closes", *opened(), client(Pingreq()), closes("client", after=20), *_LATER),
            conversation(
                "the answer is not in the capture",
                *opened(),
                client(Pingreq()),
                lost(server(Pingresp())),
                _SENDS,
                _SENDS,
            ),
            conversation("it never sends again", *opened(), client(Pingreq()), *_LATER),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "it sends more",
                *opened(),
                client(Pingreq()),
                acknowledges("server"),
                _SENDS,
                _SENDS.marked("", at=None),
                closes("client"),
            ),
            conversation(
                "pings alone, in 3.1.1",
                *opened(V3_1_1),
                client(Pingreq()),
                acknowledges("server"),
                client(Pingreq(), after=50),
                acknowledges("server"),
                client(Pingreq(), after=50).marked("", at=None),
                closes("client"),
            ),
            conversation(
                "in 3.1", *opened(V3_1), client(Pingreq()), acknowledges("server"), _SENDS, _SENDS.marked("", at=None)
            ),
        ]
    )

    def check(self, packet: Pingreq, at: RuleContext) -> Findings:
        """Begin to wait."""
        follow(self, at)
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Findings:
        """Look whether the client continues without an answer."""
        ping: Ping = at.memory(self)
        if is_over(at) or not waits(ping, at):
            return None
        due_ns = ping.timestamp_ns + patience_ns(self)
        if at.timestamp_ns < due_ns:
            at.ask(self, due_ns)
            return None
        event = at.event
        if not at.from_client or not isinstance(event, PacketEvent) or isinstance(event.packet, Disconnect):
            at.ask(self, at.timestamp_ns)  # until it says something
            return None
        if not has_arrived(at.history.client, ping.position):
            return None
        ping.reported = True
        return self.report(
            "",
            f"client kept the connection {(at.timestamp_ns - ping.timestamp_ns) / SECOND_NS:.0f} s after an unanswered "
            "PINGREQ",
            sender=C2S,
            related=(Related("the PINGREQ", ping.packet, ping.frame, ping.timestamp_ns),),
            overdue=True,
        )
