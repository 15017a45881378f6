"""Stores as file systems of pyarrow: Amazon S3, Google Cloud Storage, Azure, and HDFS.

A URI and a few settings become a file system and a path in it.  For most stores pyarrow derives both from the URI, and
finds credentials in the usual places of the platform (environment, profile, role of the machine).  Azure needs more:
pyarrow's URIs cannot contain an account key or a signature (SAS), and without credentials pyarrow ends the process
instead of raising, so another process tries to sign in first.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from mqttscope.capture.files import MISSING
from mqttscope.installation import package_command
from mqttscope.secrets.addresses import public_name

ANONYMOUS = "anonymous"
"""User name in a ``gs://`` URI for access without credentials."""
TRIAL_S = 120.0
"""Timeout for finding Azure credentials; the metadata service may not answer."""

_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss"}
"""Scheme names of other programs, and pyarrow's names for these stores."""
URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/]*)/*(?P<key>.*)", re.S)
"""Scheme, authority and key of an object in a store."""
_AZURE = re.compile(
    r"(?P<container>[^:@/]+)(?P<password>:[^@]*)?@(?P<account>[^.:@/]+)\.(?:dfs|blob)(?P<domain>\.[^:@/]+)"
)
_AZURE_FORM = "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"
_AZURE_SETTINGS = ("endpoint_override", "scheme")
_GOOGLE_SETTINGS = ("endpoint_override", "scheme", "retry_limit_seconds", "project_id", "default_bucket_location")
_KEYS = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY")
_SIGNATURES = ("AZURE_STORAGE_SAS_TOKEN",)
_SIGNATURE = re.compile("[?&]sig=")
_SIGNING_IN = ("credential_kind", "client_id", "client_secret", "tenant_id")
"""Parameters of pyarrow's URIs for signing in to Azure."""
_PATIENCE = {"retry_limit_seconds": "20"}
"""Timeout for pyarrow's retries with Google Cloud Storage; the default is 15 minutes."""
_GOOGLE = re.compile(r"google::cloud::Status\(.*?with a last message of (?P<why>.*?)(?: error_info=.*)?$")
_AZURE_ERROR = re.compile(r"^.*? Azure Error: \[\w*\] ")
_NO_GOOGLE = "Could not create a OAuth2 access token"
_UNDERLYING = re.compile(r"underlying error message was: (?P<why>.*)$")
_TRIAL = """
import sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, OSError, ValueError):
    pass
from pyarrow import fs
system, path = fs.FileSystem.from_uri(sys.stdin.read())
try:
    system.get_file_info(path.rstrip("/"))
except Exception:
    pass  # the next access fails as well, and reports it
"""


class one_line:  # noqa: N801 - reads as a statement
    """Reduces errors of pyarrow to one readable line; libhdfs reports hundreds, Google and Azure machine formats."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            return
        from pyarrow.lib import ArrowException

        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(2, MISSING) from error
        if isinstance(error, (OSError, ValueError, NotImplementedError, ArrowException)):
            message = error.strerror if isinstance(error, OSError) and error.errno is None else None
            raise OSError(
                None, _plain((message or str(error)).strip().split("\n")[0]) or type(error).__name__
            ) from error


def _plain(message: str) -> str:
    """The readable part of an error message from the libraries of Google and Azure."""
    status = _GOOGLE.search(message)
    if status is None:
        return _AZURE_ERROR.sub("", message)
    why = status["why"]
    if _NO_GOOGLE not in why:
        return why
    underlying = _UNDERLYING.search(why)
    return (
        f"no credentials for Google Cloud Storage ({underlying['why'] if underlying else why}): "
        "run gcloud auth application-default login, set GOOGLE_APPLICATION_CREDENTIALS to a file with credentials, "
        "or use gs://anonymous@BUCKET/ for access without credentials"
    )


def file_system(uri: str, settings: Mapping[str, str]) -> tuple[Any, str]:
    """The file system of a URI, and the path in it.

    ``settings``: parameters of pyarrow's URIs, such as region, endpoint_override and scheme; for Azure see `azure`.
    Raises `OSError`.
    """
    from pyarrow import fs

    match = URI.match(uri)
    assert match is not None
    scheme = _scheme(match["scheme"])
    if scheme == "abfss":
        container = azure(uri, settings)
        return container.file_system(), f"{container.container}/{match['key']}"
    if scheme == "gs":
        settings = _PATIENCE | _google(settings)
    # The key is added afterwards, so that the URI parser does not interpret its characters.
    with one_line():
        system, base = fs.FileSystem.from_uri(_queried(f"{scheme}://{match['authority']}/", settings))
    return system, f"{base.rstrip('/')}/{match['key']}"


def _google(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of Google Cloud Storage as parameters of pyarrow's URIs.  Raises `OSError`."""
    for name in settings.keys() - set(_GOOGLE_SETTINGS):
        raise OSError(None, f"{name} is not a setting of Google Cloud Storage ({', '.join(_GOOGLE_SETTINGS)})")
    host, scheme = endpoint_of(settings)
    return {**settings, "endpoint_override": host, "scheme": scheme} if host else dict(settings)


def endpoint_of(settings: Mapping[str, str]) -> tuple[str, str]:
    """Address of another server, ``HOST:PORT`` or empty, and its scheme.  Raises `OSError`."""
    host, scheme = settings.get("endpoint_override"), settings.get("scheme", "https")
    if host is not None and "://" in host:
        scheme, _, host = host.partition("://")
    if scheme not in ("http", "https"):
        raise OSError(None, "scheme must be http or https")
    if host is not None and not host.rstrip("/"):
        raise OSError(None, "endpoint_override is empty; it must be HOST:PORT of a server")
    return (host or "").rstrip("/"), scheme


def _scheme(scheme: str) -> str:
    return _SCHEMES.get(scheme.lower(), scheme.lower())


def shown_uri(uri: str) -> str:
    """A URI without its secrets; a container of Azure and the anonymous user are not secret."""
    match = URI.match(uri)
    if match is None:
        return public_name(uri)
    user, at, host = match["authority"].rpartition("@")
    scheme = _scheme(match["scheme"])
    if not at or ":" in user or not (scheme == "abfss" or (scheme == "gs" and user == ANONYMOUS)):
        return public_name(uri)
    begin = f"{match['scheme']}://"
    return f"{begin}{user}@" + public_name(f"{begin}{host}{uri[match.end('authority') :]}").removeprefix(begin)


def _queried(uri: str, settings: Mapping[str, str]) -> str:
    query = "&".join(f"{quote(name)}={quote(value, safe='')}" for name, value in sorted(settings.items()))
    return f"{uri}?{query}" if query else uri


@dataclass(slots=True, frozen=True)
class AzureContainer:
    """A container in an Azure storage account, with address and credentials."""

    container: str
    account: str
    domain: str
    """Domain after the name of the service: ``.core.windows.net``."""
    host: str | None = None
    """``HOST:PORT`` of another server, such as Azurite."""
    scheme: str = "https"
    key: str | None = field(default=None, repr=False)
    """Key of the account."""
    signature: str | None = field(default=None, repr=False)
    """A shared access signature (SAS)."""
    others: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Further parameters of pyarrow's URIs."""

    @property
    def endpoint(self) -> str | None:
        return f"{self.scheme}://{self.host}/{self.account}" if self.host else None

    def file_system(self) -> Any:
        """The pyarrow file system.  Raises `OSError`, also without credentials."""
        if self.key is None and self.signature is None:
            return _signed_in(self._uri)
        credential = {"account_key": self.key} if self.key is not None else {"sas_token": f"?{self.signature}"}
        if self.key is not None and not _is_base64(self.key):
            raise OSError(None, "the key of the account is not Base64")  # which would end the process
        try:
            from pyarrow.fs import AzureFileSystem
        except ImportError:
            raise OSError(None, "this pyarrow does not support Azure") from None
        with one_line():
            try:
                return AzureFileSystem(
                    self.account,
                    blob_storage_authority=self.host or f".blob{self.domain}",
                    dfs_storage_authority=self.host or f".dfs{self.domain}",
                    blob_storage_scheme=self.scheme,
                    dfs_storage_scheme=self.scheme,
                    **credential,
                )
            except TypeError:
                raise OSError(
                    None, f"this pyarrow lacks shared access signatures: {package_command('--upgrade', 'pyarrow')}"
                ) from None

    @property
    def _uri(self) -> str:
        """The URI for pyarrow, without key and signature."""
        settings = dict(self.others)
        if self.host:
            settings |= {"blob_storage_authority": self.host, "dfs_storage_authority": self.host}
        if self.scheme == "http":
            settings["enable_tls"] = "false"
        return _queried(f"abfss://{self.container}@{self.account}.dfs{self.domain}/", settings)


def azure(uri: str, settings: Mapping[str, str]) -> AzureContainer:
    """The container of a URI, with credentials from the environment.  Raises `OSError` for another form of URI."""
    match = URI.match(uri)
    authority = _AZURE.fullmatch(match["authority"]) if match else None
    if authority is None:
        raise OSError(None, f"the form of a URI for Azure is {_AZURE_FORM}")
    if authority["password"]:
        raise OSError(None, f"a key does not belong in the URI: set {_KEYS[0]}")
    others = {name: value for name, value in settings.items() if name not in _AZURE_SETTINGS}
    for name in others.keys() - set(_SIGNING_IN):
        raise OSError(None, f"{name} is not a setting of Azure ({', '.join((*_AZURE_SETTINGS, *_SIGNING_IN))})")
    if _SIGNATURE.search(uri):
        raise OSError(None, f"a signature does not belong in the URI: set {_SIGNATURES[0]}")
    host, scheme = endpoint_of(settings)
    # An explicit way to sign in overrides the environment.
    alone = any(name in others for name in _SIGNING_IN)
    key, signature = (None, None) if alone else (_environment(_KEYS), _environment(_SIGNATURES))
    return AzureContainer(
        authority["container"], authority["account"], authority["domain"], host or None, scheme,
        key, signature.lstrip("?") if signature and key is None else None, tuple(sorted(others.items())),
    )  # fmt: skip


def _is_base64(text: str) -> bool:
    try:
        return bool(b64decode(text, validate=True))
    except ValueError:
        return False


def _environment(names: tuple[str, ...]) -> str | None:
    """Value of the first of these environment variables that is set."""
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


@lru_cache(8)
def _signed_in(uri: str) -> Any:
    """A file system that signs in, or is anonymous; cached, because each one requests its own token."""
    from pyarrow import fs

    with one_line():
        system, _ = fs.FileSystem.from_uri(uri)
    if "credential_kind=anonymous" not in uri:
        _try_to_sign_in(uri)
    return system


def _try_to_sign_in(uri: str) -> None:
    """Raise `OSError` if pyarrow would end the process: it does not catch the exceptions of its library."""
    try:
        # The URI may contain a secret; standard input hides it from the process list.
        done = subprocess.run(
            [sys.executable, "-c", _TRIAL], input=uri, capture_output=True, timeout=TRIAL_S, check=False,
            encoding="utf-8", errors="replace", env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        why = f"no answer within {TRIAL_S:.0f} seconds"
    else:
        if not done.returncode:
            return
        lines = [line.partition("what():")[2].strip() for line in done.stderr.splitlines() if "what():" in line]
        why = lines[-1].rstrip(".") if lines else f"the attempt ended with exit code {done.returncode}"
    raise OSError(
        None,
        f"no credentials for Azure ({why}): set {_KEYS[0]} or {_SIGNATURES[0]}, run az login, or use the setting "
        "credential_kind=anonymous for access without credentials",
    )
