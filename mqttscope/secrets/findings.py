"""Hides secrets in findings: in their messages, names and bytes.

Secrets are texts that `secrets.forms` recognises, values of User Properties with the name of a secret, and passwords
and Authentication Data as found by `secrets.packets`.

Findings reach reports through `report.findings.shown` and tables through `lake.tables`; both conceal them once.
This package does not import the linter: `QuotingFinding` declares the attributes of a finding that it needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Generic, Literal, Protocol, TypeVar, cast

from mqttscope.mqtt.codec import decode, trace
from mqttscope.mqtt.constants import PacketType, ProtocolVersion
from mqttscope.mqtt.declare import FieldSpan
from mqttscope.mqtt.packets import Publish
from mqttscope.mqtt.properties import Properties
from mqttscope.mqtt.view import PAYLOAD_LIMIT
from mqttscope.secrets.credentials import USER_PROPERTY as USER_PROPERTY_IDENTIFIER
from mqttscope.secrets.credentials import hidden_credentials, without_property_credentials
from mqttscope.secrets.forms import (
    LENGTH,
    OVERLAP,
    find_all,
    is_suspect,
    is_suspect_bytes,
    joined,
    suspicions,
    token_ranges,
    without,
)
from mqttscope.secrets.names import is_secret_value, stems_in_bytes
from mqttscope.secrets.packets import BROKEN, DISGUISED, covered, hidden_ranges

MIN_TOLD = 4
"""Minimum length of a secret that is searched in messages: shorter ones occur in too many words."""
RUN = 6
"""Minimum number of consecutive hidden bytes that are removed from messages."""
MIN_BEGINNING = 8
"""Minimum number of characters that identify the beginning of a secret in a truncated message."""
MIN_BEGINNING_OF_VALUE = 24
"""Minimum number of characters that identify the beginning of a named secret: it may be an ordinary word."""
MAX_KEPT = 512
"""Maximum length of a text with a cached concealed form: Client Identifiers and topics recur."""
MAX_GLANCE = 1 << 16
"""Maximum size of a packet that is searched before its fields are decoded."""
USER_PROPERTY = b"\x26"
_NAMED = re.compile(rb"pass|pwd|psk|secret|token|credential|signature|key|authori[sz]", re.IGNORECASE)
"""Parts of the names of secrets, for bytes that cannot be decoded into fields."""


@dataclass(slots=True, frozen=True)
class _QuotedSecret:
    """A secret found in a packet."""

    text: str
    shown: str
    beginning: int
    """Minimum number of characters that identify the truncated secret."""


class Remark(Protocol):
    """A remark about another packet that explains a finding."""

    @property
    def message(self) -> str:
        """Text, which may quote any packet."""


class QuotingFinding(Protocol):
    """A finding with its packet; a dataclass (`lint.finding.Finding`)."""

    @property
    def message(self) -> str:
        """Text, which may quote the packet, escaped or truncated."""

    @property
    def client_identifier(self) -> str | None:
        """Client Identifier of the connection."""

    @property
    def client(self) -> str:
        """The endpoint of the client."""

    @property
    def topic(self) -> str | None:
        """Topic of the packet, or of a missing packet."""

    @property
    def related(self) -> Sequence[Remark]:
        """Remarks about other packets of the connection."""

    @property
    def raw(self) -> bytes:
        """The bytes of the packet; empty without a packet."""

    @property
    def version(self) -> str:
        """MQTT version used to decode the bytes."""

    @property
    def offset(self) -> int | None:
        """Offset of the byte that the finding marks."""

    @property
    def missing(self) -> int:
        """Number of bytes of the packet that are missing in the capture."""

    @property
    def doubt(self) -> int:
        """Level of distrust that the bytes are part of a secret (`secrets.packets`)."""

    @property
    def withheld(self) -> tuple[bytes, ...]:
        """Possible secrets in other packets of the connection, which the message may quote."""


FindingT = TypeVar("FindingT", bound=QuotingFinding)


@dataclass(slots=True, frozen=True)
class HidingOptions:
    """Settings for hiding secrets in findings."""

    secret_length: int = LENGTH
    """Minimum length of random text that counts as a secret."""
    payload_limit: int = PAYLOAD_LIMIT
    """Number of payload bytes that are searched, besides the bytes around the marked offset."""
    show_secrets: bool = False


@dataclass(slots=True)
class ConcealedFinding(Generic[FindingT]):
    """A finding without its secrets."""

    finding: FindingT
    """The finding, with an asterisk in ``raw`` for each byte of a secret."""
    decoded: FindingT
    """The finding with a ``raw`` that can still be decoded; it contains secrets, so apply ``hidden`` before showing."""
    hidden: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of hidden bytes."""


