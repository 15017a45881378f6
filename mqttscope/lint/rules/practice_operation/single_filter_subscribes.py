"""OPS222."""

from dataclasses import dataclass

from mqttscope.lint.context import RuleContext
from mqttscope.lint.examples import Step, client, closes, conversation, examples, opened, server
from mqttscope.lint.finding import Severity
from mqttscope.lint.rule import V3_1_1, Findings, Rule
from mqttscope.lint.shared_checks import duration
from mqttscope.mqtt.constants import Direction
from mqttscope.mqtt.packets import Disconnect, Suback, Subscribe
from mqttscope.mqtt.parts import Subscription
from mqttscope.session.connection import Connection


def _one(number: int, after: float = 0.01) -> tuple[Step, Step]:
    return (
        client(Subscribe(number, None, [Subscription(f"a/{number}")]), after=after),
        server(Suback(number, None, [0])),
    )


@dataclass(slots=True)
class Burst:
    """SUBSCRIBE packets with one filter each, one soon after the other."""

    number: int = 0
    began_ns: int = 0
    last_ns: int = 0
    longest: int = 0
    longest_ns: int = 0


class SingleFilterSubscribes(Rule):
    """A client sends many SUBSCRIBE packets with one filter each.

    Each one is answered by a packet of its own, and where the client waits for the answers, the connect takes a round
    trip for each filter.  Reported once, when the connection ends, with the longest run.

    Instead, put the filters into one SUBSCRIBE.
    """

    code = "OPS222"
    severity = Severity.INFO
    looks_at = Subscribe
    sender = Direction.CLIENT_TO_SERVER
    settings = {
        # SUBSCRIBE packets in a row, the fewest that are reported.
        "packets": 10,
        # Seconds, the longest pause between two that belong together.
        "pause": 5,
    }
    Memory = Burst

    good = examples(
        lambda: [
            conversation(
                "one packet",
                *opened(),
                client(Subscribe(1, None, [Subscription(f"a/{number}") for number in range(50)])),
                server(Suback(1, None, [0] * 50)),
                client(Disconnect()),
                closes("client"),
            ),
            conversation(
                "nine", *opened(), *(step for number in range(1, 10) for step in _one(number)), closes("client")
            ),
            conversation(
                "with pauses",
                *opened(),
                *(step for number in range(1, 13) for step in _one(number, 6 if number == 7 else 0.01)),
                client(Disconnect()),
                closes("client"),
            ),
            conversation(
                "two filters each",
                *opened(),
                *(
                    step
                    for number in range(1, 12)
                    for step in (
                        client(Subscribe(number, None, [Subscription(f"a/{number}"), Subscription(f"b/{number}")])),
                        server(Suback(number, None, [0, 0])),
                    )
                ),
                client(Disconnect()),
                closes("client"),
            ),
        ]
    )
    bad = examples(
        lambda: [
            conversation(
                "ten",
                *opened(),
                *(step for number in range(1, 11) for step in _one(number)),
                client(Disconnect()),
                closes("client").marked(""),
            ),
            conversation(
                "twelve in MQTT 3.1.1, and one later",
                *opened(V3_1_1),
                *(step for number in range(1, 13) for step in _one(number)),
                *_one(13, 20),
                client(Disconnect()),
                closes("client").marked(""),
            ),
        ]
    )

    def check(self, packet: Subscribe, at: RuleContext) -> Findings:
        """Follow the run."""
        memory: Burst = at.memory(self)
        if len(packet.subscriptions or ()) != 1:
            memory.number = 0
            return None
        now = at.timestamp_ns
        if not memory.number or now - memory.last_ns > self.set["pause"] * 1_000_000_000:
            memory.number, memory.began_ns = 0, now
        memory.number += 1
        memory.last_ns = now
        if memory.number > memory.longest:
            memory.longest, memory.longest_ns = memory.number, now - memory.began_ns
        return None

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        """Say how long the longest run was."""
        if self.code not in at.history.memories:
            return None
        memory: Burst = at.memory(self)
        if memory.longest < self.set["packets"]:
            return None
        return self.report(
            "",
            f"{memory.longest:,} SUBSCRIBE packets of {at.client_name!r} with one filter each in "
            f"{duration(memory.longest_ns)}",
            sender=Direction.CLIENT_TO_SERVER,
        )
