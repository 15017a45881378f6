from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from mqttscope.api.expectations import Traffic
from mqttscope.errors import ArgumentError
from mqttscope.lint.catalogue import UnknownRuleError, select
from mqttscope.lint.context import RuleContext
from mqttscope.lint.finding import Confidence, Severity
from mqttscope.lint.gate import FindingBaseline, Pattern, Policy, Suppressions
from mqttscope.lint.rule import Findings as Reports
from mqttscope.lint.rule import Rule
from mqttscope.mqtt import Connack, Connect, ProtocolVersion, Publish, encode
from mqttscope.mqtt.properties import Properties
from mqttscope.proxy import Proxy, Seen, service
from mqttscope.transport.target import AddressError
from tests.cli.running import invoke
from tests.proxy import rig
from tests.proxy.upstream import Server, joined, read, send, serving

V311 = ProtocolVersion.V3_1_1
CONNECT = encode(Connect(client_identifier="dev1"), V311)
CONNACK = encode(Connack(), V311)
WILDCARD = encode(Publish(topic_name="a/+", payload=b"x"), V311)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as other_server:
        yield other_server


def misbehave(proxy: Proxy, server: Server) -> None:
    """A client that publishes to a topic with a wildcard."""
    with joined(proxy, server) as (client, upstream):
        send(client, upstream, CONNECT)
        send(upstream, client, CONNACK)
        client.sendall(WILDCARD)


def complaint(proxy: Proxy, **options: Any) -> str:
    """Why the traffic does not conform."""
    with pytest.raises(AssertionError) as caught:
        proxy.assert_conformant(**options)
    return str(caught.value)


@contextmanager
def misused(server: Server, **options: Any) -> Iterator[Proxy]:
    """A proxy through which a client has misbehaved."""
    with Proxy(server.url, **options) as proxy:
        misbehave(proxy, server)
        yield proxy


def test_packets_are_told_as_they_pass(server: Server) -> None:
    with Proxy(server.url) as proxy:
        assert (proxy.address, proxy.url) == (f"127.0.0.1:{proxy.port}", f"mqtt://127.0.0.1:{proxy.port}")
        assert proxy.packets() == []
        misbehave(proxy, server)
        seen = proxy.packets()
        assert [(other_seen.type, other_seen.direction, other_seen.client_identifier) for other_seen in seen] == [
            ("connect", "client_to_server", "dev1"),
            ("connack", "server_to_client", "dev1"),
            ("publish", "client_to_server", "dev1"),
        ]
        last = seen[-1]
        assert (last.topic, last.connection, last.malformed) == ("a/+", 0, None)
        assert last.frame >= 6
        assert isinstance(last.packet, Publish)
        assert last.packet.payload == b"x"
    assert proxy.packets() == seen
    assert isinstance(seen[0], Seen)


def test_malformed_packets_are_told_too(server: Server) -> None:
    with Proxy(server.url) as proxy, joined(proxy, server) as (client, _):
        client.sendall(CONNECT + b"\x32\x03\x00\x05a")
        last = proxy.packets()[-1]
    assert last.type == "publish"
    assert last.malformed is not None


def test_findings_make_an_assertion_fail_as_lint_shows_them(server: Server, tmp_path: Path) -> None:
    with misused(server) as proxy:
        assert [finding.rule for finding in proxy.findings()] == ["PUB103"]
        text = complaint(proxy)
        proxy.write(tmp_path / "it.pcapng")
    assert text.startswith("the traffic does not conform\n\nerror[PUB103]: ")
    assert text == f"the traffic does not conform\n\n{proxy.report()}"
    shown = invoke("lint", tmp_path / "it.pcapng", "--no-config").text
    assert [line for line in text.splitlines() if line.startswith("  breaks ")] == [
        line for line in shown.splitlines() if line.startswith("  breaks ")
    ]
    proxy.assert_conformant(ignore=["PUB103"])
    proxy.assert_conformant(ignore=["PUB"])
    with pytest.raises(UnknownRuleError):
        proxy.assert_conformant(ignore=["XYZ"])
    with pytest.raises(ValueError, match="surely"):
        proxy.assert_conformant(min_confidence="surely")
    complaint(proxy)


