"""The pytest plugin: a proxy between clients and broker of a test, expectations of its traffic, and a stand-in broker.

pytest loads it wherever mqttscope is installed, so it imports nothing else at first.
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

    ``mqtt_proxy(upstream_url)`` returns a running `mqttscope.proxy.Proxy`; the default URL comes from the marker or the
    setting ``mqtt_upstream``.  Rules, suppressions, baseline, profile and failing severities come from the
    configuration of the project, searched from the rootdir of pytest upwards; ``config`` names another file, and
    ``False`` disables it.  ``select``, ``extend_select`` and ``ignore`` are as on the command line of
    ``mqttscope lint``; ``rules`` are additional rules, unless ignored.  Further arguments go to `Proxy`.
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
        with _ShortTracebacks():
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
    """Makes expectations of the traffic of a test, which passes a proxy or comes from a capture.

    ``mqtt_capture()`` and ``mqtt_capture("mqtt://127.0.0.1:1883")`` return an `api.expectations.Traffic` of a new
    proxy, made by ``mqtt_proxy`` with these arguments; ``mqtt_capture(proxy)`` of a running proxy; and
    ``mqtt_capture("device.pcapng")`` of a capture, which is searched next to the test file and in the rootdir.
    """
    from mqttscope.api.expectations import Traffic
    from mqttscope.proxy import Proxy

    def make(source: Proxy | str | os.PathLike[str] | None = None, **options: Any) -> Traffic:
        __tracebackhide__ = True
        if source is None or (isinstance(source, str) and "://" in source):
            return Traffic(mqtt_proxy(source, **options))
        if options:
            raise pytest.UsageError(f"{', '.join(options)}: these arguments are for the proxy that mqtt_capture makes")
        with _ShortTracebacks():
            return Traffic(source if isinstance(source, Proxy) else _beside(request, source))

    return make


@pytest.fixture
def mqtt_replay_broker(request: pytest.FixtureRequest) -> Iterator[Callable[..., StandIn]]:
    """Makes stand-ins for a broker, which play the server side of captures; they end with the test.

    ``mqtt_replay_broker("site.pcapng")`` returns a running `mqttscope.StandIn`; further arguments go to it.  Captures
    are searched next to the test file and in the rootdir.  Answers are sent at once (``pace="asap"``) by default.
    """
    from mqttscope.api.serving import StandIn

    running: list[StandIn] = request.node.stash.setdefault(_STAND_INS, [])

    def make(*captures: str | os.PathLike[str], **options: Any) -> StandIn:
        __tracebackhide__ = True
        with _ShortTracebacks():
            broker = StandIn(*(_beside(request, capture) for capture in captures), **{"pace": "asap", **options})
            broker.start()
        running.append(broker)
        return broker

    yield make
    for broker in running:
        broker.close()


def _beside(request: pytest.FixtureRequest, name: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Find a capture next to the test file, in the rootdir, or in the working directory; patterns stay unchanged.

    `CaptureNotFoundError` lists the searched folders.
    """
    from mqttscope.api.reading import CaptureNotFoundError

    if (
        not isinstance(name, str | os.PathLike)
        or "://" in str(name)
        or any(wildcard in "*?[" for wildcard in str(name))
    ):
        return name
    folders = dict.fromkeys((request.path.parent, request.config.rootpath, Path.cwd()))
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    where = "" if Path(name).is_absolute() else f" in {' or in '.join(map(str, folders))}"
    raise CaptureNotFoundError(f"{os.fspath(name)} does not exist{where}")


class _ShortTracebacks:
    """Removes library frames from errors of mqttscope, so that pytest shows the line of the test."""

    def __enter__(self) -> None:
        """Enter the context."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        __tracebackhide__ = True
        from mqttscope.errors import MqttscopeError

        if isinstance(error, MqttscopeError):
            raise error.with_traceback(None) from None


def _project(folder: Path, config: str | Path | bool, options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Arguments of `Proxy` from the configuration of the project, and remarks on it."""
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
        f"{pattern.written}: the suppression expired on {pattern.expires} and has no effect"
        for pattern in settings.suppressions.expired()
    ]
    # Rules of the test are not affected by what the project ignores, only by what the test ignores.
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
    """Add findings of proxies and notes of stand-ins to the report of a failed test."""
    report = yield
    if report.when == "call" and report.failed:
        failure = "\n".join(_messages(call.excinfo.value)) if call.excinfo is not None else ""
        for proxy in item.stash.get(_PROXIES, []):
            try:
                findings = proxy.report(beside=failure)
                notes = [note for note in proxy.notes if note not in findings and note not in failure]
                section = "\n".join(filter(None, (findings, *notes)))
            except Exception as error:  # reports of other tests must not suffer
                section = f"the proxy does not answer: {error!r}"
            if section:
                report.sections.append((f"mqttscope {proxy.address}", section))
        for broker in item.stash.get(_STAND_INS, []):
            if broker.notes:
                report.sections.append((f"mqttscope stand-in {broker.address}", "\n".join(broker.notes)))
    return report


def _messages(error: BaseException | None) -> Iterator[str]:
    """Messages of an exception, and of the exceptions that pytest shows with it."""
    while error is not None:
        yield str(error)
        if isinstance(error, BaseExceptionGroup):
            for member in error.exceptions:
                yield from _messages(member)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
