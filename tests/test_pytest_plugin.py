"""The plugin as pytest loads it, in a run of its own; the example of docs/pytest.md among the tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forked, tools
from tests.cli.running import capture, environment, invoke
from tests.conftest import ROOT
from tests.each import some
from tests.proxy import rig
from tests.test_structure import imports

PAGE = (ROOT / "docs" / "pytest.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
CONFTEST = """\
import pytest

@pytest.fixture
def broker_port():
    return {port}
"""
PREAMBLE = """\
import socket
from tests.each import some

CONNECT = bytes.fromhex("100e00044d5154540402003c000264 31".replace(" ", ""))
WILDCARD = bytes.fromhex("30060003612f2378")


def misbehave(port):
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(CONNECT)
        assert client.recv(4) == b"\\x20\\x02\\0\\0"
        client.sendall(WILDCARD)
        assert client.recv(1) == b""


"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rig.Broker]:
    with rig.mosquitto(tmp_path_factory.mktemp("broker")) as running:
        yield running


MISBEHAVES = PREAMBLE + (
    "def test_it(mqtt_proxy, broker_port):\n"
    "    proxy = mqtt_proxy(f'mqtt://127.0.0.1:{broker_port}'%s)\n"
    "    misbehave(proxy.port)\n"
)
CONFORMS = f"{MISBEHAVES}    proxy.assert_conformant()\n"


