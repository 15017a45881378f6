"""The place of a lake: a folder of this machine, or a prefix in an object store (S3, Google Cloud Storage, Azure).

`place` returns a `Path` for the one and a `StorePath` for the other, with the methods that a lake needs.  Objects of a
store appear whole or not at all, and need no folders.  Stores lack a lock that ends with its process:
`LakeStore.replace` writes a small object only if it is still what was read (``If-Match``, ``If-None-Match``), which is
all that commits need (`lake.shared_commit`).  S3 and compatible stores support that; for others the user has to
assert that nobody else writes the lake.

pyarrow has one exception: in Azure it empties an object before it writes it.  That does not harm objects that nothing
refers to yet.  An object that is written again has a copy beside it (`COPY`), which is written first.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from mqttscope.capture.files import MISSING
from mqttscope.capture.stores import ANONYMOUS, azure, endpoint_of, file_system, one_line, shown_uri
from mqttscope.installation import extra_command

PROBE = ".conditional-writes"
"""An object that a store with conditional writes refuses to write again."""
COPY = ".next"
"""Suffix of the copy that is read if the object itself is empty."""
_SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfss", "abfss": "abfss"}
"""Schemes of stores, and their names in delta-rs."""
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/]+)/*(?P<key>.*)", re.S)
_S3, _GOOGLE, _AZURE = "s3", "gs", "abfss"
_NOBODY = f"{ANONYMOUS}@"


def is_store(lake: object) -> bool:
    """Whether a lake is in an object store."""
    if isinstance(lake, StorePath):
        return True
    match = _URI.fullmatch(lake) if isinstance(lake, str) else None
    return match is not None and match["scheme"].lower() in _SCHEMES


@dataclass(slots=True, frozen=True)
class Status:
    """Size and time of an object."""

    st_size: int
    """Size in bytes."""
    st_mtime: float
    """Time of writing, in seconds since 1970."""


@dataclass(slots=True, frozen=True)
class StorePath:
    """A place in a store, with a part of the interface of `Path`."""

    store: LakeStore
    key: str = ""
    """Key relative to the lake."""

    def __truediv__(self, name: str) -> StorePath:
        return StorePath(self.store, f"{self.key}/{name}" if self.key else name)

    def __str__(self) -> str:
        return f"{self.store.shown}/{self.key}" if self.key else self.store.shown

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    def exists(self) -> bool:
        return self.store.status(self.key) is not None

    def stat(self) -> Status:
        """Its size and time; `FileNotFoundError` if it does not exist."""
        status = self.store.status(self.key)
        if status is None:
            raise FileNotFoundError(2, MISSING)
        return status

    def open(self, mode: str = "rb", buffering: int = 0) -> Any:
        """Open it for reading, seekable; raises `OSError`."""
        del mode, buffering
        with one_line():
            return self.store.system.open_input_file(self.store.path(self.key))

    def open_output(self) -> Any:
        """Open it for writing: it exists once it is closed."""
        with one_line():
            return self.store.system.open_output_stream(self.store.path(self.key))

    def read_bytes(self) -> bytes:
        """Its content; raises `OSError`."""
        with self.open() as file, one_line():
            content = cast(bytes, file.read())
        if content or not self.store.empties or self.key.endswith(COPY):
            return content
        with suppress(FileNotFoundError):
            return StorePath(self.store, self.key + COPY).read_bytes()
        return content

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete it; raises `FileNotFoundError` if it does not exist and ``missing_ok`` is false.

        The store is asked first: if Azure answers a delete with "not found" in several pieces, its library waits for
        more until the connection closes, four times.
        """
        if not self.exists():
            if missing_ok:
                return
            raise FileNotFoundError(2, MISSING)
        with one_line():
            self.store.system.delete_file(self.store.path(self.key))


Place = Path | StorePath
Lake = str | os.PathLike[str] | StorePath
"""Name of a lake."""