def conceal(finding: FindingT, hiding: HidingOptions) -> FindingT:
    """The finding with its secrets hidden, for showing and storing; the finding itself without secrets."""
    return concealed(finding, hiding).finding


def client_name(finding: QuotingFinding, hiding: HidingOptions) -> str:
    """Name of the client in reports."""
    return conceal(finding, hiding).client_identifier or finding.client


def concealed(finding: FindingT, hiding: HidingOptions) -> ConcealedFinding[FindingT]:
    """The finding without secrets, with the ranges of its hidden bytes."""
    if hiding.show_secrets:
        return ConcealedFinding(finding, finding)
    length = hiding.secret_length
    if _is_harmless(finding, hiding):
        return ConcealedFinding(finding, finding)
    secrets, hidden = _find_packet_secrets(finding, hiding) if _may_hold_secret(finding.raw) else ([], [])
    message = _without_secrets(finding.message, secrets, length)
    name = _conceal_name(finding.client_identifier, secrets, length)
    topic = _conceal_name(finding.topic, secrets, length)
    related = tuple(_conceal_remark(remark, secrets, length) for remark in finding.related)
    places = _hidden_places(finding.raw, finding.version, finding.doubt) if finding.raw else ()
    runs = _forbidden_runs(finding, places)
    if runs:
        message = _without_runs(message, runs)
        # The Client Identifier comes from the CONNECT, which is shown regardless of later packets.
        topic = None if topic is None else _without_runs(topic, runs)
        related = tuple(_replace_fields(remark, message=_without_runs(remark.message, runs)) for remark in related)
    texts = message, name, topic, related
    if (
        not hidden
        and not places
        and not finding.withheld
        and texts == (finding.message, finding.client_identifier, finding.topic, finding.related)
    ):
        return ConcealedFinding(finding, finding)
    raw = covered(finding.raw, hidden) if hidden else finding.raw
    changed = _replace_fields(
        finding, message=message, client_identifier=name, topic=topic, related=related, raw=raw, withheld=()
    )
    if not places:
        return ConcealedFinding(changed, changed, hidden)
    return ConcealedFinding(_replace_fields(changed, raw=covered(raw, places)), changed, joined([*hidden, *places]))


def _is_harmless(finding: QuotingFinding, hiding: HidingOptions) -> bool:
    """Whether quick checks prove that a finding has nothing to hide; true for most findings.

    Client Identifiers, topics and property blocks recur, so their results are cached.  Measured on 12,000 findings of
    a fleet: 18 instead of 100 microseconds for each.
    """
    length, name, topic, raw = hiding.secret_length, finding.client_identifier, finding.topic, finding.raw
    if finding.withheld or not (
        (name is None or _is_plain_name(name, length)) and (topic is None or _is_plain_name(topic, length))
    ):
        return False
    text = finding.message
    for remark in finding.related:
        text += "\n" + remark.message
    if not _is_plain(text):
        return False
    if not raw:
        return True
    if raw[0] >> 4 == PacketType.PUBLISH and finding.doubt < BROKEN and len(raw) <= MAX_GLANCE:
        return _is_harmless_publish(raw, finding.version, length, hiding.payload_limit + 2 * OVERLAP)
    return not _may_hold_secret(raw) and not _hidden_places(raw, finding.version, finding.doubt)


def _is_plain(text: str) -> bool:
    """Whether a text has no sign of a secret: `_hidden` would not change it."""
    return (
        "://" not in text
        and "%" not in text
        and not is_suspect(text)
        and not is_suspect_bytes(text.encode("utf-8", "replace"))
    )


def _is_plain_name(text: str, length: int) -> bool:
    return masked(text, length) == text


@lru_cache(1)
def _is_harmless_publish(raw: bytes, version: str, length: int, shown: int) -> bool:
    """Whether the packet is a well-formed PUBLISH without anything to hide; cached for consecutive findings.

    ``shown``: maximum size of a payload that is searched completely.
    """
    packet = decode(raw, ProtocolVersion.from_text(version))
    if type(packet) is not Publish:
        return False
    topic, block, payload = packet.topic_name, packet.properties, packet.payload
    if topic in DISGUISED or not _is_plain_name(topic, length) or (block and not _is_harmless_block(block, length)):
        return False
    if is_suspect_bytes(payload) and (
        len(payload) > shown or find_all(payload.decode("utf-8", "surrogateescape"), length=length)
    ):
        return False
    return not token_ranges(payload)


