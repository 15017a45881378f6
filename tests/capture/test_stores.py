"""What a URI and settings lead to, and what is said where they lead nowhere; the stores themselves are not needed."""

from __future__ import annotations

import pytest

from tests import tools

tools.package("pyarrow")

from mqttscope.capture import stores
from mqttscope.capture.stores import AzureContainer, azure, file_system, one_line, shown_uri
from tests.each import each

KEY = "c2VjcmV0"
PLACE = "abfss://box@me.dfs.core.windows.net/a/b"
VARIABLES = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN")


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@each("uri, settings, wanted", [
    (PLACE, {}, AzureContainer("box", "me", ".core.windows.net")),
    ("wasbs://box@me.blob.core.chinacloudapi.cn", {}, AzureContainer("box", "me", ".core.chinacloudapi.cn")),
    (
        PLACE, {"endpoint_override": "h:1", "scheme": "http"},
        AzureContainer("box", "me", ".core.windows.net", "h:1", "http"),
    ),
    (PLACE, {"endpoint_override": "http://h:1/"}, AzureContainer("box", "me", ".core.windows.net", "h:1", "http")),
    (PLACE, {"client_id": "1"}, AzureContainer("box", "me", ".core.windows.net", others=(("client_id", "1"),))),
])  # fmt: skip
def test_what_a_uri_of_azure_names(uri: str, settings: dict[str, str], wanted: AzureContainer) -> None:
    assert azure(uri, settings) == wanted


@each("uri, settings, expected", [
    ("abfss://box/a", {}, "the form of a URI for Azure is abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"),
    ("abfss://box@me:80/a", {}, "the form of a URI for Azure is "),
    ("abfss://box:s3cret@me.dfs.core.windows.net/a", {}, "a key does not belong in the URI: set AZURE_STORAGE_ACCOUNT"),
    (PLACE, {"scheme": "ftp"}, "scheme must be http or https"),
    (PLACE, {"endpoint_override": ""}, "endpoint_override is empty; it must be HOST:PORT of a server"),
    (f"{PLACE}?sv=1&sig=s3cret", {}, "a signature does not belong in the URI: set AZURE_STORAGE_SAS_TOKEN"),
    (PLACE, {"region": "x"}, r"region is not a setting of Azure \(endpoint_override, scheme, credential_kind"),
])  # fmt: skip
def test_what_is_no_place_in_azure(uri: str, settings: dict[str, str], expected: str) -> None:
    with pytest.raises(OSError, match="^\\[Errno None\\] " + expected) as caught:
        file_system(uri, settings)
    assert "s3cret" not in str(caught.value)


@each("settings, expected", [
    ({"scheme": "ftp"}, "scheme must be http or https"),
    ({"endpoint_override": ""}, "endpoint_override is empty; it must be HOST:PORT of a server"),
    ({"region": "x"}, r"region is not a setting of Google Cloud Storage \(endpoint_override, scheme, retry_limit"),
])  # fmt: skip
def test_what_is_no_setting_of_google(settings: dict[str, str], expected: str) -> None:
    with pytest.raises(OSError, match="^\\[Errno None\\] " + expected):
        file_system("gs://anonymous@box/a", settings)


def test_credentials_of_azure_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=s3cret")
    container = azure(PLACE, {})
    assert (container.key, container.signature) == (None, "sv=1&sig=s3cret")
    for name in ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"):
        monkeypatch.setenv(name, f"{KEY}{len(name)}")
        container = azure(PLACE, {})
        assert (container.key, container.signature) == (f"{KEY}{len(name)}", None)
        assert KEY not in repr(container)
    # Who says how to sign in means that.
    container = azure(PLACE, {"credential_kind": "cli"})
    assert (container.key, container.signature) == (None, None)


