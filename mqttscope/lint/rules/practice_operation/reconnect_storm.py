from dataclasses import dataclass, field
from itertools import pairwise

from mqttscope.lint.rules import SECOND_NS, Confidence, Findings, Rule, RuleContext, Severity, examples
from mqttscope.mqtt import Connack, Direction
from mqttscope.session.connection import host_of

MAX_CONNECTS = 256
"""Maximum number of CONNECT packets of a client that are counted, unless the setting ``connects`` is higher."""


@dataclass(slots=True)
class Connects:
    """The CONNECT packets of one client."""

    recent: list[tuple[int, str]] = field(default_factory=list)
    """Time of each CONNECT, and address of the client."""
    refused: list[int] = field(default_factory=list)
    """Times of consecutive refused CONNECT packets."""
    reported_ns: int | None = None
    """Time of the last report."""


class ReconnectStorm(Rule):
    """A client reconnects again and again without increasing pauses.

    Every CONNECT costs the server a handshake, an authentication and the setup of a will; a fleet that does this after
    an outage prevents the recovery of the server.  Reported if a client connects more than ``connects`` times within
    ``seconds``, or if it is refused ``refusals`` times in a row at intervals that do not grow.  Only CONNECT packets
    that got an answer are counted.

    Instead, wait after each failure, twice as long each time up to a few minutes, with a random part so that clients do
    not return all at once.
    """

    code = "OPS325"
    severity = Severity.WARNING
    confidence = Confidence.LIKELY
    sender = Direction.SERVER_TO_CLIENT
    settled = False
    settings = {
        # Maximum number of CONNECT packets that is not reported.
        "connects": 10,
        # Period for these packets, in seconds.
        "seconds": 60,
        # Number of refusals in a row with growing intervals.
        "refusals": 6,
        # Seconds: an interval of this length does not have to grow further.
        "pause": 60,
    }
    Memory = Connects

    good = examples("""
        once
            opened; > pingreq; < pingresp
        growing pauses
            +1 opened 3.1.1 < code=0x05; < fin; +2 @1 opened < code=0x05; @1 < fin; +4 @2 opened < code=0x05; @2 < fin
            +8 @3 opened < code=0x05; @3 < fin; +16 @4 opened < code=0x05; @4 < fin; +32 @5 opened < code=0x05; @5 < fin
            +64 @6 opened < code=0x05; @6 < fin
        refused once an hour
            +3600 opened 3.1.1 < code=0x05; < fin
            for 1..6: +3600 @{n} opened < code=0x05; @{n} < fin
        every ten seconds
            +10 opened 3.1.1; > fin
            for 1..11: +10 @{n} opened; @{n} > fin
    """)
    bad = examples("""
        every 100 milliseconds, reported once
            +0.1 opened 3.1.1; > fin
            for 1..9: +0.1 @{n} opened; @{n} > fin
            +0.1 @10 opened < !; @10 > fin; +0.1 @11 opened; @11 > fin; +0.1 @12 opened; @12 > fin; +0.1 @13 opened
            @13 > fin
        refused every eight seconds
            +8 opened 3.1.1 < code=0x05; < fin
            for 1..4: +8 @{n} opened < code=0x05; @{n} < fin
            +8 @5 opened < code=0x05 !; @5 < fin
    """)

    def check(self, packet: Connack, at: RuleContext) -> Findings:
        """Count the answered CONNECT."""
        connect, sent = at.history.connect, at.history.connect_sent
        if at.history.connack is not None or connect is None or sent is None or not connect.client_identifier:
            return None
        memory, now_ns = at.memory(self), sent.timestamp_ns
        window_ns = self.nanoseconds("seconds")
        connects, refusals = int(self.set["connects"]), int(self.set["refusals"])
        recent = [row for row in memory.recent if abs(now_ns - row[0]) <= window_ns]
        recent.append((now_ns, host_of(at.connection.client)))
        memory.recent = recent[-max(MAX_CONNECTS, connects + 1) :]
        memory.refused = [*memory.refused, now_ns][-max(refusals, 1) :] if packet.reason_code else []
        if memory.reported_ns is not None and abs(now_ns - memory.reported_ns) <= window_ns:
            return None
        if len(memory.recent) > connects:
            memory.reported_ns = now_ns
            many = len({address for _, address in memory.recent})
            times = [time_ns for time_ns, _ in memory.recent]
            return self._report(times, f"from {many} addresses" if many > 1 else "from one address", at)
        if len(memory.refused) >= refusals > 2 and not self._grows(memory.refused):
            memory.reported_ns = now_ns
            return self._report(memory.refused, "all refused, at intervals that do not grow", at)
        return None

    def _grows(self, times: list[int]) -> bool:
        """Whether the intervals grow by half from the first third to the last, or are long enough."""
        pauses = [later - earlier for earlier, later in pairwise(times)]
        third = max(1, len(pauses) // 3)
        first, last = sum(pauses[:third]), sum(pauses[-third:])
        return last >= 1.5 * first or last >= third * self.nanoseconds("pause")

    def _report(self, times: list[int], how: str, at: RuleContext) -> Findings:
        seconds = (times[-1] - times[0]) / SECOND_NS
        return self.report(
            "",
            f"{at.client_name!r} has sent {len(times):,} CONNECT packets in {seconds:,.0f} s ({how})",
            sender=Direction.CLIENT_TO_SERVER,
        )
