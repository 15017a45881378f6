from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import ClassVar

from mqttscope.lint.context import SECOND_NS, ConnectionKey, RuleContext
from mqttscope.lint.finding import Confidence, Scope, Severity
from mqttscope.lint.rules import V3_1, V3_1_1, V5, Connection, Findings, Rule, examples, forget_oldest
from mqttscope.lint.shared_checks import count
from mqttscope.mqtt import Connack, Connect, Direction
from mqttscope.session.connection import host_of

MAX_SOURCES = 1_000
"""Maximum number of refused addresses kept per server; the address with the oldest refusal is dropped first."""
MAX_NAMES = 64
"""Maximum number of user names counted per address."""
MAX_ASKED = 1_000
"""Maximum number of CONNECT packets with a password kept until their answer; the oldest is dropped first."""
CLASSES = 16
"""Number of hash classes of passwords: enough to count several, too few to identify one."""
_REFUSALS = {V3_1: (4, 5), V3_1_1: (4, 5), V5: (0x86, 0x87)}
"""Return codes: bad user name or password, and not authorized."""


@dataclass(slots=True)
class RefusedAddress:
    """Recent refusals of one address."""

    times: list[int] = field(default_factory=list)
    codes: dict[int, bool] = field(default_factory=dict)
    names: dict[int, bool] = field(default_factory=dict)
    """CRC-32 of the user names."""
    passwords: int = 0
    """Bits for the `CLASSES` of passwords."""
    is_incomplete: bool = False
    """Whether a password was dropped before it could be counted."""
    is_reported: bool = False
    """Whether the address was reported since its last quiet period."""


@dataclass(slots=True)
class RefusedAddresses:
    """Addresses that one server refused."""

    by_address: dict[str, RefusedAddress] = field(default_factory=dict)
    asked: dict[ConnectionKey, int] = field(default_factory=dict)
    """Password classes of CONNECT packets that wait for their answer; a stored CONNECT has no password any longer."""


