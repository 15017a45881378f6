"""OPS214."""

from collections.abc import Iterator

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import client, closes, conversation, examples, lost, opened, server
from mqttscope.lint.finding import Confidence, Report, Severity
from mqttscope.lint.rule import V3_1_1, Needs, Rule
from mqttscope.lint.strings import shown
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Disconnect, Pingreq, Pingresp, Pubcomp, Publish, Pubrec, Pubrel
from mqttscope.session.connection import DISCONNECTED, Connection
from mqttscope.session.inflight import RECEIVED, RELEASED, SENT, Exchange

FAILURE = 0x80
"""A side that takes leave with a reason from here on has said why it does not continue."""
C2S, S2C = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
_STEPS = {SENT: "PUBLISH", RECEIVED: "PUBREC", RELEASED: "PUBREL"}
_PUBLISH = Publish(qos=2, topic_name="a", packet_identifier=7)


class Qos2NeverCompleted(Rule):
    """A QoS 2 exchange stops half-way.

    Until it is completed the sender keeps the message and the receiver keeps the packet identifier; where the session
    ends with the connection, both forget, and the message may be lost or come twice.  Looked at when the connection
    ends; one finding for each side whose next step is missing.

    Instead, finish PUBREC, PUBREL and PUBCOMP before the connection is closed, and resume them in the next one.
    """

    code = "OPS214"
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    needs = Needs.WHOLE | Needs.BOTH_DIRECTIONS
    settings = {
        # Seconds after its PUBLISH from which on an exchange counts as stopped when only the capture ends.
        "seconds": 30,
    }

    good = examples(
        lambda: [
            conversation(
                "completed",
                *opened(),
                client(_PUBLISH),
                server(Pubrec(7)),
                client(Pubrel(7)),
                server(Pubcomp(7)),
                client(Disconnect()),
                closes("client"),
            ),
            conversation(
                "refused",
                *opened(),
                client(_PUBLISH),
                server(Pubrec(7, 0x87)),
                client(Disconnect()),
                closes("client"),
            ),
            conversation(
                "the server says why it does not continue",
                *opened(),
                client(_PUBLISH),
                server(Disconnect(0x97)),
                closes("server"),
            ),
            conversation("the capture ends first", *opened(), client(_PUBLISH), server(Pubrec(7)), client(Pingreq())),
            conversation(
                "the capture lost bytes",
                *opened(),
                client(_PUBLISH),
                server(Pubrec(7)),
                lost(client(Pubrel(7))),
                server(Pubcomp(7)),
                client(Pingreq()),
                server(Pingresp()),
                closes("client"),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "no PUBREL",
                *opened(),
                client(_PUBLISH),
                server(Pubrec(7)),
                client(Disconnect()),
                closes("client").marked(""),
            ),
            conversation(
                "no PUBCOMP, in MQTT 3.1.1",
                *opened(V3_1_1),
                client(_PUBLISH),
                server(Pubrec(7)),
                client(Pubrel(7)),
                closes("server", "reset").marked(""),
            ),
            conversation(
                "both sides owe a step; the capture ends later",
                *opened(),
                client(_PUBLISH, Publish(qos=2, topic_name="b", packet_identifier=8)),
                server(Pubrec(7)),
                client(Pingreq(), after=31),
                closes("client").marked("", ""),
            ),
        ]
    )

    def check_close(self, connection: Connection, at: RuleContext) -> Iterator[Report]:
        """What stands in the tables of both sides."""
        stopped: dict[Direction, list[Exchange]] = {C2S: [], S2C: []}
        for direction in (C2S, S2C):
            for one in connection.side(direction).exchanges.values():
                if one.kind == "publish" and one.qos == 2 and self._is_over(one, connection, at):
                    owes = direction if one.phase is RECEIVED else direction.opposite
                    stopped[owes].append(one)
        for sender, rows in stopped.items():
            bye = at.history.party(sender).disconnect
            if rows and (bye is None or bye.reason_code < FAILURE):
                first = rows[0]
                topic = "an unknown topic" if first.topic is None else shown(first.topic)
                more = f", and {len(rows) - 1} more" if len(rows) > 1 else ""
                step = _STEPS[first.phase]
                yield self.report(
                    "",
                    f"QoS 2 exchange id {first.packet_identifier} on {topic} stopped after {step}{more}",
                    sender=sender,
                )

    def _is_over(self, one: Exchange, connection: Connection, at: RuleContext) -> bool:
        if connection.phase is DISCONNECTED or connection.closed_how in ("fin", "reset", "port_reused"):
            return True
        return bool(at.timestamp_ns - one.timestamp_ns >= self.set["seconds"] * 1_000_000_000)
