"""What tests expect of traffic: of captures here, of proxies in tests/test_pytest_plugin.py as well."""

from __future__ import annotations

import threading
import time

import pytest

import mqttscope
from tests.cli.running import capture

QOS = capture("v5-qos")


def test_what_passed_is_found() -> None:
    traffic = mqttscope.Traffic(QOS)

    assert traffic.expect().type == "connect"
    first = traffic.expect("publish", topic="plant/+/temperature", payload="21.1", client_identifier="logger")
    assert (first.payload, first.direction) == (b"21.1", "server_to_client")
    assert traffic.expect("publish", payload=b"21.0", direction="client_to_server", count=1).topic is not None
    assert len(traffic.packets("publish", where=lambda each: getattr(each.packet, "qos", 0) == 2)) == 2
    traffic.absent("publish", topic="plant/+/alarm")
    traffic.never("PUB", "CON101", "keepalive-exceeded", "OPS105")
    traffic.assert_conformant()
    assert traffic.findings() == list(mqttscope.lint(QOS))


def test_a_failure_says_what_passed_instead() -> None:
    traffic = mqttscope.Traffic(QOS)
    begun = time.monotonic()
    with pytest.raises(AssertionError) as caught:
        traffic.expect("publish", topic="a/b", payload="x", where=lambda each: True)
    assert time.monotonic() - begun < 3, "a capture is not waited for"
    text = str(caught.value)
    assert text.startswith("no packet passed with type 'publish', topic 'a/b', payload 'x', the predicate where\n")
    assert "passed: 6 publish, " in text
    assert "  4 more before\n" in text
    assert "'sensor-1' -> PUBLISH 'plant/line1/temperature'\n" in text

    with pytest.raises(AssertionError, match=r"^6 packets, not 2, passed with type 'publish'\n"):
        traffic.expect("publish", count=2)
    with pytest.raises(AssertionError, match=r"^6 packets passed with type 'publish'\n"):
        traffic.absent("publish")


def test_findings_that_must_not_be() -> None:
    traffic = mqttscope.Traffic([capture("planted-violations")])
    with pytest.raises(AssertionError, match=r"^there are findings of PUB1\n\n") as caught:
        traffic.never("PUB1")
    assert "error[PUB103]: PUBLISH topic name" in str(caught.value)
    assert "PUB209" not in str(caught.value)
    with pytest.raises(AssertionError, match=r"^the traffic does not conform\n\n"):
        traffic.assert_conformant()
    with pytest.raises(AssertionError, match=r"ENC101"):
        traffic.assert_conformant(ignore=["PUB"])
    traffic.assert_conformant(ignore=["ALL"])
    with pytest.raises(AssertionError, match="too little to judge: 32 packets, 33 are required"):
        traffic.assert_conformant(ignore=["ALL"], require_packets=33)


def test_questions_that_make_no_sense_are_errors_of_the_test() -> None:
    traffic = mqttscope.Traffic(QOS)

    with pytest.raises(mqttscope.UnknownRuleError):
        traffic.never("PUB1011")
    with pytest.raises(RuntimeError, match="no address to connect to"):
        _ = traffic.port
    with pytest.raises(mqttscope.CaptureNotFoundError):
        mqttscope.Traffic("nix.pcap")


def test_where_nothing_passed_nothing_is_proved() -> None:
    with mqttscope.Proxy("mqtt://127.0.0.1:1") as proxy:
        traffic = mqttscope.Traffic(proxy)
        with pytest.raises(AssertionError, match="nothing to judge: no MQTT packet has passed"):
            traffic.never("PUB")
        with pytest.raises(AssertionError, match="nothing to judge: no MQTT packet has passed"):
            traffic.absent("publish")
        with pytest.raises(AssertionError, match="nothing passed at all"):
            traffic.expect("connect", timeout=0.1)
        with pytest.raises(mqttscope.ArgumentError, match=r"OPS does not run.*add extend_select=\['OPS'\]"):
            traffic.never("OPS")


def test_a_packet_that_has_not_passed_yet_is_waited_for() -> None:
    path = capture("v311-qos")
    with mqttscope.StandIn(path, pace="causal") as broker, mqttscope.Proxy(broker.url) as proxy:
        traffic = mqttscope.Traffic(proxy)
        replay = mqttscope.Replay(path, broker=traffic.url, pace="causal")
        later = threading.Timer(0.2, replay.run)
        later.start()
        result = traffic.expect("publish", payload="21.2", direction="client_to_server", timeout=20)
        later.join()

        assert result.client_identifier == "sensor-1"
        traffic.expect("disconnect", count=2, timeout=20)
        traffic.never("PUB")
        traffic.assert_conformant()