class CredentialGuessing(Rule):
    """A client address is refused again and again for its user name or password.

    With several user names or passwords this looks like guessing, which succeeds sooner or later.  With constant
    credentials it is more likely a device with outdated credentials that retries without a pause, and is info: it fills
    logs and may lock its account.  Counted for each address and server: ``refusals`` within ``seconds``.  Clients
    behind one address translator count as one.

    Instead, lock out or slow down an address after a few refusals; as a client, stop or wait longer each time.
    """

    code = "SEC305"
    scope: ClassVar[Scope] = Scope.BROKER  # one address may use many Client Identifiers
    severities = (Severity.WARNING, Severity.INFO)
    confidence = Confidence.LIKELY
    looks_at = (Connect, Connack)
    settled = False
    settings = {
        # Minimum number of refusals of one address.
        "refusals": 10,
        # Period for these refusals, in seconds; after such a period without refusals the count restarts.
        "seconds": 60,
    }
    Memory = RefusedAddresses

    good = examples("""
        accepted
            opened user_name=u password=p
        one or two typing errors
            opened user_name=u password=p1 < code=0x86; < fin; @1 opened user_name=u password=p2 < code=0x86
            @2 opened user_name=u password=p3
    """)
    bad = examples("""
        different passwords
            +0.5 opened client=c0 user_name=u password=p0 < code=0x86; < fin
            +0.5 @1 opened user_name=u password=p1 < code=0x86; @1 < fin
            for 2..8: +0.5 @{n} opened client=c{n} user_name=u password=p{n} < code=0x86; @{n} < fin
            +0.5 @9 opened client=c9 user_name=u password=p9 < code=0x86 !reason_code; @9 < fin
        different user names, in MQTT 3.1.1, reported once
            +0.5 opened 3.1.1 client=c0 user_name=u0 password=p < code=0x05; < fin
            +0.5 @1 opened user_name=u1 password=p < code=0x05; @1 < fin
            for 2..8: +0.5 @{n} opened client=c{n} user_name=u{n} password=p < code=0x05; @{n} < fin
            +0.5 @9 opened client=c9 user_name=u9 password=p < code=0x05 !reason_code; @9 < fin
            +0.5 @10 opened client=c10 user_name=u10 password=p < code=0x05; @10 < fin
            +0.5 @11 opened client=c11 user_name=u11 password=p < code=0x05; @11 < fin
        constant credentials: info
            +0.5 opened 3.1 client=c0 user_name=u password=p < code=0x04; < fin
            +0.5 @1 opened user_name=u password=p < code=0x04; @1 < fin
            for 2..8: +0.5 @{n} opened client=c{n} user_name=u password=p < code=0x04; @{n} < fin
            +0.5 @9 opened client=c9 user_name=u password=p < code=0x04 !reason_code; @9 < fin
    """)

    def check(self, packet: Connect | Connack, at: RuleContext) -> Findings:
        """Count refusals."""
        if isinstance(packet, Connect):
            if packet.password is not None and at.history.connect is None:
                asked = at.memory(self).asked
                asked[at.key] = zlib.crc32(packet.password) % CLASSES
                forget_oldest(asked, MAX_ASKED)
            return None
        code, connect = packet.reason_code or 0, at.history.connect
        if at.from_client or connect is None or at.history.connack is not None:
            return None
        memory: RefusedAddresses = at.memory(self)
        password = memory.asked.pop(at.key, None)
        if code not in _REFUSALS[at.version]:
            return None
        address = host_of(at.connection.client)
        sources = memory.by_address
        refused = sources.pop(address, None)
        limit, window_ns = int(self.set["refusals"]), self.nanoseconds("seconds")
        now_ns = at.timestamp_ns
        if refused is None or abs(now_ns - refused.times[-1]) > window_ns:
            refused = RefusedAddress()
        sources[address] = refused
        forget_oldest(sources, MAX_SOURCES)
        _count(refused, code, connect, password)
        refused.is_incomplete |= password is None and connect.password is not None
        refused.times = (
            [when_ns for when_ns in refused.times if now_ns - when_ns <= window_ns][-limit + 1 :] if limit > 1 else []
        )
        refused.times.append(now_ns)
        if refused.is_reported or len(refused.times) < limit:
            return None
        refused.is_reported = True
        return self._report(address, refused)

    def check_close(self, connection: Connection, at: RuleContext) -> Findings:
        if at.history.connect is not None and at.history.connack is None:
            at.memory(self).asked.pop(at.key, None)
        return None

    def _report(self, address: str, refused: RefusedAddress) -> Findings:
        seconds = (refused.times[-1] - refused.times[0]) / SECOND_NS
        several = refused.passwords.bit_count() > 1
        codes = ", ".join(f"0x{code:02X}" for code in sorted(refused.codes))
        guesses = len(refused.names) > 1 or several
        if guesses or refused.is_incomplete:
            many = "at least " if len(refused.names) >= MAX_NAMES else ""
            names = f"{many}{count(len(refused.names), 'user name')}"
            passwords = "passwords that could not all be compared" if refused.is_incomplete else "at most one password"
            how = f"with {names} and {'several passwords' if several else passwords}"
            how += ", as in guessing" if guesses else ""
        else:
            how = "always with the same credentials, without a pause"
        return self.report(
            "reason_code",
            f"{len(refused.times):,} refused CONNECT packets from {address} in {seconds:,.0f} s ({codes}), {how}",
            severity=None if guesses else Severity.INFO,
            sender=Direction.CLIENT_TO_SERVER,
        )


def _count(refused: RefusedAddress, code: int, connect: Connect, password: int | None) -> None:
    refused.codes[code] = True
    if connect.user_name is not None and len(refused.names) < MAX_NAMES:
        refused.names[zlib.crc32(connect.user_name.encode("utf-8", "surrogatepass"))] = True
    if password is not None:
        refused.passwords |= 1 << password