@dataclass
class LakeStore:
    """The store of one lake.  All methods raise `OSError`."""

    uri: str
    """URI of the lake."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the file system, as for `capture.stores.file_system`."""
    single_writer: bool = False
    """The user asserts that nobody else writes the lake: writes need not be conditional."""

    @cached_property
    def shown(self) -> str:
        return shown_uri(self.uri)

    @cached_property
    def _file_system(self) -> tuple[Any, str]:
        try:
            return file_system(self.uri, self.settings)
        except ImportError as error:
            raise OSError(None, f"{error}: {extra_command('lake')}") from None

    @property
    def system(self) -> Any:
        return self._file_system[0]

    def path(self, key: str) -> str:
        return f"{self._file_system[1]}/{key}" if key else self._file_system[1]

    @property
    def _scheme(self) -> str:
        return _SCHEMES[self.uri.partition("://")[0]]

    @property
    def is_s3(self) -> bool:
        """Whether the store has the interface of S3."""
        return self._scheme == _S3

    @property
    def empties(self) -> bool:
        """Whether an object is empty while it is written."""
        return self._scheme == _AZURE

    @cached_property
    def delta_uri(self) -> str:
        rest = self.uri.partition("://")[2]
        return f"{self._scheme}://{rest.removeprefix(_NOBODY) if self._scheme == _GOOGLE else rest}"

    @cached_property
    def delta_options(self) -> dict[str, str]:
        """Settings for delta-rs, which finds credentials by itself, except keys and signatures of Azure."""
        if self._scheme == _GOOGLE:
            return self._google_options
        if self._scheme == _AZURE:
            return self._azure_options
        options = {"aws_conditional_put": "etag", "aws_region": self._region}
        if self.single_writer:
            options = {"aws_region": self._region, "aws_s3_allow_unsafe_rename": "true"}
        endpoint = self._endpoint
        if endpoint is not None:
            options["aws_endpoint_url"] = endpoint
            options["aws_allow_http"] = str(endpoint.startswith("http:")).lower()
        return options

    @property
    def _google_options(self) -> dict[str, str]:
        endpoint = self._endpoint
        options = {} if endpoint is None else {"allow_http": str(endpoint.startswith("http:")).lower()}
        if self.uri.partition("://")[2].startswith(_NOBODY):
            # google_skip_signature only works for reading; with this key delta-rs requests no token and signs nothing.
            account = dict.fromkeys(("client_email", "private_key", "private_key_id"), "") | {"disable_oauth": True}
            if endpoint is not None:
                account["gcs_base_url"] = endpoint
            return options | {"google_service_account_key": json.dumps(account)}
        return options if endpoint is None else options | {"google_base_url": endpoint}

    @property
    def _azure_options(self) -> dict[str, str]:
        account = azure(self.uri, self.settings)
        options = {
            "azure_storage_account_name": account.account,
            "azure_storage_account_key": account.key,
            "azure_storage_sas_key": account.signature,
            "azure_storage_endpoint": account.endpoint,
            "allow_http": "true" if account.endpoint and account.scheme == "http" else None,
        }
        others = dict(account.others)
        options |= {f"azure_{name}": others.get(name) for name in ("client_id", "client_secret", "tenant_id")}
        if others.get("credential_kind") == "anonymous":
            options["azure_skip_signature"] = "true"
        return {name: value for name, value in options.items() if value is not None}

    @property
    def _region(self) -> str:
        return self.settings.get("region") or str(self.system.region)

    @property
    def _endpoint(self) -> str | None:
        if not self.settings.get("endpoint_override"):
            return None
        host, scheme = endpoint_of(self.settings)
        return f"{scheme}://{host}"

    def status(self, key: str) -> Status | None:
        """Status of an object; ``None`` if it does not exist."""
        with one_line():
            info = self.system.get_file_info(self.path(key))
        return Status(info.size, info.mtime_ns / 1e9) if info.is_file else None

    def files(self) -> dict[str, Status]:
        listed = self._listed(recursive=True)
        return {key: Status(info.size, info.mtime_ns / 1e9) for key, info in listed if info.is_file}

    def top(self) -> list[str]:
        """Names directly below the place of the lake."""
        # In Google's store pyarrow does not list folders that exist only as parts of names.
        flat = self._scheme == _GOOGLE
        return list(dict.fromkeys(key.partition("/")[0] for key, _ in self._listed(recursive=flat)))

    def _listed(self, *, recursive: bool) -> Iterator[tuple[str, Any]]:
        from mqttscope.capture.locations import below

        base = self.path("")
        with one_line():
            entries = below(self.system, base, recursive=recursive)
        return ((entry.path[len(base) + 1 :], entry) for entry in entries)

    def read(self, key: str) -> tuple[bytes, str] | None:
        """A small object and its tag, which identifies this content; ``None`` if it does not exist."""
        if not self.is_s3 or self.single_writer:
            try:
                data = (StorePath(self) / key).read_bytes()
            except FileNotFoundError:
                return None
            return data, sha256(data).hexdigest()
        with _boto() as missing:
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=self._key(key))
                return answer["Body"].read(), answer["ETag"]
            except missing as error:
                if _code(error) == "NoSuchKey":
                    return None
                raise

    def replace(self, key: str, data: bytes, tag: str | None) -> None:
        """Write a small object if it still has this tag, or does not exist; `FileExistsError` otherwise."""
        if not self.is_s3 or self.single_writer:
            # Nobody else writes: this only checks whether that is true.
            now = self.read(key)
            if (now and now[1]) != tag:
                raise FileExistsError(17, "was written by another")
            if self.empties:
                if now and not (StorePath(self) / key).stat().st_size:
                    # A killed writer left only the copy: it is not overwritten before the object is whole again.
                    self._write(key, now[0])
                self._write(key + COPY, data)
            self._write(key, data)
            return
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        with _boto() as refused:
            try:
                self._client.put_object(Bucket=self._bucket, Key=self._key(key), Body=data, **condition)
            except refused as error:
                if _code(error) in _CONFLICTS:
                    raise FileExistsError(17, "was written by another") from None
                raise

    def _write(self, key: str, data: bytes) -> None:
        with (StorePath(self) / key).open_output() as file, one_line():
            file.write(data)

    def is_conditional(self) -> bool:
        """Whether the store obeys the condition of `replace`: it refuses to overwrite an object."""
        if not self.is_s3:
            return False
        for _ in range(2):
            try:
                self.replace(PROBE, b"", None)
            except FileExistsError:
                return True
        return False

    @cached_property
    def _client(self) -> Any:
        import boto3

        return boto3.client(_S3, region_name=self._region, endpoint_url=self._endpoint)

    @property
    def _bucket(self) -> str:
        return self.path("").partition("/")[0]

    def _key(self, key: str) -> str:
        return self.path(key).partition("/")[2]


_CONFLICTS = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey")
"""Answers of S3 if a condition does not hold."""


def _code(error: Any) -> str:
    return str(error.response["Error"]["Code"])


@contextmanager
def _boto() -> Iterator[Any]:
    """Yield boto3's exception for an answer of the store; raise `OSError` for it and all other exceptions of boto3."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield ClientError
    except (BotoCoreError, ClientError) as error:
        raise OSError(None, str(error).split("\n")[0]) from None


def place(lake: Lake, settings: Mapping[str, str] | None = None, *, single_writer: bool = False) -> Place:
    """The place of a lake.  ``settings``: settings of its store.  ``single_writer``: nobody else writes it."""
    if isinstance(lake, StorePath):
        return lake
    if not is_store(lake):
        return Path(lake)
    match = _URI.fullmatch(str(lake))
    assert match is not None
    key = re.sub("/+", "/", match["key"]).rstrip("/")
    uri = f"{match['scheme'].lower()}://{match['authority']}" + (f"/{key}" if key else "")
    return StorePath(LakeStore(uri, dict(settings or {}), single_writer))


def opened(path: Place) -> Any:
    """A file of a lake as an argument for pyarrow."""
    return path.open() if isinstance(path, StorePath) else path
