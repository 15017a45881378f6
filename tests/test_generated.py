"""Generated files are fresh, and the shells take them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import building, tools

tools.package("pyarrow")

from mqttscope.cli.main import COMMANDS
from mqttscope.dev import generate
from mqttscope.dev.schemas import SCHEMAS
from mqttscope.lint.catalogue import all_rules
from tests.cli.running import environment
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def generated() -> dict[Path, str]:
    """All generated files by path."""
    return generate.generated()


def test_completions_the_reference_and_the_pages_of_rules_and_states_are_generated(
    generated: dict[Path, str],
) -> None:
    assert {str(path.relative_to(ROOT)) for path in generated} == {
        "completions/mqttscope.bash", "completions/_mqttscope", "completions/mqttscope.fish", "docs/cli.md",
        "mqttscope/analysis/columns.json", "docs/states.md", "docs/conformance.md", "docs/evidence.md",
        "docs/captures.md", "docs/rules/README.md", "docs/filter-fields.md",
        "docs/mutations.md", "docs/configuration.md", "docs/performance.md",
        "docs/man/mqttscope.1",
        *(f"docs/man/mqttscope-{'-'.join(names)}.1" for names in generate.command_names()),
        *(f"docs/rules/{code}.md" for code in all_rules()),
        *(f"mqttscope/schemas/{name}.json" for name in SCHEMAS),
    }  # fmt: skip


def test_no_other_files_lie_beside_them(generated: dict[Path, str]) -> None:
    assert {path for path in (ROOT / "completions").iterdir() if path.is_file()} <= set(generated)
    assert set((ROOT / "docs" / "rules").iterdir()) <= set(generated), "run make generate"


def test_the_reference_has_every_command_and_option() -> None:
    text = generate.commands()
    for name in COMMANDS:
        assert f"\n## {name}\n" in text
        assert f"Usage: mqttscope {name}" in text
    assert "--mqtt-version" in text


def test_manual_pages_are_read_by_man(generated: dict[Path, str], tmp_path: Path) -> None:
    text = generated[ROOT / "docs/man/mqttscope-explain.1"]

    assert ".SH EXAMPLES" in text
    assert "mqttscope explain site.pcapng \\-\\-client 'pump\\-*'" in text
    groff = tools.program("groff")
    for path, page in generated.items():
        if path.suffix == ".1":
            done = subprocess.run(
                [groff, "-man", "-Tascii", "-ww", "-b"], input=page, capture_output=True, text=True, check=False
            )
            assert done.stderr == "", path


def test_diagrams_are_made_of_the_tables() -> None:
    text = generate.states()

    assert text.count("```mermaid\nstateDiagram-v2\n") == 3
    assert "    [*] --> opening\n    opening --> connecting: CONNECT\n" in text
    assert "    undecided --> ws: speaks WebSocket\n" in text
    assert "    ignored --> [*]\n" in text
    assert "    sent --> released: PUBREL\n" in text
    assert "| **refused** | *connecting* | *connected* | *refused* | *disconnected* |\n" in text


@pytest.fixture
def elsewhere(generated: dict[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another checkout without any generated file; what belongs there is not made again, which takes seconds."""
    files = {tmp_path / path.relative_to(ROOT): text for path, text in generated.items()}
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "generated", lambda: files)
    return tmp_path


def test_check_says_what_is_not_fresh(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 1
    assert "docs/cli.md is not fresh: run make generate\n" in capsys.readouterr().err
    assert generate.main([]) == 0
    assert "wrote docs/cli.md\n" in capsys.readouterr().out
    assert generate.main(["--check"]) == 0
    assert capsys.readouterr() == ("", "")
    (elsewhere / "docs" / "cli.md").write_text("something else")
    assert generate.main(["--check"]) == 1


def test_the_page_of_a_rule_that_is_gone_is_an_error(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate.main([])
    old = elsewhere / "docs" / "rules" / "OLD101.md"
    old.write_text("# OLD101")
    capsys.readouterr()

    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().err == "docs/rules/OLD101.md is made from nothing: run make generate\n"
    assert generate.main([]) == 0
    assert capsys.readouterr().out == "removed docs/rules/OLD101.md\n"
    assert not old.exists()
    assert generate.main(["--check"]) == 0


def test_everything_is_fresh(
    generated: dict[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "generated", lambda: generated)

    assert generate.main(["--check"]) == 0, "run make generate"
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("shell", "name"), [("bash", "mqttscope.bash"), ("zsh", "_mqttscope"), ("fish", "mqttscope.fish")]
)
def test_a_shell_takes_its_completion(shell: str, name: str) -> None:
    tools.program(shell)
    script = (ROOT / "completions" / name).read_text("utf-8")
    done = subprocess.run(
        [shell, "-n", "/dev/stdin"], input=script, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_bash_completes_with_it(tmp_path: Path) -> None:
    tools.program("bash")
    building.write_program(tmp_path / "mqttscope", f'exec "{sys.executable}" -m mqttscope "$@"')
    script = (
        f'PATH="{tmp_path}:$PATH"; . completions/mqttscope.bash\n'
        "COMP_WORDS=(mqttscope inspect --form); COMP_CWORD=2\n"
        '_mqttscope_completion mqttscope --form inspect; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment(), cwd=ROOT, timeout=60, check=False
    )

    assert done.stdout == "--format\n"
