"""``mqttscope lint``: what it finds, how it ends, and what configures it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mqttscope.cli import linting
from mqttscope.cli.lint import FORMATS
from mqttscope.cli.main import group
from mqttscope.report.base import Sink, View
from mqttscope.report.findings.base import FindingReporter
from mqttscope.report.findings.registry import make_reporter
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


@pytest.mark.parametrize("form", FORMATS)
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
        ("--ignore", "ALL"),
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
    assert "0 gone; 4 kept, whose rules or clients were not looked at" in result.stderr


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


def test_no_rule_at_all_is_said() -> None:
    result = run(FAILING, "--ignore", "ALL")

    assert (result.return_value, result.stderr) == (0, "mqttscope: no rule is selected, so that nothing can be found\n")
    assert run(FAILING, "--select", "PUB103").stderr == ""


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
