"""``mqttscope pipeline rebuild`` and ``relint``: texts, choice of the way, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

from tests import tools

tools.package("pyarrow")

from mqttscope.lake.manifest import read_manifest
from tests.cli.running import capture, invoke

CAPTURES = capture("failing-device"), capture("broker-restarts")


def test_captures_are_read_again_under_their_names(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for path in reversed(CAPTURES):
        assert invoke("pipeline", "ingest", path, "--lake", lake, "--no-config").code == 0
    done = invoke("pipeline", "rebuild", "--lake", lake, "--no-config", "--payload-limit", "8", "--format", "json")
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.text)
    assert sorted(document["captures"]) == sorted(map(str, CAPTURES))
    assert document["generation"] == 3
    done = invoke("pipeline", "rebuild", CAPTURES[0], "--lake", lake, "--no-config")
    assert (done.code, done.out) == (3, b"")
    assert f"{CAPTURES[1]} cannot be found with the content of the ingest" in done.err
    done = invoke("pipeline", "rebuild", CAPTURES[0], "--lake", lake, "--no-config", "--without-missing")
    assert (done.code, list(read_manifest(lake).captures.values())) == (0, [str(CAPTURES[0])])


def test_options_of_the_lake_stay_unless_others_are_given(tmp_path: Path) -> None:
    lake, words = tmp_path / "lake", ("--lake", tmp_path / "lake", "--no-config")
    other = ("--payload-limit", "64", "--group", "site", "--deduplicate", "--port", "1999:mqtt")
    assert invoke("pipeline", "ingest", *CAPTURES, *words, *other).code == 0
    done = invoke("pipeline", "rebuild", *words)
    assert done.code == 0
    warning = "mqttscope: the lake is made again with other options: --port was 1999:mqtt and is none\n"
    assert done.err.startswith(warning)
    after = read_manifest(lake)
    options = [after.options[name] for name in ("--payload-limit", "--deduplicate")]
    assert (after.group, options) == ("site", ["64", "on"])
    done = invoke("pipeline", "rebuild", *words, "--payload-limit", "0", "--group", "")
    after = read_manifest(lake)
    assert (done.code, after.group, after.options["--payload-limit"]) == (0, "", "0")


def test_findings_are_made_again_from_tables_or_captures(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    words = ("--lake", lake, "--no-config")
    assert invoke("pipeline", "ingest", *CAPTURES, *words).code == 0
    done = invoke("pipeline", "relint", *words, "--ignore", "CON")
    assert (done.code, done.err) == (0, "")
    assert "of other rules left out, from the stored tables\n" in done.text
    done = invoke("pipeline", "ingest", capture("v5-qos"), *words)
    assert (done.code, done.err.count("'mqttscope pipeline relint' applies them")) == (0, 1)
    done = invoke("pipeline", "relint", *words)
    assert done.err == "mqttscope: the stored tables lack findings of these rules: all captures are read again\n"
    assert (done.code, done.text.splitlines()[0]) == (0, f"{lake}: 3 captures read")
    once = tmp_path / "once"
    assert invoke("pipeline", "ingest", *CAPTURES, capture("v5-qos"), "--lake", once, "--no-config").code == 0
    question = "select rule, message, frame from findings order by all"
    answers = [invoke("pipeline", "sql", question, "--lake", folder).text for folder in (lake, once)]
    assert answers[0] == answers[1]
    done = invoke("pipeline", "relint", *words, "--payload-limit", "3")
    assert (done.code, "--payload-limit was 0 and is 3" in done.err) == (3, True)
