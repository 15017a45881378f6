"""The pytest plugin: a proxy between the clients and the broker of a test, expectations of what passes, and a stand-in.

Loaded by pytest wherever mqttscope is installed, so importing it imports nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mqttscope.api.expectations import Traffic
    from mqttscope.api.serving import StandIn
    from mqttscope.proxy import Proxy

UPSTREAM = "mqtt_upstream"
"""Name of the marker and of the setting."""
_PROXIES = pytest.StashKey[list["Proxy"]]()
_STAND_INS = pytest.StashKey[list["StandIn"]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting."""
    parser.addini(UPSTREAM, "URL of the broker that mqtt_proxy connects to, such as mqtt://127.0.0.1:1883", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Add the marker."""
    config.addinivalue_line("markers", f"{UPSTREAM}(url): the broker that mqtt_proxy connects to")


@pytest.fixture
def mqtt_proxy(request: pytest.FixtureRequest) -> Iterator[Callable[..., Proxy]]:
    """Makes recording proxies in front of a broker; they end with the test.

    ``mqtt_proxy(upstream_url)`` returns a running `mqttscope.proxy.Proxy`; without a URL that of the marker or of the
    setting ``mqtt_upstream`` counts.  Rules, suppressions, baseline, profile and what counts are those of the
    project's configuration, found from the rootdir of pytest upwards; ``config`` names another file, and ``False``
    means none.  ``select``, ``extend_select`` and ``ignore`` are as on the command line of ``mqttscope lint``;
    ``rules`` run as well unless they are ignored there.  Further arguments go to `Proxy`.
    """
    from mqttscope.proxy import Proxy

    running: list[Proxy] = request.node.stash.setdefault(_PROXIES, [])

    def make(upstream: str | None = None, *, config: str | Path | bool = True, **options: Any) -> Proxy:
        __tracebackhide__ = True
        marker = request.node.get_closest_marker(UPSTREAM)
        wanted = upstream or (marker.args[0] if marker is not None and marker.args else "")
        wanted = wanted or request.config.getini(UPSTREAM)
        if not wanted:
            raise pytest.UsageError(f"mqtt_proxy needs the URL of a broker: an argument, the marker or {UPSTREAM}")
        with _Plainly():
            judging, notes = _project(request.config.rootpath, config, options)
            proxy = Proxy(wanted, **{**judging, **options})
            proxy.notes += notes
            proxy.start()
        running.append(proxy)
        return proxy

    yield make
    for proxy in running:
        proxy.close()


@pytest.fixture
def mqtt_capture(request: pytest.FixtureRequest, mqtt_proxy: Callable[..., Proxy]) -> Callable[..., Traffic]:
    """Makes expectations of the traffic of a test: what passes a proxy, or what a capture holds.

    ``mqtt_capture()`` and ``mqtt_capture("mqtt://127.0.0.1:1883")`` return an `api.expectations.Traffic` of a proxy
    that ``mqtt_proxy`` makes with the same arguments, ``mqtt_capture(proxy)`` that of a proxy which runs, and
    ``mqtt_capture("device.pcapng")`` that of a capture, which is looked for beside the file of the test and in the
    rootdir.
    """
    from mqttscope.api.expectations import Traffic
    from mqttscope.proxy import Proxy

    def make(source: Proxy | str | os.PathLike[str] | None = None, **options: Any) -> Traffic:
        __tracebackhide__ = True
        if source is None or (isinstance(source, str) and "://" in source):
            return Traffic(mqtt_proxy(source, **options))
        if options:
            raise pytest.UsageError(f"{', '.join(options)}: these arguments are for the proxy that mqtt_capture makes")
        with _Plainly():
            return Traffic(source if isinstance(source, Proxy) else _beside(request, source))

    return make


@pytest.fixture
def mqtt_replay_broker(request: pytest.FixtureRequest) -> Iterator[Callable[..., StandIn]]:
    """Makes stand-ins for a broker, which play the server half of captures; they end with the test.

    ``mqtt_replay_broker("site.pcapng")`` returns a running `mqttscope.StandIn`; further arguments go to it.  Captures
    are looked for beside the file of the test and in the rootdir.  Answers come at once (``pace="asap"``) unless
    another pace is given.
    """
    from mqttscope.api.serving import StandIn

    running: list[StandIn] = request.node.stash.setdefault(_STAND_INS, [])

    def make(*captures: str | os.PathLike[str], **options: Any) -> StandIn:
        __tracebackhide__ = True
        with _Plainly():
            broker = StandIn(*(_beside(request, one) for one in captures), **{"pace": "asap", **options})
            broker.start()
        running.append(broker)
        return broker

    yield make
    for broker in running:
        broker.close()


def _beside(request: pytest.FixtureRequest, name: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """A capture beside the file of the test, in the rootdir, or where the process runs; a pattern as it stands.

    `CaptureNotFoundError` says where it was searched.
    """
    from mqttscope.api.reading import CaptureNotFoundError

    if not isinstance(name, str | os.PathLike) or "://" in str(name) or any(one in "*?[" for one in str(name)):
        return name
    folders = dict.fromkeys((request.path.parent, request.config.rootpath, Path.cwd()))
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    where = "" if Path(name).is_absolute() else f" in {' or in '.join(map(str, folders))}"
    raise CaptureNotFoundError(f"{os.fspath(name)} does not exist{where}")


class _Plainly:
    """Of an error of mqttscope, pytest shows the line of the test, not those of the library which raise it."""

    def __enter__(self) -> None:
        """Nothing is to be prepared."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        __tracebackhide__ = True
        from mqttscope.errors import MqttscopeError

        if isinstance(error, MqttscopeError):
            raise error.with_traceback(None) from None


def _project(folder: Path, config: str | Path | bool, options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What the project's configuration makes of `Proxy`, and what is to be said of it."""
    __tracebackhide__ = True
    import click

    from mqttscope import arguments
    from mqttscope.cli.lint import project_settings
    from mqttscope.cli.linting import read_baseline
    from mqttscope.errors import ArgumentError
    from mqttscope.lint.given_rules import chosen_rules, given_rules, names_of, selected_names

    selected = selected_names(options.pop("select", ()))
    extended, ignored = (names_of(options.pop(name, ()), name) for name in ("extend_select", "ignore"))
    added = given_rules(options.pop("rules", ()))
    own = {rule.code: type(rule) for rule in added}
    named = None if isinstance(config, bool) else str(folder / arguments.path("config", config))
    try:
        settings = project_settings(
            folder, config=named, search=config is not False, beside=own,
            select=selected, extend_select=extended, ignore=ignored,
        )  # fmt: skip
        baseline = read_baseline(settings.baseline)
    except click.ClickException as error:
        raise pytest.UsageError(f"mqttscope: {error.format_message()}") from None
    expired = [
        f"{one.written}: the suppression expired on {one.expires}; its findings count again"
        for one in settings.suppressions.expired()
    ]
    # What a project ignores does not concern the rules that a test brings along; what the test ignores does.
    rules = [*settings.rules, *(rule for rule in chosen_rules(selected, extended, ignored, added) if rule.code in own)]
    if not rules:
        raise ArgumentError(settings.no_rule)
    judging = {
        "select": [rule.code for rule in rules],
        "rules": rules,
        "policy": settings.policy(),
        "baseline": baseline,
    }
    return judging, expired


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the proxies found, and what the stand-ins say, to the report of a test that fails."""
    report = yield
    if report.when == "call" and report.failed:
        failure = "\n".join(_messages(call.excinfo.value)) if call.excinfo is not None else ""
        for proxy in item.stash.get(_PROXIES, []):
            try:
                findings = proxy.report(beside=failure)
                notes = [note for note in proxy.notes if note not in findings and note not in failure]
                section = "\n".join(filter(None, (findings, *notes)))
            except Exception as error:  # the other tests have a report to get as well
                section = f"the proxy gives no answer: {error!r}"
            if section:
                report.sections.append((f"mqttscope {proxy.address}", section))
        for broker in item.stash.get(_STAND_INS, []):
            if broker.notes:
                report.sections.append((f"mqttscope stand-in {broker.address}", "\n".join(broker.notes)))
    return report


def _messages(error: BaseException | None) -> Iterator[str]:
    """Messages of an exception, and of those that pytest shows with it."""
    while error is not None:
        yield str(error)
        if isinstance(error, BaseExceptionGroup):
            for member in error.exceptions:
                yield from _messages(member)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
