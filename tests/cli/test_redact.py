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


def redact(*arguments: str | Path, stdin: bytes = b"", key: str = "") -> Done:
    """``key``: of the replacements; random if empty."""
    return invoke("redact", *arguments, stdin=stdin, env={"MQTTSCOPE_REDACT_KEY": key})


@each("answer, protocol", ANSWERS)
def test_a_server_of_another_protocol_is_known_afterwards(answer: bytes, protocol: str, tmp_path: Path) -> None:
    source, target = tmp_path / "source.pcapng", tmp_path / "target.pcapng"
    write_capture(source, opened()[0], server(answer + b" and the name of somebody"), closes("server"))
    assert redact(source, "-o", target).code == 0

    judged = [invoke("lint", path, "--format", "jsonl", "--select", "ALL", "--no-config") for path in (source, target)]
    before, after = ([(line["rule"], line["severity"], line["frame"]) for line in done.lines] for done in judged)
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
    document = redact(QOS, "-o", target, "--format", "json", "--keep", "topics").document

    assert "topics" in text
    assert "frames read 53, written 53" in text
    assert (document["schema"], document["kept"]) == (1, ["topics"])
    assert "topics" not in document["replaced"]
    assert document["replaced"]["payloads"]["values"] == 6
    assert document["frames"] == {"read": 53, "written": 53, "rebuilt": 0}


def test_segments_that_come_again_count_again(tmp_path: Path) -> None:
    target = tmp_path / "shared.pcapng"
    plain = (moved_to(frame, bytes((10, 7, 7, 1)), bytes((10, 7, 7, 2))) for frame in recorded(QOS))
    names = ("websocket-v5", "websocket-deflate", "tls-12")
    for path in (write(tmp_path / "site.pcapng", plain), *map(capture, names)):
        once, twice = (
            redact(*[path] * times, "-o", target, "--format", "json").document["replaced"] for times in (1, 2)
        )
        assert once
        assert twice == {kind: {name: 2 * count for name, count in each.items()} for kind, each in once.items()}


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
    assert done.err.endswith(f"mqttscope: searched for 2 texts: they do not occur in {target}\n")
    target.unlink()
    done = redact(QOS, "-o", target, "--check-file", listed, "--keep", "topics")
    assert done.code == 1
    assert f"found line 3 of {listed}: plain, " in done.err
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
            done = redact(QOS, *(word for file in files for word in ("--check-file", file)))
            assert done.code == 1, name
            assert f"found line 1 of {listed}" in done.err, name
    assert "found line 1 of -" in redact(QOS, "--check-file", "-", stdin=TOPIC.encode()).err


def test_captures_that_are_there_are_looked_through(tmp_path: Path) -> None:
    done = redact(QOS, "--check", SECRET)
    assert (done.code, done.err) == (0, f"mqttscope: searched for 1 text: it does not occur in {QOS}\n")
    done = redact(QOS, capture("tls-12"), "--check", SECRET, "--check", TOPIC)
    assert done.code == 1
    assert done.err.startswith(f"mqttscope: {QOS}: found text 2 of --check: plain, ")
    assert redact(tmp_path / "missing.pcap", "--check", SECRET).code == 3
    assert redact(tmp_path / "missing.*", "--check", SECRET).code == 3


def test_nothing_but_frames_and_drops_is_copied(tmp_path: Path) -> None:
    source, target = tmp_path / "site.pcapng", tmp_path / "shared.pcapng"
    with source.open("wb") as file:
        writer = PcapngWriter(file, comment=SECRET)
        for single_frame in recorded(QOS):
            writer.write(single_frame, SECRET)
        writer.write_drops(100, 7)
        for kind in (0xA, 4, 0xBAD, 0x0BAD0000):
            body = SECRET.encode() if kind != 0xA else struct.pack("<II", 0x544C534B, 16) + SECRET.encode()
            length = struct.pack("<I", len(body) + 12)
            file.write(struct.pack("<I", kind) + length + body + length)
    assert any(isinstance(frame, CaptureSecrets) for frame in open_capture([source]))
    done = redact(source, "-o", target, "--format", "text", "--check", SECRET)

    assert done.code == 0
    assert "blocks with TLS keys omitted: 1" in done.text
    assert SECRET.encode() not in target.read_bytes()
    (drops,) = (frame for frame in open_capture([target]) if isinstance(frame, CaptureDrops))
    assert (drops.received, drops.dropped) == (100, 7)


