"""The `about.toml` beside each capture: what it shows, where it comes from, what a reader must find in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
LICENCE = "Apache-2.0"


@dataclass(slots=True)
class Expected:
    """The `[expect]` table; README.md says what each word means."""

    connections: int
    frames: int
    versions: list[str]
    packets: Mapping[str, int]
    malformed: int = 0
    gaps: int = 0
    transport: str = "tcp"
    ports: list[int] = field(default_factory=lambda: [1883])
    topics: list[str] | None = None


@dataclass(slots=True)
class About:
    """One `about.toml`."""

    title: str
    shows: str
    origin: str
    tool: str
    expect: Expected
    recorded: str | None = None
    notes: str = ""
    explain: Mapping[int, str] = field(default_factory=dict)
    """Why connections ended, by their numbers, where somebody would ask."""
    fires: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Rules that find something; whom they blame, and what provokes them."""
    settings: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Settings that these rules need for it."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """Other rules that find errors, with the reason."""

    def text(self) -> str:
        """The file as TOML; strings are written as JSON, which TOML basic strings agree with for printable text."""
        head: dict[str, object] = {
            "title": self.title,
            "shows": self.shows,
            "origin": self.origin,
            "tool": self.tool,
            "licence": LICENCE,
        }
        if self.recorded:
            head["recorded"] = self.recorded
        if self.notes:
            head["notes"] = self.notes
        expect = self.expect
        body: dict[str, object] = {
            "connections": expect.connections,
            "frames": expect.frames,
            "versions": expect.versions,
            "transport": expect.transport,
            "ports": expect.ports,
            "malformed": expect.malformed,
            "gaps": expect.gaps,
        }
        if expect.topics is not None:
            body["topics"] = expect.topics
        packets = ", ".join(f"{name} = {number}" for name, number in expect.packets.items() if number)
        lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()]
        lines += ["", "[expect]"]
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in body.items()]
        lines += [f"packets = {{ {packets} }}" if packets else "packets = {}", ""]
        for connection, cause in self.explain.items():
            lines += ["[[explain]]", f"connection = {connection}", f"cause = {json.dumps(cause)}", ""]
        if self.fires:
            lines.append("[fires]")
            for code, (blamed, how) in self.fires.items():
                changed = ", ".join(f"{name} = {value}" for name, value in self.settings.get(code, {}).items())
                row = f'blames = "{blamed}", how = {json.dumps(how, ensure_ascii=False)}'
                lines.append(f"{code} = {{ {row}{f', settings = {{ {changed} }}' if changed else ''} }}")
            lines.append("")
        if self.beside:
            lines.append("[beside]")
            lines += [f"{code} = {json.dumps(why, ensure_ascii=False)}" for code, why in self.beside.items()]
            lines.append("")
        return "\n".join(lines)


def folder(name: str) -> Path:
    """The folder of a capture, made when it is not there."""
    path = HERE / name
    path.mkdir(exist_ok=True)
    return path
