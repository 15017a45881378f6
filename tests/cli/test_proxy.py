"""The command as users start it, in front of a real broker; one client does not harm the others."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from mqttscope.capture import open_capture
from mqttscope.cli import proxying
from mqttscope.cli.main import LIMIT_S
from mqttscope.cli.proxying import MAX_UNWRITTEN_BYTES, BackgroundOutput
from mqttscope.mqtt import Connect, PacketType, ProtocolVersion, Publish, encode
from mqttscope.net.frame import Frame
from mqttscope.net.headers import segment
from mqttscope.net.segment import Segment
from mqttscope.proxy import relay
from mqttscope.transport.recording import GRACE_S, HURRY_S, MAX_STREAM_BYTES
from tests import forked
from tests.cli.running import as_nobody, command, environment, invoke
from tests.live import say
from tests.proxy import rig
from tests.proxy.hostile import ACCEPTED, GARBAGE, V3_1_1, Client, announced, memory_mib, patient_server
from tests.proxy.rig import PATIENCE_S, held, is_unwritten, program_proxy, until
from tests.transport.wires import complaints, tshark

CONNECT = encode(Connect(client_identifier="dev1", keep_alive=60), V3_1_1)
WILDCARD = encode(Publish(topic_name="a/+/b", payload=b"x"), V3_1_1)
ANYWHERE = ("--listen", "127.0.0.1:0")
THROWN_OUT = [("client_to_server", "connect"), ("server_to_client", "connack"), ("client_to_server", "publish")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("proxy")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[rig.Broker]:
    with rig.mosquitto(folder) as running:
        yield running


@pytest.fixture(scope="module")
def certificates(folder: Path) -> Iterator[rig.Certificates]:
    with rig.certificates(folder) as certificates:
        yield certificates


def url(broker: rig.Broker, scheme: str = "mqtt") -> str:
    return f"{scheme}://127.0.0.1:{broker.port}"


def packets(path: Path) -> list[tuple[str, str]]:
    done = invoke("inspect", path, "--format", "jsonl")
    assert done.code == 0, done.err
    assert {line["event"] for line in done.lines} <= {
        "packet", "connection_opened", "connection_ending", "connection_closed"
    }  # fmt: skip
    return [(line["direction"], line["type"]) for line in done.packets]


def bad_client(port: int) -> socket.socket:
    """A client whose PUBLISH has a wildcard in its topic."""
    client = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    client.sendall(CONNECT)
    assert client.recv(4) == ACCEPTED
    client.sendall(WILDCARD)
    return client


def be_thrown_out(port: int) -> None:
    """A bad client, whose connection mosquitto closes."""
    with bad_client(port) as client:
        assert client.recv(10) == b""


@pytest.mark.broker
@pytest.mark.parametrize("version", [V3_1_1, ProtocolVersion.V5])
def test_a_clean_run_is_recorded_and_exits_with_0(tmp_path: Path, broker: rig.Broker, version: ProtocolVersion) -> None:
    path = tmp_path / "device.pcapng"
    with program_proxy(tmp_path, url(broker), "--write", str(path), "--show") as proxy:
        talked = rig.talk(proxy.port, version=version)
        assert proxy.finish() == 0, proxy.err

    assert sorted(talked.received) == [b"message %d" % number for number in range(6)]
    seen = packets(path)
    assert seen[0] == ("client_to_server", "connect")
    assert seen[-1] == ("client_to_server", "disconnect")
    assert seen.count(("client_to_server", "publish")) == seen.count(("server_to_client", "publish")) == 6
    assert proxy.out.count(" PUBLISH ") == 12
    assert "no findings by " in proxy.out
    assert f"listening on 127.0.0.1:{proxy.port} for mqtt://127.0.0.1:{broker.port}" in proxy.err
    assert f"1 connection, {len(seen)} packets; " in proxy.err
    lint = invoke("lint", path, "--no-config")
    assert lint.code == 0, lint.text


@pytest.mark.broker
@pytest.mark.tshark
def test_tshark_sees_the_same_packets_and_nothing_wrong(tmp_path: Path, broker: rig.Broker) -> None:
    path = tmp_path / "device.pcapng"
    with program_proxy(tmp_path, url(broker), "--write", str(path)) as proxy:
        for version in (V3_1_1, ProtocolVersion.V5):
            rig.talk(proxy.port, version=version)
        assert proxy.finish() == 0, proxy.err

    assert complaints(path) == []
    fields = ("-e", "tcp.srcport", "-e", "mqtt.msgtype", "-e", "mqtt.topic", "-e", "mqtt.msg")
    lines = tshark(path, "-d", f"tcp.port=={proxy.port},mqtt", "-Y", "mqtt", "-T", "fields", *fields)
    theirs: list[tuple[object, ...]] = []
    for line in lines:
        source, kinds, topics, payloads = line.split("\t")
        rest = iter(zip(filter(None, topics.split(",")), filter(None, payloads.split(",")), strict=False))
        for kind in kinds.split(","):
            from_client = int(source) != proxy.port
            theirs.append((from_client, int(kind), *(next(rest) if kind == "3" else ())))
    ours: list[tuple[object, ...]] = []
    for packet in invoke("inspect", path, "--format", "jsonl").packets:
        more: tuple[str, ...] = ()
        if packet["type"] == "publish":
            more = (packet["topic"], packet["publish"]["payload"]["text"].encode().hex())
        ours.append((packet["direction"] == "client_to_server", PacketType[packet["type"].upper()].value, *more))
    assert ours == theirs


@pytest.mark.broker
def test_it_can_stop_at_a_finding(tmp_path: Path, broker: rig.Broker) -> None:
    path = tmp_path / "device.pcapng"
    options = ("--write", str(path), "--stop-on-finding", "--output", f"sarif={tmp_path / 'lint.sarif'}")
    with program_proxy(tmp_path, url(broker), *options) as proxy, bad_client(proxy.port):
        assert proxy.finish(ask=False) == 1

    assert "error[PUB103]" in proxy.out
    assert packets(path)[:3] == THROWN_OUT
    assert json.loads((tmp_path / "lint.sarif").read_text())["runs"][0]["results"]


@pytest.mark.broker
@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        ((), 1, True),
        (("--exit-zero",), 0, True),
        (("--no-lint",), 0, False),
        (("--format", "jsonl"), 1, True),
        (("--stop-on-finding", "--ignore", "PUB103"), 0, False),
    ],
)
def test_what_is_found_decides_at_the_end(
    tmp_path: Path, broker: rig.Broker, options: tuple[str, ...], code: int, expected: bool
) -> None:
    with program_proxy(tmp_path, url(broker), *options) as proxy:
        be_thrown_out(proxy.port)
        assert proxy.finish() == code, proxy.out + proxy.err

    assert ("PUB103" in proxy.out) == expected
    if "jsonl" in options:
        assert [json.loads(line)["rule"] for line in proxy.out.splitlines()] == ["PUB103"]


@pytest.mark.broker
def test_the_live_linter_finds_what_lint_finds_in_the_file(tmp_path: Path, broker: rig.Broker) -> None:
    path = tmp_path / "device.pcapng"
    with program_proxy(tmp_path, url(broker), "--write", str(path), "--format", "jsonl") as proxy:
        be_thrown_out(proxy.port)
        rig.talk(proxy.port)
        assert proxy.finish() == 1

    expected = invoke("lint", path, "--no-config", "--format", "jsonl").lines
    assert [json.loads(line) for line in proxy.out.splitlines()] == expected


@pytest.mark.parametrize("options", [(), ("--duration", "0.2")], ids=["Ctrl-C", "the end of the duration"])
def test_it_ends(options: tuple[str, ...], tmp_path: Path) -> None:
    with program_proxy(tmp_path, "mqtt://127.0.0.1:1", "--format", "concise", *options) as proxy:
        if not options:
            proxy.process.send_signal(signal.SIGINT)
        assert proxy.finish(ask=False) == 0

    assert proxy.out == "nothing to judge: the captures contain no MQTT packet\n"
    assert proxy.err.splitlines()[-1] == "mqttscope: 0 connections, 0 packets"


@pytest.mark.broker
def test_tls_on_both_sides_is_recorded_as_plain_mqtt(
    tmp_path: Path, folder: Path, certificates: rig.Certificates
) -> None:
    """Even on 8883, where TLS would be expected."""
    listener = (
        f"cafile {certificates.ca}\ncertfile {certificates.cert}\nkeyfile {certificates.key}\nrequire_certificate true"
    )
    path = tmp_path / "tls.pcapng"
    listen = "127.0.0.1:8883" if not _in_use(8883) else "127.0.0.1:0"
    with rig.mosquitto(folder, listener) as secure:
        options = ("--listen-cert", certificates.cert, "--listen-key", certificates.key, "--write", str(path))
        upstream = (
            "--ca",
            certificates.ca,
            "--cert",
            certificates.client_cert,
            "--key",
            certificates.client_key,
        )
        with program_proxy(tmp_path, url(secure, "mqtts"), *options, *upstream, listen=listen) as proxy:
            assert len(rig.talk(proxy.port, ca=certificates.ca).received) == 6
            assert proxy.finish() == 0, proxy.out + proxy.err

    assert packets(path)[-1] == ("client_to_server", "disconnect")
    assert transports(path) == {"tcp"}


def _in_use(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def transports(path: Path) -> set[str]:
    return {line["transport"] for line in invoke("inspect", path, "--format", "jsonl").of("connection_opened")}


@pytest.mark.broker
@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_websocket_passes_through(tmp_path: Path, folder: Path, certificates: rig.Certificates, scheme: str) -> None:
    path = tmp_path / "websocket.pcapng"
    write = ("--write", str(path))
    secure = f"\ncertfile {certificates.cert}\nkeyfile {certificates.key}" if scheme == "wss" else ""
    options = ("--ca", certificates.ca) if scheme == "wss" else ()
    with (
        rig.mosquitto(folder, f"protocol websockets{secure}") as web,
        program_proxy(tmp_path, url(web, scheme), *write, *options) as proxy,
    ):
        assert len(rig.talk(proxy.port, transport="websockets").received) == 6
        assert proxy.finish() == 0, proxy.out + proxy.err

    assert ("server_to_client", "publish") in packets(path)
    assert transports(path) == {"websocket"}


@pytest.mark.broker
@pytest.mark.parametrize(
    ("name", "trusted", "expected"),
    [
        ("server", "other_ca", "its certificate is not accepted: unable to get local issuer certificate"),
        (
            "client",
            "ca",
            "its certificate is not accepted: IP address mismatch, certificate is not valid for '127.0.0.1'",
        ),
    ],
)
def test_a_broker_that_nobody_vouches_for_is_not_used(
    tmp_path: Path, folder: Path, certificates: rig.Certificates, name: str, trusted: str, expected: str
) -> None:
    cert, key = (
        (certificates.cert, certificates.key)
        if name == "server"
        else (certificates.client_cert, certificates.client_key)
    )
    with rig.mosquitto(folder, f"certfile {cert}\nkeyfile {key}") as secure:
        with program_proxy(tmp_path, url(secure, "mqtts"), "--ca", getattr(certificates, trusted)) as proxy:
            assert rig.is_reset(proxy.port)
            assert proxy.finish() == 3
            assert expected in proxy.err
        with program_proxy(tmp_path, url(secure, "mqtts"), "--insecure") as proxy:
            assert len(rig.talk(proxy.port).received) == 6
            assert proxy.finish() == 0
            assert "--insecure: the certificate of mqtts://127.0.0.1:" in proxy.err


@pytest.mark.broker
def test_a_broker_that_wants_a_client_certificate_says_so(
    tmp_path: Path, folder: Path, certificates: rig.Certificates
) -> None:
    listener = (
        f"certfile {certificates.cert}\nkeyfile {certificates.key}\ncafile {certificates.ca}\nrequire_certificate true"
    )
    with rig.mosquitto(folder, listener) as secure:
        with program_proxy(tmp_path, url(secure, "mqtts"), "--ca", certificates.ca) as proxy:
            with socket.create_connection(("127.0.0.1", proxy.port)) as client:
                client.sendall(CONNECT)
                with suppress(ConnectionError):
                    assert client.recv(1) == b""
            assert proxy.finish() == 3
            # Its alert, unless its reset came before.
            assert "with --cert" in proxy.err
            assert "ended TLS: " in proxy.err
        shown = ("--cert", certificates.client_cert, "--key", certificates.client_key)
        with program_proxy(tmp_path, url(secure, "mqtts"), "--ca", certificates.ca, *shown) as proxy:
            assert len(rig.talk(proxy.port).received) == 6
            assert proxy.finish() == 0


@pytest.mark.broker
def test_a_client_that_does_not_trust_the_proxy_is_told_of(
    tmp_path: Path, broker: rig.Broker, certificates: rig.Certificates
) -> None:
    options = ("--listen-cert", certificates.cert, "--listen-key", certificates.key)
    with program_proxy(tmp_path, url(broker), *options) as proxy:
        context = ssl.create_default_context(cafile=certificates.other_ca)
        with (
            socket.create_connection(("127.0.0.1", proxy.port)) as distrustful,
            pytest.raises(ssl.SSLCertVerificationError),
        ):
            context.wrap_socket(distrustful, server_hostname="127.0.0.1")
        with socket.create_connection(("127.0.0.1", proxy.port)) as plain:
            plain.sendall(CONNECT)
            assert plain.recv(1) in (b"", b"\x15")
        assert len(rig.talk(proxy.port, ca=certificates.ca).received) == 6
        assert proxy.finish() == 0

    assert proxy.err.count("TLS with the client failed: ") == 2
    assert "unknown ca" in proxy.err


def test_a_broker_that_was_never_reached_is_exit_code_3(tmp_path: Path) -> None:
    path = tmp_path / "nothing.pcapng"
    with program_proxy(tmp_path, f"mqtt://127.0.0.1:{rig.free_port()}", "--write", str(path)) as proxy:
        assert rig.is_reset(proxy.port)
        assert proxy.finish() == 3

    assert ": Connection refused\n" in proxy.err
    assert "was never reached" in proxy.err
    assert "Traceback" not in proxy.err
    assert "4 frames in" in proxy.err


def run(*words: str) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = forked.run(
        command("proxy", "--no-config", "--duration", "0.1", *words, "--upstream", "mqtt://127.0.0.1:1"),
        text=True, env=environment(), timeout=PATIENCE_S,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    return done


def test_a_port_in_use_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as used_socket:
        port = used_socket.getsockname()[1]
        done = run("--listen", f"127.0.0.1:{port}")

    assert done.returncode == 3
    assert done.stderr == f"Error: cannot listen on 127.0.0.1:{port}: port {port} is in use\n"
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("--listen", "1884"), 2, "'1884' is not HOST:PORT"),
        (("--listen", "192.0.2.1:0"), 3, "192.0.2.1:0 is not an address of this host"),
        ((*ANYWHERE, "--write", "/nowhere/x.pcapng"), 3, "cannot write /nowhere/x.pcapng: No such file"),
        ((*ANYWHERE, "--ready-file", "/nowhere/x"), 3, "cannot write /nowhere/x: No such file"),
        (("--write", "-"), 2, "--write needs a file name"),
        (("--write", ""), 2, "the name of the file is empty"),
        (("--duration", "nan"), 2, "nan is not a number"),
        (("--connect-timeout", "inf"), 2, "inf is not a number"),
        (("--listen-key", "k.pem"), 2, "--listen-key needs --listen-cert"),
        (("--key", "k.pem"), 2, "--key needs --cert"),
        (("--ca", "ca.pem"), 2, "--ca is for an upstream with TLS (mqtts://, wss://), not for mqtt://127.0.0.1:1"),
        (("--listen-cert", "/nowhere/c.pem"), 2, "cannot read /nowhere/c.pem: No such file"),
        (("--stop-on-finding", "--no-lint"), 2, "--stop-on-finding needs the linter"),
        (("--show", "--format", "sarif"), 2, "--show would mix packets with --format sarif; add --output FILE"),
        (("--select", "XYZ"), 2, "XYZ"),
        *((("--max-packet", size), 2, "--max-packet") for size in ("10", "300M", "much", "1.5M")),
    ],
)
def test_what_cannot_be_is_said(words: tuple[str, ...], code: int, expected: str) -> None:
    done = run(*words)

    assert done.returncode == code, done.stderr
    assert expected in done.stderr


def test_a_certificate_needs_its_own_key(certificates: rig.Certificates) -> None:
    done = run("--listen-cert", certificates.cert, "--listen-key", certificates.client_key)

    assert done.returncode == 2
    assert "does not belong to the certificate" in done.stderr


@pytest.mark.broker
def test_killed_at_any_moment_it_leaves_a_readable_file(tmp_path: Path, broker: rig.Broker) -> None:
    path = tmp_path / "killed.pcapng"
    with program_proxy(tmp_path, url(broker), "--write", str(path)) as proxy:
        be_thrown_out(proxy.port)
        proxy.process.kill()
        proxy.process.wait(PATIENCE_S)

    assert packets(path) == THROWN_OUT
    whole = path.read_bytes()
    for cut in range(len(whole) - 40, len(whole)):
        path.write_bytes(whole[:cut])
        done = invoke("inspect", path, "--format", "jsonl")
        assert done.code == 3
        assert len(done.packets) == 3


@pytest.mark.broker
def test_it_needs_no_rights(broker: rig.Broker) -> None:
    nobody = as_nobody("--inh-caps=-all", "--bounding-set=-all")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        if subprocess.run([*nobody, "touch", folder / "x"], check=False, capture_output=True).returncode:
            pytest.skip("somebody else cannot write here")
        path = folder / "device.pcapng"
        with program_proxy(folder, url(broker), "--write", str(path), before=tuple(nobody)) as proxy:
            assert len(rig.talk(proxy.port).received) == 6
            assert proxy.finish() == 0, proxy.err

        assert path.stat().st_uid == 65_534
        assert packets(path)


@pytest.mark.broker
def test_tls_that_passes_unread_is_told_of(tmp_path: Path, folder: Path, certificates: rig.Certificates) -> None:
    with (
        rig.mosquitto(folder, f"certfile {certificates.cert}\nkeyfile {certificates.key}") as secure,
        program_proxy(tmp_path, url(secure)) as proxy,
    ):
        assert len(rig.talk(proxy.port, ca=certificates.ca).received) == 6
        assert proxy.finish() == 0
    assert "1 connection passed with unread TLS inside; --listen-cert terminates TLS here" in proxy.err


class Stuck:
    """Output that nobody reads, until somebody does."""

    def __init__(self) -> None:
        self.read = threading.Event()
        self.lines: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.read.wait(PATIENCE_S)
        if data == b"broken":
            raise BrokenPipeError
        self.lines.append(data)


def in_front_of(output: Stuck) -> BackgroundOutput:
    return BackgroundOutput(output)  # type: ignore[arg-type]


def test_nobody_waits_for_a_slow_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxying, "MAX_UNWRITTEN_BYTES", 10)
    output = Stuck()
    sink = in_front_of(output)
    for _ in range(5):
        sink.offer(b"packet")
    # A finding waits for the reader.
    reader = threading.Timer(0.2, output.read.set)
    reader.start()
    sink.write(b"finding")
    assert output.read.is_set()
    sink.close()

    assert 1 <= sink.left_out <= 4
    assert output.lines.count(b"packet") == 5 - sink.left_out
    assert output.lines[-1] == b"finding"


def test_a_reader_that_has_gone_is_no_trouble() -> None:
    output = Stuck()
    output.read.set()
    sink = in_front_of(output)
    sink.write(b"broken")
    sink.write(b"finding")
    sink.close()
    assert output.lines == []


def test_the_end_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxying, "FLUSH_S", 0.01)
    output = Stuck()
    sink = in_front_of(output)
    sink.write(b"finding")
    sink.close()
    assert output.lines == []
    output.read.set()


def test_an_upstream_that_is_none_is_told_without_its_tokens() -> None:
    done = invoke("proxy", "--upstream", "ws://127.0.0.1:1/x%3Ftoken%3Ds3cret")

    assert done.code == 2
    assert "ws://127.0.0.1:1/x%3Ftoken%3D***" in done.err
    assert "s3cret" not in done.err


LAST = encode(Publish(topic_name="last"), V3_1_1)


def test_the_waits_after_a_signal_leave_time_for_the_reports() -> None:
    assert HURRY_S + GRACE_S + relay._DRAIN_S + proxying.FLUSH_HURRY_S < LIMIT_S


@contextmanager
def before_patience(folder: Path, *options: str, silent: bool = False) -> Iterator[rig.Program]:
    """A proxy in front of a server that answers everything, or nothing."""
    with (
        patient_server(silent=silent) as upstream,
        program_proxy(folder, f"mqtt://127.0.0.1:{upstream}", *options) as proxy,
    ):
        yield proxy


def test_who_keeps_the_linter_busy_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "all.pcapng"
    with (
        before_patience(tmp_path, "--write", str(path)) as proxy,
        Client(proxy.port, "good") as good,
        Client(proxy.port, "bad") as bad,
    ):
        flood = bad.flood(GARBAGE)
        for _ in range(20):
            good.ping()
        flood.join(PATIENCE_S)
        assert not flood.is_alive()
        # Of two million bytes hardly any are judged, and the answer is here.
        good.ping()
        good.sock.sendall(LAST)
        until(lambda: path.read_bytes()[-1_000:].count(LAST))
        # A busy machine may have judged nothing yet.
        assert proxy.process.stdout is not None
        first = proxy.process.stdout.readline()
        code = proxy.finish()
    if not is_unwritten(proxy.process, proxy.err):
        assert code == 1
        assert "bytes forwarded but not judged; mqttscope lint " in proxy.err
    assert "error[" in first + proxy.out
    sent = b"".join(
        actual_segment.payload
        for frame in open_capture([path])
        if isinstance(frame, Frame) and isinstance(actual_segment := segment(frame), Segment)
    )
    assert sent.count(GARBAGE[:16]) == len(GARBAGE) // 16
    assert sent.endswith(LAST)


def test_silent_clients_do_not_keep_their_places(tmp_path: Path) -> None:
    with before_patience(tmp_path, "--max-connections", "3", "--connect-timeout", "0.5") as proxy:
        silent = [socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S) for _ in range(3)]
        ports = [client.getsockname()[1] for client in silent]
        for other_socket in silent:
            with pytest.raises(ConnectionError):
                other_socket.recv(1)
            other_socket.close()
        until(lambda: _may_connect(proxy.port))
        assert proxy.finish() == 0, proxy.err
    for port in ports:
        assert f"127.0.0.1:{port}: closed: no CONNECT came within 0.5 s\n" in proxy.err


def _may_connect(port: int) -> bool:
    try:
        with Client(port, "good") as good:
            good.ping()
    except (AssertionError, ConnectionError):
        return False
    return True


def test_a_connect_byte_by_byte_has_no_more_time(tmp_path: Path) -> None:
    with (
        before_patience(tmp_path, "--connect-timeout", "1") as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S) as slow,
    ):
        assert _byte_by_byte(slow, encode(Connect(client_identifier="x" * 1_000), V3_1_1)) < 500
        assert proxy.finish() == 0, proxy.err
    assert "closed: no CONNECT came within 1 s" in proxy.err


def _byte_by_byte(sock: socket.socket, data: bytes) -> int:
    """Send until the other side has enough; returns how many bytes that were."""
    for sent in range(len(data)):
        try:
            sock.sendall(data[sent : sent + 1])
        except ConnectionError:
            return sent
        time.sleep(0.05)
    return len(data)


def test_a_broker_that_never_answers_does_not_keep_the_place(tmp_path: Path) -> None:
    with (
        before_patience(tmp_path, "--connect-timeout", "0.5", silent=True) as proxy,
        socket.socket() as client,
    ):
        client.settimeout(PATIENCE_S)
        with held(proxy.process):
            client.connect(("127.0.0.1", proxy.port))
            client.sendall(CONNECT)
        with pytest.raises(ConnectionError):
            client.recv(1)
        assert proxy.finish() == 0, proxy.err
    assert "closed: the broker did not answer the client's first packet within 0.5 s" in proxy.err


def test_no_limit_is_no_limit(tmp_path: Path) -> None:
    with (
        before_patience(tmp_path, "--connect-timeout", "0") as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S) as client,
    ):
        time.sleep(1)
        client.sendall(CONNECT)
        assert client.recv(4) == ACCEPTED
        assert proxy.finish() == 0


@pytest.mark.long
def test_a_huge_packet_is_forwarded_and_recorded_but_not_kept(tmp_path: Path) -> None:
    size = 64 << 20
    path = tmp_path / "all.pcapng"
    with (
        before_patience(tmp_path, "--write", str(path)) as proxy,
        Client(proxy.port, "good") as good,
        Client(proxy.port, "bad") as bad,
    ):
        flood = bad.flood(announced(size) + bytes(size - 3))
        good.ping()
        flood.join(PATIENCE_S)
        assert not flood.is_alive()
        bad.sock.sendall(encode(Publish(topic_name="behind"), V3_1_1))
        good.ping()
        until(lambda: path.stat().st_size > size)
        assert memory_mib(proxy.process.pid) < 200
        # A slow machine does not judge as fast as it forwards, and says so.
        assert proxy.finish() == (3 if "judging is too slow" in proxy.err else 0), proxy.err
    assert f"a packet of {size + 5:,} bytes was forwarded but not linted: --max-packet is 1,048,576" in proxy.err


def test_a_large_message_that_was_not_kept_accuses_nobody(tmp_path: Path) -> None:
    message = encode(Publish(topic_name="a", qos=1, packet_identifier=7, payload=bytes(300_000)), V3_1_1)
    options = ("--max-packet", "64K", "--fail-confidence", "heuristic", "--fail-on", "warning")
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        program_proxy(tmp_path, f"mqtt://127.0.0.1:{listening.getsockname()[1]}", *options) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S) as client,
    ):
        server, _ = listening.accept()
        with server:
            for sender, receiver, data in (
                (client, server, CONNECT),
                (server, client, ACCEPTED),
                (client, server, message),
                (server, client, b"\x40\x02\0\x07"),
                (client, server, b"\xe0\0"),
            ):
                say(sender, receiver, data)
            client.close()
            assert server.recv(1) == b""
        assert proxy.finish() == 0, proxy.out
    assert f"a packet of {len(message):,} bytes was forwarded but not linted: --max-packet is 65,536" in proxy.err


def test_who_never_reads_the_findings_holds_nobody_up(tmp_path: Path) -> None:
    with (
        before_patience(tmp_path, "--show") as proxy,
        Client(proxy.port, "good") as good,
        Client(proxy.port, "bad") as bad,
    ):
        bad.flood(GARBAGE).join(PATIENCE_S)
        for _ in range(20):
            good.ping()
        assert memory_mib(proxy.process.pid) < 200
        proxy.process.terminate()
        assert proxy.process.wait(PATIENCE_S) in (1, 3)


def test_findings_wait_for_room_and_lines_do_not() -> None:
    output = Stuck()
    sink = in_front_of(output)
    sink.write(bytes(MAX_UNWRITTEN_BYTES + 1))
    sink.offer(b"line")
    assert sink.left_out == 1
    sink.end(0.05)
    sink.write(b"finding")
    assert sink.left_out == 2
    output.read.set()
    until(lambda: output.lines)
    sink.write(b"late")
    sink.close()
    assert output.lines[1:] == [b"late"]


def test_one_stream_may_wait_with_more_than_a_packet() -> None:
    assert MAX_STREAM_BYTES >= 4 * (1 << 20)