def test_a_report_leaves_out_what_is_shown_beside_it(server: Server) -> None:
    class FailingRule(Rule):
        """Cannot judge any PUBLISH."""

        code, slug, severity, looks_at = "OWN101", "failing-rule", Severity.INFO, Publish

        def check(self, packet: Publish, at: RuleContext) -> Reports:
            raise KeyError("a")

    with misused(server, rules=[FailingRule]) as proxy:
        first = complaint(proxy)
        assert proxy.report(beside=first) == ""
        misbehave(proxy, server)
        rest = proxy.report(beside=first)
        count = len(select()) + 1
        assert rest.endswith(f"\n\n1 error by {count} rules\n")
        assert f"1 error (2 occurrences) by {count} rules" in proxy.report()
        assert "OWN101" not in rest
        assert f"frame {proxy.findings()[1].frame}," in rest
        # Another text shows nothing of it.
        assert proxy.report(beside="error[PUB103]") == proxy.report()


def test_rules_can_be_chosen(server: Server) -> None:
    with misused(server, ignore=["PUB103"]) as proxy:
        proxy.assert_conformant(min_confidence="heuristic", fail_on="info")
    assert proxy.report() == ""
    with pytest.raises(UnknownRuleError):
        Proxy(server.url, select=["XYZ"])


def test_rules_that_are_given_run_beside_those_that_are_chosen(server: Server) -> None:
    class NoTopic(Rule):
        """Never finds anything."""

        code, slug, severity = "OWN101", "no-topic", Severity.INFO

    usual = Proxy(server.url).rules
    assert Proxy(server.url, rules=[NoTopic]).rules == [*usual, "OWN101"]
    assert Proxy(server.url, select="PUB103", rules=[NoTopic()]).rules == ["PUB103", "OWN101"]
    assert Proxy(server.url, select=["PUB103"], ignore=["no-topic"], rules=[NoTopic]).rules == ["PUB103"]


def test_what_no_client_uses_is_not_conformant(server: Server) -> None:
    with Proxy(server.url) as proxy:
        assert re.search(r"^nothing to judge: no client connected to 127\.0\.0\.1:\d+ ", complaint(proxy))
        proxy.assert_conformant(require_packets=0)
    assert re.search("no client connected", complaint(proxy))


def test_a_proxy_that_was_not_started_has_nothing_to_judge(server: Server) -> None:
    with pytest.raises(AssertionError, match="the proxy was not started"):
        Proxy(server.url).assert_conformant()


@pytest.mark.parametrize("expected", [b"", CONNECT[:8]])
def test_without_a_whole_connect_there_was_no_client(server: Server, expected: bytes) -> None:
    with Proxy(server.url) as proxy:
        with joined(proxy, server) as (client, upstream):
            send(client, upstream, expected)
        assert re.search("no CONNECT passed in 1 connection", complaint(proxy))
    assert re.search("no CONNECT passed in 1 connection", complaint(proxy))
    proxy.assert_conformant(require_packets=0)


@pytest.mark.parametrize("closes", [True, False])
def test_a_broker_without_connack_is_not_conformant(server: Server, *, closes: bool) -> None:
    with Proxy(server.url) as proxy:
        with joined(proxy, server) as (client, upstream):
            send(client, upstream, CONNECT)
            if closes:
                upstream.close()
                assert client.recv(1) == b""
            caught = complaint(proxy)
        proxy.assert_conformant(require_packets=0)
    text = "sent no CONNACK, 1 CONNECT packet passed (require_packets=0 allows that)"
    assert caught == f"nothing to judge: {server.url} {text}"


def test_a_web_server_is_no_broker(server: Server) -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
    with Proxy(server.url) as proxy, joined(proxy, server) as (client, upstream):
        send(client, upstream, CONNECT)
        send(upstream, client, answer)
        assert re.search(
            r"error\[ENC109\]: the server answers in HTTP.*^nothing to judge: [^\n]* sent no CONNACK",
            complaint(proxy),
            re.M | re.S,
        )
    assert re.search("the server answers in HTTP, not in MQTT", complaint(proxy, require_packets=0))


