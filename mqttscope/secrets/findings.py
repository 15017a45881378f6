"""Secrets of the packets that findings are about, hidden in the words of a finding and in its bytes.

What `secrets.forms` recognises counts, wherever it stands in the packet, and the values of User Properties whose names
say that they are secrets; passwords, Authentication Data and what may be of them as `redact.packets` finds them.

Findings reach reports through `report.findings.shown` and tables through `lake.tables`; both conceal there, once.
Rules stand above this package, so what is needed of a finding is named here (`Quoting`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Generic, Literal, Protocol, TypeVar, cast

from mqttscope.mqtt.codec import trace
from mqttscope.mqtt.constants import ProtocolVersion
from mqttscope.mqtt.declare import Span
from mqttscope.mqtt.view import PAYLOAD_LIMIT
from mqttscope.secrets.credentials import hidden_credentials
from mqttscope.secrets.forms import LENGTH, OVERLAP, find_all, is_suspect_bytes, joined, suspicions, without
from mqttscope.secrets.names import is_secret_value, stems_in_bytes
from mqttscope.secrets.packets import covered, hidden_ranges

MIN_TOLD = 4
"""Characters of the shortest secret that is looked for in messages: shorter ones are in too many words."""
RUN = 6
"""Bytes in a row of a broken packet's hidden part that a message does not quote."""
MIN_BEGINNING = 8
"""Characters of a secret by which its beginning is known in a message that was cut."""
MIN_BEGINNING_OF_VALUE = 24
"""The same for what only its name makes a secret: it may be an ordinary word."""
MAX_KEPT = 512
"""Characters of a text whose concealed form is kept: Client Identifiers and topics recur."""
MAX_GLANCE = 1 << 16
"""Bytes of the longest packet that is looked through before its fields are told apart."""
USER_PROPERTY = b"\x26"
_NAMED = re.compile(rb"pass|pwd|psk|secret|token|credential|signature|key|authori[sz]", re.IGNORECASE)
"""What the names of secrets have in them, to find them where fields cannot be told apart."""


@dataclass(slots=True, frozen=True)
class _Secret:
    """One that was found in a packet."""

    text: str
    shown: str
    beginning: int
    """Characters by which it is known where it was cut."""


class Remark(Protocol):
    """What is said of another packet that explains a finding."""

    @property
    def message(self) -> str:
        """May quote any packet."""


class Quoting(Protocol):
    """What a finding says of a packet, and the packet; an instance of a dataclass (`lint.finding.Finding`)."""

    @property
    def message(self) -> str:
        """May quote the packet, also escaped or cut."""

    @property
    def client_identifier(self) -> str | None:
        """Of the connection."""

    @property
    def client(self) -> str:
        """The endpoint of the client."""

    @property
    def topic(self) -> str | None:
        """Of the packet, or of one that did not come."""

    @property
    def related(self) -> Sequence[Remark]:
        """Other packets of the connection."""

    @property
    def raw(self) -> bytes:
        """The bytes of the packet, empty without one."""

    @property
    def version(self) -> str:
        """The version of MQTT that they are read in."""

    @property
    def offset(self) -> int | None:
        """The byte that the finding points at."""

    @property
    def missing(self) -> int:
        """Bytes of the packet that the capture does not have."""

    @property
    def doubt(self) -> int:
        """How little the bytes are trusted not to be of a secret (`redact.packets`)."""

    @property
    def withheld(self) -> tuple[bytes, ...]:
        """What may be of a secret in other packets of the connection, which the message may quote."""


FindingT = TypeVar("FindingT", bound=Quoting)


@dataclass(slots=True, frozen=True)
class Hiding:
    """What decides what is hidden in findings."""

    secret_length: int = LENGTH
    """Characters from which on random text counts as a secret."""
    payload_limit: int = PAYLOAD_LIMIT
    """Bytes of a payload that are looked at, besides those around the place that a finding points at."""
    show_secrets: bool = False