def test_without_credentials_for_azure_the_process_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow alone would end it in both cases."""
    nobody = {"endpoint_override": "127.0.0.1:9", "scheme": "http"}
    with pytest.raises(OSError, match=r"no credentials for Azure \(.+\): set AZURE_STORAGE_ACCOUNT_KEY or .* az login"):
        file_system(PLACE, nobody | {"credential_kind": "environment"})
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "not base64!")
    with pytest.raises(OSError, match="the key of the account is not Base64"):
        file_system(PLACE, nobody)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    system, path = file_system(PLACE, nobody)
    assert (system.type_name, path) == ("abfs", "box/a/b")


@each("uri, settings, kind, path", [
    ("gs://anonymous@box/a b", {"endpoint_override": "127.0.0.1:9"}, "gcs", "box/a b"),
    ("gs://anonymous@box/a", {"endpoint_override": "http://127.0.0.1:9/"}, "gcs", "box/a"),
    ("gcs://anonymous@box", {}, "gcs", "box/"),
    ("s3a://box//a?b", {"region": "x"}, "s3", "box/a?b"),
])  # fmt: skip
def test_what_pyarrow_makes_of_other_uris(uri: str, settings: dict[str, str], kind: str, path: str) -> None:
    system, text = file_system(uri, settings)
    assert (system.type_name, text) == (kind, path)


@each("uri, shown", [
    (PLACE, PLACE),
    (f"{PLACE}?sig=s3cret", f"{PLACE}?sig=***"),
    ("abfss://box:s3cret@me.dfs.core.windows.net/a", "abfss://***@me.dfs.core.windows.net/a"),
    ("gs://anonymous@box/a", "gs://anonymous@box/a"),
    ("gs://s3cret@box/a", "gs://***@box/a"),
    ("s3://s3cret@box/a", "s3://***@box/a"),
    ("box", "box"),
])  # fmt: skip
def test_what_is_shown_of_a_uri(uri: str, shown: str) -> None:
    assert shown_uri(uri) == shown
    assert "s3cret" not in shown


GOOGLE = (
    "google::cloud::Status(UNAVAILABLE: Retry policy exhausted, with a last message of {} error_info={{reason=, "
    "metadata={{gcloud-cpp.retry.original-message=x}}}})"
)
TOKEN = (
    "Could not create a OAuth2 access token to authenticate the request. The request was not sent. "
    "The underlying error message was: Cannot open credentials file /x"
)


@each("error, expected", [
    (OSError(GOOGLE.format("Could not connect to server")), "Could not connect to server"),
    (ValueError(GOOGLE.format(TOKEN)), "no credentials for Google Cloud Storage (Cannot open credentials file /x): "),
    (OSError("GetProperties for 'http://h/x' failed. Azure Error: [AuthorizationFailure] 403 No.\nMore"), "403 No."),
    (OSError("one\ntwo"), "one"),
    (NotImplementedError(), "NotImplementedError"),
])  # fmt: skip
def test_errors_in_one_line(error: Exception, expected: str) -> None:
    with pytest.raises(OSError) as caught, one_line():  # noqa: PT011 - what it says is looked at below
        raise error
    assert str(caught.value.strerror).startswith(expected)
    assert "gcloud-cpp" not in str(caught.value)


def test_errors_of_arrow_that_are_no_errors_of_the_system() -> None:
    from pyarrow.lib import ArrowException

    with pytest.raises(OSError, match="Unknown"), one_line():
        raise ArrowException("Unknown error: x")
    with pytest.raises(FileNotFoundError, match="does not exist"), one_line():
        raise FileNotFoundError("gone")
    with pytest.raises(KeyError), one_line():
        raise KeyError("x")


def test_what_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_TRIAL", "input()")
    stores._try_to_sign_in("abfss://box@me.dfs.core.windows.net/")
    monkeypatch.setattr(stores, "_TRIAL", "import time; time.sleep(60)")
    monkeypatch.setattr(stores, "TRIAL_S", 0.1)

    with pytest.raises(OSError, match=r"no credentials for Azure \(no answer within 0 seconds\)"):
        stores._try_to_sign_in("abfss://box@me.dfs.core.windows.net/")