def test_standard_input_and_damage(tmp_path: Path) -> None:
    target = tmp_path / "shared.pcapng"
    data = QOS.read_bytes()
    done = redact("-", "-o", target, stdin=data[:-9])

    assert done.code == 3
    assert "wrote 52 of 52 frames" in done.err
    assert len(recorded(target)) == 52
    before = target.read_bytes()
    for source, raw in (("-", b"nothing"), ("missing.pcap", b"")):
        done = redact(source, "-o", target, stdin=raw)
        assert done.code == 3
        assert done.err.rstrip().endswith("is not written: nothing could be read")
        assert target.read_bytes() == before


def moved_to(single_frame: Frame, client: bytes, server: bytes) -> Frame:
    """The segment of a frame of IPv4 on Ethernet as one between two other addresses, in a plain datagram."""
    actual_segment = segment(single_frame)
    assert isinstance(actual_segment, Segment)
    ports = (int.from_bytes(actual_segment.key[8:10], "big"), int.from_bytes(actual_segment.key[10:12], "big"))
    ends = (server, client) if ports[0] == 1883 else (client, server)
    data = ip_frame(
        *ends, ports, sequence=actual_segment.sequence, acknowledgment=actual_segment.acknowledgment,
        flags=actual_segment.flags, window=actual_segment.window,
        payload=actual_segment.payload, options=b"", missing=0,
    )  # fmt: skip
    return Frame(single_frame.number, single_frame.timestamp_ns, 101, data, len(data), "")


def ends_of(path: Path) -> list[bytes]:
    """The addresses in all frames of IPv4."""
    return [bytes(frame.data[at : at + 4]) for frame in recorded(path) for at in (12, 16)]


@each("network", [(192, 0, 2), (198, 51, 100), (203, 0, 113), (10, 0, 0), (192, 168, 1), (169, 254, 3), (8, 8, 8)])
def test_addresses_are_none_of_the_capture_and_the_report_counts_them(
    network: tuple[int, int, int], tmp_path: Path
) -> None:
    target = tmp_path / "shared.pcapng"
    ends = [(bytes((*network, host)), bytes((*network, 9))) for host in (1, 5)]
    source = write(tmp_path / "site.pcapng", (moved_to(frame, *both) for both in ends for frame in recorded(QOS)))
    for key in ("a", "b", "c"):
        done = redact(source, "-o", target, "--format", "json", key=key)
        before, after = ends_of(source), ends_of(target)

        assert done.document["replaced"]["addresses"] == {"values": len(after), "bytes": 4 * len(after)}
        assert set(before).isdisjoint(after)
        assert not any(raw[:3] == bytes(network) for raw in after) or network[:2] == (169, 254)
        assert len(set(zip(before, after, strict=True))) == 3
    assert shapes(recorded(target)) == shapes(recorded(source))


def test_what_can_be_read_once_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, other, pipe = tmp_path / "shared.pcapng", tmp_path / "other.pcapng", tmp_path / "pipe"
    redact(QOS, capture("ipv6"), "-o", target, key="boiler")

    redact("-", capture("ipv6"), "-o", other, key="boiler", stdin=QOS.read_bytes())
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
    text = redact(source, capture("byte-by-byte"), "-o", target, "--check", SECRET).err

    assert "limit: 4,094 tunnels are kept apart; 1 frame of further tunnels share a tag" in text
    assert re.search(r"limit: \d+ segments? remained filler: too many segments waited for decoding", text)
    assert re.search(r"limit: the last bytes of \d+ directions? were discarded: ", redact(QOS, "--check", SECRET).err)