@lru_cache(4096)
def _is_harmless_block(block: Properties, length: int) -> bool:
    """Whether no property of a PUBLISH contains a secret."""
    if without_property_credentials(block) is not block:
        return False
    for number, content in block.items:
        texts = content if number == USER_PROPERTY_IDENTIFIER else (content,)
        for text in texts:
            written = text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text
            if isinstance(written, str) and not _is_plain_name(written, length):
                return False
    return True


_T = TypeVar("_T")
Ranges = list[tuple[int, int]]


def _replace_fields(instance: _T, **values: Any) -> _T:
    return cast(_T, replace(cast(Any, instance), **values))


def _forbidden_runs(finding: QuotingFinding, places: Sequence[tuple[int, int]]) -> list[bytes]:
    """Bytes that must not occur in the texts of a finding, raw and as escaped by `repr`."""
    runs = [finding.raw[start:end] for start, end in places]
    runs += finding.withheld
    for run in list(runs):
        written = repr(run.decode("utf-8", "surrogateescape"))[1:-1].encode()
        if written != run:
            runs.append(written)
    return runs


@lru_cache(64)
def _hidden_places(raw: bytes, version: str, doubt: int) -> tuple[tuple[int, int], ...]:
    """Possible ranges of passwords and Authentication Data; cached because a packet often has several findings."""
    return tuple(hidden_ranges(raw, ProtocolVersion.from_text(version), doubt))


def _without_runs(text: str, runs: Sequence[bytes]) -> str:
    """The text without runs of at least `RUN` bytes that also occur in hidden bytes."""
    raw = text.encode("utf-8", "surrogateescape")
    own = {raw[at : at + RUN] for at in range(len(raw) - RUN + 1)}
    runs = [run for run in runs if (run in raw if len(run) < RUN else not own.isdisjoint(_pieces(run)))]
    if not runs:
        return text
    parts: list[bytes] = []
    at = start = 0
    while at + MIN_TOLD <= len(raw):
        size = max((_common_length(raw, at, run) for run in runs), default=0)
        if not size:
            at += 1
            continue
        parts += [raw[start:at], b"***(%d bytes)" % size]
        at = start = at + size
    return b"".join([*parts, raw[start:]]).decode("utf-8", "surrogateescape") if parts else text


@lru_cache(64)
def _pieces(run: bytes) -> frozenset[bytes]:
    """All parts of hidden bytes that are `RUN` bytes long."""
    return frozenset(run[at : at + RUN] for at in range(len(run) - RUN + 1))


def _common_length(raw: bytes, at: int, run: bytes) -> int:
    """Number of bytes from an offset on that also occur in hidden bytes; 0 if they are too few."""
    size = min(RUN, len(run))
    if size < MIN_TOLD or at + size > len(raw) or raw[at : at + size] not in run:
        return 0
    while at + size < len(raw) and raw[at : at + size + 1] in run:
        size += 1
    return size


def masked(text: str, length: int = LENGTH) -> str:
    """The text without parts that look like secrets."""
    if len(text) > MAX_KEPT:
        return _hidden(text, length)
    return _masked(text, length)


@lru_cache(4096)
def _masked(text: str, length: int) -> str:
    return _hidden(text, length)


def _hidden(text: str, length: int) -> str:
    """Hide named credentials first, because hiding other secrets could cut off their names."""
    hidden = hidden_credentials(text)
    if hidden:
        text = without(text, hidden)
    return without(text, find_all(text, length=length))


def _may_hold_secret(raw: bytes) -> bool:
    """Whether a packet may contain a secret or has a User Property; very few do."""
    if len(raw) > MAX_GLANCE or USER_PROPERTY in raw:
        return True
    if is_suspect_bytes(raw):
        return True
    low = raw.lower()
    return any(stem in low for stem in stems_in_bytes()) or suspicions(raw) != 0


def _conceal_remark(remark: Remark, secrets: Sequence[_QuotedSecret], length: int) -> Remark:
    message = _without_secrets(remark.message, secrets, length)
    return remark if message == remark.message else _replace_fields(remark, message=message)


