"""Brokers that cannot be reached, or do not behave as brokers: a sentence for people, an exit code, and no hang."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mqttscope.cli.main import EXIT_FAILED, EXIT_FINDINGS
from mqttscope.mqtt import Connack, ControlPacket, ProtocolVersion, Publish, Suback
from mqttscope.transport.tls import listen_context
from tests.cli.made import closes, opened, write_capture
from tests.cli.running import Done, capture, command, environment, invoke
from tests.forked import Forked
from tests.proxy import rig
from tests.replay.interloper import CLOSE, Change, Said, between, threaded

WAIT_S = 0.5
BOUND_S = 15.0
"""Far above all that is waited for here, and far below a hang."""
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rig.Certificates]:
    with rig.certificates(tmp_path_factory.mktemp("certificates")) as certificates:
        yield certificates


def replay(url: str, *options: str, name: str = "v5-qos") -> tuple[Done, dict[str, Any]]:
    """Replay at once, in bounded time; returns the summary as well."""
    began = time.monotonic()
    done = invoke(
        "replay", capture(name), "--broker", url, "--pace", "asap", "--wait", str(WAIT_S), "--no-config",
        "--connect-timeout", str(WAIT_S), "--format", "jsonl", *options,
    )  # fmt: skip
    assert time.monotonic() - began < BOUND_S
    assert "Traceback" not in done.text + done.err
    (summary,) = [line for line in done.lines if line.get("event") == "replay"]
    return done, summary


def reasons(summary: dict[str, Any]) -> dict[str, int]:
    return {row["reason"]: row["connections"] for row in summary["failures"]}


def check(url: str, text: str, *options: str, count: int = 2) -> None:
    """All connections fail with this sentence, and only that is said."""
    done, summary = replay(url, *options)

    assert reasons(summary) == {text: count}
    assert done.code == EXIT_FAILED
    assert done.err == ""


def test_nobody_listens() -> None:
    url = f"mqtt://127.0.0.1:{rig.free_port()}"
    check(url, f"cannot connect to {url}: nothing listens there (connection refused)")


def test_a_name_that_leads_nowhere() -> None:
    done = invoke("replay", capture("v5-qos"), "--broker", "mqtt://nowhere.invalid", "--verify")

    assert done.code == EXIT_FAILED
    assert "cannot connect to mqtt://nowhere.invalid:1883: the host name nowhere.invalid cannot be resolved" in done.err
    assert done.text == ""


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(1_000):
        pass


async def half_closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write_eof()
    await silent(reader, writer)


async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1_000)


async def resetting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.transport.abort()


async def of_the_web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1_000)
    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    await silent(reader, writer)


async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Half a CONNACK."""
    await reader.read(1_000)
    writer.write(b"\x20")
    await silent(reader, writer)


