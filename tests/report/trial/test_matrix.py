"""Brokers side by side."""

from __future__ import annotations

from mqttscope.report.trial.matrix import html, markdown
from mqttscope.trial.verdict import Verdict
from tests.report.trial.tries import run

ONE = run("mqtt://one", ("publish:qos-3", Verdict.TOLERATED), ("random:bits", Verdict.CONFORMING))
TWO = run("mqtt://two|x", ("publish:qos-3", Verdict.CONFORMING), ("random:bits", Verdict.CONFORMING))


def test_markdown() -> None:
    lines = markdown([ONE, TWO]).splitlines()

    assert lines[0] == "| verdict | mqtt://one | mqtt://two\\|x |"
    assert "| tolerated | 1 | 0 |" in lines
    assert "| `publish:qos-3` | 5.0 | tolerated | · |" in lines
    assert not any("random:bits" in line for line in lines)
    assert "· conforming, – the broker does not speak the version, empty: not played" in lines
    assert "conforming," not in markdown([TWO])


def test_html() -> None:
    page = html([run("mqtt://<b>", ("publish:qos-3", Verdict.CRASHED)), TWO])

    assert "<th>mqtt://&lt;b&gt;</th>" in page
    assert "<tr><td>publish:qos-3</td><td>5.0</td><td>crashed</td><td>·</td></tr>" in page


def test_a_version_that_is_not_spoken() -> None:
    silent = run("mqtt://three", ("random:bits", Verdict.CONFORMING))
    silent.results.clear()
    silent.unspoken = ("5.0",)

    assert "| `publish:qos-3` | 5.0 | tolerated | – |" in markdown([ONE, silent]).splitlines()


def test_names_that_are_no_text_do_no_harm() -> None:
    assert "\\xff" in markdown([run("\udcff")]).encode().decode()
    assert "\\xff" in html([run("\udcff")]).encode().decode()