def _conceal_name(text: str | None, secrets: Sequence[_QuotedSecret], length: int) -> str | None:
    if text is None:
        return None
    return _without_secrets(text, secrets, length) if secrets else masked(text, length)


def _without_secrets(message: str, secrets: Sequence[_QuotedSecret], length: int) -> str:
    """The message without secrets; the secrets of its packet may be escaped or truncated in it."""
    for secret in secrets:
        for written in dict.fromkeys((secret.text, repr(secret.text)[1:-1])):
            message = _replaced(message, written, secret)
    return _hidden(message, length)


def _replaced(message: str, written: str, secret: _QuotedSecret) -> str:
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


def _find_packet_secrets(finding: QuotingFinding, hiding: HidingOptions) -> tuple[list[_QuotedSecret], Ranges]:
    """The secrets in the shown parts of a packet, and their ranges."""
    raw = finding.raw
    if not raw:
        return [], []
    secrets: dict[_QuotedSecret, None] = {}
    places: list[tuple[int, int]] = []
    for kind, start, end in _parts(raw, finding, hiding.payload_limit):
        text = raw[start:end].decode("utf-8", "surrogateescape")
        if kind == "value":
            secrets[_QuotedSecret(text, f"***({len(text)} characters)", MIN_BEGINNING_OF_VALUE)] = None
            places.append((start, end))
            continue
        parts = find_all(text, length=hiding.secret_length)
        if kind == "name":
            parts = [*hidden_credentials(text), *parts]
        for part in parts:
            secret = text[part.start : part.end]
            secrets[_QuotedSecret(secret, part.shown, MIN_BEGINNING)] = None
            first = start + len(text[: part.start].encode("utf-8", "surrogateescape"))
            places.append((first, first + len(secret.encode("utf-8", "surrogateescape"))))
    # Longest first: a secret may be the beginning of another one.
    return sorted(secrets, key=lambda secret: -len(secret.text)), places


_Part = tuple[Literal["text", "name", "value"], int, int]
"""Kind and range: a ``text`` may contain secrets, a ``name`` also named credentials, a ``value`` is a secret."""


def _parts(raw: bytes, finding: QuotingFinding, payload_limit: int) -> Iterator[_Part]:
    """The texts of a packet: strings without their lengths, and the shown parts of a payload."""
    for span in _spans(raw, finding.version):
        name = span.field.rpartition(".")[2]
        if name == "payload" or (name == "unparsed" and finding.missing):
            yield from _shown_parts(span.start, span.end, finding, payload_limit)
        elif name in ("unparsed", "trailing_bytes"):
            yield from _shown_parts(span.start, span.end, finding, payload_limit)
            name_end = _NAMED.search(raw, span.start, span.end)
            if name_end is not None:
                yield "value", name_end.end(), span.end
        elif "properties." in span.field:
            at = span.start
            while at < span.end - 1 and raw[at] & 0x80:
                at += 1  # an overlong identifier
            if name == "user_property":
                yield from _pair(raw, at + 1, span.end)
            elif span.end - at >= 3 + MIN_TOLD:
                yield "name", at + 3, span.end
        elif span.end - span.start > 2:
            yield "name", span.start + 2, span.end


@lru_cache(1)
def _spans(raw: bytes, version: str) -> list[FieldSpan]:
    """The fields of a packet; cached for consecutive findings."""
    return trace(raw, ProtocolVersion.from_text(version))


def _pair(raw: bytes, start: int, end: int) -> Iterator[_Part]:
    middle = start + 2 + int.from_bytes(raw[start : start + 2], "big")
    if middle + 2 > end:
        # The lengths are wrong, so the beginning of the value is unknown.
        yield ("value" if _NAMED.search(raw, start, end) else "text"), start, end
        return
    yield "text", start + 2, middle
    name, value = (
        raw[first:last].decode("utf-8", "replace") for first, last in ((start + 2, middle), (middle + 2, end))
    )
    secret = is_secret_value(name, value)
    if middle + 2 < end:
        yield ("value" if secret else "text"), middle + 2, end


def _shown_parts(start: int, end: int, finding: QuotingFinding, payload_limit: int) -> Iterator[_Part]:
    """The beginning of a payload, and the bytes around the marked offset."""
    first = min(end, start + payload_limit + 2 * OVERLAP)
    yield "text", start, first
    if finding.offset is not None and end > first:
        near = max(first - OVERLAP, finding.offset - 2 * OVERLAP)
        yield "text", near, min(end, finding.offset + 3 * OVERLAP)
