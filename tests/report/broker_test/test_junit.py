"""JUnit XML."""

from __future__ import annotations

from xml.etree import ElementTree

from mqttscope.report.broker_test.junit import write_junit
from tests.report.broker_test.tries import LINE, run, secret, with_reduction
from tests.report.make import Lines


def test_a_suite_for_each_broker_and_a_failure_for_each_deviation() -> None:
    sink = Lines()
    write_junit(sink, [with_reduction(run()), run("ws://other/mqtt")])
    root = ElementTree.fromstring(sink.data)

    assert (root.get("tests"), root.get("failures")) == ("6", "2")
    assert [one.get("name") for one in root] == ["mqtt://h:1883", "ws://other/mqtt"]
    failure = root.find(".//failure")
    assert failure is not None
    assert failure.get("type") == "tolerated"
    assert failure.text is not None
    assert "PINGREQ is <answered>" in failure.text
    assert LINE in failure.text
    assert len(root.findall(".//testcase")) == 6


def test_names_that_are_no_text_do_no_harm_and_no_line_holds_a_password() -> None:
    made = with_reduction(secret())
    made.broker = "\udcff"
    lines = Lines()
    write_junit(lines, [made])

    assert len(ElementTree.fromstring(lines.data)) == 1
    assert LINE.encode() not in lines.data
