"""Fixtures and paths that all tests share."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests import corpora, tools

# A machine that is busy is no fault of what is tested.
settings.register_profile("mqttscope", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mqttscope")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in background jobs of scripts: programs that are started from here would ignore Ctrl-C, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent

OF_SURROUNDINGS = re.compile(
    # What programs write depends on it: pytest, Rich and mqttscope.
    "CI|BUILD_NUMBER|PYTEST_(ADDOPTS|THEME.*|PLUGINS)|PY_COLORS|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|COLORTERM|TTY_.*"
    "|SSLKEYLOGFILE|MQTTSCOPE_(BROKER|COMPLETE|CONFIG|MASTER|PASSWORD|REDACT_KEY|TRACEBACK|USER)"
    # Where stores and clusters are.
    "|MASTER|(AWS|AZURE|GOOGLE|HADOOP|PYSPARK|SPARK)_.*"
)
"""Variables that say something to the programs under test, and may be set where the tests run: by a user's shell or by
continuous integration.  Tests set those they are about."""

SLOW = (
    "corpus/",
    "fuzz/",
    # These start programs.
    "cli/test_hostile.py",
    "cli/test_main.py",
    "cli/test_output.py",
    "cli/test_proxy.py",
    "cli/test_replay_failures.py",
    "cli/test_serve.py",
    "cli/test_sniff.py",
    "cli/test_sources.py",
    # These start Spark; those that use the fixture are slow as well.
    "spark/test_cluster.py",
    "spark/test_connect.py",
    "spark/test_session.py",
    "spark/test_watch_kills.py",
    "test_ci_examples.py",
    "test_docs.py",
    "test_generated.py",
    "test_pytest_plugin.py",
    # These try very many packets.
    "lint/test_cut_packets.py",
    "lint/test_mutations.py",
)
"""What is not part of the quick check."""


EXHAUSTIVE = bool(os.environ.get("MQTTSCOPE_EXHAUSTIVE"))
"""Whether to try everything, for hours of processor time, where a part shows nearly as much."""


THOROUGH = EXHAUSTIVE or bool(os.environ.get("MQTTSCOPE_THOROUGH"))
"""Whether tests of properties try all the examples that they should: ``make test-long`` runs them once more."""


def pytest_configure() -> None:
    """Forget what the surroundings say to programs."""
    for name in list(os.environ):
        if OF_SURROUNDINGS.fullmatch(name):
            del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests, and leave out those that take minutes."""
    for item in items:
        place = item.path.relative_to(ROOT / "tests").as_posix()
        if is_hypothesis_test(getattr(item, "function", None)):
            item.add_marker(pytest.mark.examples)
        if not EXHAUSTIVE and item.get_closest_marker("exhaustive"):
            item.add_marker(pytest.mark.skip(reason="takes minutes; MQTTSCOPE_EXHAUSTIVE=1 runs it"))
        if place.startswith(SLOW) or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Spare the collector of garbage the tests themselves: there are very many of them, and they stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip or fail a test whose corpora are absent."""
    corpora.prepare(item)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test in an event loop of its own; an error that the loop would only print is a failure."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    errors: list[dict[str, Any]] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        await pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames})

    asyncio.run(run())
    assert errors == []
    return True


@pytest.fixture(scope="session")
def bucket() -> Iterator[tuple[Any, dict[str, str]]]:
    """A store that speaks S3, on this machine: a client for it, and the settings that lead to it."""
    moto = tools.package("moto.server")
    import boto3

    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    before = dict(os.environ)
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
    try:
        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
        client.create_bucket(Bucket="captures")
        yield client, {"endpoint_override": f"{host}:{port}", "scheme": "http", "region": "us-east-1"}
        client.close()
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.stop()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """`tests.proxy.rig.Certificates`."""
    from tests.proxy import rig

    with rig.certificates(tmp_path_factory.mktemp("tls")) as new_certificates:
        yield new_certificates
