"""Files that are written: never those that are read."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from mqttscope.cli.output import FileSink, refuse_inputs, same_file
from tests.cli.running import Done, capture, command, environment, invoke

QOS = capture("v5-qos")
NOBODY = "mqtt://127.0.0.1:1"
"""Nothing listens there."""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copy(QOS, tmp_path / "mine.pcapng"))


def refused(done: Done, copy: Path) -> str:
    """The last line of a usage error that left the capture alone."""
    assert (done.code, done.out) == (2, b"")
    assert copy.read_bytes() == QOS.read_bytes()
    return done.err.splitlines()[-1]


@pytest.mark.parametrize("command_name", ["lint", "inspect"])
class TestCapturesAreKept:
    """Both commands that write files."""

    def run(self, command_name: str, *arguments: str | Path) -> Done:
        return invoke(command_name, *(["--no-config"] if command_name == "lint" else []), *arguments)

    def test_the_capture_itself(self, command_name: str, copy: Path) -> None:
        said = refused(self.run(command_name, copy, "-o", copy), copy)

        assert said == f"Error: --output: {copy} is a capture that is read"

    @pytest.mark.parametrize("how", ["soft", "hard"])
    def test_the_capture_through_a_link(self, command_name: str, how: str, copy: Path, tmp_path: Path) -> None:
        link = tmp_path / how
        (link.symlink_to if how == "soft" else link.hardlink_to)(copy)

        assert "is a capture that is read" in refused(self.run(command_name, copy, "-o", link), copy)
        assert "is a capture that is read" in refused(self.run(command_name, link, "-o", copy), copy)

    def test_a_capture_that_a_pattern_or_a_folder_finds(self, command_name: str, copy: Path, tmp_path: Path) -> None:
        assert "is a capture that is read" in refused(self.run(command_name, tmp_path / "*.pcapng", "-o", copy), copy)
        assert "is a capture that is read" in refused(self.run(command_name, tmp_path, "-o", copy), copy)

    def test_another_file_of_the_folder_is_written_anew(self, command_name: str, copy: Path, tmp_path: Path) -> None:
        report = tmp_path / "report"
        report.write_text("an old one", "utf-8")

        assert self.run(command_name, tmp_path, "-o", report).code in (0, 1)
        assert b"an old one" not in report.read_bytes()
        assert copy.read_bytes() == QOS.read_bytes()

    def test_standard_input(self, command_name: str, copy: Path) -> None:
        with copy.open("rb") as file:
            done = subprocess.run(
                command(command_name, "-", "-o", copy), stdin=file, capture_output=True, env=environment(), check=False
            )

        assert done.returncode == 2
        assert b"is a capture that is read" in done.stderr
        assert copy.read_bytes() == QOS.read_bytes()


def test_lint_refuses_further_formats_as_well(copy: Path, tmp_path: Path) -> None:
    other = tmp_path / "lint.sarif"
    arguments = ("lint", "--no-config", copy, "--output", f"sarif={other}", "--output", f"json={copy}")

    assert "is a capture that is read" in refused(invoke(*arguments), copy)
    assert not other.exists()


@pytest.mark.parametrize(
    ("option", "name", "text", "what"),
    [
        ("--config", "ours.toml", "", "the configuration file"),
        ("--baseline", "base.json", '{"schema": 1, "findings": []}', "the baseline"),
        ("--profile", "cloud.toml", "dated = 2026-11-21\n[limits]\nmaximum_qos = 1\n", "the profile"),
    ],
)
def test_lint_refuses_the_other_files_that_it_reads(
    option: str, name: str, text: str, what: str, tmp_path: Path
) -> None:
    file, link = tmp_path / name, tmp_path / "link"
    file.write_text(text, "utf-8")
    link.symlink_to(file)
    for target in (file, link):
        done = invoke("lint", QOS, option, file, "-o", target)

        assert (done.code, done.err.splitlines()[-1]) == (2, f"Error: --output: {target} is {what}")
        assert file.read_text("utf-8") == text


def test_a_baseline_that_is_made_is_no_report(tmp_path: Path) -> None:
    made = tmp_path / "base.json"
    done = invoke("lint", "--no-config", QOS, "--baseline", made, "--update-baseline", "-o", tmp_path / "." / made.name)

    assert done.code == 2
    assert not made.exists()


def test_a_report_that_a_pattern_would_find_is_not_left_behind(copy: Path, tmp_path: Path) -> None:
    report = tmp_path / "lint.json"
    done = invoke("lint", "--no-config", tmp_path / "*", "-o", report)

    assert (done.code, done.out) == (2, b"")
    assert "is among the captures that are read" in done.err
    assert not report.exists()


def test_files_are_the_same_before_they_exist(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "made")

    assert same_file(tmp_path / "link", tmp_path / "made")
    assert not same_file(tmp_path / "made", tmp_path / "other")


def test_devices_and_new_files_may_be_written(tmp_path: Path) -> None:
    refuse_inputs(os.devnull, [os.devnull])
    refuse_inputs(str(tmp_path / "new"), [str(tmp_path), "-"], {"the baseline": None})


def test_a_path_that_cannot_be_is_said(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match="cannot write"):
        FileSink(str(tmp_path / "no" / "folder"))
    with pytest.raises(click.ClickException, match="null"):
        FileSink("a\0b")


def test_a_pipe_that_nobody_reads_any_more_takes_everything() -> None:
    reader, writer = os.pipe()
    sink = FileSink(f"/dev/fd/{writer}")
    os.close(reader)

    sink.write(b"x" * 100_000)
    sink.close()
    os.close(writer)


FAILING = [
    ("mutate", QOS, "--broker", NOBODY, "--format", "html"),
    ("mutate", QOS, "--broker", NOBODY, "--format", "junit"),
    ("inspect", QOS, "--keylog", "missing.log"),
    ("lint", QOS, "--no-config", "--keylog", "missing.log"),
    ("replay", QOS, "--broker", NOBODY, "--keylog", "missing.log"),
    ("serve", QOS, "--listen", "192.0.2.1:1"),
    ("proxy", "--upstream", NOBODY, "--listen", "192.0.2.1:1"),
]


@pytest.mark.parametrize("words", FAILING, ids=lambda words: words[0])
def test_a_command_that_fails_before_it_writes_leaves_all_as_it_was(words: tuple[str, ...], tmp_path: Path) -> None:
    new, old = tmp_path / "new.txt", tmp_path / "old.txt"
    old.write_text("before")

    assert [invoke(*words, "-o", path).code for path in (new, old)] in ([2, 2], [3, 3])

    assert old.read_text() == "before"
    assert list(tmp_path.iterdir()) == [old]


def test_a_report_of_nothing_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "old.txt"
    path.write_text("before")

    assert invoke("inspect", QOS, "--format", "jsonl", "--filter", "topic == 'none'", "-o", path).code == 0

    assert path.read_bytes() == b""


def test_a_shorter_report_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    path = tmp_path / "old.txt"
    path.write_text("before" * 100_000)
    assert invoke("inspect", QOS, "--format", "jsonl", "-o", path).code == 0
    assert path.read_bytes() == invoke("inspect", QOS, "--format", "jsonl").out
