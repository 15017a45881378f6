from dataclasses import dataclass

from mqttscope.lint.rules import Connection, Findings, Rule, RuleContext, Severity, examples
from mqttscope.lint.shared_checks import duration
from mqttscope.mqtt import Direction, Subscribe


@dataclass(slots=True)
class Burst:
    """A run of SUBSCRIBE packets with one filter each."""

    number: int = 0
    began_ns: int = 0
    last_ns: int = 0
    longest: int = 0
    longest_ns: int = 0


class SingleFilterSubscribes(Rule):
    """A client sends many SUBSCRIBE packets with one filter each.

    Each one is answered by a packet of its own, and if the client waits for the answers, connecting takes one round
    trip per filter.  Reported once, when the connection ends, with the longest run.

    Instead, put all filters into one SUBSCRIBE.
    """

    code = "OPS222"
    severity = Severity.INFO
    sender = Direction.CLIENT_TO_SERVER
    settings = {
        # Minimum number of SUBSCRIBE packets in a row.
        "packets": 10,
        # Maximum pause within a run, in seconds.
        "pause": 5,
    }
    Memory = Burst

    good = examples("""
        one packet with all filters
            opened
            > subscribe 1 a/0:0 a/1:0 a/2:0 a/3:0 a/4:0 a/5:0 a/6:0 a/7:0 a/8:0 a/9:0 a/10:0 a/11:0 a/12:0 a/13:0 a/14:0
                a/15:0 a/16:0 a/17:0 a/18:0 a/19:0 a/20:0 a/21:0 a/22:0 a/23:0 a/24:0 a/25:0 a/26:0 a/27:0 a/28:0 a/29:0
                a/30:0 a/31:0 a/32:0 a/33:0 a/34:0 a/35:0 a/36:0 a/37:0 a/38:0 a/39:0 a/40:0 a/41:0 a/42:0 a/43:0 a/44:0
                a/45:0 a/46:0 a/47:0 a/48:0 a/49:0
            < suback 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
                0
            > disconnect; > fin
        nine
            opened
            for 1..9: > subscribe {n} a/{n}:0; < suback {n} 0
            > fin
        with pauses
            opened
            for 1..6: > subscribe {n} a/{n}:0; < suback {n} 0
            +6 > subscribe 7 a/7:0; < suback 7 0
            for 8..12: > subscribe {n} a/{n}:0; < suback {n} 0
            > disconnect; > fin
        two filters each
            opened
            for 1..11: > subscribe {n} a/{n}:0 b/{n}:0; < suback {n} 0 0
            > disconnect; > fin
    """)
    bad = examples("""
        ten
            opened
            for 1..10: > subscribe {n} a/{n}:0; < suback {n} 0
            > disconnect; > fin !
        twelve in MQTT 3.1.1, and another one later
            opened 3.1.1
            for 1..12: > subscribe {n} a/{n}:0; < suback {n} 0
            +20 > subscribe 13 a/13:0; < suback 13 0; > disconnect; > fin !
    """)

    def check(self, packet: Subscribe, at: RuleContext) -> Findings:
        """Track the run."""
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
        """Report the longest run."""
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