@dataclass(slots=True)
class Concealed(Generic[FindingT]):
    """A finding without its secrets."""

    finding: FindingT
    """Its ``raw`` has an asterisk for each byte of a secret."""
    decoded: FindingT
    """The same, but for what its packet needs to be decoded and that is hidden by ``hidden``: not to be shown."""
    hidden: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of bytes that are not shown."""


def conceal(finding: FindingT, hiding: Hiding) -> FindingT:
    """The finding as it may be shown and kept; itself where nothing is hidden."""
    return concealed(finding, hiding).finding


def client_name(finding: Quoting, hiding: Hiding) -> str:
    """What the client of a finding is called in reports."""
    return conceal(finding, hiding).client_identifier or finding.client


def concealed(finding: FindingT, hiding: Hiding) -> Concealed[FindingT]:
    """The finding as it may be shown and kept, with the places of its bytes that are hidden."""
    if hiding.show_secrets:
        return Concealed(finding, finding)
    length = hiding.secret_length
    secrets, hidden = _of_packet(finding, hiding) if _may_hold_secret(finding.raw) else ([], [])
    message = _told(finding.message, secrets, length)
    name, topic = _name(finding.client_identifier, secrets, length), _name(finding.topic, secrets, length)
    related = tuple(_related(one, secrets, length) for one in finding.related)
    places = _places(finding.raw, finding.version, finding.doubt) if finding.raw else ()
    runs = _runs(finding, places)
    if runs:
        message = _without_runs(message, runs)
        # The Client Identifier is that of the CONNECT, which is shown with it whatever follows.
        topic = None if topic is None else _without_runs(topic, runs)
        related = tuple(_changed(one, message=_without_runs(one.message, runs)) for one in related)
    said = message, name, topic, related
    if (
        not hidden
        and not places
        and not finding.withheld
        and said == (finding.message, finding.client_identifier, finding.topic, finding.related)
    ):
        return Concealed(finding, finding)
    raw = covered(finding.raw, hidden) if hidden else finding.raw
    made = _changed(
        finding, message=message, client_identifier=name, topic=topic, related=related, raw=raw, withheld=()
    )
    if not places:
        return Concealed(made, made, hidden)
    return Concealed(_changed(made, raw=covered(raw, places)), made, joined([*hidden, *places]))


_T = TypeVar("_T")


def _changed(one: _T, **values: Any) -> _T:
    return cast(_T, replace(cast(Any, one), **values))


def _runs(finding: Quoting, places: Sequence[tuple[int, int]]) -> list[bytes]:
    """Bytes that no text of a finding has in it, as they are and as Python writes them in quotes."""
    runs = [finding.raw[start:end] for start, end in places]
    runs += finding.withheld
    for run in list(runs):
        written = repr(run.decode("utf-8", "surrogateescape"))[1:-1].encode()
        if written != run:
            runs.append(written)
    return runs


@lru_cache(64)
def _places(raw: bytes, version: str, doubt: int) -> tuple[tuple[int, int], ...]:
    """Where passwords and Authentication Data stand, or may; a packet often has several findings."""
    return tuple(hidden_ranges(raw, ProtocolVersion.from_text(version), doubt))


def _without_runs(text: str, runs: Sequence[bytes]) -> str:
    """A text without what it has in common with bytes that are hidden: `RUN` bytes of them or more."""
    raw = text.encode("utf-8", "surrogateescape")
    own = {raw[at : at + RUN] for at in range(len(raw) - RUN + 1)}
    runs = [run for run in runs if (run in raw if len(run) < RUN else not own.isdisjoint(_pieces(run)))]
    if not runs:
        return text
    parts: list[bytes] = []
    at = start = 0
    while at + MIN_TOLD <= len(raw):
        size = max((_common(raw, at, run) for run in runs), default=0)
        if not size:
            at += 1
            continue
        parts += [raw[start:at], b"***(%d bytes)" % size]
        at = start = at + size
    return b"".join([*parts, raw[start:]]).decode("utf-8", "surrogateescape") if parts else text


@lru_cache(64)
def _pieces(run: bytes) -> frozenset[bytes]:
    """All parts of hidden bytes that are `RUN` bytes long: most texts have none of them."""
    return frozenset(run[at : at + RUN] for at in range(len(run) - RUN + 1))


def _common(raw: bytes, at: int, run: bytes) -> int:
    """How many bytes from some place on are a part of hidden bytes; 0 where they are too few."""
    size = min(RUN, len(run))
    if size < MIN_TOLD or at + size > len(raw) or raw[at : at + size] not in run:
        return 0
    while at + size < len(raw) and raw[at : at + size + 1] in run:
        size += 1
    return size


def masked(text: str, length: int = LENGTH) -> str:
    """A text of any length without what looks like a secret."""
    if len(text) > MAX_KEPT:
        return _hidden(text, length)
    return _masked(text, length)


@lru_cache(4096)
def _masked(text: str, length: int) -> str:
    return _hidden(text, length)


def _hidden(text: str, length: int) -> str:
    """First what has its name with it, since a name ends where a secret is hidden."""
    found = hidden_credentials(text)
    if found:
        text = without(text, found)
    return without(text, find_all(text, length=length))


def _may_hold_secret(raw: bytes) -> bool:
    """Whether to look closer: nearly no packet has anything of a secret in it, nor a User Property."""
    if len(raw) > MAX_GLANCE or USER_PROPERTY in raw:
        return True
    if is_suspect_bytes(raw):
        return True
    low = raw.lower()
    return any(one in low for one in stems_in_bytes()) or suspicions(raw) != 0


def _related(one: Remark, secrets: Sequence[_Secret], length: int) -> Remark:
    told = _told(one.message, secrets, length)
    return one if told == one.message else _changed(one, message=told)


def _name(text: str | None, secrets: Sequence[_Secret], length: int) -> str | None:
    if text is None:
        return None
    return _told(text, secrets, length) if secrets else masked(text, length)


def _told(message: str, secrets: Sequence[_Secret], length: int) -> str:
    """A message without the secrets of its packet, which may be escaped or cut in it, nor any others."""
    for secret in secrets:
        for written in dict.fromkeys((secret.text, repr(secret.text)[1:-1])):
            message = _replaced(message, written, secret)
    return _hidden(message, length)


def _replaced(message: str, written: str, secret: _Secret) -> str:
    if len(written) < MIN_TOLD:
        return message
    head = written[: min(len(written), secret.beginning)]
    at = message.find(head)
    while at >= 0:
        end, left = at + len(head), len(head)
        while left < len(written) and message[end : end + 1] == written[left]:
            end, left = end + 1, left + 1
        message = message[:at] + secret.shown + message[end:]
        at = message.find(head, at + len(secret.shown))
    return message


def _of_packet(finding: Quoting, hiding: Hiding) -> tuple[list[_Secret], list[tuple[int, int]]]:
    """The secrets of a packet as far as it is shown, and their places."""
    raw = finding.raw
    if not raw:
        return [], []
    secrets: dict[_Secret, None] = {}
    places: list[tuple[int, int]] = []
    for kind, start, end in _parts(raw, finding, hiding.payload_limit):
        text = raw[start:end].decode("utf-8", "surrogateescape")
        if kind == "value":
            secrets[_Secret(text, f"***({len(text)} characters)", MIN_BEGINNING_OF_VALUE)] = None
            places.append((start, end))
            continue
        found = find_all(text, length=hiding.secret_length)
        if kind == "name":
            found = [*hidden_credentials(text), *found]
        for one in found:
            said = text[one.start : one.end]
            secrets[_Secret(said, one.shown, MIN_BEGINNING)] = None
            first = start + len(text[: one.start].encode("utf-8", "surrogateescape"))
            places.append((first, first + len(said.encode("utf-8", "surrogateescape"))))
    # Long ones first: one may be the beginning of another.
    return sorted(secrets, key=lambda one: -len(one.text)), places


_Part = tuple[Literal["text", "name", "value"], int, int]
"""Where to look for secrets (``text``), for credentials with names too (``name``), or where one is (``value``)."""


def _parts(raw: bytes, finding: Quoting, payload_limit: int) -> Iterator[_Part]:
    """The texts of a packet: strings without their lengths, of a payload what may be shown."""
    for span in _spans(raw, finding.version):
        name = span.field.rpartition(".")[2]
        if name == "payload" or (name == "unparsed" and finding.missing):
            yield from _shown_parts(span.start, span.end, finding, payload_limit)
        elif name in ("unparsed", "trailing_bytes"):
            yield from _shown_parts(span.start, span.end, finding, payload_limit)
            found = _NAMED.search(raw, span.start, span.end)
            if found is not None:
                yield "value", found.end(), span.end
        elif "properties." in span.field:
            at = span.start
            while at < span.end - 1 and raw[at] & 0x80:
                at += 1  # an identifier that was written too long
            if name == "user_property":
                yield from _pair(raw, at + 1, span.end)
            elif span.end - at >= 3 + MIN_TOLD:
                yield "name", at + 3, span.end
        elif span.end - span.start > 2:
            yield "name", span.start + 2, span.end


@lru_cache(1)
def _spans(raw: bytes, version: str) -> list[Span]:
    """The fields of a packet, whose findings come one after the other."""
    return trace(raw, ProtocolVersion.from_text(version))


def _pair(raw: bytes, start: int, end: int) -> Iterator[_Part]:
    """Name and value of a User Property."""
    middle = start + 2 + int.from_bytes(raw[start : start + 2], "big")
    if middle + 2 > end:
        # Its lengths are wrong, so that nobody knows where the value begins.
        yield ("value" if _NAMED.search(raw, start, end) else "text"), start, end
        return
    yield "text", start + 2, middle
    name, value = (
        raw[first:last].decode("utf-8", "replace") for first, last in ((start + 2, middle), (middle + 2, end))
    )
    secret = is_secret_value(name, value)
    if middle + 2 < end:
        yield ("value" if secret else "text"), middle + 2, end


def _shown_parts(start: int, end: int, finding: Quoting, payload_limit: int) -> Iterator[_Part]:
    """The beginning of a payload, and what is around the place that a finding points at."""
    first = min(end, start + payload_limit + 2 * OVERLAP)
    yield "text", start, first
    if finding.offset is not None and end > first:
        near = max(first - OVERLAP, finding.offset - 2 * OVERLAP)
        yield "text", near, min(end, finding.offset + 3 * OVERLAP)
