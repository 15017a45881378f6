"""Findings for the reporters: real ones from examples of rules, and made ones with what nobody should send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from mqttscope.dissect import dissect_segments
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.engine import InternalError, Linter
from mqttscope.lint.examples import START_NS, segments
from mqttscope.lint.finding import Confidence, Finding, Related, Severity
from mqttscope.lint.gate import BaselineEntry, Suppression
from mqttscope.lint.quality import Quality
from mqttscope.report.base import View
from mqttscope.report.findings.base import RunSummary
from mqttscope.report.findings.shown import make_reporter
from tests.report.make import Lines

SECRET = b"hunter2-secret"
CONNECT = bytes.fromhex("10 20 0004 4d515454 04 42 003c 0004 64657631 000e") + SECRET
CODES = ("CON212", "ENC101", "PUB209")

MADE = Finding(
    rule="CON212",
    slug="second-connect",
    severity=Severity.ERROR,
    confidence=Confidence.CERTAIN,
    message="Password without User Name",
    statements=("3.1.1 MQTT-3.1.2-22",),
    version="3.1.1",
    capture="capture.pcap",
    frame=118,
    timestamp_ns=START_NS,
    connection=3,
    client="10.0.0.4:51234",
    server="10.0.0.2:1883",
    client_identifier="dev1",
    direction="client_to_server",
    packet=7,
    packet_type="connect",
    field="password",
    offset=18,
    length=16,
    reason_code=None,
    fingerprint="0123456789abcdef0123456789abcdef",
    raw=CONNECT,
    sender="client_to_server",
)
HOSTILE_TEXT = (
    "\x1b[31mred\x1b]0;title\x07 \u202egnp\r\n::error::owned\n##[error]x %0A ]]> &amp; <b onclick='x'> \"quoted\" "
    "| `code` [link](http://evil.example) @someone #1 {0} \udced\udca0 \udcff \ufffe \x00 \x85 \u2028 é 日本 \U0001f600"
)
HOSTILE = replace(
    MADE,
    message=HOSTILE_TEXT,
    client_identifier=HOSTILE_TEXT,
    capture=f"dir/{HOSTILE_TEXT}.pcap",
    topic=HOSTILE_TEXT,
    field=f"properties.{HOSTILE_TEXT}",
    related=(Related(HOSTILE_TEXT, 1, 2, START_NS - 5_000_000),),
    confidence=Confidence.LIKELY,
)
AT_THE_END = replace(
    MADE, message="no answer came", packet=None, packet_type=None, field="", offset=None, length=None, raw=b"",
    direction=None, sender=None,
)  # fmt: skip
IN_BASELINE = Suppression("baseline", "in the baseline")
ACCEPTED = Suppression("configuration", "firmware 2.1 sleeps too long\x1b[31m", "2027-03-31")


def real(code: str) -> list[Finding]:
    """The findings of a rule in its bad examples."""
    rule = all_rules()[code]
    linter = Linter([rule()], strict=True)
    captured = (dissect_segment for example in rule.bad for dissect_segment in dissect_segments(segments(example)))
    return [finding for event in captured for finding in linter.feed(event)]


def many() -> list[Finding]:
    """Findings of all kinds."""
    findings = [finding for code in CODES for finding in real(code)]
    mild = replace(MADE, severity=Severity.INFO, confidence=Confidence.HEURISTIC, rule="ENC101")
    return [*findings, MADE, mild, AT_THE_END, HOSTILE]


def summary(**changes: Any) -> RunSummary:
    """A summary in which everything has something to say."""
    run_summary = RunSummary(
        rules=[all_rules()[code]() for code in CODES],
        captures=["capture.pcap"],
        counts=Counter({Severity.ERROR: 2, Severity.WARNING: 1, Severity.INFO: 3}),
        suppressed=Counter(baseline=4, configuration=1),
        withheld=Counter(PUB209=2, CON212=5),
        quality=Quality(connections=3, joined=1, lost_bytes=700, errors=["cut\x1b.pcap"]),
        internal_errors=[InternalError("ENC101", "capture.pcap", 9, "ValueError: \x1b[31m\udcff", "trace")],
        fixed=[BaselineEntry("f" * 32, "CON212", "dev\x1b", "", "connect", "client_to_server", "")],
        profile="Example broker",
        truncated=True,
    )
    for name, value in changes.items():
        setattr(run_summary, name, value)
    return run_summary


def clean(**changes: Any) -> RunSummary:
    """The summary of a run that found nothing and missed nothing, but for what is changed."""
    run_summary = RunSummary(rules=[all_rules()[code]() for code in CODES], captures=["capture.pcap"])
    for name, value in changes.items():
        setattr(run_summary, name, value)
    return run_summary


NOTHING = "nothing to judge: the captures contain no MQTT packet"


def idle(**changes: Any) -> RunSummary:
    """The summary of a run that met no packet."""
    return clean(nothing=NOTHING, packets=0, **changes)


def unreadable() -> RunSummary:
    """The summary of a run that could read nothing."""
    return clean(truncated=True, packets=0, quality=Quality(errors=["gone.pcap"]))


def written(
    name: str,
    findings: Iterable[Finding | tuple[Finding, Suppression]],
    end: RunSummary | None = None,
    sink: Any = None,
    **options: Any,
) -> str:
    """What a format writes; options are those of `make_reporter` and the fields of `View`.

    ``sink`` takes what is no text.
    """
    lines = Lines()
    view = View(**{"width": 0, **{option: options.pop(option) for option in VIEW & options.keys()}})
    reporter = make_reporter(name, lines if sink is None else sink, view, **options)
    for finding in findings:
        reporter.feed(*(finding if isinstance(finding, tuple) else (finding, None)))
    reporter.close(clean() if end is None else end)
    return lines.data.decode()


VIEW = {field.name for field in fields(View)}
