"""``mqttscope redact``."""

from __future__ import annotations

import gzip
import os
import re
import stat
import struct
import threading
from pathlib import Path

import pytest

from mqttscope.capture import PcapngWriter, open_capture
from mqttscope.capture.write import ip_frame
from mqttscope.cli import redacting
from mqttscope.net.frame import CaptureDrops, CaptureSecrets, Frame
from mqttscope.net.headers import segment
from mqttscope.net.segment import Segment
from mqttscope.redact import check, frames, redaction
from tests.capture.doubled import recorded, write
from tests.cli.made import closes, opened, server, write_capture
from tests.cli.running import Done, capture, inspected, invoke, run
from tests.each import each
from tests.mqtt.test_foreign import ANSWERS
from tests.net.octets import frame
from tests.redact.redacting import shapes
from tests.redact.test_frames import VXLAN

QOS = capture("v5-qos")
SECRET = "secret of nobody"
TOPIC = "plant/line1/temperature"
"""It is in the capture."""


def redact(*arguments: str | Path, given: bytes = b"", key: str = "") -> Done:
    """``key``: of the replacements; random if empty."""
    return invoke("redact", *arguments, given=given, env={"MQTTSCOPE_REDACT_KEY": key})


@each("answer, protocol", ANSWERS)
def test_a_server_of_another_protocol_is_known_afterwards(answer: bytes, protocol: str, tmp_path: Path) -> None:
    source, target = tmp_path / "source.pcapng", tmp_path / "target.pcapng"
    write_capture(source, opened()[0], server(answer + b" and the name of somebody"), closes("server"))
    assert redact(source, "-o", target).code == 0

    judged = [invoke("lint", path, "--format", "jsonl", "--select", "ALL", "--no-config") for path in (source, target)]
    before, after = ([(one["rule"], one["severity"], one["frame"]) for one in done.lines] for done in judged)
    assert before == after
    assert "ENC109" in {rule for rule, *_ in after}, protocol
    assert b"the name of somebody" not in target.read_bytes()


def test_a_capture_that_lint_judges_the_same(tmp_path: Path) -> None:
    target = tmp_path / "shared.pcapng"
    done = redact(QOS, "-o", target)

    assert (done.code, done.out) == (0, b"")
    assert done.err == f"mqttscope: wrote 53 of 53 frames to {target}\n"
    assert shapes(recorded(target)) == shapes(recorded(QOS))
    assert stat.S_IMODE(os.stat(target).st_mode) == 0o600
    topics = {line["topic"] for line in inspected(target).packets if line["type"] == "publish"}
    assert topics.isdisjoint(line["topic"] for line in inspected(QOS).packets if line["type"] == "publish")


def test_the_report(tmp_path: Path) -> None:
    target = tmp_path / "shared.pcapng"
    text = redact(QOS, "-o", target, "--format", "text").text
    told = redact(QOS, "-o", target, "--format", "json", "--keep", "topics").document

    assert "topics" in text
    assert "frames read 53, written 53" in text
    assert (told["schema"], told["kept"]) == (1, ["topics"])
    assert "topics" not in told["replaced"]
    assert told["replaced"]["payloads"]["values"] == 6
    assert told["frames"] == {"read": 53, "written": 53, "rebuilt": 0}


def test_segments_that_come_again_count_again(tmp_path: Path) -> None:
    target = tmp_path / "shared.pcapng"
    plain = (moved_to(one, bytes((10, 7, 7, 1)), bytes((10, 7, 7, 2))) for one in recorded(QOS))
    names = ("websocket-v5", "websocket-deflate", "tls-12")
    for path in (write(tmp_path / "site.pcapng", plain), *map(capture, names)):
        once, twice = (
            redact(*[path] * times, "-o", target, "--format", "json").document["replaced"] for times in (1, 2)
        )
        assert once
        assert twice == {kind: {name: 2 * count for name, count in one.items()} for kind, one in once.items()}


