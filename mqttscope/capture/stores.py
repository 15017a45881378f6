"""Stores as file systems of pyarrow: Amazon S3, Google Cloud Storage, Azure, and HDFS.

A URI and a few settings become a file system and a path in it.  For most stores pyarrow makes both of a URI, and finds
credentials the way of each platform (environment, profile, role of the machine).  Azure needs more: of the key of an
account or a signature (SAS) pyarrow's URIs know nothing, and where it finds nothing to sign in with it ends the process
instead of raising, so that another process tries that first.
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
"""The user of a ``gs://`` URI who has no credentials."""
TRIAL_S = 120.0
"""So long finding credentials for Azure may take: a machine may have to be asked that does not answer."""

_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss"}
"""Names that others have for what pyarrow calls otherwise."""
URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/]*)/*(?P<key>.*)", re.S)
"""Scheme, authority and key of what lies in a store."""
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
"""Settings that say how to sign in to Azure, as pyarrow's URIs have them."""
_PATIENCE = {"retry_limit_seconds": "20"}
"""How long pyarrow asks the store of Google again; by default a quarter of an hour."""
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
    pass  # whoever asks next meets it too, and says it
"""


class one_line:  # noqa: N801 - reads as a statement
    """Errors of pyarrow in one line; those of libhdfs have hundreds, and those of Google and Azure are for programs."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            return
        from pyarrow.lib import ArrowException

        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(2, MISSING) from error
        if isinstance(error, (OSError, ValueError, NotImplementedError, ArrowException)):
            told = error.strerror if isinstance(error, OSError) and error.errno is None else None
            raise OSError(None, _plain((told or str(error)).strip().split("\n")[0]) or type(error).__name__) from error


def _plain(told: str) -> str:
    """What an error of the libraries of Google and Azure says to people."""
    found = _GOOGLE.search(told)
    if found is None:
        return _AZURE_ERROR.sub("", told)
    why = found["why"]
    if _NO_GOOGLE not in why:
        return why
    underlying = _UNDERLYING.search(why)
    return (
        f"no credentials for Google Cloud Storage ({underlying['why'] if underlying else why}): "
        "gcloud auth application-default login makes some, GOOGLE_APPLICATION_CREDENTIALS names a file of them, "
        "and gs://anonymous@BUCKET/ asks without"
    )


def file_system(uri: str, settings: Mapping[str, str]) -> tuple[Any, str]:
    """The file system of a URI, and the path in it.

    ``settings``: what pyarrow's URIs have, such as region, endpoint_override and scheme; of Azure `azure` takes them.
    Raises `OSError`.
    """
    from pyarrow import fs

    match = URI.match(uri)
    assert match is not None
    scheme = _scheme(match["scheme"])
    if scheme == "abfss":
        found = azure(uri, settings)
        return found.file_system(), f"{found.container}/{match['key']}"
    if scheme == "gs":
        settings = _PATIENCE | _google(settings)
    # Whatever is special in the key is none of the URI parser's business.
    with one_line():
        system, base = fs.FileSystem.from_uri(_queried(f"{scheme}://{match['authority']}/", settings))
    return system, f"{base.rstrip('/')}/{match['key']}"


def _google(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of Google Cloud Storage, as pyarrow's URIs take them.  Raises `OSError`."""
    for name in settings.keys() - set(_GOOGLE_SETTINGS):
        raise OSError(None, f"{name} is no setting of Google Cloud Storage, which has {', '.join(_GOOGLE_SETTINGS)}")
    host, scheme = endpoint_of(settings)
    return {**settings, "endpoint_override": host, "scheme": scheme} if host else dict(settings)


def endpoint_of(settings: Mapping[str, str]) -> tuple[str, str]:
    """Another server, as ``HOST:PORT`` or empty, and the scheme by which it is reached.  Raises `OSError`."""
    host, scheme = settings.get("endpoint_override"), settings.get("scheme", "https")
    if host is not None and "://" in host:
        scheme, _, host = host.partition("://")
    if scheme not in ("http", "https"):
        raise OSError(None, "scheme is neither http nor https")
    if host is not None and not host.rstrip("/"):
        raise OSError(None, "endpoint_override is empty: it is HOST:PORT of a server")
    return (host or "").rstrip("/"), scheme


def _scheme(scheme: str) -> str:
    return _SCHEMES.get(scheme.lower(), scheme.lower())


def shown_uri(uri: str) -> str:
    """A URI without what is secret in it: neither a container of Azure is that, nor who has no name."""
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
class Azure:
    """A container of an account of Azure, and how it is reached."""

    container: str
    account: str
    domain: str
    """What follows the name of the service: ``.core.windows.net``."""
    host: str | None = None
    """``HOST:PORT`` of another server, such as Azurite."""
    scheme: str = "https"
    key: str | None = field(default=None, repr=False)
    """Of the account."""
    signature: str | None = field(default=None, repr=False)
    """A shared access signature (SAS)."""
    others: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Settings that pyarrow's URIs have beside these."""

    @property
    def endpoint(self) -> str | None:
        return f"{self.scheme}://{self.host}/{self.account}" if self.host else None

    def file_system(self) -> Any:
        """The file system of pyarrow.  Raises `OSError`, also where there are no credentials."""
        if self.key is None and self.signature is None:
            return _signed_in(self._uri)
        given = {"account_key": self.key} if self.key is not None else {"sas_token": f"?{self.signature}"}
        if self.key is not None and not _is_base64(self.key):
            raise OSError(None, "the key of the account is not Base64")  # which would end the process
        try:
            from pyarrow.fs import AzureFileSystem
        except ImportError:
            raise OSError(None, "this pyarrow knows no Azure") from None
        with one_line():
            try:
                return AzureFileSystem(
                    self.account,
                    blob_storage_authority=self.host or f".blob{self.domain}",
                    dfs_storage_authority=self.host or f".dfs{self.domain}",
                    blob_storage_scheme=self.scheme,
                    dfs_storage_scheme=self.scheme,
                    **given,
                )
            except TypeError:
                raise OSError(
                    None, f"this pyarrow has no shared access signatures: {package_command('--upgrade', 'pyarrow')}"
                ) from None

    @property
    def _uri(self) -> str:
        """For pyarrow; without key and signature."""
        settings = dict(self.others)
        if self.host:
            settings |= {"blob_storage_authority": self.host, "dfs_storage_authority": self.host}
        if self.scheme == "http":
            settings["enable_tls"] = "false"
        return _queried(f"abfss://{self.container}@{self.account}.dfs{self.domain}/", settings)


def azure(uri: str, settings: Mapping[str, str]) -> Azure:
    """What a URI names, with the credentials of the environment.  Raises `OSError` where it is of another form."""
    match = URI.match(uri)
    found = _AZURE.fullmatch(match["authority"]) if match else None
    if found is None:
        raise OSError(None, f"a place in Azure is called {_AZURE_FORM}")
    if found["password"]:
        raise OSError(None, f"a key does not belong in the URI: {_KEYS[0]} takes it")
    others = {name: value for name, value in settings.items() if name not in _AZURE_SETTINGS}
    for name in others.keys() - set(_SIGNING_IN):
        raise OSError(None, f"{name} is no setting of Azure, which has {', '.join((*_AZURE_SETTINGS, *_SIGNING_IN))}")
    if _SIGNATURE.search(uri):
        raise OSError(None, f"a signature does not belong in the URI: {_SIGNATURES[0]} takes it")
    host, scheme = endpoint_of(settings)
    # Who says how to sign in means that.
    alone = any(name in others for name in _SIGNING_IN)
    key, signature = (None, None) if alone else (_given(_KEYS), _given(_SIGNATURES))
    return Azure(
        found["container"], found["account"], found["domain"], host or None, scheme,
        key, signature.lstrip("?") if signature and key is None else None, tuple(sorted(others.items())),
    )  # fmt: skip


def _is_base64(text: str) -> bool:
    try:
        return bool(b64decode(text, validate=True))
    except ValueError:
        return False


def _given(names: tuple[str, ...]) -> str | None:
    """The first variable of the environment that is set."""
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


@lru_cache(8)
def _signed_in(uri: str) -> Any:
    """A file system that signs in, or asks without a name; made once, since each asks for a token of its own."""
    from pyarrow import fs

    with one_line():
        system, _ = fs.FileSystem.from_uri(uri)
    if "credential_kind=anonymous" not in uri:
        _try_to_sign_in(uri)
    return system


def _try_to_sign_in(uri: str) -> None:
    """`OSError` where pyarrow would end the process: it does not catch what its library throws."""
    try:
        # The URI may have a secret, which no list of processes shows.
        done = subprocess.run(
            [sys.executable, "-c", _TRIAL], input=uri, capture_output=True, timeout=TRIAL_S, check=False,
            encoding="utf-8", errors="replace", env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        why = f"nothing answered within {TRIAL_S:.0f} seconds"
    else:
        if not done.returncode:
            return
        lines = [line.partition("what():")[2].strip() for line in done.stderr.splitlines() if "what():" in line]
        why = lines[-1].rstrip(".") if lines else f"trying ended with {done.returncode}"
    raise OSError(
        None,
        f"no credentials for Azure ({why}): {_KEYS[0]} or {_SIGNATURES[0]} gives some, az login signs in, and the "
        "setting credential_kind=anonymous asks without",
    )