async def of_3_1_1(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Unacceptable protocol version."""
    await reader.read(1_000)
    writer.write(b"\x20\x02\x00\x01")


async def babbling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1_000)
    writer.write(b"\x20\x03\x07\x00\x00")


NO_ANSWER = f"the broker did not answer CONNECT within {WAIT_S:g} s"
ENDED = "the broker ended a connection before it answered CONNECT: the connection was closed"


@pytest.mark.parametrize(
    ("serve", "expected"),
    [
        (silent, NO_ANSWER),
        (of_the_web, NO_ANSWER),
        (dripping, NO_ANSWER),
        (half_closing, ENDED),
        (closing, ENDED),
        (of_3_1_1, "the broker does not speak MQTT 5.0"),
        (babbling, "the broker answered CONNECT with a malformed packet: connack flags reserved"),
    ],
)
def test_no_answer_to_connect(serve: Serve, expected: str) -> None:
    with threaded(serve) as port:
        check(f"mqtt://127.0.0.1:{port}", expected)


@pytest.mark.parametrize("secure", [False, True], ids=["reset", "TLS is wanted"])
def test_connections_that_are_ended_at_once(secure: bool, certified: rig.Certificates) -> None:
    tls = listen_context(certified.cert, certified.key) if secure else None
    with threaded(silent if secure else resetting, tls=tls) as port:
        done, summary = replay(f"mqtt://127.0.0.1:{port}")

    assert done.code == EXIT_FAILED
    assert sum(reasons(summary).values()) == 2
    text = "the broker ended a connection before it answered CONNECT"
    assert secure or all(reason.startswith(text) for reason in reasons(summary))


@pytest.mark.parametrize("scheme", ["mqtts", "wss", "ws"])
def test_no_end_of_the_handshake(scheme: str) -> None:
    with threaded(silent) as port:
        url = f"{scheme}://127.0.0.1:{port}"
        path = "/mqtt" if scheme.startswith("ws") else ""
        check(url, f"cannot connect to {url}{path}: no answer within {WAIT_S:g} s")


@pytest.mark.parametrize(
    ("scheme", "path", "expected"),
    [
        ("ws", "/mqtt", "it answers 404 Not Found to the request for /mqtt"),
        ("mqtts", "", "it does not speak TLS"),
    ],
)
def test_a_server_of_the_web(scheme: str, path: str, expected: str) -> None:
    with threaded(of_the_web) as port:
        url = f"{scheme}://127.0.0.1:{port}{path}"
        check(url, f"cannot connect to {url}: {expected}")


@pytest.mark.parametrize(
    ("trusted", "name", "expected"),
    [
        ("other_ca", "127.0.0.1", "its certificate comes from a CA that is not trusted"),
        ("ca", "broker.example", "its certificate is not for broker.example"),
    ],
)
def test_wrong_certificates(trusted: str, name: str, expected: str, certified: rig.Certificates) -> None:
    with threaded(silent, tls=listen_context(certified.cert, certified.key)) as port:
        url = f"mqtts://127.0.0.1:{port}"
        check(url, f"cannot connect to {url}: {expected}", "--ca", getattr(certified, trusted), "--server-name", name)


@contextmanager
def broker_with(change: Change, folder: Path) -> Iterator[str]:
    with rig.mosquitto(folder) as broker, between(broker.port, change) as port:
        yield f"mqtt://127.0.0.1:{port}"


@pytest.mark.broker
def test_the_other_connections_go_on(tmp_path: Path) -> None:
    """The publisher is thrown out; the subscriber says all it said."""

    def change(client: str, packet: ControlPacket) -> Said:
        return (CLOSE,) if client == "sensor-1" and isinstance(packet, Connack) else (packet,)

    with broker_with(change, tmp_path) as url:
        done, summary = replay(url)

    assert done.code == EXIT_FAILED
    assert reasons(summary) == {ENDED: 1}
    assert not any("SUBSCRIBE" in row["note"] for row in summary["notes"])


@pytest.mark.broker
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_broker_that_dies_in_the_middle(how: signal.Signals, tmp_path: Path) -> None:
    with rig.mosquitto(tmp_path) as broker:

        def change(client: str, packet: ControlPacket) -> Said:
            if isinstance(packet, Suback):
                broker.process.send_signal(how)
                broker.process.wait(5)
            return (packet,)

        with between(broker.port, change) as port:
            done, summary = replay(f"mqtt://127.0.0.1:{port}", "--verify")

    assert done.code == EXIT_FAILED
    assert summary["failures"]
    kinds = {line["kind"] for line in done.lines if line.get("event") == "difference"}
    assert kinds <= {"not-connected", "close"}
    assert "not-connected" in kinds


@pytest.mark.broker
def test_who_is_silent_from_the_middle_on_is_not_waited_for_at_every_step(tmp_path: Path) -> None:
    """Twenty-five steps wait for something, and none of them as long as the first."""
    quiet = False

    def change(client: str, packet: ControlPacket) -> Said:
        nonlocal quiet
        quiet = quiet or isinstance(packet, Suback)
        return () if quiet else (packet,)

    with broker_with(change, tmp_path) as url:
        done, summary = replay(url, name="many-in-one-segment")
        _, other = replay(url, name="v5-flow-control")

    assert done.code in (0, EXIT_FAILED)
    assert summary["missed"] > 5
    assert other["seconds"] < BOUND_S


CONNACK_5 = b"\x20\x03\x00\x00\x00"


async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Says nothing after its CONNACK."""
    await reader.read(1_000)
    writer.write(CONNACK_5)
    await silent(reader, writer)


async def leaving(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ends the connection after its CONNACK; reads on, since closing with unread bytes may reset it instead."""
    await reader.read(1_000)
    writer.write(CONNACK_5)
    await half_closing(reader, writer)


async def refusing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Not authorized."""
    await reader.read(1_000)
    writer.write(b"\x20\x03\x00\x87\x00")


def test_what_never_came_is_told_and_fails() -> None:
    with threaded(mute) as port:
        url = f"mqtt://127.0.0.1:{port}"
        done, summary = replay(url)
        compared, _ = replay(url, "--verify")
        text = invoke("replay", capture("v5-qos"), "--broker", url, "--pace", "asap", "--wait", "0.2", "--no-config")

    never = {row["what"]: row["times"] for row in summary["never_came"]}
    assert done.code == text.code == EXIT_FAILED
    assert summary["failures"] == []
    assert (never["SUBACK for logger"], never["PUBACK for sensor-1"]) == (1, 1)
    assert "Never came" in text.text
    assert "1  SUBACK for logger" in text.text
    assert compared.code == EXIT_FINDINGS


@pytest.mark.parametrize(
    ("serve", "expected"),
    [
        (leaving, "the broker ended a connection before its end"),
        (refusing, "the broker refused a connection: 0x87 Not authorized"),
    ],
)
def test_a_broker_that_wants_no_more(serve: Serve, expected: str) -> None:
    with threaded(serve) as port:
        done, summary = replay(f"mqtt://127.0.0.1:{port}")
        forgiven, _ = replay(f"mqtt://127.0.0.1:{port}", "--verify", "--exit-zero")

    assert summary["shortfalls"] == [{"reason": expected, "connections": 2}]
    assert (done.code, forgiven.code) == (EXIT_FAILED, 0)


@pytest.mark.parametrize("name", ["v5-qos", "v5-flow-control"])
def test_faithful_waits_for_nothing_a_second_time(name: str) -> None:
    with threaded(mute) as port:
        _, summary = replay(f"mqtt://127.0.0.1:{port}", "--faithful", "--pace", "causal", name=name)

    # Each of the two connections waits in vain once.
    assert summary["missed"] == 2


@pytest.mark.broker
def test_who_may_not_read_is_not_waited_for_at_every_message(tmp_path: Path) -> None:
    """As with an ACL: everything is answered, and nothing is delivered."""

    def change(client: str, packet: ControlPacket) -> Said:
        return () if isinstance(packet, Publish) else (packet,)

    with broker_with(change, tmp_path) as url:
        done, summary = replay(url, "--pace", "causal", "--wait", "0.4", name="v5-flow-control")

    (never,) = summary["never_came"]
    (less,) = summary["not_waited_for"]
    assert never["what"] == "messages of 'queue' for narrow"
    assert (less["name"], less["topic_filter"], less["messages"]) == ("narrow", "queue", never["times"] - 1)
    assert never["times"] >= 5
    assert done.code == EXIT_FAILED


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_stopped_while_nothing_happens(how: signal.Signals, tmp_path: Path) -> None:
    heard = []

    async def hearing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1_000))
        await silent(reader, writer)

    with threaded(hearing) as port:
        process = Forked(
            command("replay", capture("v5-qos"), "--broker", f"mqtt://127.0.0.1:{port}", "--wait", "60", "--verify"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
        )  # fmt: skip
        rig.until(lambda: heard, "the CONNECT")
        process.send_signal(how)
        out, err = process.communicate(timeout=rig.PATIENCE_S)

    assert process.returncode == EXIT_FAILED, out + err
    assert "stopped before its end" in out
    assert err == ""


async def greeting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accepts in MQTT 3.1.1, and reads on."""
    await reader.read(1_000)
    writer.write(b"\x20\x02\x00\x00")
    await silent(reader, writer)


@pytest.mark.parametrize("options", [(), ("--exit-zero",)])
def test_where_nothing_can_be_compared_there_is_no_verdict(tmp_path: Path, options: tuple[str, ...]) -> None:
    """The recorded broker has never answered."""
    asked = opened(ProtocolVersion.V3_1_1)[0]
    path = write_capture(tmp_path / "silent.pcapng", asked, closes("client", after=0.2))
    text = "nothing to compare: no packet could be judged in 1 connection"

    with threaded(greeting) as port:
        words = "replay", path, "--broker", f"mqtt://127.0.0.1:{port}", "--no-config", "--pace", "asap", "--wait", "0.2"
        done = invoke(*words, "--verify", *options)
        lines = invoke(*words, "--verify", "--format", "jsonl", *options).lines
        plain = invoke(*words)

    assert (done.code, plain.code) == (EXIT_FAILED, 0)
    assert f"mqttscope: {text}\n" in done.err
    assert text in done.text.splitlines()
    assert "no differences" not in done.text
    (totals,) = [line for line in lines if line.get("event") == "verification"]
    assert (totals["connections_judged"], totals["nothing"]) == (0, text)