def run(folder: Path, test: str, *, port: int = 1, settings: str = "", conftest: str = CONFTEST) -> str:
    """What pytest says of a test file; of all plugins it has just this one."""
    (folder / "conftest.py").write_text(conftest.replace("{port}", str(port)))
    (folder / "test_it.py").write_text(test)
    (folder / "pytest.ini").write_text(f"[pytest]\naddopts = --strict-markers --strict-config\n{settings}\n")
    alone = environment({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    done = forked.run(
        [sys.executable, "-m", "pytest", "-p", "mqttscope.pytest_plugin", "-p", "no:cacheprovider", "-W", "error", "."],
        cwd=folder, env=alone, text=True, timeout=60,
    )  # fmt: skip
    return str(done.stdout + done.stderr)


@pytest.mark.broker
def test_the_examples_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The path of users who are not root has no /usr/sbin.
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{Path(tools.program('mosquitto')).parent}")
    tools.package("paho.mqtt.client")
    (tmp_path / "site.pcapng").write_bytes(capture("v311-qos").read_bytes())
    tests = [example for example in EXAMPLES if "def test_the_device" in example]
    assert len(tests) == 3
    (conftest,) = [example for example in EXAMPLES if "def broker_port" in example]
    text = run(tmp_path, "\n\n".join(tests), conftest=conftest)

    assert "3 passed" in text, text


@pytest.mark.broker
def test_a_client_that_misbehaves_fails_the_test(tmp_path: Path, broker: rig.Broker) -> None:
    text = run(tmp_path, CONFORMS % "", port=broker.port)

    assert "1 failed" in text
    assert "error[PUB103]: PUBLISH topic name 'a/#' has the wildcard '#'" in text
    assert "breaks 3.1.1 MQTT-3.3.2-2" in text
    # On a busy machine a section may say that findings came late.
    assert text.count("error[PUB103]") == 1, text
    # The lines of the test are shown, and none of the proxy.
    assert ">       proxy.assert_conformant()" in text or ">   proxy.assert_conformant()" in text
    for other in ("raise AssertionError", "service.py", "pytest_plugin.py"):
        assert other not in text


@pytest.mark.broker
@pytest.mark.parametrize(
    "failing",
    [
        "proxy.assert_conformant()",
        "traffic.never('PUB')",
        "try_and_raise(ValueError, proxy)",
        "try_and_raise(lambda text: ExceptionGroup('several', [KeyError(), AssertionError(text)]), proxy)",
    ],
    ids=["assert_conformant", "never", "with a cause", "in a group"],
)
def test_a_section_has_only_what_came_after_the_failure(failing: str, tmp_path: Path, broker: rig.Broker) -> None:
    test = PREAMBLE + (
        "def try_and_raise(make, proxy):\n"
        "    try:\n"
        "        proxy.assert_conformant()\n"
        "    except AssertionError as error:\n"
        "        raise make(str(error))\n"
        "def test_it(mqtt_capture, broker_port):\n"
        "    traffic = mqtt_capture(f'mqtt://127.0.0.1:{broker_port}')\n"
        "    proxy = traffic.proxy\n"
        "    misbehave(proxy.port)\n"
        "    proxy.notes.append('the first note')\n"
        "    try:\n"
        f"        {failing}\n"
        "    finally:\n"
        "        proxy.notes.append('findings come 1.2 s late')\n"
        "        misbehave(proxy.port)\n"
    )
    text = run(tmp_path, test, port=broker.port)

    failure, _, section = text.partition("- mqttscope 127.0.0.1:")
    places = [re.findall(r"^(?:E +| +)127\.0\.0\.1:\d+: (frame \d+),", part, re.M) for part in (failure, section)]
    assert [len(set(frames)) for frames in places] == [1, 1], text
    assert not set(places[0]) & set(places[1]), text
    assert section.count("error[PUB103]") == 1
    assert "1 error by " in section
    assert section.count("the first note") == section.count("findings come 1.2 s late") == 1


@pytest.mark.broker
def test_a_failure_that_was_expected_hides_no_findings(tmp_path: Path, broker: rig.Broker) -> None:
    test = MISBEHAVES % "" + (
        "    import pytest\n"
        "    with pytest.raises(AssertionError):\n"
        "        proxy.assert_conformant()\n"
        "    raise RuntimeError('another reason')\n"
    )
    text = run(tmp_path, test, port=broker.port)

    assert text.partition("- mqttscope 127.0.0.1:")[2].count("error[PUB103]") == 1, text


@pytest.mark.broker
def test_findings_are_shown_when_a_test_fails_for_another_reason(tmp_path: Path, broker: rig.Broker) -> None:
    fine = (MISBEHAVES % "").removeprefix(PREAMBLE).replace("test_it", "test_fine")
    text = run(tmp_path, MISBEHAVES % "" + "    assert 'this' == 'that'\n" + fine, port=broker.port)

    assert "1 failed, 1 passed" in text
    assert re.search(r"^-+ mqttscope 127\.0\.0\.1:\d+ -+$", text, re.M)
    assert text.count("error[PUB103]") == 1


@pytest.mark.long
@pytest.mark.broker
def test_the_broker_may_be_in_the_settings_or_at_the_marker(tmp_path: Path, broker: rig.Broker) -> None:
    test = PREAMBLE + (
        "import pytest\n"
        "def test_setting(mqtt_proxy):\n"
        "    misbehave(mqtt_proxy(ignore=['PUB103']).port)\n"
        f"@pytest.mark.mqtt_upstream('mqtt://127.0.0.1:{broker.port}')\n"
        "def test_marker(mqtt_proxy):\n"
        "    proxies = [mqtt_proxy(), mqtt_proxy()]\n"
        "    for proxy in proxies:\n"
        "        misbehave(proxy.port)\n"
        "        assert [one.rule for one in proxy.findings()] == ['PUB103']\n"
    )
    text = run(tmp_path, test, settings=f"mqtt_upstream = mqtt://127.0.0.1:{broker.port}")

    assert "2 passed" in text


def test_loading_the_plugin_loads_nothing_else() -> None:
    script = (
        "import sys, mqttscope.pytest_plugin as plugin\n"
        "print(*sorted(name for name in sys.modules if name.startswith('mqttscope')), plugin.UPSTREAM)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.split() == ["mqttscope", "mqttscope.errors", "mqttscope.pytest_plugin", "mqtt_upstream"]


@pytest.mark.long
def test_nothing_else_needs_pytest() -> None:
    needing = [path.name for path in (ROOT / "mqttscope").rglob("*.py") if "pytest" in imports(path)]
    assert needing == ["pytest_plugin.py"]


def test_pytest_finds_the_plugin() -> None:
    assert 'pytest11]\nmqttscope = "mqttscope.pytest_plugin"' in (ROOT / "pyproject.toml").read_text("utf-8")


def test_a_proxy_without_an_answer_is_the_trouble_of_one_test(tmp_path: Path, broker: rig.Broker) -> None:
    text = run(
        tmp_path,
        "def test_it(mqtt_proxy, broker_port):\n"
        "    proxy = mqtt_proxy(f'mqtt://127.0.0.1:{broker_port}')\n"
        "    def silent(**_):\n"
        "        raise TimeoutError\n"
        "    proxy.report = silent\n"
        "    assert False\n\n"
        "def test_fine():\n"
        "    pass\n",
        port=broker.port,
    )

    assert "the proxy does not answer: TimeoutError()" in text
    assert "1 failed, 1 passed" in text


@pytest.mark.broker
@pytest.mark.parametrize(
    ("name", "text"),
    some(
        [
            ("mqttscope.toml", '[lint]\nignore = ["PUB103"]\n'),
            ("pyproject.toml", '[tool.mqttscope.lint]\nignore = ["PUB103"]\n'),
            ("../mqttscope.toml", '[lint]\nignore = ["PUB103"]\n'),
            ("mqttscope.toml", '[lint.per-topic-ignores]\n"a/#" = ["PUB"]\n'),
            ("mqttscope.toml", '[[lint.suppress]]\nrules = ["PUB103"]\nclient = "d*"\nreason = "known"\n'),
        ],
        3,
        several=True,
    ),
    ids=["own", "shared", "upwards", "by topic", "suppressed"],
)
def test_the_configuration_of_the_project_counts(name: str, text: str, tmp_path: Path, broker: rig.Broker) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / name).write_text(text)
    both = (
        CONFORMS % "" + "\n\n" + (CONFORMS % ", config=False").removeprefix(PREAMBLE).replace("test_it", "test_without")
    )
    shown_text = run(folder, both, port=broker.port)

    assert "1 failed, 1 passed" in shown_text
    assert "FAILED test_it.py::test_without" in shown_text


@pytest.mark.broker
def test_the_baseline_and_the_profile_of_the_project_count(tmp_path: Path, broker: rig.Broker) -> None:
    (tmp_path / "mqttscope.toml").write_text('[lint]\nbaseline = "known.json"\n')
    test = (CONFORMS % "").replace("    proxy.assert", "    proxy.write('it.pcapng')\n    proxy.assert")
    assert "known.json: No such file or directory; --update-baseline" in run(tmp_path, test, port=broker.port)
    (tmp_path / "mqttscope.toml").write_text("")
    assert "1 failed" in run(tmp_path, test, port=broker.port)
    done = invoke("lint", tmp_path / "it.pcapng", "--baseline", tmp_path / "known.json", "--update-baseline")
    assert done.code == 0, done.err
    (tmp_path / "mqttscope.toml").write_text('[lint]\nbaseline = "known.json"\n')
    assert "1 passed" in run(tmp_path, test, port=broker.port)

    profile = 'dated = 2026-11-21\ntitle = "Ours"\n[limits]\nminimum_keep_alive = 1000\n'
    (tmp_path / "ours.toml").write_text(profile)
    (tmp_path / "mqttscope.toml").write_text('[lint]\nprofile = "ours.toml"\nignore = ["PUB103"]\nfail-on = "info"\n')
    text = run(tmp_path, test, port=broker.port)
    assert "1 failed" in text
    assert "Ours (2026-11-21)" in text


@pytest.mark.long
@pytest.mark.broker
def test_arguments_come_before_the_configuration(tmp_path: Path, broker: rig.Broker) -> None:
    (tmp_path / "mqttscope.toml").write_text('[lint]\nignore = ["PUB103"]\n')

    assert "1 failed" in run(tmp_path, CONFORMS % ", select=['PUB']", port=broker.port)
    (tmp_path / "other.toml").write_text("")
    assert "1 failed" in run(tmp_path, CONFORMS % ", config='other.toml'", port=broker.port)


def test_rules_that_are_given_run_beside_those_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "mqttscope.toml").write_text('[lint]\nselect = ["ALL"]\nignore = ["ALL"]\n')
    (tmp_path / "one.toml").write_text('[lint]\nselect = ["PUB101"]\nignore = ["KAL201"]\n')
    text = run(
        tmp_path,
        "import pytest\n"
        "import mqttscope.errors\n"
        "from mqttscope.lint.catalogue import find\n"
        "def test_it(mqtt_proxy):\n"
        "    broker = 'mqtt://127.0.0.1:9'\n"
        "    for given in ({}, {'select': ['PUB101'], 'ignore': ['PUB101']}, {'select': []}):\n"
        "        with pytest.raises(mqttscope.errors.ArgumentError, match='no rule is left to check with'):\n"
        "            mqtt_proxy(broker, **given)\n"
        "    assert mqtt_proxy(broker, config='one.toml').rules == ['PUB101']\n"
        "    given = mqtt_proxy(broker, config='one.toml', rules=[find('KAL201')]).rules\n"
        "    assert given == ['KAL201', 'PUB101'], given\n",
    )
    assert "1 passed" in text, text


def test_rules_of_ones_own_are_selected_and_ignored_by_name(tmp_path: Path) -> None:
    (tmp_path / "mqttscope.toml").write_text('[lint]\nselect = ["PUB101"]\n')
    text = run(
        tmp_path,
        "from mqttscope.lint.finding import Severity\n"
        "from mqttscope.lint.rule import Rule\n"
        "from mqttscope.mqtt.packets import Publish\n"
        "class OwnRule(Rule):\n"
        "    'What this project wants.'\n"
        "    code, slug, severity, looks_at = 'OWN101', 'own-rule', Severity.ERROR, Publish\n"
        "    def check(self, packet, at):\n"
        "        return ()\n"
        "def test_it(mqtt_proxy):\n"
        "    def rules(**options):\n"
        "        return mqtt_proxy('mqtt://127.0.0.1:9', **options).rules\n"
        "    assert rules(rules=[OwnRule]) == ['PUB101', 'OWN101']\n"
        "    assert rules(rules=[OwnRule], select=['OWN']) == ['OWN101']\n"
        "    assert rules(rules=[OwnRule], select=['own-rule', 'KAL201']) == ['KAL201', 'OWN101']\n"
        "    assert rules(rules=[OwnRule], ignore=['OWN101']) == ['PUB101']\n"
        "    assert rules(rules=[OwnRule], ignore=['ALL']) == ['PUB101']\n"
        "    assert rules(rules=[OwnRule()], ignore=['PUB101']) == ['OWN101']\n",
    )
    assert "1 passed" in text, text


def test_a_wrong_configuration_is_said(tmp_path: Path) -> None:
    (tmp_path / "mqttscope.toml").write_text("[lint]\nselct = []\n")
    text = run(tmp_path, CONFORMS % "")

    assert "mqttscope.toml: lint.selct is an unknown key; did you mean select?" in text


@pytest.mark.broker
def test_an_expired_suppression_is_said_with_what_it_does_not_suppress(tmp_path: Path, broker: rig.Broker) -> None:
    entry = '[[lint.suppress]]\nrules = ["PUB103"]\nreason = "known"\nexpires = 2020-01-01\n'
    (tmp_path / "mqttscope.toml").write_text(entry)
    text = run(tmp_path, CONFORMS % "", port=broker.port)

    assert "1 failed" in text
    assert "the suppression expired on 2020-01-01 and has no effect" in text


def test_a_test_whose_client_never_connects_fails(tmp_path: Path) -> None:
    text = run(
        tmp_path,
        "def test_it(mqtt_proxy):\n"
        "    mqtt_proxy('mqtt://127.0.0.1:1').assert_conformant()\n"
        "def test_allowed(mqtt_proxy):\n"
        "    mqtt_proxy('mqtt://127.0.0.1:1').assert_conformant(require_packets=0)\n",
    )

    assert "1 failed, 1 passed" in text
    assert "nothing to judge: no client connected to 127.0.0.1:" in text


EXPECTS = (
    "def test_it(mqtt_capture, broker_port):\n"
    "    traffic = mqtt_capture(f'mqtt://127.0.0.1:{broker_port}'%s)\n"
    "    misbehave(traffic.port)\n"
    "    traffic.%s\n"
)


@pytest.mark.broker
def test_expectations_of_what_passes_a_proxy(tmp_path: Path, broker: rig.Broker) -> None:
    calls = {
        "expect('publish', topic='a/b', timeout=0.2)": "no packet passed with type 'publish', topic 'a/b'",
        "never('PUB')": "error[PUB103]: PUBLISH topic name 'a/#' has the wildcard '#'",
        "absent('connack')": "1 packet passed with type 'connack'",
        "assert_conformant()": "the traffic does not conform",
        "never('OPS')": "ArgumentError: OPS does not run",
        "never('PUB999')": "UnknownRuleError: 'PUB999' is not a rule code",
    }
    cases = [EXPECTS % ("", call) for call in calls]
    cases += [
        EXPECTS % (", extend_select=['OPS']", "never('OPS107')"),
        EXPECTS % ("", "expect('publish', payload='x')"),
    ]
    tests = [case.replace("test_it", f"test_{at}") for at, case in enumerate(cases)]
    text = run(tmp_path, PREAMBLE + "\n".join(tests), port=broker.port)

    assert f"{len(calls)} failed, 2 passed" in text, text
    for other_call in calls.values():
        assert other_call in text
    for module in ("expectations.py", "catalogue.py", "service.py"):
        assert module not in text, "its lines are left out of the traceback"


def test_expectations_of_captures(tmp_path: Path) -> None:
    (tmp_path / "device.pcapng").write_bytes(capture("planted-violations").read_bytes())
    test = (
        "import mqttscope, pytest\n"
        "def test_beside(mqtt_capture):\n"
        "    assert mqtt_capture('device.pcapng').expect('connect').client_identifier == 'faulty'\n"
        "def test_elsewhere(mqtt_capture, tmp_path):\n"
        "    with pytest.raises(mqttscope.CaptureNotFoundError):\n"
        "        mqtt_capture('nix.pcapng')\n"
        "def test_of_a_proxy(mqtt_capture, mqtt_proxy):\n"
        "    proxy = mqtt_proxy('mqtt://127.0.0.1:1')\n"
        "    assert mqtt_capture(proxy).proxy is proxy\n"
        "def test_options(mqtt_capture):\n"
        "    mqtt_capture('device.pcapng', select=['PUB'])\n"
        "def test_fails(mqtt_capture):\n"
        "    mqtt_capture('device.pcapng').never('PUB101')\n"
    )
    text = run(tmp_path, test)

    assert "2 failed, 3 passed" in text, text
    assert "select: these arguments are for the proxy that mqtt_capture makes" in text
    assert "error[PUB101]" in text


def test_a_stand_in_plays_the_broker(tmp_path: Path) -> None:
    (tmp_path / "site.pcapng").write_bytes(capture("v311-qos").read_bytes())
    test = (
        "import mqttscope\n"
        "def test_same(mqtt_replay_broker):\n"
        "    broker = mqtt_replay_broker('site.pcapng', pace='causal')\n"
        "    assert mqttscope.Replay('site.pcapng', broker=broker.url, pace='causal').run().ok\n"
        "    assert broker.finish().differences == []\n"
        "def test_other(mqtt_replay_broker):\n"
        "    broker = mqtt_replay_broker('site.pcapng')\n"
        "    for _ in range(3):\n"
        "        misbehave(broker.port)\n"
        "    assert broker.finish(0.1).differences == []\n"
        "def test_not_looked_at(mqtt_replay_broker):\n"
        "    mqtt_replay_broker('site.pcapng')\n"
    )
    text = run(tmp_path, PREAMBLE + test)

    assert "1 failed, 2 passed" in text, text
    assert "mqttscope stand-in 127.0.0.1:" in text
    assert "the recording has no (further) connection for this client" in text


WRONG = {
    "mqtt_replay_broker('site.pcapng')": "CaptureNotFoundError: site.pcapng does not exist in {folder}",
    "mqtt_capture('nofile.pcapng')": "CaptureNotFoundError: nofile.pcapng does not exist in {folder}",
    "mqtt_proxy('mqtt://127.0.0.1:9', rules=[int])": "ArgumentError: <class 'int'> is not a rule",
    "mqtt_replay_broker('test_it.py')": "NothingRecordedError: no connection can be replayed; ",
    "mqtt_proxy()": "mqtt_proxy needs the URL of a broker: an argument, the marker or mqtt_upstream",
    **{
        f"mqtt_proxy('mqtt://127.0.0.1:9', config={config!r})": "ArgumentError: config must be the path of a file"
        for config in (5, None, "")
    },
}
"""Calls of fixtures, and what is said of them."""


def test_what_is_asked_wrongly_is_one_line_and_none_of_the_library(tmp_path: Path) -> None:
    tests = [f"def test_{at}({call.partition('(')[0]}):\n    {call}\n" for at, call in enumerate(WRONG)]
    text = run(tmp_path, "".join(tests))

    assert f"{len(WRONG)} failed" in text
    for reported_text in WRONG.values():
        assert reported_text.format(folder=tmp_path) in text
    assert text.count("ArgumentError: config must be the path of a file") >= 3, text
    for source in ("pytest_plugin.py", "given_rules.py", "recorded.py", "captures.py", "contextlib.py", "raise "):
        assert source not in text, text
