"""Inputs at the limits of the package cli."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr, redirect_stdout
from itertools import chain
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import click

from mqttscope.api.reading import CaptureReading
from mqttscope.capture import open_capture
from mqttscope.cli import completing, export
from mqttscope.cli.annotating import AnnotatedCopy
from mqttscope.cli.inspect import command as inspect_command
from mqttscope.cli.linting import LintRun, LiveFindings
from mqttscope.cli.linting_settings import LintSettings
from mqttscope.cli.options import PacketSize
from mqttscope.cli.output import Output
from mqttscope.cli.pasted import lines_of, sequences
from mqttscope.cli.pipeline import ingesting
from mqttscope.cli.pipeline.asking import SMALL as SMALL
from mqttscope.cli.pipeline.asking import spark_settings as spark_settings
from mqttscope.cli.pipeline.ingesting import IngestRun
from mqttscope.cli.pipeline.watch import line
from mqttscope.cli.replaying import ReplayCommand
from mqttscope.cli.serving import ServeRun
from mqttscope.cli.sniffing import advance
from mqttscope.cli.spark_session import QUICK as QUICK
from mqttscope.cli.spark_session import WITHOUT_CODE as WITHOUT_CODE
from mqttscope.cli.spark_session import for_captures as for_captures
from mqttscope.cli.triage import typed_names as typed_names
from mqttscope.dissect import Dissector, dissect
from mqttscope.events import ConnectionClosed
from mqttscope.lint.catalogue import instances, select
from mqttscope.lint.engine import InternalError
from mqttscope.lint.examples import client, closes, opened
from mqttscope.lint.gate import FindingBaseline
from mqttscope.mqtt import Publish
from mqttscope.net.flow_expiry import IDLE_TIMEOUT_NS
from mqttscope.report.base import View
from mqttscope.report.replay.summary import ReplayOutcome, ServedOutcome
from tests.capture.test_annotate import by_frame
from tests.cli.made import on, site, write_capture
from tests.cli.pipeline.test_asking import given as asked
from tests.cli.running import capture, invoke
from tests.cli.test_proxy import Stuck, in_front_of
from tests.dissect.secure import write
from tests.dissect.talk import CONNACK, Talk, connect, wire
from tests.net.octets import tcp
from tests.net.test_fragments import pieces

PUBLISH = wire(Publish(topic_name="a", payload=b"hello"))


def pasted(text: str) -> list[bytes | str | None]:
    """The bytes that are read from an input, or what is wrong with them."""
    stream = io.TextIOWrapper(io.BytesIO(text.encode()))
    return [sequence.problem or sequence.raw for sequence in sequences(lines_of(stream))]


def array(size: int) -> str:
    """An array that has so many characters before its last line."""
    return "{\n" + "0x10,".ljust(size - 3) + "\n0x20}\n"


def rows(size: int) -> str:
    """A hexdump of so many bytes."""
    return "".join(f"{at:04x}  {' '.join(['c0'] * min(8, size - at))}\n" for at in range(0, size, 8))


def written(size: int) -> int:
    """Bytes that standard output has when so many were given."""
    out = io.BytesIO()
    with redirect_stdout(io.TextIOWrapper(out)):
        # Outside of the main thread, no signal is waited for.
        thread = Thread(target=lambda: Output().write(bytes(size)))
        thread.start()
        thread.join()
        return len(out.getvalue())


def on_spark(size: int) -> bool:
    """Whether Spark is asked about a lake of this size."""
    with redirect_stderr(io.StringIO()):
        return asked().on_spark(size)


def is_read_here(size: int) -> bool:
    """Whether captures of this size are read without Spark."""
    namespace = SimpleNamespace(engine="auto", on_spark=False, in_store=False, jobs=None, deduplicate=False)
    return IngestRun._stays_here(cast(Any, SimpleNamespace(args=namespace)), cast(Any, [SimpleNamespace(size=size)]))


def age(seconds: int) -> bool:
    """Whether the line about a batch has the age of the newest frame."""
    result: Any = SimpleNamespace(batch=1, rows={}, errors=[], live=True, open_flows=0, waiting=0, last_ns=0)
    return "old" in line(result, seconds)


def compared(packets: int) -> bool:
    """Whether so many packets are compared after a signal."""
    run = cast(Any, SimpleNamespace(interrupted=True, uncompared=False, _left_s=lambda limit_s: 60.0))
    with redirect_stderr(io.StringIO()):
        return ServeRun._verification(run, ServedOutcome("asap", received=packets)) is not None


def not_compared(packets: int) -> str | None:
    """Why so many packets are not compared after a replay was stopped."""
    outcome = ReplayOutcome("broker", "asap")
    outcome.stopped = True
    ReplayCommand._too_much(cast(Any, None), outcome, [cast(Any, SimpleNamespace(entries=range(packets)))], [])
    return outcome.not_compared or None


def left_out(size: int) -> int:
    """Lines that are left out when so many bytes wait for a reader."""
    output = Stuck()
    sink = in_front_of(output)
    sink.write(bytes(size))
    sink.offer(b"line")
    output.read.set()
    sink.close()
    return sink.left_out


def completed(words: list[str]) -> list[str]:
    """Words of a list that complete an empty word."""
    return completing.words_of_list(click.Context(inspect_command), tuple(words), "")


def is_offered(folder: Path, before: int, payload: int = 0) -> bool:
    """Whether the topic of a packet is offered that comes after so many others, the last with this payload."""
    publishes = [client(Publish(topic_name="a", payload=bytes(payload))) for _ in range(before - 2)]
    last = client(Publish(topic_name="wanted"))
    path = write_capture(folder / "a.pcapng", *opened(), *publishes, last)
    context = click.Context(inspect_command)
    context.params = {"captures": (str(path),)}
    return "wanted" in (completing.words(context, ["--message"], "") or [])


def size(text: str) -> str | int:
    """What ``--max-packet`` makes of a text."""
    try:
        return PacketSize().parse(text)
    except ValueError as error:
        return str(error).partition(" to ")[0]


def is_read_in_two(size: int) -> bool:
    """Whether two processes read captures of this size by default."""
    run: Any = SimpleNamespace(args=SimpleNamespace(in_store=False, jobs=None))
    with patch.object(ingesting, "processors", lambda: 2):
        return IngestRun._in_two(run, cast(Any, [SimpleNamespace(size=size, is_remote=False)]))


def hits(texts: int) -> list[str]:
    """The lines about so many texts that are in a capture, without their places; further ones as they are."""
    topic = "plant/line1/temperature"
    words = [word for number in range(texts) for word in ("--check", topic[number % 10 : 16 - number // 10])]
    lines = invoke("redact", capture("v5-qos"), *words).err.splitlines()
    return [re.sub(r"^.*?: .*?: |: plain, .*", "", lines[-1]), str(len(lines))]


def several(folder: Path, connections: int) -> str:
    """The last line of the error about a reproducer for so many connections."""
    done = invoke("inspect", site(folder / "a.pcapng", connections), "--output", folder / "a.sh")
    return done.err.splitlines()[-1].strip()


def is_kept(folder: Path, size: int) -> bool:
    """Whether a reproducer is made of a connection with a topic of this size."""
    path = write_capture(folder / "a.pcapng", *opened(), client(Publish(topic_name="a" * size)))
    return invoke("inspect", path, "--output", folder / "a.json").code == 0


def lacking(folder: Path, *, handshake: int = 3, connecting: int = 1, publishing: int = 1) -> str:
    """What is said of an export of a PUBLISH, where handshake, CONNECT and PUBLISH have so many frames."""
    talk = Talk()
    for _ in range(handshake - 2):
        talk.position["client"] = 1000
        talk.client_opens()
    talk.server_opens()
    talk.ack("client")
    _in_parts(talk, wire(connect()), connecting)
    talk.server(CONNACK)
    _in_parts(talk, PUBLISH, publishing)
    path = write(talk.tape, folder / "a.pcapng")
    done = invoke("inspect", path, "--filter", "publish", "--write", folder / "out.pcapng")
    return " ".join(re.findall(r"lacks \d+ frames?", done.err))


def _in_parts(talk: Talk, raw: bytes, count: int) -> None:
    for at in range(count - 1):
        talk.client(raw[at : at + 1])
    talk.client(raw[count - 1 :])


def fragments(count: int) -> tuple[tuple[str, int], ...]:
    """The frames that are remembered of a datagram before its last of so many fragments and one more."""
    table = export._TrackedFragments()
    for part in pieces(tcp(bytes(8 * count - 12)), 8):
        table.feed(part)
    return next(iter(table.parts.values()))


def annotated(folder: Path, count: int, frames: int) -> tuple[Path, str]:
    """A copy with ``count`` comments on ``frames`` frames, and the warnings."""
    path = write_capture(folder / "a.pcapng", *opened(), *[client(Publish(topic_name="a", payload=b"x"))] * 5)
    copy = AnnotatedCopy(str(folder / "copy.pcapng"), [str(path)], all_frames=True)
    for number in range(count):
        copy.comment(str(path), 1 + number % frames, f"remark {number}")
    with redirect_stderr(io.StringIO()) as stream:
        copy.finish("")
    copy.close()
    return folder / "copy.pcapng", stream.getvalue()


def uncopied(folder: Path, count: int) -> str:
    """The warning of a copy of ``count`` comments."""
    warning = re.search("has the first .*", annotated(folder, count, 4)[1])
    return "" if warning is None else warning[0]


def last_comment(folder: Path, count: int) -> str:
    """The last of ``count`` comments on one frame."""
    return by_frame(annotated(folder, count, 1)[0].read_bytes())[1][0].split("\n")[-1]


def clients(folder: Path, count: int) -> tuple[int, bool]:
    """Clients that are compared with a baseline, of so many; and whether that is said to be a limit."""
    stepses = [on(number, *opened(client_identifier=f"a{number}"), closes("client")) for number in range(count)]
    (folder / "baseline.json").write_text(FindingBaseline().dumps())
    settings = LintSettings([], baseline=folder / "baseline.json")
    run = LintRun(settings, cast(Any, CaptureReading([str(write_capture(folder / "a.pcapng", *chain(*stepses)))])),
        colour=False, sink=cast(Any, io.BytesIO()))  # fmt: skip
    with redirect_stderr(io.StringIO()) as stream:
        run.execute()
    return len(run.clients), "limit: " in stream.getvalue()


def held(folder: Path, count: int) -> list[str]:
    """What is said of limits when so many findings go into a report that is written at the end."""
    publishes = [client(Publish(topic_name=f"{number}/#", payload=b"x")) for number in range(count)]
    path = write_capture(folder / "a.pcapng", *opened(), *publishes)
    settings = LintSettings(instances(select(["PUB103"]).values()), more=[("json", str(folder / "a.json"))], every=True)
    findings = LiveFindings(settings, View())
    for event in dissect(open_capture([str(path)])):
        for finding in findings.feed(event):
            findings.take(finding)
    findings.close("a.pcapng", truncated=False)
    return [sentence for sentence in findings.messages() if sentence.startswith("limit")]


def unshown(errors: int) -> int:
    """Failures of rules that are not shown one by one, of so many."""
    findings = LiveFindings(LintSettings([]), View())
    findings.linter.internal_errors += [InternalError("TST291", "a.pcap", 1, "odd", "") for _ in range(errors)]
    return errors - sum(sentence.startswith("internal error") for sentence in findings.messages())


def ended(later_ns: int) -> int:
    """Connections that end in a live capture that is silent for 3 hours and so many nanoseconds."""
    talk = Talk()
    talk.handshake()
    talk.client(connect())
    dissector = Dissector()
    for segment in talk.tape.segments:
        list(dissector.feed(segment))
    now_ns = talk.tape.now_ns + IDLE_TIMEOUT_NS + later_ns
    return sum(isinstance(event, ConnectionClosed) for event in advance(dissector, now_ns))
