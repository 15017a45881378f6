"""Finds forgotten names in rows and memories of a lake, and replaces them.

In a text a name must not touch other letters or digits: ``dev-1`` is not in ``dev-12``.  A longer name of the
lake wins: ``dev-1`` is not in the topic of a client ``dev-1-b`` either.  Names of the program, such as ``tcp``, are
words in some columns; these columns are not searched.

Memories (`lake.state`) are edited in their encoded form, without the classes of their objects: memories of earlier
releases and of other people's rules can be edited too.  A name gets another random name of the same length, everywhere
in a memory, so that the memory stays consistent: lengths in packets are right, and keys of dictionaries agree.
"""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from mqttscope.lake.state import ENUM, TUPLE, packed, unpacked

_LETTERS: Final = string.ascii_lowercase + string.digits
_EDGES: Final = "(?<![0-9A-Za-z])", "(?![0-9A-Za-z])"
_PROGRAM_WORDS: Final = frozenset((
    "accepted", "answer", "auth", "both", "broker", "capture_end", "client", "client_to_server", "closed",
    "completed", "connack", "connect", "connected", "connecting", "connection", "disconnect", "disconnected",
    "evicted", "fin", "guess", "idle", "messages", "mqtt", "open", "opening", "packets", "port", "port_reused",
    "puback", "pubcomp", "publish", "pubrec", "pubrel", "received", "refused", "released", "replaced", "reset",
    "sent", "server", "server_to_client", "session", "suback", "subscribe", "tcp", "tls", "unsuback", "unsubscribe",
    "websocket", "ws",
))  # fmt: skip
_RULE: Final = re.compile("[A-Z]{3}[0-9]{3}")
_PROGRAM_COLUMNS: Final = frozenset((
    "client", "closed_by", "closed_how", "confidence", "connection_id", "connection_ids", "direction",
    "disconnect_by", "ended", "event", "field", "fields_read", "fingerprint", "flow_key", "how", "one_sided",
    "packet_type", "path", "payload_sha256", "phase", "protocol_name", "reason", "roles_evidence", "rule", "scope",
    "server", "severity", "slug", "state", "transport", "type", "version", "version_evidence", "versions",
    "will_payload_sha256",
))  # fmt: skip
"""Columns and fields with words, numbers and addresses, but no content of packets."""