def test_a_broker_that_refuses_has_answered(server: Server) -> None:
    refused = encode(Connack(reason_code=5), V311)
    with Proxy(server.url) as proxy, joined(proxy, server) as (client, upstream):
        send(client, upstream, CONNECT)
        send(upstream, client, refused)
        proxy.assert_conformant()


def test_a_broker_that_was_never_reached_is_not_conformant() -> None:
    with Proxy("mqtt://127.0.0.1:1") as proxy:
        # The proxy resets it as soon as it knows, which may be before the client does.
        with suppress(ConnectionError), socket.create_connection(("127.0.0.1", proxy.port), 10) as client:
            client.sendall(CONNECT)
            assert client.recv(1) == b""
        text = complaint(proxy)
        proxy.assert_conformant(require_packets=0)
    assert text.startswith("nothing to judge: mqtt://127.0.0.1:1 was never reached: ")
    assert "cannot reach mqtt://127.0.0.1:1" in text


def test_a_number_of_packets_can_be_required(server: Server) -> None:
    with misused(server) as proxy:
        proxy.assert_conformant(ignore=["PUB103"], require_packets=3)
        assert re.search(
            "too little to judge: 3 packets, 4 are required", complaint(proxy, ignore=["PUB103"], require_packets=4)
        )


def test_a_proxy_without_rules_records_and_does_not_assert(server: Server) -> None:
    with misused(server, ignore=["ALL"]) as proxy:
        assert len(proxy.packets()) == 3
        with pytest.raises(ArgumentError, match=r"^ignore=\['ALL'\]: no rule is left to check with"):
            proxy.assert_conformant()
    with pytest.raises(ArgumentError, match="no rule is left to check with"):
        Proxy(server.url, select=[])


def test_what_counts_can_be_given(server: Server) -> None:
    pattern = Pattern(frozenset({"PUB103"}), topic="a/#", reason="known")
    policies = (
        (Policy(suppressions=Suppressions([pattern])), True),
        (Policy(suppressions=Suppressions([replace(pattern, topic="b/#")])), False),
        (Policy(fail_confidence=Confidence.CERTAIN), False),
    )
    for policy, conforms in policies:
        with Proxy(server.url, policy=policy, select=["PUB103"]) as proxy:
            misbehave(proxy, server)
            (known,) = proxy.findings()
            if conforms:
                proxy.assert_conformant()
                assert proxy.report() == ""
            else:
                assert re.search("PUB103", complaint(proxy))
    baseline = FindingBaseline()
    baseline.add(known)
    with misused(server, baseline=baseline) as proxy:
        proxy.assert_conformant()


@pytest.mark.broker
@pytest.mark.parametrize("version", [ProtocolVersion.V3_1_1, ProtocolVersion.V5])
def test_a_real_client_and_a_real_broker_conform(tmp_path: Path, version: ProtocolVersion) -> None:
    with rig.mosquitto(tmp_path) as broker, Proxy(f"mqtt://127.0.0.1:{broker.port}") as proxy:
        rig.talk(proxy.port, version=version)
        assert {"connect", "connack", "subscribe", "publish", "pubcomp"} <= {packet.type for packet in proxy.packets()}
        proxy.assert_conformant(min_confidence="heuristic", fail_on="info")
    assert proxy.packets()[-1].type == "disconnect"


