"""``mqttscope lint``: what it finds, how it ends, and what configures it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from mqttscope.cli import linting
from mqttscope.cli.options import FINDING_FORMATS
from mqttscope.lint.catalogue import find, select
from mqttscope.lint.examples import ExampleStep
from mqttscope.mqtt.packets import Pingreq, Pingresp
from mqttscope.report.base import Sink, View
from mqttscope.report.findings.base import FindingReporter
from mqttscope.report.findings.shown import make_reporter
from tests.capture.doubled import recorded, write
from tests.cli.made import Properties, Publish, client, closes, on, opened, server, site, write_capture
from tests.cli.running import Done, capture, invoke
from tests.lint.lint_help import steps_of

FAILING, CLEAN = capture("failing-device"), capture("v311-qos")
NO_STATISTICS = ("sarif", "junit", "github", "gitlab", "markdown")


@pytest.fixture(autouse=True)
def _in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str | Path, stdin: bytes = b"") -> Done:
    return invoke("lint", *arguments, stdin=stdin)


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    return run(FAILING, "--format", "jsonl", *arguments).lines


def document(*arguments: str | Path) -> dict[str, Any]:
    """The report in JSON."""
    return run(*arguments, "--format", "json").document


def codes(documents: Iterable[dict[str, Any]]) -> set[str]:
    return {document["rule"] for document in documents}


def refused(*arguments: str | Path) -> str:
    """The words of a usage error."""
    done = run(*arguments)
    assert done.code == 2
    return done.err.partition("Error: ")[2].removesuffix("\n")


def test_a_row_has_every_key_of_the_interface() -> None:
    row = next(row for row in rows() if row["rule"] == "PUB103")

    assert list(row)[:23] == [
        "schema", "rule", "slug", "severity", "confidence", "message", "statements", "version", "capture", "frame",
        "timestamp_ns", "connection", "client", "server", "client_identifier", "direction", "packet", "packet_type",
        "field", "offset", "length", "reason_code", "fingerprint",
    ]  # fmt: skip
    assert row["client_identifier"] == "thermostat-7"
    assert row["statements"] == ["5.0 MQTT-3.3.2-2", "5.0 MQTT-4.7.0-1"]


@pytest.mark.parametrize("form", FINDING_FORMATS)
def test_the_exit_code_is_the_same_for_every_format(form: str) -> None:
    assert run(FAILING, "--format", form).code == 1
    assert run(CLEAN, "--format", form).code == 0
    assert run(FAILING, "--format", form, "--exit-zero").code == 0


def test_severity_and_confidence_decide_what_fails_and_what_is_shown() -> None:
    only = ("--select", "CON108")

    assert run(FAILING, *only).code == 0
    assert run(FAILING, *only, "--fail-on", "info").code == 1
    assert run(FAILING, "--select", "PUB103", "--fail-confidence", "certain").code == 1
    assert all(row["confidence"] == "certain" for row in rows("--min-confidence", "certain"))


def test_rules_are_selected_by_prefix_and_name() -> None:
    assert codes(rows("--select", "PUB")) == {"PUB103"}
    assert codes(rows("--select", "wildcard-in-topic-name")) == {"PUB103"}
    assert "PUB103" not in codes(rows("--ignore", "PUB1"))
    assert any(code.startswith(("TOP", "OPS", "SEC")) for code in codes(rows("--extend-select", "TOP,OPS,SEC")))
    assert not any(code.startswith(("TOP", "OPS", "SEC", "PAY")) for code in codes(rows()))


@pytest.mark.parametrize(
    ("options", "files"),
    [
        (
            ("--format", "concise", "--output", "sarif=lint.sarif", "--output", "junit=lint.xml"),
            {"lint.sarif": '"version":"2.1.0"', "lint.xml": "<?xml"},
        ),
        (("--format", "json", "--output", "found.json"), {"found.json": '{"schema":1'}),
        (("--format", "json", "--output", "./a=b", "--output", "junit=c=d"), {"a=b": '{"schema":1', "c=d": "<?xml"}),
    ],
    ids=["several formats", "the one format", "equals signs in names"],
)
def test_reports_go_to_files(options: tuple[str, ...], files: dict[str, str], tmp_path: Path) -> None:
    done = run(FAILING, *options)

    assert all(text in (tmp_path / name).read_text("utf-8") for name, text in files.items())
    assert ("PUB103" in done.text, done.text == "") == (("concise" in options), ("concise" not in options))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--select", "PUB1003"), "did you mean PUB103"),
        (("--output", "a", "--output", "b"), "given twice"),
        (("--output", "sarif="), "no file"),
        (("--output", "sarfi=lint.sarif"), "unknown format 'sarfi', did you mean 'sarif'?"),
        (("--output", "sarfi=lint.sarif"), "./sarfi=lint.sarif"),
        (("--output", "=x"), "unknown format ''"),
        (("--output", ""), "the name of the file is empty"),
        (("--output", "json=x", "--output", "./x"), "same file"),
        (("--output", "sarif=x", "--output", "junit=x"), "same file"),
        (("--output", "/nonexistent/folder/x"), "cannot write"),
        (("--update-baseline",), "needs --baseline"),
        (("--baseline", "missing.json"), "--update-baseline creates it"),
        (("--profile", "aws"), "did you mean aws-iot-core"),
        (("--config", "missing.toml"), "missing.toml"),
        (("--filter", "topic =="), "--filter"),
        (("--complete", "fd00::1:1883"), "write an IPv6 address in brackets"),
        (("--complete", "broker:1883"), "captures contain no host names"),
        *((("--statistics", "--format", form), f"--statistics has no format {form}") for form in NO_STATISTICS),
    ],
)
def test_what_cannot_be_is_said(arguments: tuple[str, ...], why: str) -> None:
    assert why in refused(FAILING, *arguments)


def test_without_captures_there_is_nothing_to_lint() -> None:
    assert "CAPTURE" in refused()


@pytest.mark.parametrize(
    ("option", "name", "text", "why"),
    [
        ("--baseline", "b.json", "{", "not JSON"),
        ("--baseline", "b.json", "[" * 100_000, "nested too deeply"),
        ("--config", "c.toml", "a = " + "[" * 100_000, "nested too deeply"),
        ("--profile", "p.toml", "a = " + "[" * 100_000, "nested too deeply"),
    ],
    ids=["no JSON", "baseline", "config", "profile"],
)
def test_a_file_that_cannot_be_read_is_refused(option: str, name: str, text: str, why: str, tmp_path: Path) -> None:
    configure(tmp_path, text, name)

    assert f"{name}: " in refused(FAILING, option, name)
    assert why in refused(FAILING, option, name)


def update(baseline: Path, *more: str | Path) -> Done:
    """Update a baseline from the failing device."""
    return run(FAILING, "--baseline", baseline, "--update-baseline", *more)


def add_entry(baseline: Path) -> dict[str, str]:
    """Add a finding that no longer exists."""
    entry = {
        "fingerprint": "0" * 32, "rule": "PUB102", "client": "thermostat-7", "topic": "", "packet_type": "publish",
        "direction": "client_to_server", "field": "dup",
    }  # fmt: skip
    written = json.loads(baseline.read_text("utf-8"))
    written["findings"].append(entry)
    baseline.write_text(json.dumps(written), "utf-8")
    return entry


def test_a_baseline_silences_what_was_there_and_tells_what_is_fixed(known: Path) -> None:
    assert known.stat().st_mode & 0o777 == 0o600
    assert run(FAILING, "--baseline", known).code == 0
    add_entry(known)
    assert [row["rule"] for row in document(FAILING, "--baseline", known)["summary"]["fixed"]] == ["PUB102"]


def test_findings_beyond_the_baseline_fail(tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"
    update(baseline, "--select", "PUB103")

    assert run(FAILING, "--baseline", baseline, "--select", "PUB103").code == 0
    assert run(FAILING, "--baseline", baseline).code == 1


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """A baseline with all findings of the failing device."""
    baseline = tmp_path / "known.json"
    assert update(baseline).code == 0
    assert codes(entries(baseline)) == {"ALS202", "CON108", "FLW201", "PUB103"}
    return baseline


def entries(baseline: Path) -> list[dict[str, str]]:
    text_lists: list[dict[str, str]] = json.loads(baseline.read_text("utf-8"))["findings"]
    return text_lists


@pytest.mark.parametrize(
    "more",
    [
        ("--select", "ALS"),
        ("--ignore", "PUB,FLW,CON"),
        ("--min-confidence", "certain"),
        ("--client", "nobody", "--require-packets", "0"),
    ],
    ids=" ".join,
)
def test_an_update_keeps_what_did_not_run(more: tuple[str, ...], known: Path) -> None:
    before = known.read_text("utf-8")
    result = update(known, *more)

    assert result.code == 0
    assert known.read_text("utf-8") == before
    assert "0 new, 0 gone" in result.err


def test_an_update_keeps_what_is_not_sure_enough_to_be_shown(tmp_path: Path) -> None:
    baseline = tmp_path / "known.json"
    assert {row["confidence"] for row in rows("--select", "ALL")} > {"certain"}
    update(baseline, "--select", "ALL")
    before = baseline.read_text("utf-8")
    update(baseline, "--select", "ALL", "--min-confidence", "certain")

    assert baseline.read_text("utf-8") == before


def test_an_update_keeps_the_clients_that_were_not_captured(known: Path) -> None:
    before = entries(known)
    result = run(CLEAN, "--baseline", known, "--update-baseline")

    assert [texts for texts in entries(known) if texts in before] == before
    assert "0 gone; 4 kept, because their rules or clients were not linted" in result.err


def test_an_update_takes_out_what_is_fixed(known: Path) -> None:
    gone = add_entry(known)

    assert "4 kinds of findings, 0 new, 1 gone" in update(known).err
    assert gone not in entries(known)


@pytest.mark.parametrize("left", [0, 100, -20])
def test_a_capture_that_cannot_be_read_leaves_the_baseline_alone(left: int, known: Path, tmp_path: Path) -> None:
    before = known.read_text("utf-8")
    damaged = tmp_path / "damaged.pcapng"
    damaged.write_bytes(FAILING.read_bytes()[:left])
    result = run(damaged, "--baseline", known, "--update-baseline", "--format", "json")

    assert result.code == 3
    assert known.read_text("utf-8") == before
    assert "not written, because a capture could not be read to its end" in result.err
    assert json.loads(result.text)["summary"]["fixed"] == []


def test_what_the_configuration_hides_is_not_fixed(known: Path, tmp_path: Path) -> None:
    configure(tmp_path, '[lint.per-client-ignores]\n"thermostat-*" = ["PUB"]\n')
    assert document(FAILING, "--baseline", known)["summary"]["fixed"] == []

    assert "1 gone" in update(known).err
    assert "PUB103" not in codes(entries(known))


def configure(folder: Path, text: str, name: str = "mqttscope.toml") -> None:
    (folder / name).write_text(text, "utf-8")


def test_a_configuration_is_found_upwards_and_the_command_line_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, '[lint]\nselect = ["CON108"]\nfail-on = "info"\n')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)

    assert codes(rows()) == {"CON108"}
    assert run(FAILING).code == 1
    assert run(FAILING, "--fail-on", "error").code == 0
    assert codes(rows("--select", "PUB103")) == {"PUB103"}
    assert run(FAILING, "--no-config", "--ignore", "ALL", "--select", "CON108").code == 0
    # The environment stands between them.
    monkeypatch.setenv("MQTTSCOPE_SELECT", "PUB103,CON108")
    assert codes(rows()) == {"PUB103", "CON108"}
    assert codes(rows("--select", "PUB103")) == {"PUB103"}


def test_a_configuration_that_is_named_and_refused_is_a_contradiction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, "[lint]\n")
    named = str(tmp_path / "mqttscope.toml")

    assert "--config and --no-config contradict each other" in refused(FAILING, "--config", named, "--no-config")
    monkeypatch.setenv("MQTTSCOPE_CONFIG", named)
    assert run(FAILING, "--no-config", "--ignore", "ALL", "--select", "CON108").code == 0


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("pyproject.toml", '[tool.mqttscope.lint]\nselect = ["PUB103"]\n', {"PUB103"}),
        ("mqttscope.toml", '[lint]\nselect = ["TOP104"]\n[rules.TOP104]\nlevels = 2\n', {"TOP104"}),
    ],
    ids=["our table of pyproject.toml", "the settings of a rule"],
)
def test_a_configuration_selects_rules(name: str, text: str, expected: set[str], tmp_path: Path) -> None:
    configure(tmp_path, text, name)

    assert codes(rows()) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[lint]\nselct = []\n", "did you mean select"),
        ("[rules.KAL201]\ntolerance_percent = inf\n", "tolerance_percent must be like its default"),
        ('[lint]\ncomplete = ["10.0.0.2"]\n', "lint.complete: '10.0.0.2': it is not HOST:PORT"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(text: str, why: str, tmp_path: Path) -> None:
    configure(tmp_path, text)

    assert why in refused(FAILING)


KNOWN = '[[lint.suppress]]\nrules = ["PUB103"]\nreason = "known"\nexpires = '


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ('[lint.per-client-ignores]\n"thermostat-*" = ["PUB"]\n', 0, ""),
        ('[lint.per-topic-ignores]\n"other/#" = ["PUB"]\n', 1, ""),
        (f"{KNOWN}2999-01-01\n", 0, ""),
        (f"{KNOWN}2020-01-01\n", 1, "expired on 2020-01-01"),
    ],
    ids=["client", "other topic", "suppressed", "expired"],
)
def test_findings_are_ignored_by_client_and_topic_and_suppressed_for_a_time(
    text: str, code: int, expected: str, tmp_path: Path
) -> None:
    configure(tmp_path, '[lint]\nselect = ["PUB103"]\n' + text)
    result = run(FAILING)

    assert result.code == code
    assert expected in result.err


@pytest.mark.parametrize(("selected", "length"), [("SEC104", 32), ("PUB103", 40)])
def test_reports_hide_what_the_rule_takes_for_a_secret(
    selected: str, length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, f'[lint]\nselect = ["{selected}"]\n[rules.SEC104]\nlength = 32\n')
    lengths = []

    def noted(name: str, sink: Sink, view: View, **shape: Any) -> FindingReporter:
        lengths.append(view.secret_length)
        return make_reporter(name, sink, view, **shape)

    monkeypatch.setattr(linting, "make_reporter", noted)
    run(FAILING, "--output", "json=found.json")

    assert lengths == [length, length]


def test_a_profile_brings_its_own_rules(tmp_path: Path) -> None:
    configure(tmp_path, 'dated = 2026-11-21\ntitle = "Ours"\n[limits]\nmaximum_qos = 0\n', "ours.toml")
    documents = rows("--profile", "ours.toml", "--select", "PUB103")

    assert codes(documents) == {"PUB103", "PRF101"}
    assert any("Ours (2026-11-21)" in document["message"] for document in documents)


def test_show_settings_says_where_they_come_from(tmp_path: Path) -> None:
    configure(tmp_path, '[lint]\nselect = ["PUB103"]\nport = ["1884"]\n')
    row = ("--complete", "10.0.0.2:1883", "--complete", "[FD00::1]:1883", "--show-settings")
    result = run(*row)

    assert result.code == 0
    assert str(tmp_path / "mqttscope.toml") in result.text
    assert "port: 1884:mqtt" in result.text
    assert "PUB103 wildcard-in-topic-name (error, certain)" in result.text
    assert "complete: 10.0.0.2:1883\ncomplete: [fd00::1]:1883\n" in result.text
    assert document(*row)["complete"] == ["10.0.0.2:1883", "[fd00::1]:1883"]


def taken_over(path: Path) -> Path:
    """A session that two connections have at once (SES307, which is likely)."""
    speaks = client(Pingreq(), after=40), server(Pingresp())
    return write_capture(path, *opened(), *on(1, *opened()), *speaks)


def test_what_follows_is_certain_where_the_capture_holds_every_connection(tmp_path: Path) -> None:
    words = (taken_over(tmp_path / "a.pcapng"), "--select", "SES307", "--format", "jsonl")
    likely, certain = run(*words), run(*words, "--complete", "10.0.0.2:1883")
    other = run(*words, "--complete", "10.0.0.2:1883", "--complete", "[fd00::0:1]:1883")
    configure(tmp_path, '[lint]\ncomplete = ["10.0.0.2:1883"]\n')
    configured = run(*words)

    assert (likely.code, certain.code, configured.code) == (0, 1, 1)
    assert certain.lines == [line | {"confidence": "certain"} for line in likely.lines]
    assert configured.text == certain.text
    assert certain.err == ""
    assert "--complete [fd00::1]:1883: no connection of this server was seen" in other.err
    assert "10.0.0.2" not in other.err


def test_show_settings_as_json(tmp_path: Path) -> None:
    configure(
        tmp_path,
        '[lint]\nselect = ["TOP104"]\nport = ["1884"]\n[rules.TOP104]\nlevels = 2\n'
        '[[lint.suppress]]\nrules = ["TOP"]\nreason = "known"\nexpires = 2999-01-01\n',
    )
    result = run("--show-settings", "--format", "json", "-o", "sarif=x.sarif", "--mqtt-version", "3.1")
    shown = json.loads(result.text)

    assert result.code == 0
    assert shown["configuration_file"] == str(tmp_path / "mqttscope.toml")
    assert (shown["ports"], shown["mqtt_version"], shown["fail_on"]) == ({"1884": "mqtt"}, "3.1", "error")
    assert shown["more"] == [{"format": "sarif", "output": "x.sarif"}]
    assert shown["suppressed"][0]["expires"] == "2999-01-01"
    assert [(row["rule"], row["settings"]["levels"]) for row in shown["rules"]] == [("TOP104", 2)]


def test_show_settings_as_json_says_what_the_text_says() -> None:
    text, shown = run("--show-settings").text, document("--show-settings")

    assert len(shown["rules"]) == text.count("\n  ")
    # Further formats and suppressions are lines only where there are any.
    keys = {line.partition(":")[0] for line in text.splitlines() if line[0] != " "}
    assert {key.replace("-", "_").replace(" ", "_") for key in keys} <= {*shown}


def test_statistics_count_instead_of_showing() -> None:
    text, shown = run(FAILING, "--statistics"), document(FAILING, "--statistics")

    assert text.code == 1
    assert "PUB103 wildcard-in-topic-name" in text.text
    assert "thermostat/+/state" not in text.text
    assert shown["summary"]["findings"]["error"] == 3
    assert {"rule": "PUB103", "slug": "wildcard-in-topic-name", "severity": "error", "findings": 1, "clients": 1,
            "suppressed": 0, "withheld": 0} in shown["rules"]  # fmt: skip
    result = run(FAILING, "--statistics", "--format", "jsonl")
    assert result.code == 1
    assert result.lines == [{"schema": 1, **each} for each in shown["rules"]]


@pytest.mark.parametrize(
    "options",
    [
        ("--ignore", "ALL"),
        ("--select", "PUB103", "--ignore", "PUB103"),
        ("--select", "PUB1", "--extend-select", "ALS202", "--ignore", "PUB10,ALS202"),
    ],
    ids=" ".join,
)
def test_a_selection_that_leaves_no_rule_is_refused(options: tuple[str, ...]) -> None:
    text = " and ".join(map(" ".join, zip(options[::2], options[1::2], strict=True)))
    for more in ((), ("--show-settings",)):
        assert refused(FAILING, *options, *more) == f"{text}: no rule is left to check with"
    assert run(FAILING, "--select", "PUB101,PUB102", "--ignore", "PUB102").code == 0, "one rule is enough"


def test_a_configuration_that_leaves_no_rule_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(tmp_path, '[lint]\nextend-select = ["SEC101"]\nignore = ["ALL", "SEC101"]\n')
    file = tmp_path / "mqttscope.toml"
    assert refused(FAILING) == (
        f"extend-select = ['SEC101'] of {file} and ignore = ['ALL', 'SEC101'] of {file}: no rule is left to check with"
    )
    assert refused(FAILING, "--extend-select", "OPS223", "--ignore", "OPS223").startswith("--extend-select OPS223 and")
    assert run(FAILING, "--select", "PUB103").code == 1
    assert run(FAILING, "--profile", "aws-iot-core").code == 0, "the rules of the profile are left"
    monkeypatch.setenv("MQTTSCOPE_IGNORE", "ALL")
    assert refused(FAILING, "--no-config") == "--ignore ALL: no rule is left to check with"


def test_a_capture_that_ends_early_is_exit_code_3_and_still_reported() -> None:
    assert run("-", stdin=FAILING.read_bytes()).code == 1
    result = run("-", stdin=FAILING.read_bytes()[:-20])

    assert result.code == 3
    assert "PUB103" in result.text


def test_a_failing_rule_is_told_and_makes_the_run_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(find("PUB103"), "check", broken)
    result = run(FAILING, "--select", "PUB103,CON108")

    assert result.code == 3
    assert "internal error in PUB103" in result.err
    assert "CON108" in result.text


def test_wills_beyond_those_that_are_followed_are_named_and_fix_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (published, *_), baseline = find("WIL405").bad, tmp_path / "baseline.json"
    arguments = (write_capture(tmp_path / "a.pcapng", *published.steps), "--select", "WIL405", "--baseline", baseline)
    assert run(*arguments, "--update-baseline").code == 0
    monkeypatch.setattr("mqttscope.lint.wills.MAX_ARMED", 0)
    result = run(*arguments, "--format", "json")

    assert "limit: 10.0.0.2:1883 has more wills than are followed: WIL405 may miss findings" in result.err
    assert result.document["summary"]["fixed"] == []


def test_a_page_is_asked_for_by_its_name_and_not_written_to_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, other = tmp_path / "lint.html", tmp_path / "lint.HTM"

    assert run(FAILING, "--output", page).code == 1
    assert page.read_bytes().startswith(b"<!doctype html>")
    assert "lint.HTM" in refused(FAILING, "--output", other, "--format", "concise")
    assert not other.exists()
    monkeypatch.setattr("mqttscope.cli.output.is_terminal", lambda: True)
    assert "--output FILE.html" in refused(FAILING, "--format", "html")
    assert run(FAILING, "--format", "html", "--output", page).code == 1


NO_MQTT = "nothing to judge: the captures contain no MQTT packet"


@pytest.fixture
def silent(tmp_path: Path) -> Path:
    """A capture in which another protocol is spoken."""
    steps = client(b"SSH-2.0-OpenSSH_9.2\r\n"), server(b"SSH-2.0-OpenSSH_9.2\r\n"), closes("client")
    return write_capture(tmp_path / "silent.pcapng", *steps, to="10.0.0.2:22")


@pytest.mark.parametrize(
    ("name", "expected"), [("missing.pcap", ""), ("silent.pcapng", "not written, because there was nothing to judge")]
)
@pytest.mark.usefixtures("silent")
def test_what_was_not_judged_makes_no_baseline(name: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    result = run(name, "--baseline", path, "--update-baseline")

    assert result.code == 3
    assert not path.exists()
    assert expected in result.err


@pytest.mark.parametrize("form", FINDING_FORMATS)
def test_nothing_to_judge_is_exit_code_3_in_every_format(form: str, silent: Path) -> None:
    result = run(silent, "--format", form)

    assert result.code == 3
    assert "nothing to judge" in result.err
    assert run(silent, "--format", form, "--exit-zero").code == 0
    allowed = run(silent, "--format", form, "--require-packets", "0")
    assert allowed.code == 0
    assert form != "full" or allowed.text.startswith("no findings by ")


@pytest.mark.parametrize(
    ("raw", "kind"),
    [(bytes(100), "well-formed"), (b"\x10\x0d\x00\x04MQTT", "complete")],
    ids=["zeros", "half a CONNECT"],
)
def test_what_is_no_whole_packet_is_nothing_to_judge(raw: bytes, kind: str, tmp_path: Path) -> None:
    result = run(write_capture(tmp_path / "a.pcapng", client(raw), closes("client")), "--format", "concise")

    assert result.code == 3
    assert f"mqttscope: nothing to judge: the captures contain no {kind} MQTT packet\n" in result.err


def test_nothing_to_judge_is_said_where_each_format_says_such_things(silent: Path) -> None:
    shown = document(silent)["summary"]
    (sarif,) = json.loads(run(silent, "--format", "sarif").text)["runs"][0]["invocations"]
    junit = run(silent, "--format", "junit").text

    assert run(silent).text == f"{NO_MQTT}\n"
    assert (shown["nothing"], shown["packets"]) == (NO_MQTT, 0)
    assert sarif["executionSuccessful"] is False
    assert [row["message"]["text"] for row in sarif["toolExecutionNotifications"]] == [NO_MQTT]
    assert run(silent, "--format", "github").text == f"::error title=mqttscope::{NO_MQTT}\n"
    assert junit.count("<skipped ") == len(shown["rules"]) + 1
    assert 'failures="0"' in junit


def test_another_protocol_is_nothing_to_judge(tmp_path: Path) -> None:
    web = [client(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), server(b"HTTP/1.1 200 OK\r\n\r\n"), closes("client")]
    path = write_capture(tmp_path / "web.pcapng", *web)

    result = run(path, "--port", "1883")
    assert result.code == 3
    assert "the first bytes are HTTP, not MQTT" in result.text
    assert f"\n{NO_MQTT}\n1 note by " in result.text
    junit = run(path, "--port", "1883", "--format", "junit").text
    assert junit.count("<testcase ") == junit.count("<skipped ") + 2, "all but those of the run itself"
    assert re.search(r"<skipped [^>]*/>\s*<system-out>[^<]*HTTP", junit)


def test_a_finding_that_counts_is_something_to_judge(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "garbage.pcapng", client(b"\xff" * 40), closes("client"))
    result = run(path, "--port", "1883", "--format", "jsonl")

    assert result.code == 1
    assert any((line["severity"], line["confidence"]) == ("error", "certain") for line in result.lines)


def test_an_empty_capture_among_others_is_skipped_for_itself(silent: Path) -> None:
    result = run(silent, CLEAN, "--format", "junit")

    assert result.code == 3
    _head, tail = result.text.split(f'<testsuite name="{silent}"')
    suite = tail.partition("</testsuite>")[0]
    assert suite.count("<testcase ") == suite.count("<skipped ") > 100
    assert re.findall(r"<skipped [^>]*>", result.text.replace(suite, "")) == [
        f'<skipped message="no MQTT packet to judge in {silent}"/>'
    ]


@pytest.mark.parametrize("answer", [(), (server(b"HTTP/1.1 400 Bad Request\r\n\r\n"),)], ids=["silent", "HTTP"])
def test_it_is_said_where_no_broker_answered(tmp_path: Path, answer: tuple[ExampleStep, ...]) -> None:
    path = write_capture(tmp_path / "silent.pcapng", opened()[0], *answer, closes("server", after=5))
    text = "no broker answered: 1 connection has a CONNECT and no CONNACK, so that only what clients sent was judged"

    result = run(path)

    assert result.code == (1 if answer else 0)
    assert f"mqttscope: {text}\n" in result.err
    assert text in result.text
    assert "one direction only" not in result.text + result.err
    assert text in run(path, "--format", "markdown").text.replace("&#45;", "-")
    github = run(path, "--format", "github").text
    assert re.search(rf"^::warning title=mqttscope::.*{text}$", github, re.MULTILINE)
    assert document(path)["summary"]["quality"]["unanswered"] == 1


def test_a_named_capture_without_any_packet_is_named_beside_others(silent: Path) -> None:
    text = f"no MQTT packet to judge in {silent}"

    result = run(CLEAN, silent)

    assert result.code == 3
    assert f"mqttscope: {text}\n" in result.err
    assert text in result.text
    github = run(CLEAN, silent, "--format", "github")
    assert "::error title=mqttscope::" in github.text
    assert text in github.text
    assert text in github.err
    assert "no MQTT packet to judge" not in run(CLEAN).err


def test_what_another_capture_has_shown_was_judged(tmp_path: Path) -> None:
    """Two taps: the packets of the second are those of the first."""
    for name, frames in (("whole", recorded(CLEAN)), ("open", recorded(CLEAN)[:-8])):
        paths = [write(tmp_path / f"{name}-{number}.pcapng", frames) for number in range(2)]
        result = run(*paths, "--require-packets", "3")

        assert (result.code, "to judge" in result.err) == (0, False)


def test_a_number_of_packets_can_be_required(tmp_path: Path) -> None:
    packets = document(CLEAN)["summary"]["packets"]
    assert packets > 10

    assert run(CLEAN, "--require-packets", str(packets)).code == 0
    result = run(CLEAN, "--require-packets", str(packets + 1))
    text = f"too little to judge: {packets} MQTT packets, {packets + 1} are required"
    assert (result.code, result.text.splitlines()[-2], result.err) == (
        3,
        text,
        f"mqttscope: {text}\n",
    )
    assert run(CLEAN, "--require-packets", str(packets + 1), "--exit-zero").code == 0
    junit = run(CLEAN, "--require-packets", str(packets + 1), "--format", "junit").text
    assert f'<error message="{text}"' in junit

    configure(tmp_path, f"[lint]\nrequire-packets = {packets + 1}\n")
    assert run(CLEAN).code == 3
    assert run(CLEAN, "--require-packets", "1").code == 0


def test_a_missing_file_says_only_that() -> None:
    for form in ("full", "concise"):
        result = run("missing.pcap", "--format", form)
        assert (result.code, result.text) == (3, "")
        assert result.err == "mqttscope: missing.pcap: does not exist\n"
    assert run("missing.pcap", "--format", "github").text == (
        "::error title=mqttscope::nothing could be read: missing.pcap\n"
    )


def test_the_summary_says_how_many_findings_count() -> None:
    assert run(FAILING).text.splitlines()[-1] == f"3 errors (3 fail the run), 1 note by {len(select())} rules"
    by_note = run(FAILING, "--fail-on", "info", "--ignore", "PUB103").text.splitlines()[-1]
    assert by_note == f"2 errors (2 fail the run), 1 note (1 fails the run) by {len(select()) - 1} rules"


def test_what_does_not_count_is_no_error_on_github() -> None:
    path = capture("planted-violations")
    shown = document(path)["summary"]
    errors, counting = shown["findings"]["error"], shown["counting"]["error"]
    github = run(path, "--format", "github", "--every").text

    assert errors > counting > 1
    assert github.count("::error file=") == counting
    assert github.count("This error does not fail the run") == errors - counting
    assert f"::notice title=mqttscope::{errors} errors ({counting} fail the run)" in github


@pytest.fixture
def pumps(tmp_path: Path) -> Path:
    return site(tmp_path / "site.pcapng")


def test_many_clients_with_a_hyphen_are_one_note(pumps: Path) -> None:
    (row,) = run(pumps, "--format", "jsonl", "--select", "CON108").lines

    assert row["clients"] == 5
    assert row["message"].endswith(": 'pump-0000', 'pump-0001', 'pump-0002' and 2 more")
    assert run(pumps, "--select", "CON108", "--statistics").text.split("\n")[-2] == "1 note by 1 rule"


def test_names_in_the_one_note_have_no_secrets(tmp_path: Path) -> None:
    names = "pump-1", "pump-2/eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
    steps = [step for number, name in enumerate(names) for step in on(number, *opened(client_identifier=name))]
    path = write_capture(tmp_path / "secret.pcapng", *steps)

    for form in FINDING_FORMATS:
        text = run(path, "--select", "CON108", "--format", form).text
        assert "dozjgNryP4J3" not in text
        assert form == "junit" or "pump-2" in text


def test_the_worst_is_shown_first_and_notes_are_folded(pumps: Path) -> None:
    def heads(*more: str) -> list[str]:
        lines = run(pumps, *more).text.splitlines()
        return [line.partition("]")[0] for line in lines if line.startswith(("error[", "warning[", "info["))]

    assert heads() == ["error[PUB103", "warning[ENC103", "info[CON108"]
    assert heads("--every") == ["error[PUB103", "warning[ENC103", "warning[ENC103", "info[CON108"]
    assert heads("--verbose") == heads()
    short, long = run(pumps).text, run(pumps, "--verbose").text
    assert "CONNECT    5.0" not in short
    assert "CONNECT    5.0" in long
    concise = run(pumps, "--format", "concise").text
    assert concise.index("ENC103") < concise.index("PUB103"), "a line for each in the order of the capture"


@pytest.mark.parametrize("form", ["full", "concise", "jsonl", "github", "markdown"])
def test_min_severity_hides_and_changes_no_exit_code(form: str, pumps: Path) -> None:
    result = run(pumps, "--format", form, "--min-severity", "error")
    assert result.code == 1
    assert "PUB103" in result.text
    assert "ENC103" not in result.text
    assert "CON108" not in result.text
    assert "ENC103" in run(pumps, "--format", form, "--min-severity", "warning").text

    only = ("--select", "CON108", "--format", form, "--min-severity", "error")
    assert run(pumps, *only).code == 0
    assert run(pumps, *only, "--fail-on", "info").code == 1


def test_what_is_hidden_is_counted_and_may_be_configured(pumps: Path, tmp_path: Path) -> None:
    configure(tmp_path, '[lint]\nmin-severity = "error"\n')

    last = run(pumps).text.splitlines()[-1]
    assert (
        last == f"1 error (1 fails the run), 2 warnings, 1 note by {len(select())} rules; 3 not shown (--min-severity)"
    )
    assert "ENC103" in run(pumps, "--min-severity", "warning").text
    junit = run(pumps, "--select", "ENC103", "--fail-on", "warning", "--format", "junit")
    assert junit.code == 1
    assert "2 findings that fail the run are below --min-severity" in junit.text


def found(path: Path, *more: str | int) -> list[tuple[str, str]]:
    lines = run(path, "--format", "jsonl", *map(str, more)).lines
    return [(line["rule"], line["client_identifier"]) for line in lines]


def test_findings_of_one_client_of_one_connection_and_of_a_filter(pumps: Path) -> None:
    last = [("PUB103", "pump-0004"), ("CON108", "pump-0004")]

    assert found(pumps, "--client", "pump-0004") == last
    assert found(pumps, "--connection", 4) == last
    assert found(pumps, "--client", "pump-0000") == [("CON108", "pump-0000")]
    assert found(pumps, "--client", "*-0001", "--client", "*4") == [
        ("ENC103", "pump-0001"), ("ENC103", "pump-0001"), ("PUB103", "pump-0004"), ("CON108", "pump-0001"),
    ]  # fmt: skip
    assert found(pumps, "--filter", 'publish and topic == "plant/#"') == [("PUB103", "pump-0004")]
    assert found(pumps, "--filter", "publish", "--client", "pump-0001") == [("ENC103", "pump-0001")] * 2
    assert run(pumps, "--client", "pump-0000").code == 0
    assert run(pumps, "--client", "pump-0004").code == 1


def test_rules_see_all_of_the_capture_whatever_is_selected(tmp_path: Path) -> None:
    # That the second PUBLISH has no alias mapping is known by the whole connection alone.
    publish = Publish(topic_name="", properties=Properties(topic_alias=1), payload=b"x")
    path = write_capture(
        tmp_path / "alias.pcapng",
        *opened(client_identifier="a1", connack=Properties(topic_alias_maximum=5)),
        client(Publish(topic_name="t", properties=Properties(topic_alias=1))),
        client(publish),
        client(Publish(topic_name="", properties=Properties(topic_alias=2))),
    )

    assert [rule for rule, _ in found(path, "--select", "ALS")] == ["ALS203"]
    assert [rule for rule, _ in found(path, "--select", "ALS", "--filter", "publish")] == ["ALS203"]
    assert found(path, "--select", "ALS", "--filter", 'topic == "t"') == []


def test_a_client_that_is_named_by_the_server_is_known_from_its_first_packet_on(tmp_path: Path) -> None:
    named = opened(client_identifier="", connack=Properties(assigned_client_identifier="auto-7"))
    path = write_capture(
        tmp_path / "named.pcapng", *named, *on(1, *opened(client_identifier="b1")), client(Publish(topic_name="a/#"))
    )

    assert document(path, "--client", "auto-7")["summary"]["packets"] == 3, "its CONNECT is one of them"
    assert ("PUB103", "auto-7") in found(path, "--client", "auto-7")


@pytest.mark.parametrize(
    ("selected", "why"),
    [
        (("--client", "pump-9"), "nothing to judge: no packet of a client 'pump-9'"),
        (("--connection", "5"), "nothing to judge: no connection 5: numbers go from 0 to 4"),
        (("--filter", 'topic == "x"'), "nothing to judge: no packet matches what was selected"),
    ],
    ids=str,
)
def test_a_selection_that_holds_nothing_is_nothing_to_judge(selected: tuple[str, str], why: str, pumps: Path) -> None:
    result = run(pumps, *selected)

    assert (result.code, result.text, result.err) == (3, f"{why}\n", f"mqttscope: {why}\n")


def test_a_filter_may_be_about_events_that_are_no_packets(pumps: Path) -> None:
    result = run(pumps, "--filter", "event == connection_closed")

    assert (result.code, result.err) == (0, "")
    assert result.text.startswith("no findings by ")
    assert run(pumps, "--filter", "event == connection_closed", "--require-packets", "1").code == 3


def test_what_waits_for_the_name_of_its_client_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttscope.lint.gate.MAX_WAITING", 1)
    bad = client(Publish(topic_name="a/#"))
    path = write_capture(tmp_path / "late.pcapng", bad, bad, bad, *opened(client_identifier="late1"))
    result, everything = run(path, "--client", "late1", "--format", "jsonl"), run(path, "--format", "jsonl")

    left = len(everything.lines) - len(result.lines)
    assert left > 0
    assert f"limit: {left} finding" in result.err


UNDELIVERED = (
    "@1 opened client=c2; @1 > subscribe 1 a:1; @1 < suback 1 1; opened; +2 > publish a first qos=1 id=1; < puback 1",
    "@1 < publish a first qos=1 id=1; @1 > puback 1; > publish a second qos=1 id=2; < puback 2",
    "+3 @1 > pingreq; @1 < pingresp; @1 > fin",
)


def test_timing_of_tests_shortens_what_rules_wait_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = write_capture(tmp_path / "short.pcapng", *steps_of(*UNDELIVERED))
    hint = "1 rule about missing packets judged nothing (DLV410): no connection lasts as long as its time-out"

    assert f"{hint} (--timing test shortens them)" in run(path, "--select", "DLV410").text
    summary = document(path, "--select", "DLV410")["summary"]
    assert (summary["timing"], summary["pending"]) == ("normal", {"DLV410": 1})

    short = document(path, "--timing", "test")
    assert codes(short["findings"]) == {"DLV410"}
    assert (short["summary"]["timing"], short["summary"]["pending"]) == ("test", {})
    assert run(path, "--timing", "test").text.splitlines()[-1].endswith("rules; timing test")
    monkeypatch.setenv("MQTTSCOPE_TIMING", "test")
    assert codes(document(path)["findings"]) == {"DLV410"}
    assert not codes(document(path, "--timing", "normal")["findings"])


def test_settings_of_a_rule_win_over_the_timing(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "short.pcapng", *steps_of(*UNDELIVERED))
    configure(tmp_path, '[lint]\ntiming = "test"\n')
    assert codes(document(path)["findings"]) == {"DLV410"}
    configure(tmp_path, '[lint]\ntiming = "test"\n[rules.DLV410]\ntimeout = 30\n')
    assert not codes(document(path)["findings"])

    shown = json.loads(run("--show-settings", "--format", "json").out)
    assert shown["timing"] == "test"
    settings = {row["rule"]: row["settings"] for row in shown["rules"]}
    assert (settings["DLV410"], settings["SES411"]) == ({"timeout": 30}, {"timeout": 1})
    assert "timing: test" in run("--show-settings").text.splitlines()
