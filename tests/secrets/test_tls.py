"""What is decrypted is shown without its secrets, like what needed no keys."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tools

tools.package("pyarrow")
tools.package("msgspec")

from mqttscope.capture import open_capture
from mqttscope.capture.keylog import Keys
from mqttscope.capture.tls import Decryption
from mqttscope.dissect import Dissector, Options, dissect_segments, segments
from mqttscope.events import Event, MalformedEvent, PacketEvent
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.tables import Collector
from mqttscope.lint.engine import Linter
from mqttscope.report.base import Reporter, View
from mqttscope.report.findings.base import RunSummary
from mqttscope.report.findings.sarif import head
from mqttscope.report.findings.shown import FORMATS, make_reporter
from mqttscope.report.jsonl import EventJsonLines
from mqttscope.report.text import TextLines
from mqttscope.report.tree import Tree
from tests.dissect.secure import TLS_1_2, TLS_1_3, Secure, write
from tests.dissect.talk import Talk
from tests.secrets.leaks import Secrets
from tests.secrets.mutants import Scene, scenes
from tests.secrets.sinks import Text, _flat, rules
from tests.secrets.splices import splice_scenes

pytestmark = pytest.mark.tshark
SCENES = [
    scene for scene in (*scenes(), *splice_scenes()) if scene.name in ("5.0", "re-authentication 5.0", "again 3.1.1")
]


@pytest.mark.long
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3], ids=["1.2", "1.3"])
def test_no_output_of_what_was_decrypted_shows_a_secret(scene: Scene, version: ssl.TLSVersion, tmp_path: Path) -> None:
    secure, talk = Secure(version), Talk(port=8883).handshake()
    secure_talk = secure.connection(talk)
    for at in range(max(len(scene.client), len(scene.server))):
        for who, side in (("client", scene.client), ("server", scene.server)):
            if at < len(side):
                secure_talk.say(who, side[at])
    talk.close()
    source = [str(write(talk.tape, tmp_path / "a.pcapng"))]
    decryption = Decryption(Keys(secure.keylog.read_bytes()))
    reading = Options(decrypting=True)
    events = list(dissect_segments(decryption.join(segments(open_capture(source))), dissector=Dissector(reading)))
    read = [event for event in events if isinstance(event, PacketEvent | MalformedEvent)]
    assert len(read) == len(scene.client) + len(scene.server)
    secrets = Secrets(scene.secrets)
    for name, written in outputs_of(source, secure.keylog.read_bytes(), reading):
        assert secrets.leak(written) is None, name


def outputs_of(source: list[str], keys: bytes, reading: Options) -> list[tuple[str, bytes]]:
    """Reports, findings and rows of what was decrypted: each sink reads it again, as each command does."""

    def events() -> Iterator[Event]:
        decryption = Decryption(Keys(keys))
        return dissect_segments(decryption.join(segments(open_capture(source))), dissector=Dissector(reading))

    pairs: list[tuple[str, bytes]] = []
    for name in ("text", "tree", "jsonl"):
        sink = Text()
        view = View(width=100)
        reporter: Reporter = EventJsonLines(sink) if name == "jsonl" else TextLines(sink, view)
        if name == "tree":
            reporter = Tree(sink, view)
        for event in events():
            reporter.feed(event)
        reporter.close()
        pairs.append((name, sink.whole()))
    linter = Linter(rules())
    findings = [finding for event in events() for finding in linter.feed(event)]
    for name in FORMATS:
        sink = Text()
        report = make_reporter(name, sink, View(width=100))
        for finding in findings:
            report.feed(finding)
        report.close(RunSummary(rules=[], quality=linter.quality, withheld=linter.withheld))
        pairs.append((f"lint {name}", sink.whole().removeprefix(head())))
    collector = Collector(LakeOptions(reading, rules=rules(), payload_limit=4096), rules=rules())
    for event in events():
        collector.feed(event)
    parts: list[bytes] = []
    for row in collector.rows.values():
        _flat(row, parts)
    return [*pairs, ("lake", b"\n".join(parts))]