def test_a_key_gives_the_same_capture_again_and_no_key_another(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("boiler\n")

    def written(*options: str | Path, key: str = "") -> bytes:
        redact(QOS, "-o", tmp_path / "a.pcapng", *options, key=key)
        return (tmp_path / "a.pcapng").read_bytes()

    assert written("--key-file", file) == written("--key-file", file) == written(key="boiler") != written()


def test_what_is_looked_for_is_found_and_then_nothing_is_written(tmp_path: Path) -> None:
    target, listed = tmp_path / "shared.pcapng", tmp_path / "secrets"
    listed.write_text(f"{SECRET}\n\n{TOPIC}\n")

    done = redact(QOS, "-o", target, "--check-file", listed)
    assert done.code == 0
    assert done.err.endswith(f"mqttscope: looked for 2 texts: none of them is in {target}\n")
    target.unlink()
    done = redact(QOS, "-o", target, "--check-file", listed, "--keep", "topics")
    assert done.code == 1
    assert f"line 3 of {listed} is there: plain, " in done.err
    assert TOPIC not in done.err
    assert f"{target} is not written" in done.err
    assert os.listdir(tmp_path) == ["secrets"]


def test_lists_of_secrets_are_all_read_whatever_wrote_them(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text(f"{SECRET}\n")
    forms = {
        "lines of Windows": f"{TOPIC}\r\n".encode(), "a mark": f"\ufeff{TOPIC}\n".encode(),
        "UTF-16": f"\ufeff{TOPIC}\n".encode("utf-16-be"), "blanks": f" {TOPIC} \n".encode(),
    }  # fmt: skip
    for name, raw in forms.items():
        listed = tmp_path / "listed.txt"
        listed.write_bytes(raw)
        for files in ((listed,), (listed, other), (other, listed)):
            done = redact(QOS, *(word for one in files for word in ("--check-file", one)))
            assert done.code == 1, name
            assert f"line 1 of {listed} is there" in done.err, name
    assert "line 1 of - is there" in redact(QOS, "--check-file", "-", given=TOPIC.encode()).err


def test_captures_that_are_there_are_looked_through(tmp_path: Path) -> None:
    done = redact(QOS, "--check", SECRET)
    assert (done.code, done.err) == (0, f"mqttscope: looked for 1 text: it is not in {QOS}\n")
    done = redact(QOS, capture("tls-12"), "--check", SECRET, "--check", TOPIC)
    assert done.code == 1
    assert done.err.startswith(f"mqttscope: {QOS}: text 2 of --check is there: plain, ")
    assert redact(tmp_path / "missing.pcap", "--check", SECRET).code == 3
    assert redact(tmp_path / "missing.*", "--check", SECRET).code == 3


def test_nothing_but_frames_and_drops_is_copied(tmp_path: Path) -> None:
    source, target = tmp_path / "site.pcapng", tmp_path / "shared.pcapng"
    with source.open("wb") as file:
        writer = PcapngWriter(file, comment=SECRET)
        for one in recorded(QOS):
            writer.write(one, SECRET)
        writer.write_drops(100, 7)
        for kind in (0xA, 4, 0xBAD, 0x0BAD0000):
            body = SECRET.encode() if kind != 0xA else struct.pack("<II", 0x544C534B, 16) + SECRET.encode()
            length = struct.pack("<I", len(body) + 12)
            file.write(struct.pack("<I", kind) + length + body + length)
    assert any(isinstance(one, CaptureSecrets) for one in open_capture([source]))
    done = redact(source, "-o", target, "--format", "text", "--check", SECRET)

    assert done.code == 0
    assert "blocks with keys of TLS left out: 1" in done.text
    assert SECRET.encode() not in target.read_bytes()
    (drops,) = (one for one in open_capture([target]) if isinstance(one, CaptureDrops))
    assert (drops.received, drops.dropped) == (100, 7)


def test_standard_input_and_damage(tmp_path: Path) -> None:
    target = tmp_path / "shared.pcapng"
    data = QOS.read_bytes()
    done = redact("-", "-o", target, given=data[:-9])

    assert done.code == 3
    assert "wrote 52 of 52 frames" in done.err
    assert len(recorded(target)) == 52
    before = target.read_bytes()
    for source, given in (("-", b"nothing"), ("missing.pcap", b"")):
        done = redact(source, "-o", target, given=given)
        assert done.code == 3
        assert done.err.rstrip().endswith("is not written: nothing could be read")
        assert target.read_bytes() == before


def moved_to(one: Frame, client: bytes, server: bytes) -> Frame:
    """The segment of a frame of IPv4 on Ethernet as one between two other addresses, in a plain datagram."""
    found = segment(one)
    assert isinstance(found, Segment)
    ports = (int.from_bytes(found.key[8:10], "big"), int.from_bytes(found.key[10:12], "big"))
    ends = (server, client) if ports[0] == 1883 else (client, server)
    data = ip_frame(
        *ends, ports, sequence=found.sequence, acknowledgment=found.acknowledgment, flags=found.flags,
        window=found.window, payload=found.payload, options=b"", missing=0,
    )  # fmt: skip
    return Frame(one.number, one.timestamp_ns, 101, data, len(data), "")


def ends_of(path: Path) -> list[bytes]:
    """The addresses in all frames of IPv4."""
    return [bytes(one.data[at : at + 4]) for one in recorded(path) for at in (12, 16)]


@each("network", [(192, 0, 2), (198, 51, 100), (203, 0, 113), (10, 0, 0), (192, 168, 1), (169, 254, 3), (8, 8, 8)])
def test_addresses_are_none_of_the_capture_and_the_report_counts_them(
    network: tuple[int, int, int], tmp_path: Path
) -> None:
    target = tmp_path / "shared.pcapng"
    ends = [(bytes((*network, host)), bytes((*network, 9))) for host in (1, 5)]
    source = write(tmp_path / "site.pcapng", (moved_to(one, *both) for both in ends for one in recorded(QOS)))
    for key in ("a", "b", "c"):
        done = redact(source, "-o", target, "--format", "json", key=key)
        before, after = ends_of(source), ends_of(target)

        assert done.document["replaced"]["addresses"] == {"values": len(after), "bytes": 4 * len(after)}
        assert set(before).isdisjoint(after)
        assert not any(one[:3] == bytes(network) for one in after) or network[:2] == (169, 254)
        assert len(set(zip(before, after, strict=True))) == 3
    assert shapes(recorded(target)) == shapes(recorded(source))


def test_what_can_be_read_once_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, other, pipe = tmp_path / "shared.pcapng", tmp_path / "other.pcapng", tmp_path / "pipe"
    redact(QOS, capture("ipv6"), "-o", target, key="boiler")

    redact("-", capture("ipv6"), "-o", other, key="boiler", given=QOS.read_bytes())
    assert other.read_bytes() == target.read_bytes()
    monkeypatch.setattr(redacting, "SPOOL_BYTES", 1)
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(QOS.read_bytes(),))
    writer.start()
    redact(pipe, capture("ipv6"), "-o", other, key="boiler")
    writer.join()
    assert other.read_bytes() == target.read_bytes()


def test_limits_that_were_hit_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = write(tmp_path / "tunnel.pcapng", [frame(VXLAN)]), tmp_path / "shared.pcapng"
    for module, name in ((check, "MAX_STREAMS"), (redaction, "MAX_DIRECTIONS"), (frames, "MAX_TUNNELS")):
        monkeypatch.setattr(module, name, int(name != "MAX_TUNNELS"))
    said = redact(source, capture("byte-by-byte"), "-o", target, "--check", SECRET).err

    assert "limit: 4,094 tunnels are kept apart; 1 frame of others have one tag" in said
    assert re.search(r"limit: \d+ segments? stayed filler: more waited to be understood than are remembered", said)
    assert re.search(r"limit: the ends of \d+ directions? were forgotten: ", redact(QOS, "--check", SECRET).err)


def test_frames_of_other_protocols_and_no_recorded(tmp_path: Path) -> None:
    arp = Frame(99, recorded(QOS)[-1].timestamp_ns, 1, b"\xff" * 12 + b"\x08\x06" + b"who has what", 26, "")
    for given, told in (
        ([*recorded(QOS), arp], "1 frame left out: 1 without IP"),
        ([], "no TCP connection found"),
    ):
        done = redact(write(tmp_path / "site.pcapng", given), "-o", tmp_path / "shared.pcapng")
        assert done.code == 0
        assert told in done.err


@each(
    "arguments, words",
    [
        ([QOS], "name a file for the new capture with --output FILE, or texts to look for"),
        ([QOS, "-o", ""], "Invalid value for '--output' / '-o': the name of the file is empty"),
        ([QOS, "-o", "x.pcapng", "--keep", "colours"], "'colours' is not one of passwords, "),
        ([QOS, "-o", "x.pcapng", "--keep", "topics", "--blank", "topics,payloads"], "both name topics"),
        ([QOS, "-o", "x.pcapng", "--key-file", "missing"], "--key-file: missing: No such file"),
        ([QOS, "-o", "x.pcapng", "--key-file", os.devnull], "the key is empty"),
        ([QOS, "-o", "x.pcapng", "--check", "abc"], "fewer than 4 bytes"),
        ([QOS, "-o", "x.pcapng", "--check-file", "missing"], "--check-file: missing: No such file"),
        ([QOS, "-o", "x.pcapng", "--check-file", os.devnull], "has no text in it"),
        ([QOS, "-o", "x.json"], "named like a report"),
        ([QOS, "-o", "x.pcap"], "--output writes pcapng, and x.pcap is named like pcap; call it .pcapng"),
        ([QOS, "-o", "x.pcapng", "--keep", ""], "--keep': the value is empty; it names one or more of passwords, "),
        ([QOS, "-o", "x.pcapng", "--blank", ","], "--blank': the value is empty"),
        ([QOS, "-o", QOS], "is a capture that is read"),
        ([QOS, "-o", "/missing/folder/x.pcapng"], "/missing/folder/x.pcapng: No such file or directory"),
        ([QOS, "--check", SECRET, "--format", "text"], "--format is about what is replaced, and needs --output FILE"),
        ([QOS, "--check", SECRET, "--keep", "topics"], "--keep is about what is replaced, and needs --output FILE"),
        ([QOS, "--check", SECRET, "--key-file", "a"], "--key-file is about what is replaced, and needs --output FILE"),
        (["-", "-o", "x.pcapng", "--check-file", "-"], "standard input (-) is one thing"),
        (["", "-o", "x.pcapng"], "the name of a capture is empty"),
    ],
)
def test_what_contradicts_itself_is_a_usage_error(arguments: list[str | Path], words: str) -> None:
    done = redact(*arguments)

    assert done.code == 2
    assert words in done.err
    assert not Path("x.pcapng").exists()


def test_standard_input_is_looked_through(tmp_path: Path) -> None:
    for name, secret, told in (("as it is", "plant/line1", 1), ("compressed", "plant/line1", 1), ("clean", SECRET, 0)):
        given = QOS.read_bytes() if name != "compressed" else gzip.compress(QOS.read_bytes())
        done = redact("-", "--check", secret, given=given)
        assert (done.code, "standard input: text 1 of --check is there" in done.err) == (told, bool(told)), name
    # Beside a file, and named twice.
    done = redact("-", QOS, "-", "--check", "plant/line1", given=b"")
    assert done.code == 1
    assert f"{QOS}: text 1 of --check is there" in done.err
    assert done.err.count("-: ") == 1, done.err
    empty = redact("-", "--check", SECRET, given=b"")
    assert empty.code == 3


def test_the_program_and_a_device_as_output() -> None:
    done = run("redact", QOS, "-o", "/dev/stdout")

    assert done.code == 0
    assert done.out.startswith(b"\x0a\x0d\x0d\x0a")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    assert redact(QOS, "-o", tmp_path / "x.pcapng").code == 2


def test_findings_that_differ_are_told(tmp_path: Path) -> None:
    """Filler has none of the characters that CON108 speaks of."""
    source, target = capture("v5-topic-alias-client"), tmp_path / "b.pcapng"
    same = invoke("redact", source, "--output", target, "--format", "json")
    blank = invoke("redact", source, "--output", target, "--format", "json", "--blank", "client-identifiers")
    told = "2 before and 0 after of CON108 (info, certain)"

    assert "finds something else" not in same.err
    assert same.document["differing_findings"] == []
    assert f"lint finds something else in {target}: {told}" in blank.err
    assert blank.document["differing_findings"] == [told]
