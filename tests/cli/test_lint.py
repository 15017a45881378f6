"""``mqttscope lint``: what it finds, how it ends, and what configures it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mqttscope.capture import PcapngWriter, open_capture
from mqttscope.cli import linting
from mqttscope.cli.main import group
from mqttscope.cli.options import FINDING_FORMATS
from mqttscope.lint.catalogue import select
from mqttscope.lint.examples import Step
from mqttscope.mqtt.packets import Pingreq, Pingresp
from mqttscope.net.frame import Frame
from mqttscope.report.base import Sink, View
from mqttscope.report.findings.base import FindingReporter
from mqttscope.report.findings.shown import make_reporter
from tests.cli.made import Properties, Publish, client, closes, on, opened, server, site, write_capture
from tests.conftest import ROOT

FAILING = ROOT / "captures" / "failing-device" / "capture.pcapng"
CLEAN = ROOT / "captures" / "v311-qos" / "capture.pcapng"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def run(*arguments: str | Path, given: bytes | None = None) -> Result:
    result = CliRunner().invoke(group, ["lint", *map(str, arguments)], input=given, standalone_mode=False)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        import click

        assert isinstance(result.exception, click.ClickException), result.exception
    return result


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(FAILING, "--format", "jsonl", *arguments).stdout.splitlines()]


def codes(found: Iterable[dict[str, Any]]) -> set[str]:
    return {one["rule"] for one in found}


def refused(*arguments: str | Path) -> str:
    """The words of a usage error."""
    result = run(*arguments)
    import click

    assert isinstance(result.exception, click.ClickException)
    assert result.exception.exit_code == 2
    return result.exception.format_message()


def test_a_failing_device_fails_and_a_conforming_pair_does_not() -> None:
    assert run(FAILING).return_value == 1
    assert run(CLEAN).return_value == 0


def test_a_row_has_every_key_of_the_interface() -> None:
    row = next(one for one in rows() if one["rule"] == "PUB103")

    assert list(row)[:23] == [
        "schema", "rule", "slug", "severity", "confidence", "message", "statements", "version", "capture", "frame",
        "timestamp_ns", "connection", "client", "server", "client_identifier", "direction", "packet", "packet_type",
        "field", "offset", "length", "reason_code", "fingerprint",
    ]  # fmt: skip
    assert row["client_identifier"] == "thermostat-7"
    assert row["statements"] == ["5.0 MQTT-3.3.2-2", "5.0 MQTT-4.7.1-1"] or row["statements"]


@pytest.mark.parametrize("form", FINDING_FORMATS)
def test_the_exit_code_is_the_same_for_every_format(form: str) -> None:
    assert run(FAILING, "--format", form).return_value == 1
    assert run(CLEAN, "--format", form).return_value == 0
    assert run(FAILING, "--format", form, "--exit-zero").return_value == 0


def test_what_fails_is_a_matter_of_severity_and_confidence() -> None:
    only = ("--select", "CON108")

    assert run(FAILING, *only).return_value == 0
    assert run(FAILING, *only, "--fail-on", "info").return_value == 1
    assert run(FAILING, "--select", "PUB103", "--fail-confidence", "certain").return_value == 1


def test_min_confidence_hides() -> None:
    assert all(one["confidence"] == "certain" for one in rows("--min-confidence", "certain"))


def test_rules_are_selected_by_prefix_and_name() -> None:
    assert codes(rows("--select", "PUB")) == {"PUB103"}
    assert codes(rows("--select", "wildcard-in-topic-name")) == {"PUB103"}
    assert "PUB103" not in codes(rows("--ignore", "PUB1"))
    assert any(code.startswith(("TOP", "OPS", "SEC")) for code in codes(rows("--extend-select", "TOP,OPS,SEC")))
    assert not any(code.startswith(("TOP", "OPS", "SEC", "PAY")) for code in codes(rows()))


def test_an_unknown_rule_is_a_usage_error_with_a_suggestion() -> None:
    assert "did you mean PUB103" in refused(FAILING, "--select", "PUB1003")


def test_several_formats_in_one_run(tmp_path: Path) -> None:
    sarif, junit = tmp_path / "lint.sarif", tmp_path / "lint.xml"
    result = run(FAILING, "--format", "concise", "--output", f"sarif={sarif}", "--output", f"junit={junit}")

    assert "PUB103" in result.stdout
    assert json.loads(sarif.read_text("utf-8"))["version"] == "2.1.0"
    assert junit.read_text("utf-8").startswith("<?xml")


def test_output_takes_the_format_itself(tmp_path: Path) -> None:
    result = run(FAILING, "--format", "json", "--output", tmp_path / "found.json")

    assert result.stdout == ""
    assert json.loads((tmp_path / "found.json").read_text("utf-8"))["schema"] == 1


def test_a_file_name_may_have_an_equals_sign(tmp_path: Path) -> None:
    run(FAILING, "--format", "json", "--output", "./a=b", "--output", "junit=c=d")

    assert json.loads((tmp_path / "a=b").read_text("utf-8"))["schema"] == 1
    assert (tmp_path / "c=d").read_text("utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
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
        (("--baseline", "missing.json"), "--update-baseline makes it"),
        (("--profile", "aws"), "did you mean aws-iot-core"),
        (("--config", "missing.toml"), "missing.toml"),
    ],
)
def test_what_cannot_be_is_said(arguments: tuple[str, ...], why: str) -> None:
    assert why in refused(FAILING, *arguments)


def test_a_baseline_silences_what_was_there_and_tells_what_is_fixed(tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"

    assert run(FAILING, "--baseline", baseline, "--update-baseline").return_value == 0
    assert baseline.stat().st_mode & 0o777 == 0o600
    assert run(FAILING, "--baseline", baseline).return_value == 0
    document = json.loads(baseline.read_text("utf-8"))
    document["findings"].append(
        {
            "fingerprint": "0" * 32, "rule": "PUB102", "client": "thermostat-7", "topic": "", "packet_type": "publish",
            "direction": "client_to_server", "field": "dup",
        }
    )  # fmt: skip
    baseline.write_text(json.dumps(document), "utf-8")
    summary = json.loads(run(FAILING, "--baseline", baseline, "--format", "json").stdout)["summary"]

    assert [one["rule"] for one in summary["fixed"]] == ["PUB102"]


def test_findings_beyond_the_baseline_fail(tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"
    run(FAILING, "--baseline", baseline, "--update-baseline", "--select", "PUB103")

    assert run(FAILING, "--baseline", baseline, "--select", "PUB103").return_value == 0
    assert run(FAILING, "--baseline", baseline).return_value == 1


def test_a_baseline_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text("{", "utf-8")

    assert "not JSON" in refused(FAILING, "--baseline", tmp_path / "b.json")


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """A baseline with all findings of the failing device."""
    baseline = tmp_path / "known.json"
    assert run(FAILING, "--baseline", baseline, "--update-baseline").return_value == 0
    assert {one["rule"] for one in entries(baseline)} == {"ALS202", "CON108", "FLW201", "PUB103"}
    return baseline


def entries(baseline: Path) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(baseline.read_text("utf-8"))["findings"]
    return found


@pytest.mark.parametrize(
    "more",
    [
        ("--select", "ALS"),
        ("--ignore", "PUB,FLW,CON"),
        ("--min-confidence", "certain"),
    ],
    ids=" ".join,
)
def test_an_update_keeps_what_did_not_run(more: tuple[str, ...], known: Path) -> None:
    before = known.read_text("utf-8")
    result = run(FAILING, "--baseline", known, "--update-baseline", *more)

    assert result.return_value == 0
    assert known.read_text("utf-8") == before
    assert "0 new, 0 gone" in result.stderr


def test_an_update_keeps_what_is_not_sure_enough_to_be_shown(tmp_path: Path) -> None:
    baseline = tmp_path / "known.json"
    every = (FAILING, "--select", "ALL", "--baseline", baseline, "--update-baseline")
    assert {one["confidence"] for one in rows("--select", "ALL")} > {"certain"}
    run(*every)
    before = baseline.read_text("utf-8")
    run(*every, "--min-confidence", "certain")

    assert baseline.read_text("utf-8") == before


def test_an_update_keeps_the_clients_that_were_not_captured(known: Path) -> None:
    before = entries(known)
    result = run(CLEAN, "--baseline", known, "--update-baseline")

    assert [one for one in entries(known) if one in before] == before
    assert "0 gone; 4 kept, whose rules or clients were not judged" in result.stderr


def test_an_update_takes_out_what_is_fixed(known: Path) -> None:
    document = json.loads(known.read_text("utf-8"))
    gone = dict(document["findings"][0], fingerprint="0" * 32, rule="PUB102")
    document["findings"].append(gone)
    known.write_text(json.dumps(document), "utf-8")
    result = run(FAILING, "--baseline", known, "--update-baseline")

    assert "4 kinds of findings, 0 new, 1 gone" in result.stderr
    assert gone not in entries(known)


@pytest.mark.parametrize("left", [0, 100, -20])
def test_a_capture_that_cannot_be_read_leaves_the_baseline_alone(left: int, known: Path, tmp_path: Path) -> None:
    before = known.read_text("utf-8")
    damaged = tmp_path / "damaged.pcapng"
    damaged.write_bytes(FAILING.read_bytes()[:left])
    result = run(damaged, "--baseline", known, "--update-baseline", "--format", "json")

    assert result.return_value == 3
    assert known.read_text("utf-8") == before
    assert "not written, since a capture could not be read to its end" in result.stderr
    assert json.loads(result.stdout)["summary"]["fixed"] == []


def test_a_capture_that_cannot_be_read_makes_no_baseline(tmp_path: Path) -> None:
    made = tmp_path / "new.json"

    assert run("missing.pcap", "--baseline", made, "--update-baseline").return_value == 3
    assert not made.exists()


def test_what_the_configuration_hides_is_not_fixed(known: Path, tmp_path: Path) -> None:
    configure(tmp_path, '[lint.per-client-ignores]\n"thermostat-*" = ["PUB"]\n')
    shown = json.loads(run(FAILING, "--baseline", known, "--format", "json").stdout)
    assert shown["summary"]["fixed"] == []

    assert "1 gone" in run(FAILING, "--baseline", known, "--update-baseline").stderr
    assert "PUB103" not in {one["rule"] for one in entries(known)}


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
    assert run(FAILING).return_value == 1
    assert run(FAILING, "--fail-on", "error").return_value == 0
    assert codes(rows("--select", "PUB103")) == {"PUB103"}
    assert run(FAILING, "--no-config", "--ignore", "ALL", "--select", "CON108").return_value == 0


def test_the_environment_stands_between_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(tmp_path, '[lint]\nselect = ["CON108"]\n')
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
    assert run(FAILING, "--no-config", "--ignore", "ALL", "--select", "CON108").return_value == 0


def test_pyproject_is_read_where_it_has_our_table(tmp_path: Path) -> None:
    configure(tmp_path, '[tool.mqttscope.lint]\nselect = ["PUB103"]\n', "pyproject.toml")

    assert codes(rows()) == {"PUB103"}


def test_a_wrong_key_is_refused_with_the_right_one(tmp_path: Path) -> None:
    configure(tmp_path, "[lint]\nselct = []\n")

    assert "did you mean select" in refused(FAILING)


def test_ignores_by_client_and_by_topic(tmp_path: Path) -> None:
    configure(tmp_path, '[lint]\nselect = ["PUB103"]\n[lint.per-client-ignores]\n"thermostat-*" = ["PUB"]\n')
    assert run(FAILING).return_value == 0

    configure(tmp_path, '[lint]\nselect = ["PUB103"]\n[lint.per-topic-ignores]\n"other/#" = ["PUB"]\n')
    assert run(FAILING).return_value == 1


def test_a_suppression_expires(tmp_path: Path) -> None:
    text = '[lint]\nselect = ["PUB103"]\n[[lint.suppress]]\nrules = ["PUB103"]\nreason = "known"\nexpires = {}\n'
    configure(tmp_path, text.format("2999-01-01"))
    assert run(FAILING).return_value == 0

    configure(tmp_path, text.format("2020-01-01"))
    result = run(FAILING)
    assert result.return_value == 1
    assert "expired on 2020-01-01" in result.stderr


def test_settings_of_a_rule(tmp_path: Path) -> None:
    configure(tmp_path, '[lint]\nselect = ["TOP104"]\n[rules.TOP104]\nlevels = 2\n')

    assert codes(rows()) == {"TOP104"}


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
    found = rows("--profile", "ours.toml", "--select", "PUB103")

    assert codes(found) == {"PUB103", "PRF101"}
    assert any("Ours (2026-11-21)" in one["message"] for one in found)


def test_show_settings_says_where_they_come_from(tmp_path: Path) -> None:
    configure(tmp_path, '[lint]\nselect = ["PUB103"]\nport = ["1884"]\n')
    result = run("--show-settings")

    assert result.return_value == 0
    assert str(tmp_path / "mqttscope.toml") in result.stdout
    assert "port: 1884:mqtt" in result.stdout
    assert "PUB103 wildcard-in-topic-name (error, certain)" in result.stdout


def taken_over(path: Path) -> Path:
    """A session that two connections have at once (SES307, which is likely)."""
    speaks = client(Pingreq(), after=40), server(Pingresp())
    return write_capture(path, *opened(), *on(1, *opened()), *speaks)


def test_what_follows_is_certain_where_the_capture_holds_every_connection(tmp_path: Path) -> None:
    made = taken_over(tmp_path / "a.pcapng")
    likely = run(made, "--select", "SES307", "--format", "jsonl")
    certain = run(made, "--select", "SES307", "--format", "jsonl", "--complete", "10.0.0.2:1883")
    configure(tmp_path, '[lint]\ncomplete = ["10.0.0.2:1883"]\n')
    configured = run(made, "--select", "SES307", "--format", "jsonl")

    assert (likely.return_value, certain.return_value, configured.return_value) == (0, 1, 1)
    assert json.loads(certain.stdout) == json.loads(likely.stdout) | {"confidence": "certain"}
    assert configured.stdout == certain.stdout
    assert certain.stderr == ""


def test_a_server_that_never_appears_is_named(tmp_path: Path) -> None:
    result = run(taken_over(tmp_path / "a.pcapng"), "--complete", "10.0.0.2:1883", "--complete", "[fd00::0:1]:1883")

    assert "--complete [fd00::1]:1883: no connection of this server was seen" in result.stderr
    assert "10.0.0.2" not in result.stderr


def test_what_is_no_server_is_a_usage_error(tmp_path: Path) -> None:
    assert "write an IPv6 address in brackets" in refused(FAILING, "--complete", "fd00::1:1883")
    assert "captures have no names of hosts" in refused(FAILING, "--complete", "broker:1883")
    configure(tmp_path, '[lint]\ncomplete = ["10.0.0.2"]\n')
    assert "lint.complete: '10.0.0.2': it is not HOST:PORT" in refused(FAILING)


def test_show_settings_has_the_servers_that_are_complete() -> None:
    given = ("--complete", "10.0.0.2:1883", "--complete", "[FD00::1]:1883", "--show-settings")

    assert "complete: 10.0.0.2:1883\ncomplete: [fd00::1]:1883\n" in run(*given).stdout
    shown = json.loads(run(*given, "--format", "json").stdout)
    assert shown["complete"] == ["10.0.0.2:1883", "[fd00::1]:1883"]


def test_show_settings_as_json(tmp_path: Path) -> None:
    configure(
        tmp_path,
        '[lint]\nselect = ["TOP104"]\nport = ["1884"]\n[rules.TOP104]\nlevels = 2\n'
        '[[lint.suppress]]\nrules = ["TOP"]\nreason = "known"\nexpires = 2999-01-01\n',
    )
    result = run("--show-settings", "--format", "json", "-o", "sarif=x.sarif", "--mqtt-version", "3.1")
    shown = json.loads(result.stdout)

    assert result.return_value == 0
    assert shown["configuration_file"] == str(tmp_path / "mqttscope.toml")
    assert (shown["ports"], shown["mqtt_version"], shown["fail_on"]) == ({"1884": "mqtt"}, "3.1", "error")
    assert shown["more"] == [{"format": "sarif", "output": "x.sarif"}]
    assert shown["suppressed"][0]["expires"] == "2999-01-01"
    assert [(one["rule"], one["settings"]["levels"]) for one in shown["rules"]] == [("TOP104", 2)]


def test_show_settings_as_json_says_what_the_text_says() -> None:
    told = run("--show-settings").stdout
    shown = json.loads(run("--show-settings", "--format", "json").stdout)

    assert len(shown["rules"]) == told.count("\n  ")
    # Further formats and suppressions are lines only where there are any.
    assert {
        line.partition(":")[0].replace("-", "_").replace(" ", "_") for line in told.splitlines() if line[0] != " "
    } <= {*shown}


def test_statistics_as_json() -> None:
    result = run(FAILING, "--statistics", "--format", "json")
    shown = json.loads(result.stdout)
    lines = [json.loads(line) for line in run(FAILING, "--statistics", "--format", "jsonl").stdout.splitlines()]

    assert result.return_value == 1
    assert shown["summary"]["findings"]["error"] == 3
    assert {"rule": "PUB103", "slug": "wildcard-in-topic-name", "severity": "error", "findings": 1, "clients": 1,
            "suppressed": 0, "withheld": 0} in shown["rules"]  # fmt: skip
    assert lines == [{"schema": 1, **one} for one in shown["rules"]]


@pytest.mark.parametrize("form", ["sarif", "junit", "github", "gitlab", "markdown"])
def test_statistics_have_no_other_format(form: str) -> None:
    assert f"--statistics has no format {form}" in refused(FAILING, "--statistics", "--format", form)


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
    told = " and ".join(map(" ".join, zip(options[::2], options[1::2], strict=True)))
    for more in ((), ("--show-settings",)):
        assert refused(FAILING, *options, *more) == f"{told}: no rule is left to check with"
    assert run(FAILING, "--select", "PUB101,PUB102", "--ignore", "PUB102").return_value == 0, "one rule is enough"


def test_a_configuration_that_leaves_no_rule_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(tmp_path, '[lint]\nextend-select = ["SEC101"]\nignore = ["ALL", "SEC101"]\n')
    file = tmp_path / "mqttscope.toml"
    assert refused(FAILING) == (
        f"extend-select = ['SEC101'] of {file} and ignore = ['ALL', 'SEC101'] of {file}: no rule is left to check with"
    )
    assert refused(FAILING, "--extend-select", "OPS223", "--ignore", "OPS223").startswith("--extend-select OPS223 and")
    assert run(FAILING, "--select", "PUB103").return_value == 1
    assert run(FAILING, "--profile", "aws-iot-core").return_value == 0, "the rules of the profile are left"
    monkeypatch.setenv("MQTTSCOPE_IGNORE", "ALL")
    assert refused(FAILING, "--no-config") == "--ignore ALL: no rule is left to check with"


def test_a_setting_that_is_no_number_is_refused(tmp_path: Path) -> None:
    configure(tmp_path, "[rules.KAL201]\ntolerance_percent = inf\n")

    assert "tolerance_percent must be like its default" in refused(FAILING)


@pytest.mark.parametrize(
    ("option", "name"), [("--baseline", "b.json"), ("--config", "c.toml"), ("--profile", "p.toml")]
)
def test_a_file_that_is_nested_too_deeply_is_refused(option: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(("" if name == "b.json" else "a = ") + "[" * 100_000, "utf-8")

    assert f"{name}: " in refused(FAILING, option, name)
    assert "nested too deeply" in refused(FAILING, option, name)


def test_statistics_count_instead_of_showing() -> None:
    result = run(FAILING, "--statistics")

    assert "PUB103 wildcard-in-topic-name" in result.stdout
    assert "thermostat/+/state" not in result.stdout
    assert result.return_value == 1


def test_a_capture_that_ends_early_is_exit_code_3_and_still_reported(tmp_path: Path) -> None:
    short = tmp_path / "short.pcapng"
    short.write_bytes(FAILING.read_bytes()[:-20])
    result = run(short)

    assert result.return_value == 3
    assert "PUB103" in result.stdout


def test_without_captures_there_is_nothing_to_lint() -> None:
    assert "CAPTURE" in refused()


def test_standard_input_is_a_capture() -> None:
    assert run("-", given=FAILING.read_bytes()).return_value == 1


def test_a_failing_rule_is_told_and_makes_the_run_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    from mqttscope.lint.catalogue import find

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(find("PUB103"), "check", broken)
    result = run(FAILING, "--select", "PUB103,CON108")

    assert result.return_value == 3
    assert "internal error in PUB103" in result.stderr
    assert "CON108" in result.stdout


def test_a_page_is_asked_for_by_its_name_and_not_written_to_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, other = tmp_path / "lint.html", tmp_path / "lint.HTM"

    assert run(FAILING, "--output", page).return_value == 1
    assert page.read_bytes().startswith(b"<!doctype html>")
    assert "lint.HTM" in refused(FAILING, "--output", other, "--format", "concise")
    assert not other.exists()
    monkeypatch.setattr("mqttscope.cli.output.is_terminal", lambda: True)
    assert "--output FILE.html" in refused(FAILING, "--format", "html")
    assert run(FAILING, "--format", "html", "--output", page).return_value == 1


NO_MQTT = "nothing to judge: no MQTT packet in what was read"


@pytest.fixture
def silent(tmp_path: Path) -> Path:
    """A capture in which another protocol is spoken."""
    steps = client(b"SSH-2.0-OpenSSH_9.2\r\n"), server(b"SSH-2.0-OpenSSH_9.2\r\n"), closes("client")
    return write_capture(tmp_path / "silent.pcapng", *steps, to="10.0.0.2:22")


@pytest.mark.parametrize("form", FINDING_FORMATS)
def test_nothing_to_judge_is_exit_code_3_in_every_format(form: str, silent: Path) -> None:
    result = run(silent, "--format", form)

    assert result.return_value == 3
    assert "nothing to judge" in result.stderr
    assert run(silent, "--format", form, "--exit-zero").return_value == 0


def test_zeros_on_the_port_of_mqtt_are_nothing_to_judge(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "zeros.pcapng", client(bytes(100)), closes("client"))
    result = run(path, "--format", "concise")

    assert result.return_value == 3
    assert f"{NO_MQTT} is well formed\n" in result.stderr


def test_nothing_to_judge_is_said_where_each_format_says_such_things(silent: Path) -> None:
    shown = json.loads(run(silent, "--format", "json").stdout)["summary"]
    (sarif,) = json.loads(run(silent, "--format", "sarif").stdout)["runs"][0]["invocations"]
    junit = run(silent, "--format", "junit").stdout

    assert run(silent).stdout == f"{NO_MQTT}\n"
    assert (shown["nothing"], shown["packets"]) == (NO_MQTT, 0)
    assert sarif["executionSuccessful"] is False
    assert [one["message"]["text"] for one in sarif["toolExecutionNotifications"]] == [NO_MQTT]
    assert run(silent, "--format", "github").stdout == f"::error title=mqttscope::{NO_MQTT}\n"
    assert junit.count("<skipped ") == len(shown["rules"]) + 1
    assert 'failures="0"' in junit


def test_another_protocol_is_nothing_to_judge(tmp_path: Path) -> None:
    web = [client(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), server(b"HTTP/1.1 200 OK\r\n\r\n"), closes("client")]
    path = write_capture(tmp_path / "web.pcapng", *web)

    result = run(path, "--port", "1883")
    assert result.return_value == 3
    assert "the first bytes are HTTP, not MQTT" in result.stdout
    assert f"\n{NO_MQTT}\n1 note by " in result.stdout
    junit = run(path, "--port", "1883", "--format", "junit").stdout
    assert junit.count("<testcase ") == junit.count("<skipped ") + 2, "all but those of the run itself"
    assert re.search(r"<skipped [^>]*/>\s*<system-out>[^<]*HTTP", junit)


def test_a_finding_that_counts_is_something_to_judge(tmp_path: Path) -> None:
    steps = [client(b"\xff" * 40), closes("client")]
    path = write_capture(tmp_path / "garbage.pcapng", *steps)
    found = [json.loads(line) for line in run(path, "--port", "1883", "--format", "jsonl").stdout.splitlines()]

    assert any(one["severity"] == "error" and one["confidence"] == "certain" for one in found)
    assert run(path, "--port", "1883").return_value == 1


def test_an_empty_capture_among_others_is_skipped_for_itself(silent: Path) -> None:
    result = run(silent, CLEAN, "--format", "junit")

    assert result.return_value == 3
    _head, tail = result.stdout.split(f'<testsuite name="{silent}"')
    suite = tail.partition("</testsuite>")[0]
    assert suite.count("<testcase ") == suite.count("<skipped ") > 100
    assert re.findall(r"<skipped [^>]*>", result.stdout.replace(suite, "")) == [
        f'<skipped message="no MQTT packet to judge in {silent}"/>'
    ]


def test_half_a_connect_is_nothing_to_judge(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "half.pcapng", client(b"\x10\x0d\x00\x04MQTT"), closes("client"))

    result = run(path)

    assert result.return_value == 3
    assert "mqttscope: nothing to judge: no MQTT packet in what was read came to its end\n" in result.stderr


@pytest.mark.parametrize("answer", [(), (server(b"HTTP/1.1 400 Bad Request\r\n\r\n"),)], ids=["silent", "HTTP"])
def test_it_is_said_where_no_broker_answered(tmp_path: Path, answer: tuple[Step, ...]) -> None:
    path = write_capture(tmp_path / "silent.pcapng", opened()[0], *answer, closes("server", after=5))
    told = "no broker answered: 1 connection has a CONNECT and no CONNACK, so that only what clients sent was judged"

    result = run(path)

    assert result.return_value == (1 if answer else 0)
    assert f"mqttscope: {told}\n" in result.stderr
    assert told in result.stdout
    assert "one direction only" not in result.stdout + result.stderr
    assert told in run(path, "--format", "markdown").stdout.replace("&#45;", "-")
    github = run(path, "--format", "github").stdout
    assert re.search(rf"^::warning title=mqttscope::.*{told}$", github, re.MULTILINE)
    assert json.loads(run(path, "--format", "json").stdout)["summary"]["quality"]["unanswered"] == 1


def test_a_named_capture_without_any_packet_is_named_beside_others(silent: Path) -> None:
    told = f"no MQTT packet to judge in {silent}"

    result = run(CLEAN, silent)

    assert result.return_value == 3
    assert f"mqttscope: {told}\n" in result.stderr
    assert told in result.stdout
    github = run(CLEAN, silent, "--format", "github")
    assert "::error title=mqttscope::" in github.stdout
    assert told in github.stdout
    assert told in github.stderr
    assert "no MQTT packet to judge" not in run(CLEAN).stderr


def test_what_another_capture_has_shown_was_judged(tmp_path: Path) -> None:
    """Two taps: the packets of the second are those of the first."""
    frames = [frame for frame in open_capture([str(CLEAN)]) if isinstance(frame, Frame)]
    for name, count in (("whole", len(frames)), ("open", len(frames) - 8)):
        paths = [tmp_path / f"{name}-{number}.pcapng" for number in range(2)]
        for path in paths:
            with PcapngWriter(path) as writer:
                for frame in frames[:count]:
                    writer.write(frame)
        result = run(*paths, "--require-packets", "3")

        assert (result.return_value, "to judge" in result.stderr) == (0, False)


def test_a_number_of_packets_can_be_required(tmp_path: Path) -> None:
    packets = json.loads(run(CLEAN, "--format", "json").stdout)["summary"]["packets"]
    assert packets > 10

    assert run(CLEAN, "--require-packets", str(packets)).return_value == 0
    result = run(CLEAN, "--require-packets", str(packets + 1))
    told = f"too little to judge: {packets} MQTT packets, {packets + 1} are required"
    assert (result.return_value, result.stdout.splitlines()[-2], result.stderr) == (3, told, f"mqttscope: {told}\n")
    assert run(CLEAN, "--require-packets", str(packets + 1), "--exit-zero").return_value == 0
    junit = run(CLEAN, "--require-packets", str(packets + 1), "--format", "junit").stdout
    assert f'<error message="{told}"' in junit

    configure(tmp_path, f"[lint]\nrequire-packets = {packets + 1}\n")
    assert run(CLEAN).return_value == 3
    assert run(CLEAN, "--require-packets", "1").return_value == 0


def test_no_packet_at_all_can_be_allowed(silent: Path) -> None:
    result = run(silent, "--require-packets", "0")

    assert result.return_value == 0
    assert result.stdout.startswith("no findings by ")


def test_a_missing_file_says_only_that() -> None:
    for form in ("full", "concise"):
        result = run("missing.pcap", "--format", form)
        assert (result.return_value, result.stdout) == (3, "")
        assert result.stderr == "mqttscope: missing.pcap: does not exist\n"
    assert run("missing.pcap", "--format", "github").stdout == (
        "::error title=mqttscope::nothing could be read: missing.pcap\n"
    )


def test_nothing_to_judge_makes_no_baseline(silent: Path, tmp_path: Path) -> None:
    made = tmp_path / "new.json"
    result = run(silent, "--baseline", made, "--update-baseline")

    assert result.return_value == 3
    assert not made.exists()
    assert "not written, since there was nothing to judge" in result.stderr


def test_the_summary_says_how_many_findings_count() -> None:
    assert run(FAILING).stdout.splitlines()[-1] == f"3 errors (3 count), 1 note by {len(select())} rules"
    by_note = run(FAILING, "--fail-on", "info", "--ignore", "PUB103").stdout.splitlines()[-1]
    assert by_note == f"2 errors (2 count), 1 note (1 counts) by {len(select()) - 1} rules"


def test_what_does_not_count_is_no_error_on_github() -> None:
    path = ROOT / "captures" / "planted-violations" / "capture.pcapng"
    shown = json.loads(run(path, "--format", "json").stdout)["summary"]
    errors, counting = shown["findings"]["error"], shown["counting"]["error"]
    github = run(path, "--format", "github", "--every").stdout

    assert errors > counting > 1
    assert github.count("::error file=") == counting
    assert github.count("This error does not count") == errors - counting
    assert f"::notice title=mqttscope::{errors} errors ({counting} count)" in github


@pytest.fixture
def pumps(tmp_path: Path) -> Path:
    return site(tmp_path / "site.pcapng")


def test_many_clients_with_a_hyphen_are_one_note(pumps: Path) -> None:
    result = run(pumps, "--format", "jsonl", "--select", "CON108")
    (row,) = [json.loads(line) for line in result.stdout.splitlines()]

    assert row["clients"] == 5
    assert row["message"].endswith(": 'pump-0000', 'pump-0001', 'pump-0002' and 2 more")
    assert run(pumps, "--select", "CON108", "--statistics").stdout.split("\n")[-2] == "1 note by 1 rule"


def test_names_in_the_one_note_have_no_secrets(tmp_path: Path) -> None:
    names = "pump-1", "pump-2/eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
    steps = [step for number, name in enumerate(names) for step in on(number, *opened(client_identifier=name))]
    path = write_capture(tmp_path / "secret.pcapng", *steps)

    for form in FINDING_FORMATS:
        text = run(path, "--select", "CON108", "--format", form).stdout
        assert "dozjgNryP4J3" not in text
        assert form == "junit" or "pump-2" in text


def test_the_worst_is_shown_first_and_notes_are_folded(pumps: Path) -> None:
    def heads(*more: str) -> list[str]:
        lines = run(pumps, *more).stdout.splitlines()
        return [line.partition("]")[0] for line in lines if line.startswith(("error[", "warning[", "info["))]

    assert heads() == ["error[PUB103", "warning[ENC103", "info[CON108"]
    assert heads("--every") == ["error[PUB103", "warning[ENC103", "warning[ENC103", "info[CON108"]
    assert heads("--verbose") == heads()
    short, long = run(pumps).stdout, run(pumps, "--verbose").stdout
    assert "CONNECT    5.0" not in short
    assert "CONNECT    5.0" in long
    concise = run(pumps, "--format", "concise").stdout
    assert concise.index("ENC103") < concise.index("PUB103"), "a line for each in the order of the capture"


@pytest.mark.parametrize("form", ["full", "concise", "jsonl", "github", "markdown"])
def test_min_severity_hides_and_changes_no_exit_code(form: str, pumps: Path) -> None:
    result = run(pumps, "--format", form, "--min-severity", "error")
    assert result.return_value == 1
    assert "PUB103" in result.stdout
    assert "ENC103" not in result.stdout
    assert "CON108" not in result.stdout
    assert "ENC103" in run(pumps, "--format", form, "--min-severity", "warning").stdout

    only = ("--select", "CON108", "--format", form, "--min-severity", "error")
    assert run(pumps, *only).return_value == 0
    assert run(pumps, *only, "--fail-on", "info").return_value == 1


def test_what_is_hidden_is_counted_and_may_be_configured(pumps: Path, tmp_path: Path) -> None:
    configure(tmp_path, '[lint]\nmin-severity = "error"\n')

    last = run(pumps).stdout.splitlines()[-1]
    assert last == f"1 error (1 counts), 2 warnings, 1 note by {len(select())} rules; 3 not shown (--min-severity)"
    assert "ENC103" in run(pumps, "--min-severity", "warning").stdout
    junit = run(pumps, "--select", "ENC103", "--fail-on", "warning", "--format", "junit")
    assert junit.return_value == 1
    assert "2 findings that make the run fail are below --min-severity" in junit.stdout


def found(path: Path, *more: str | int) -> list[tuple[str, str]]:
    result = run(path, "--format", "jsonl", *map(str, more))
    return [(one["rule"], one["client_identifier"]) for one in map(json.loads, result.stdout.splitlines())]


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
    assert run(pumps, "--client", "pump-0000").return_value == 0
    assert run(pumps, "--client", "pump-0004").return_value == 1


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

    before = json.loads(run(path, "--client", "auto-7", "--format", "json").stdout)["summary"]["packets"]
    assert before == 3, "its CONNECT is one of them"
    assert ("PUB103", "auto-7") in found(path, "--client", "auto-7")


@pytest.mark.parametrize(
    ("selected", "why"),
    [
        (("--client", "pump-9"), "nothing to judge: no packet of a client 'pump-9'"),
        (("--connection", "5"), "nothing to judge: there is no connection 5: numbers go from 0 to 4"),
        (("--filter", 'topic == "x"'), "nothing to judge: no packet matches what was selected"),
    ],
    ids=str,
)
def test_a_selection_that_holds_nothing_is_nothing_to_judge(selected: tuple[str, str], why: str, pumps: Path) -> None:
    result = run(pumps, *selected)

    assert (result.return_value, result.stdout, result.stderr) == (3, f"{why}\n", f"mqttscope: {why}\n")


def test_a_filter_may_be_about_events_that_are_no_packets(pumps: Path) -> None:
    result = run(pumps, "--filter", "event == connection_closed")

    assert (result.return_value, result.stderr) == (0, "")
    assert result.stdout.startswith("no findings by ")
    assert run(pumps, "--filter", "event == connection_closed", "--require-packets", "1").return_value == 3


def test_a_filter_that_is_none_is_refused(pumps: Path) -> None:
    assert "--filter" in refused(pumps, "--filter", "topic ==")


def test_what_waits_for_the_name_of_its_client_is_bounded(
    pumps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttscope.lint.gate.MAX_WAITING", 1)
    bad = client(Publish(topic_name="a/#"))
    steps = [bad, bad, bad, *opened(client_identifier="late1")]
    path = write_capture(tmp_path / "late.pcapng", *steps)
    result = run(path, "--client", "late1", "--format", "jsonl")

    kept = [json.loads(line)["rule"] for line in result.stdout.splitlines()]
    everything = [json.loads(line)["rule"] for line in run(path, "--format", "jsonl").stdout.splitlines()]
    assert len(kept) < len(everything)
    left = len(everything) - len(kept)
    assert f"limit: {left} finding" in result.stderr


def test_a_selection_leaves_what_it_does_not_see_in_the_baseline(known: Path) -> None:
    before = entries(known)
    result = run(FAILING, "--baseline", known, "--update-baseline", "--client", "nobody", "--require-packets", "0")

    assert result.return_value == 0
    assert entries(known) == before
