"""Tombstones of forgotten names: keyed hashes in the manifest of a lake, with the key outside of it.

Without the key, names cannot be tested against the hashes; with the key they can, name by name.  One key serves all
lakes of a user.

A tombstone of a name begins with the length of the name, so that the name can be found within longer texts: each part
of a text that has such a length and touches no other letters or digits is hashed and compared.  It ends with an
asterisk if the name was forgotten everywhere.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from mqttscope.capture.write import make_folder, open_alone
from mqttscope.lake.manifest import LakeError, Manifest
from mqttscope.mqtt.wire import counted

VARIABLE: Final = "MQTTSCOPE_KEY_FILE"
"""Environment variable with the path of the key, in place of the folder of the user's configuration."""
_KEY_LENGTH: Final = 32
_DIGITS: Final = 32
"""Hexadecimal digits of a hash: 128 bits."""
EVERYWHERE: Final = "*"
NAME_KINDS: Final = ("client", "user")
_EDGE: Final = re.compile(rb"(?<![0-9A-Za-z])|(?![0-9A-Za-z])")
"""Where a name may begin or end: beside anything but a letter or digit."""


class TombstoneKey:
    """The key of tombstones."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @property
    def identity(self) -> str:
        """Hash that identifies the key."""
        return self.tombstone("key", "")

    def tombstone(self, kind: str, name: str) -> str:
        """Hash of a name.  ``kind``: ``client``, ``user``, ``connection`` or ``flow``."""
        return hmac.digest(self._key, _encoded(f"{kind}\0{name}"), "sha256").hex()[:_DIGITS]

    def of_name(self, kind: str, name: str, *, everywhere: bool = False) -> str:
        """Tombstone of a client or a user."""
        return f"{len(_encoded(name))}:{self.tombstone(kind, name)}{EVERYWHERE if everywhere else ''}"

    def is_in(self, tombstones: Collection[str], kind: str, name: str) -> bool:
        """Whether a name has a tombstone."""
        if kind not in NAME_KINDS:
            return self.tombstone(kind, name) in tombstones
        plain = self.of_name(kind, name)
        return plain in tombstones or f"{plain}{EVERYWHERE}" in tombstones

    def names_in(self, tombstones: Iterable[str], texts: Iterable[str | bytes], *, apart: bool = True) -> set[str]:
        """Names with tombstones within texts.  ``apart``: only names that touch no other letters or digits."""
        pairs = [tombstone.removesuffix(EVERYWHERE).split(":") for tombstone in tombstones if ":" in tombstone]
        hashes, lengths = {pair[1] for pair in pairs}, {int(pair[0]) for pair in pairs}
        if not hashes:
            return set()
        encoded = {text if isinstance(text, bytes) else _encoded(text) for text in texts}
        names = {
            part.decode("utf-8", "surrogateescape") for text in encoded for part in _parts(text, lengths, apart=apart)
        }
        return {name for name in names if any(self.tombstone(kind, name) in hashes for kind in NAME_KINDS)}


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _parts(text: bytes, lengths: Iterable[int], *, apart: bool) -> Iterator[bytes]:
    edges = [0, *(edge.start() for edge in _EDGE.finditer(text)), len(text)] if apart else range(len(text) + 1)
    ends = set(edges)
    for start in edges:
        for length in lengths:
            if start + length in ends:
                yield text[start : start + length]


def key_path(key_file: str | None = None) -> Path:
    """The file of the key: ``key_file``, the one of `VARIABLE`, or one in the folder of the user's configuration."""
    path = key_file or os.environ.get(VARIABLE)
    if path:
        return Path(path)
    home = os.environ.get("XDG_CONFIG_HOME") or os.environ.get("APPDATA")
    return (Path(home) if home else Path.home() / ".config") / "mqttscope" / "forget.key"


def read_key(manifest: Manifest, key_file: str | None = None) -> TombstoneKey:
    """The key of a lake's tombstones; `LakeError` if it is missing or another one."""
    path = key_path(key_file)
    try:
        key = TombstoneKey(path.read_bytes())
    except OSError as error:
        raise LakeError(
            f"the lake has {counted(len(manifest.tombstones), 'tombstone')} of forgotten names, and their key {path} "
            f"cannot be read ({error.strerror}): use --key-file, or remove the tombstones with "
            "'mqttscope pipeline forget --lift'"
        ) from None
    if key.identity != manifest.tombstone_key:
        raise LakeError(f"{path} is not the key of the lake's tombstones: use --key-file")
    return key


def make_key(manifest: Manifest, key_file: str | None = None) -> TombstoneKey:
    """The key of a lake's tombstones; for a lake without tombstones it is created if it does not exist."""
    path = key_path(key_file)
    if manifest.tombstones:
        return read_key(manifest, key_file)
    try:
        if not path.exists():
            make_folder(path.parent)
            with open(open_alone(path, fresh=True), "wb") as written:
                written.write(secrets.token_bytes(_KEY_LENGTH))
                written.flush()
                os.fsync(written.fileno())
        return TombstoneKey(path.read_bytes())
    except OSError as error:
        raise LakeError(f"the key {path} cannot be written: {error.strerror or error}") from None