class NameMask:
    """Replaces names in texts, bytes, record batches and memories."""

    def __init__(self, names: Iterable[str], known: Iterable[str] = (), like: NameMask | None = None) -> None:
        """``known``: all Client Identifiers; the ones that contain a name are not changed.

        ``like``: has the random names to use for its names.
        """
        self.names: Final = frozenset(names)
        known_random: dict[str, str] = {} if like is None else like._random
        self._random: Final[dict[str, str]] = {
            name: known_random.get(name) or _random_like(name) for name in self.names
        }
        forms = {form: name for name in self.names for form in _forms(name)}
        longer = {other for other in known if other not in self.names and any(name in other for name in self.names)}
        self._forms = forms
        self._longer = _either(longer)
        self._named = _either(forms)
        self._apart = self._compile(*_EDGES)
        self._anywhere = self._compile("", "")
        self._apart_bytes, self._anywhere_bytes = (
            re.compile(pattern.pattern.encode()) for pattern in (self._apart, self._anywhere)
        )

    def _compile(self, before: str, behind: str) -> re.Pattern[str]:
        longer = f"{self._longer}|" if self._longer else ""
        return re.compile(f"{longer}{before}({self._named or '(?!)'}){behind}")

    def is_in(self, value: str | bytes) -> bool:
        pattern: Any = self._apart if isinstance(value, str) else self._apart_bytes
        return any(match[1] is not None for match in pattern.finditer(value))

    def masked(self, text: str) -> str:
        """A text with asterisks for names."""
        return self._apart.sub(lambda match: "*" * len(match[0]) if match[1] is not None else match[0], text)

    def _masked_bytes(self, data: bytes) -> bytes:
        return self._apart_bytes.sub(lambda match: b"*" * len(match[0]) if match[1] is not None else match[0], data)

    def places(self, record_batch: pa.RecordBatch) -> dict[str, int]:
        """Number of values with a name, by column."""
        counts = {}
        for name, array in zip(record_batch.schema.names, record_batch.columns, strict=True):
            count = sum(self._count(leaf) for leaf in leaves(name, array))
            if count:
                counts[name] = count
        return counts

    def _count(self, leaf: pa.Array) -> int:
        named = [value for value in pc.unique(leaf).to_pylist() if value and self.is_in(value)]
        if not named:
            return 0
        return int(pc.sum(pc.is_in(leaf, value_set=pa.array(named, leaf.type))).as_py() or 0)

    def mask_rows(self, record_batch: pa.RecordBatch) -> pa.RecordBatch:
        """A record batch with asterisks for names; the same object without names."""
        if not self.places(record_batch):
            return record_batch
        rows = [self._mask(row) for row in record_batch.to_pylist()]
        return pa.RecordBatch.from_pylist(rows, schema=record_batch.schema)

    def without_rows(self, record_batch: pa.RecordBatch) -> pa.RecordBatch:
        """A record batch without the rows that have a name; the same object without such rows."""
        if not self.places(record_batch):
            return record_batch
        rows = record_batch.to_pylist()
        return record_batch.filter(pa.array([self._mask(row) == row for row in rows], pa.bool_()))

    def _mask(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.masked(value)
        if isinstance(value, bytes):
            return self._masked_bytes(value)
        if isinstance(value, list):
            return [self._mask(element) for element in value]
        if isinstance(value, dict):
            return {name: own if name in _PROGRAM_COLUMNS else self._mask(own) for name, own in value.items()}
        return value

    def rename_state(self, state: bytes, *, everywhere: bool) -> bytes:
        """A memory with random names; the same object if nothing changes.

        ``everywhere``: replace names within longer texts and bytes too.
        """
        classes, written = unpacked(state)
        renamed = self._renamed(written, everywhere)
        return state if renamed == written else packed((classes, renamed), state[4], compress=state[9:10] == b"z")

    def has_in_state(self, state: bytes) -> bool:
        """Whether a memory has a name anywhere."""
        return self.rename_state(state, everywhere=True) is not state

    def _renamed(self, value: Any, everywhere: bool) -> Any:
        kind = type(value)
        if kind is str:
            return self.rename(value, everywhere=everywhere)
        if kind is bytes:
            if everywhere:
                return self._anywhere_bytes.sub(self._other_bytes, value)
            name = value.decode("utf-8", "surrogateescape")
            return self._random[name].encode() if name in self.names else value
        if kind is not list or not value or value[0] == ENUM:
            return value
        renamed: list[Any] = []
        for element in value:
            # The memories of a session: everything in them is about its client.
            own = bool(renamed) and type(renamed[-1]) is list and self._is_session_key(value[len(renamed) - 1])
            renamed.append(self._renamed(element, everywhere or own))
        return renamed

    def _is_session_key(self, key: Any) -> bool:
        return len(key) == 3 and key[0] == TUPLE and type(key[2]) is str and key[2] in self.names

    def rename(self, text: str, *, everywhere: bool) -> str:
        """A text of a memory with random names."""
        if not everywhere:
            return self._random.get(text, text)
        return self._apart.sub(lambda match: self._other(match[0], match[1]), text)

    def _other(self, whole: str, form: str | None) -> str:
        if form is None:
            return whole
        name = self._forms[form]
        return self._random[name] if form == name else "*" * len(form)

    def _other_bytes(self, match: re.Match[bytes]) -> bytes:
        if match[1] is None:
            return match[0]
        return self._other(match[0].decode(), match[1].decode()).encode().ljust(len(match[0]), b"*")


def is_program_word(name: str) -> bool:
    """Whether a name is also a word of the program in memories, so that it cannot be replaced there."""
    return name in _PROGRAM_WORDS or _RULE.fullmatch(name) is not None


def _random_like(name: str) -> str:
    """A random name with as many bytes in UTF-8."""
    return "".join(secrets.choice(_LETTERS) for _ in name.encode("utf-8", "surrogateescape"))


def _forms(name: str) -> set[str]:
    """A name as in topics, JSON texts and addresses."""
    return {name, json.dumps(name)[1:-1], json.dumps(name, ensure_ascii=False)[1:-1], quote(name, safe="")}


def _either(texts: Collection[str] | dict[str, str]) -> str:
    return "|".join(map(re.escape, sorted(texts, key=lambda text: (-len(text), text))))


def texts_in(value: Any) -> Iterator[str | bytes]:
    """All texts and bytes in a memory (`state.unpacked`)."""
    if isinstance(value, str | bytes):
        yield value
    elif isinstance(value, list | tuple):
        for element in value:
            yield from texts_in(element)


def leaves(name: str, array: pa.Array) -> Iterator[pa.Array]:
    """The texts and bytes of a column that may have content of packets."""
    if name in _PROGRAM_COLUMNS:
        return
    kind = array.type
    if pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            yield from leaves(kind.field(at).name, array.field(at))
    elif pa.types.is_list(kind):
        yield from leaves("", pc.list_flatten(array))
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        yield array