def test_a_linter_that_fails_does_not_pass_for_conformance(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with Proxy(server.url) as proxy:
        monkeypatch.setattr(proxy._linter, "feed", None)
        misbehave(proxy, server)
        assert re.search("could not be judged to its end", complaint(proxy))
        misbehave(proxy, server)
    assert proxy.notes[0].startswith("internal error: TypeError")


class Broken(Rule):
    """A rule of one's own with a mistake."""

    code, slug, severity = "BRK101", "broken", Severity.INFO
    looks_at = Publish

    def check(self, packet: Publish, at: RuleContext) -> Reports:
        raise ZeroDivisionError(f"no {at.event.frame - at.event.frame}")


class Loud(Broken):
    code, slug, severity = "BRK102", "loud", Severity.ERROR

    def check(self, packet: Publish, at: RuleContext) -> Reports:
        return self.report("topic_name", f"{len(packet.topic_name)} characters")


def test_a_rule_that_fails_does_not_pass_for_conformance(server: Server) -> None:
    with misused(server, rules=[Broken], select=["BRK"]) as proxy:
        misbehave(proxy, server)
        line = Broken.check.__code__.co_firstlineno + 1
        text = f"rule BRK101 failed: ZeroDivisionError: no 0 ({__file__}, line {line})"
        assert proxy.failed() == {"BRK101": text.removeprefix("rule BRK101 failed: ")}
        assert proxy.notes == [text]
        assert proxy.report() == f"rules that failed, so that findings may be missing:\n  {text}"
        assert proxy.report(ignore=["broken"]) == ""
        traffic = Traffic(proxy)
        asked = [proxy.assert_conformant, traffic.assert_conformant, partial(traffic.never, "BRK")]
        for ask in cast(list[Callable[[], None]], asked):
            with pytest.raises(AssertionError) as caught:
                ask()
            assert str(caught.value) == proxy.report()
        proxy.assert_conformant(ignore=["BRK101"])


def test_findings_come_before_the_rules_that_failed(server: Server) -> None:
    with misused(server, rules=[Broken, Loud], select=["BRK"]) as proxy:
        traffic = Traffic(proxy)
        with pytest.raises(AssertionError, match=r"(?s)^there are findings of loud\n\nerror\[BRK102\]: 3 char"):
            traffic.never("loud")
        with pytest.raises(AssertionError, match=r"(?s)^the traffic does not .*BRK102.*rule BRK101 failed: Zero"):
            traffic.assert_conformant()
        proxy.assert_conformant(ignore=["BRK"])
        with pytest.raises(ArgumentError, match="PUB103 does not run"):
            traffic.never("PUB103")
        with pytest.raises(UnknownRuleError):
            traffic.never("BRK2")


def test_what_counts_is_one_of_the_words(server: Server) -> None:
    proxy = Proxy(server.url)
    for ask in (proxy.report, proxy.assert_conformant):
        with pytest.raises(ArgumentError, match="fail_on must be one of error, warning, info"):
            ask(fail_on="zz")
        with pytest.raises(ArgumentError, match="min_confidence must be one of certain, likely, heuristic"):
            ask(min_confidence="zz")


def test_what_cannot_be_is_told_at_once(server: Server, tmp_path: Path) -> None:
    with pytest.raises(AddressError):
        Proxy("broker")
    with pytest.raises(RuntimeError, match="not started"):
        Proxy(server.url).write(tmp_path / "x")
    with Proxy(server.url) as proxy, pytest.raises(RuntimeError, match="only once"):
        proxy.start()
    proxy.close()
    Proxy(server.url).close()


def test_what_a_client_had_received_is_proven_by_the_record(server: Server, tmp_path: Path) -> None:
    """Only who has the CONNACK can break the Receive Maximum in it: the file acknowledges it in time."""
    version = ProtocolVersion.V5
    connack = Connack(properties=Properties(receive_maximum=2))
    with Proxy(server.url) as proxy, joined(proxy, server) as (client, upstream):
        client.sendall(encode(Connect(client_identifier="dev1", protocol_level=5), version))
        read(upstream, 1)
        upstream.sendall(encode(connack, version))
        read(client, len(encode(connack, version)))
        for identifier in (1, 2, 3):
            client.sendall(encode(Publish(topic_name="a", qos=1, packet_identifier=identifier), version))
        proxy.write(tmp_path / "it.pcapng")
        (finding,) = proxy.findings()
    assert (finding.rule, str(finding.confidence)) == ("FLW201", "certain")
    assert [line["rule"] for line in invoke("lint", tmp_path / "it.pcapng", "--format", "jsonl").lines] == ["FLW201"]


def test_a_proxy_that_does_not_end_is_said(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    with Proxy(server.url) as proxy:
        monkeypatch.setattr(service, "_ANSWER_S", 0.01)
        monkeypatch.setattr(proxy._relay, "close", partial(asyncio.to_thread, ended.wait))
        proxy.close()
        assert proxy.notes == ["the proxy did not end in time"]
        monkeypatch.undo()
        ended.set()
