from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import ClassVar

from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext
from mqttscope.lint.finding import Confidence, Scope, Severity
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Connection, Findings, Rule, examples, forget_oldest
from mqttscope.lint.shared_checks import count
from mqttscope.mqtt import Connack, Connect, Direction

MAX_SOURCES = 1_000
"""Addresses whose refusals are counted, per server; the one refused longest ago is forgotten first."""
MAX_NAMES = 64
"""User names that are told apart of one address; more change nothing."""
MAX_ASKED = 1_000
"""Maximum number of CONNECT packets with a password that wait for their answer; the oldest is forgotten first."""
CLASSES = 16
"""Passwords are told apart by so many classes: enough to see that there are several, too few to know one again."""
_REFUSALS = {V3_1: (4, 5), V3_1_1: (4, 5), V5: (0x86, 0x87)}
"""Bad user name or password, and not authorized."""


@dataclass(slots=True)
class Source:
    """What an address was refused lately."""

    times: list[int] = field(default_factory=list)
    codes: dict[int, bool] = field(default_factory=dict)
    names: dict[int, bool] = field(default_factory=dict)
    """CRC-32 of the user names."""
    passwords: int = 0
    """Bits for the `CLASSES` of passwords."""
    is_incomplete: bool = False
    """Whether a password was forgotten before it could be compared."""
    told: bool = False
    """Whether it was reported since it last was quiet."""


@dataclass(slots=True)
class Sources:
    """The addresses whose connections one server refused."""

    found: dict[str, Source] = field(default_factory=dict)
    asked: dict[ConnectionKey, int] = field(default_factory=dict)
    """Classes of the passwords of CONNECT packets that wait for their answer: who continues with what was written down
    gets the CONNECT without its password."""


class CredentialGuessing(Rule):
    """An address is refused again and again for its user name or password.

    With several user names or passwords this looks like guessing, which succeeds sooner or later where nobody looks.
    With always the same it is rather a device with stale credentials that does not pause, and a note: it fills logs,
    and locks its account where servers do that.  Counted for each address and server: ``refusals`` within ``seconds``.
    Clients behind one address translator count as one.

    Instead, lock out or slow down an address after a few refusals; a client stops, or waits longer each time.
    """

    code = "SEC305"
    scope: ClassVar[Scope] = Scope.BROKER  # many Client Identifiers may come from one address
    severities = (Severity.WARNING, Severity.INFO)
    confidence = Confidence.LIKELY
    looks_at = (Connect, Connack)
    settled = False
    settings = {
        # Refusals of one address from which on they are reported.
        "refusals": 10,
        # The time in which they come, in seconds; after so long without one counting begins again.
        "seconds": 60,
    }
    Memory = Sources

    good = examples("""
        accepted
            opened user_name=u password=p
        a typing error or two
            opened user_name=u password=p1 < code=0x86; < fin; @1 opened user_name=u password=p2 < code=0x86
            @2 opened user_name=u password=p3
    """)
    bad = examples("""
        another password each time
            +0.5 opened client=c0 user_name=u password=p0 < code=0x86; < fin
            +0.5 @1 opened user_name=u password=p1 < code=0x86; @1 < fin
            for 2..8: +0.5 @{n} opened client=c{n} user_name=u password=p{n} < code=0x86; @{n} < fin
            +0.5 @9 opened client=c9 user_name=u password=p9 < code=0x86 !reason_code; @9 < fin
        another user each time, in MQTT 3.1.1, reported once
            +0.5 opened 3.1.1 client=c0 user_name=u0 password=p < code=0x05; < fin
            +0.5 @1 opened user_name=u1 password=p < code=0x05; @1 < fin
            for 2..8: +0.5 @{n} opened client=c{n} user_name=u{n} password=p < code=0x05; @{n} < fin
            +0.5 @9 opened client=c9 user_name=u9 password=p < code=0x05 !reason_code; @9 < fin
            +0.5 @10 opened client=c10 user_name=u10 password=p < code=0x05; @10 < fin
            +0.5 @11 opened client=c11 user_name=u11 password=p < code=0x05; @11 < fin
        a note: always the same
            +0.5 opened 3.1 client=c0 user_name=u password=p < code=0x04; < fin
            +0.5 @1 opened user_name=u password=p < code=0x04; @1 < fin
            for 2..8: +0.5 @{n} opened client=c{n} user_name=u password=p < code=0x04; @{n} < fin
            +0.5 @9 opened client=c9 user_name=u password=p < code=0x04 !reason_code; @9 < fin
    """)

    def check(self, packet: Connect | Connack, at: RuleContext) -> Findings:
        """Count a refusal."""
        if isinstance(packet, Connect):
            if packet.password is not None and at.history.connect is None:
                asked = at.memory(self).asked
                asked[at.key] = zlib.crc32(packet.password) % CLASSES
                forget_oldest(asked, MAX_ASKED)
            return None
        code, connect = packet.reason_code or 0, at.history.connect
        if at.from_client or connect is None or at.history.connack is not None:
            return None
        memory: Sources = at.memory(self)
        password = memory.asked.pop(at.key, None)
        if code not in _REFUSALS[at.version]:
            return None
        address = at.connection.client.rpartition(":")[0]
        sources = memory.found
        one = sources.pop(address, None)
        limit, window_ns = int(self.set["refusals"]), self.nanoseconds("seconds")
        now_ns = at.timestamp_ns
        if one is None or abs(now_ns - one.times[-1]) > window_ns:
            one = Source()
        sources[address] = one
        forget_oldest(sources, MAX_SOURCES)
        _count(one, code, connect, password)
        one.is_incomplete |= password is None and connect.password is not None
        one.times = (
            [when_ns for when_ns in one.times if now_ns - when_ns <= window_ns][-limit + 1 :] if limit > 1 else []
        )
        one.times.append(now_ns)
        if one.told or len(one.times) < limit:
            return None
        one.told = True
        return self._told(address, one)

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        if at.history.connect is not None and at.history.connack is None:
            at.memory(self).asked.pop(at.key, None)
        return None

    def _told(self, address: str, one: Source) -> Findings:
        seconds = (one.times[-1] - one.times[0]) / SECOND_NS
        several = one.passwords.bit_count() > 1
        codes = ", ".join(f"0x{code:02X}" for code in sorted(one.codes))
        guesses = len(one.names) > 1 or several
        if guesses or one.is_incomplete:
            many = "at least " if len(one.names) >= MAX_NAMES else ""
            names = f"{many}{count(len(one.names), 'user name')}"
            passwords = "passwords that were not all compared" if one.is_incomplete else "one password at most"
            how = f"with {names} and {'several passwords' if several else passwords}"
            how += ", as in guessing" if guesses else ""
        else:
            how = "always with the same credentials, without a pause"
        return self.report(
            "reason_code",
            f"{len(one.times):,} refused CONNECT packets from {address} in {seconds:,.0f} s ({codes}), {how}",
            severity=None if guesses else Severity.INFO,
            sender=Direction.CLIENT_TO_SERVER,
        )


def _count(one: Source, code: int, connect: Connect, password: int | None) -> None:
    one.codes[code] = True
    if connect.user_name is not None and len(one.names) < MAX_NAMES:
        one.names[zlib.crc32(connect.user_name.encode("utf-8", "surrogatepass"))] = True
    if password is not None:
        one.passwords |= 1 << password
