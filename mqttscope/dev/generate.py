"""Write the files that repeat what the code says: shell completions, the command reference, the pages of the rules.

``python -m mqttscope.dev.generate`` writes them and removes the pages of rules that are gone; ``--check`` fails when
one of them is not fresh.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click.shell_completion import BashComplete as _BashComplete
from click.shell_completion import FishComplete, ZshComplete

from mqttscope.cli.main import COMMANDS, group
from mqttscope.dev.rule_pages import FOLDER, pages

ROOT = Path(__file__).resolve().parent.parent.parent
_WIDTH = 100


class BashComplete(_BashComplete):
    """click's completion for bash, without asking the bash of this machine for its version."""

    @staticmethod
    def _check_version() -> None:
        return


def completions() -> dict[Path, str]:
    """Completion scripts by path."""
    shells = {"mqttscope.bash": BashComplete, "_mqttscope": ZshComplete, "mqttscope.fish": FishComplete}
    return {
        ROOT / "completions" / name: shell(group, {}, "mqttscope", "_MQTTSCOPE_COMPLETE").source().strip() + "\n"
        for name, shell in shells.items()
    }


def help_text(name: str | None = None) -> str:
    """``--help`` of a command, or of the program."""
    context = click.Context(group, info_name="mqttscope", max_content_width=_WIDTH, terminal_width=_WIDTH)
    if name is None:
        return group.get_help(context)
    command = group.get_command(context, name)
    assert command is not None
    inner = click.Context(command, info_name=name, parent=context, max_content_width=_WIDTH, terminal_width=_WIDTH)
    return command.get_help(inner)


def reference() -> str:
    """The command reference, docs/cli.md."""
    parts = [
        "# Commands",
        "",
        "Generated from the commands with `make generate`.",
        "",
        "```text",
        help_text(),
        "```",
        "",
    ]
    for name in COMMANDS:
        parts += [f"## {name}", "", "```text", help_text(name), "```", ""]
    return "\n".join(line.rstrip() for line in "\n".join(parts).splitlines()) + "\n"


def generated() -> dict[Path, str]:
    """All generated files by path."""
    rules = {ROOT / path: text for path, text in pages().items()}
    return {**completions(), ROOT / "docs" / "cli.md": reference(), **rules}


def orphans(files: dict[Path, str]) -> list[Path]:
    """Pages of rules that are gone."""
    return sorted(path for path in (ROOT / FOLDER).glob("*") if path not in files)


def main(arguments: list[str]) -> int:
    """Write or check; returns 1 when something is not fresh."""
    files = generated()
    stale = [path for path, text in files.items() if not path.is_file() or path.read_text("utf-8") != text]
    gone = orphans(files)
    if arguments == ["--check"]:
        for path in stale:
            sys.stderr.write(f"{path.relative_to(ROOT)} is not fresh: run make generate\n")
        for path in gone:
            sys.stderr.write(f"{path.relative_to(ROOT)} is of no rule: run make generate\n")
        return 1 if stale or gone else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], "utf-8")
        sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
    for path in gone:
        path.unlink()
        sys.stdout.write(f"removed {path.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