def test_frames_of_other_protocols_and_no_recorded(tmp_path: Path) -> None:
    arp = Frame(99, recorded(QOS)[-1].timestamp_ns, 1, b"\xff" * 12 + b"\x08\x06" + b"who has what", 26, "")
    for input_frames, expected in (
        ([*recorded(QOS), arp], "1 frame omitted: 1 without IP"),
        ([], "no TCP connection found"),
    ):
        done = redact(write(tmp_path / "site.pcapng", input_frames), "-o", tmp_path / "shared.pcapng")
        assert done.code == 0
        assert expected in done.err


@each(
    "arguments, words",
    [
        ([QOS], "give --output FILE for the new capture, or search these captures for texts"),
        ([QOS, "-o", ""], "Invalid value for '--output' / '-o': the name of the file is empty"),
        ([QOS, "-o", "x.pcapng", "--keep", "colours"], "'colours' is not one of passwords, "),
        ([QOS, "-o", "x.pcapng", "--keep", "topics", "--blank", "topics,payloads"], "both name topics"),
        ([QOS, "-o", "x.pcapng", "--key-file", "missing"], "--key-file: missing: No such file"),
        ([QOS, "-o", "x.pcapng", "--key-file", os.devnull], "the key is empty"),
        ([QOS, "-o", "x.pcapng", "--check", "abc"], "fewer than 4 bytes"),
        ([QOS, "-o", "x.pcapng", "--check-file", "missing"], "--check-file: missing: No such file"),
        ([QOS, "-o", "x.pcapng", "--check-file", os.devnull], "contains no text"),
        ([QOS, "-o", "x.json"], "named like a report"),
        ([QOS, "-o", "x.pcap"], "--output writes pcapng, and x.pcap is named like pcap; call it .pcapng"),
        ([QOS, "-o", "x.pcapng", "--keep", ""], "--keep': the value is empty; use one or more of passwords, "),
        ([QOS, "-o", "x.pcapng", "--blank", ","], "--blank': the value is empty"),
        ([QOS, "-o", QOS], "is an input capture"),
        ([QOS, "-o", "/missing/folder/x.pcapng"], "/missing/folder/x.pcapng: No such file or directory"),
        ([QOS, "--check", SECRET, "--format", "text"], "--format needs --output FILE"),
        ([QOS, "--check", SECRET, "--keep", "topics"], "--keep needs --output FILE"),
        ([QOS, "--check", SECRET, "--key-file", "a"], "--key-file needs --output FILE"),
        (["-", "-o", "x.pcapng", "--check-file", "-"], "standard input (-) can be used once"),
        (["", "-o", "x.pcapng"], "the name of a capture is empty"),
    ],
)
def test_what_contradicts_itself_is_a_usage_error(arguments: list[str | Path], words: str) -> None:
    done = redact(*arguments)

    assert done.code == 2
    assert words in done.err
    assert not Path("x.pcapng").exists()


def test_standard_input_is_looked_through(tmp_path: Path) -> None:
    for name, secret, number in (
        ("as it is", "plant/line1", 1),
        ("compressed", "plant/line1", 1),
        ("clean", SECRET, 0),
    ):
        raw = QOS.read_bytes() if name != "compressed" else gzip.compress(QOS.read_bytes())
        done = redact("-", "--check", secret, stdin=raw)
        assert (done.code, "standard input: found text 1 of --check" in done.err) == (number, bool(number)), name
    # Beside a file, and named twice.
    done = redact("-", QOS, "-", "--check", "plant/line1", stdin=b"")
    assert done.code == 1
    assert f"{QOS}: found text 1 of --check" in done.err
    assert done.err.count("-: ") == 1, done.err
    empty = redact("-", "--check", SECRET, stdin=b"")
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
    text = "2 before and 0 after of CON108 (info, certain)"

    assert "finds something else" not in same.err
    assert same.document["differing_findings"] == []
    assert f"lint reports different findings in {target}: {text}" in blank.err
    assert blank.document["differing_findings"] == [text]
