"""Reports of events by the names of their formats."""

from __future__ import annotations

from mqttscope.cli.options import PACKET_FORMATS
from mqttscope.payloads.decoders import Decoders
from mqttscope.report.base import View
from mqttscope.report.formats import FORMATS, make_reporter
from mqttscope.report.jsonl import EventJsonLines
from mqttscope.report.jsonl_decoded import DecodedLines
from mqttscope.report.public_report import PublicReport
from tests.each import each
from tests.secrets.sinks import Text


@each("name", FORMATS)
def test_each_format_of_packets_is_a_public_report(name: str) -> None:
    report = make_reporter(name, Text(), View())

    assert isinstance(report, PublicReport) is (name not in ("jsonl", "html"))


def test_the_command_line_offers_each() -> None:
    assert set(PACKET_FORMATS) | {"html"} == set(FORMATS)


def test_lines_with_decoders_are_a_class_of_their_own() -> None:
    assert type(make_reporter("jsonl", Text(), View())) is EventJsonLines
    assert type(make_reporter("jsonl", Text(), View(payloads=Decoders(())))) is DecodedLines
