"""ERR501."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from mqttscope.events import PacketEvent
from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import (
    acknowledges,
    client,
    closes,
    conversation,
    crossing,
    examples,
    hexadecimal,
    make_connect,
    on,
    opened,
    server,
)
from mqttscope.lint.finding import Confidence, Related, Report, Severity
from mqttscope.lint.rule import V3_1, V3_1_1, V5, Findings, Rule, packet_name
from mqttscope.lint.waiting import C2S, S2C, SECOND_NS, has_arrived, has_closed, patience_ns, side_name
from mqttscope.mqtt.packets import Connack, Disconnect, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.session.connection import Connection
from mqttscope.session.history import Violation

CLOSING = frozenset({0x81, 0x82, 0x93, 0x94, 0x95, 0x9A, 0x9B})
"""Reason codes of 5.0 that stand for a Malformed Packet or Protocol Error; the others may be in an acknowledgment."""
ELSEWHERE = frozenset({"FLW201", "FLW203", "PRP207", "PRP208", "RSN102", "SES208"})
"""Rules whose violations the other side need not see, or that come with a DISCONNECT.  A Receive Maximum counts for its
receiver from the PUBACK it sends, for the sender from the one it gets."""
OLD = frozenset(
    {
        *("CON103", "CON104", "CON107", "CON109", "CON212", "ENC101", "ENC102", "ENC106"),
        *("HDR101", "HDR102", "HDR103", "HDR104", "PUB101", "PUB103", "PUB104"),
        *("SUB101", "SUB102", "SUB103", "SUB104", "WIL101", "WIL102"),
    }
)
"""Rules that show a protocol violation of 3.1.1, for which either side has to close (4.8)."""
NAMED = {
    (V5, "CON212"): ("MQTT-3.1.0-2",),
    (V3_1_1, "CON212"): ("MQTT-3.1.0-2",),
    (V3_1_1, "HDR102"): ("MQTT-2.2.2-2", "MQTT-4.8.0-1"),
}
"""Statements that name the violation; what holds for all others is in `_broken`."""
MAX_PENDING = 8
"""Violations of a connection that are waited for at a time; later ones are left out."""

_QOS_3 = hexadecimal("36 0a 00 03 61 2f 62 00 0a 00 68 69")
_QOS_3_OLD = hexadecimal("36 09 00 03 61 2f 62 00 0a 68 69")
_ASKS = client(Subscribe(1, None, [Subscription("a")]))


@dataclass(slots=True)
class Tolerated:
    """The violations of a connection."""

    pending: list[Violation] = field(default_factory=list)
    """Those of which it is not known what became."""
    told: set[str] = field(default_factory=set)
    """Rules and sides that were reported."""


class ViolationTolerated(Rule):
    """A side continues after the other one has sent what it has to close the connection for.

    What breaks the protocol may mean anything to the next receiver, and mistakes that nobody objects to stay.  The
    violation is what another rule has found for certain in a packet.  The finding comes when the receiver answers that
    packet, or one that came after it, or when it has not closed for ``timeout`` seconds although TCP shows that it got
    the packet.  Each kind of violation is reported once for a connection.  In MQTT 5.0 a server has to close, a client
    should, which is a warning; in 3.1.1 both have to, and 3.1 speaks of CONNECT alone.

    Instead, close the connection, in MQTT 5.0 after a DISCONNECT that names the reason.
    """

    code = "ERR501"
    severity = Severity.ERROR
    severities = (Severity.ERROR, Severity.WARNING)
    confidence = Confidence.LIKELY
    statements = {
        V5: {"MQTT-3.1.0-2": "", "MQTT-3.1.4-1": "", "MQTT-4.13.1-1": "", "V5-ERROR-client-closes": ""},
        V3_1_1: {"MQTT-2.2.2-2": "", "MQTT-3.1.0-2": "", "MQTT-3.1.2-1": "", "MQTT-4.8.0-1": ""},
        V3_1: {"V31-CONNECT-invalid-closed": ""},
    }
    also = {
        V5: (
            "MQTT-1.5.4-1",
            "MQTT-1.5.4-2",
            "MQTT-1.5.5-1",
            "MQTT-2.1.3-1",
            "MQTT-3.1.2-3",
            "MQTT-3.3.1-4",
            "MQTT-3.3.2-7",
            "MQTT-3.6.1-1",
            "MQTT-3.8.1-1",
            "MQTT-3.8.3-2",
            "MQTT-3.8.3-4",
            "MQTT-3.8.3-5",
            "MQTT-3.10.1-1",
            "MQTT-3.10.3-2",
            "MQTT-3.14.1-1",
            "MQTT-3.15.1-1",
            "MQTT-6.0.0-1",
            "V5-PUBLISH-qos-above-max",
            "V5-PUBLISH-retain-unavailable",
            "V5-PUBLISH-alias-receive-max-disconnect",
        ),
        V3_1_1: (
            "MQTT-1.5.3-1",
            "MQTT-1.5.3-2",
            "MQTT-3.1.2-3",
            "MQTT-3.1.4-1",
            "MQTT-3.3.1-4",
            "MQTT-3.6.1-1",
            "MQTT-3.8.1-1",
            "MQTT-3.8.3-3",
            "MQTT-3.8.3-4",
            "MQTT-3.10.1-1",
            "MQTT-3.10.3-2",
            "MQTT-3.14.1-1",
            "MQTT-6.0.0-1",
        ),
    }
    reads_findings = True
    settings = {"timeout": 30}
    Memory = Tolerated

    # Whatever may be tolerated is an error: what excuses a receiver is in the bad examples, on connections of its own.
    good = examples(
        lambda: [
            conversation("no violation", *opened(), _ASKS, server(Suback(1, None, [0]))),
            conversation("a reason of its own", *opened(V3_1_1), client(Publish(topic_name="a")), closes("server")),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "a later SUBSCRIBE is answered",
                *opened(),
                client(_QOS_3),
                _ASKS,
                server(Suback(1, None, [0])).marked("", at=None),
                *on(
                    1,
                    *opened(client_identifier="closed-with-reason"),
                    client(_QOS_3),
                    server(Disconnect(0x81)),
                    closes("server", after=10),
                ),
            ),
            conversation(
                "a PINGREQ is answered, in 3.1.1; what was on its way, or is no answer, proves nothing",
                *opened(V3_1_1),
                client(_QOS_3_OLD),
                crossing(server(Publish(topic_name="b"))),
                client(_QOS_3_OLD, Pingreq()),
                server(Publish(topic_name="b")),
                server(Pingresp()).marked("", at=None),
                *on(1, *opened(V3_1_1, client_identifier="closed"), client(_QOS_3_OLD), closes("server", after=10)),
                *on(2, *opened(V3_1_1, client_identifier="leaves"), client(_QOS_3_OLD), closes("client", after=10)),
            ),
            conversation(
                "a malformed CONNECT is accepted, in 3.1",
                client(hexadecimal("10 10 00 06 4d 51 49 73 64 70 03 02 00 3c 00 02 ff 31")),
                server(Connack()).marked("", at=None),
                version=V3_1,
            ),
            conversation(
                "nobody closes",
                *opened(),
                client(_QOS_3),
                acknowledges("server"),
                *on(1, *opened(client_identifier="c2"), closes("client", after=50).marked("")),
            ),
            conversation(
                "a second CONNECT is refused, one is accepted",
                *opened(),
                client(make_connect()),
                server(Connack()).marked("", at=None),
                *on(1, *opened(client_identifier="c2"), client(make_connect()), server(Connack(reason_code=0x82))),
            ),
            conversation(
                "by the client",
                *opened(),
                _ASKS,
                server(Suback(1, None, [0])),
                server(hexadecimal("36 08 00 01 61 00 0a 00 68 69")),
                server(Publish(qos=1, topic_name="a", packet_identifier=1)),
                client(Puback(1)).marked("", at=None),
            ),
        ]
    )

    def check_violation(self, violation: Violation, at: RuleContext) -> Findings:
        """Begin to wait for what the other side does."""
        memory: Tolerated = at.memory(self)
        known = f"{violation.rule} {violation.sender}"
        if not violation.certain or known in memory.told or len(memory.pending) >= MAX_PENDING:
            return None
        if any(one.rule == violation.rule and one.sender is violation.sender for one in memory.pending):
            return None
        if self._broken(violation, at):
            memory.pending.append(violation)
            at.ask(self, violation.timestamp_ns + patience_ns(self))
            at.ask(self, at.timestamp_ns)
        return None

    def check_due(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """Look what the receivers have done."""
        memory: Tolerated = at.memory(self)
        waiting = []
        for violation in memory.pending:
            if self._settled(violation, at):
                continue
            sign = self._sign(violation, at)
            due_ns = violation.timestamp_ns + patience_ns(self)
            if not sign and at.timestamp_ns >= due_ns:
                if not has_arrived(at.history.party(violation.sender), violation.position):
                    continue
                sign = f"the connection is open {self.set['timeout']} s later"
            if sign:
                memory.told.add(f"{violation.rule} {violation.sender}")
                yield self._told(violation, sign, at)
            else:
                waiting.append(violation)
        memory.pending = waiting
        for violation in waiting:
            due_ns = violation.timestamp_ns + patience_ns(self)
            if due_ns > at.timestamp_ns:
                at.ask(self, due_ns)
            at.ask(self, at.timestamp_ns)

    @staticmethod
    def _settled(violation: Violation, at: RuleContext) -> bool:
        """Whether the connection ends for it, or for any other reason."""
        history, event = at.history, at.event
        if history.client.disconnect is not None or history.server.disconnect is not None:
            return True
        if isinstance(event, PacketEvent):
            packet = event.packet
            if isinstance(packet, Disconnect) or (isinstance(packet, Connack) and packet.reason_code):
                return True
        return has_closed(at, C2S) or has_closed(at, S2C)

    @staticmethod
    def _sign(violation: Violation, at: RuleContext) -> str:
        """What shows that the receiver has read on; empty where nothing does."""
        event = at.event
        if not isinstance(event, PacketEvent) or at.direction is violation.sender:
            return ""
        if not 0 < violation.position <= at.acknowledged:
            return ""
        packet = event.packet
        name = packet_name(packet)
        if isinstance(packet, Connack):
            return "it sends CONNACK with success" if violation.kind == "connect" else ""
        if isinstance(packet, Pingresp):
            last = at.receiver.ping_packet
            return "it answers a later PINGREQ" if last is not None and last > violation.packet else ""
        answered = at.connection.answered_by(packet, at.direction)
        if answered is None or answered.packet < violation.packet:
            return ""
        codes = getattr(packet, "reason_codes", None) or [getattr(packet, "reason_code", None) or 0]
        if answered.packet == violation.packet and all(code >= 0x80 for code in codes):
            return ""  # it has objected, and may close yet
        return f"it sends {name} for {'that packet' if answered.packet == violation.packet else 'a later packet'}"

    @staticmethod
    def _broken(violation: Violation, at: RuleContext) -> tuple[str, ...]:
        """The statements that have the receiver close; none where it need not."""
        by_server = violation.sender is C2S
        if at.version is V3_1:
            fits = violation.rule in OLD and violation.kind == "connect" and violation.rule != "CON212"
            return ("V31-CONNECT-invalid-closed",) if fits else ()
        if at.version is V3_1_1:
            if violation.rule not in OLD:
                return ()
            return NAMED.get((V3_1_1, violation.rule), ("MQTT-4.8.0-1",))
        if violation.reason_code not in CLOSING or violation.rule in ELSEWHERE:
            return ()
        if not by_server:
            return ("V5-ERROR-client-closes",)
        return NAMED.get(
            (V5, violation.rule),
            ("MQTT-3.1.4-1", "MQTT-4.13.1-1") if violation.kind == "connect" else ("MQTT-4.13.1-1",),
        )

    def _told(self, violation: Violation, sign: str, at: RuleContext) -> Report:
        receiver = violation.sender.opposite
        must = at.version is V3_1_1 or (at.version is V5 and receiver is S2C)
        after = (at.timestamp_ns - violation.timestamp_ns) / SECOND_NS
        return self.report(
            "",
            f"{side_name(receiver)} continued after {violation.rule} ({sign}, {after:.3g} s after it); it "
            f"{'must' if must else 'should'} close the connection",
            severity=None if must else Severity.WARNING,
            sender=receiver,
            related=(Related("the violation", violation.packet, violation.frame, violation.timestamp_ns),),
            statements=self._broken(violation, at),
            overdue=True,
        )
