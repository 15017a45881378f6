"""Profiles: the limits of a broker or cloud service, as a dated TOML file with its sources.

    title = "Example broker"
    dated = 2026-11-21
    sources = ["https://broker.example/limits"]

    [limits]
    maximum_qos = 1
    maximum_payload_bytes = 131072

Each limit belongs to one rule of the family PRF, which runs if a profile has its limit.  The limit ``sparkplug_role``
belongs to the rules that assume a role of Sparkplug.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any

from mqttscope.errors import MqttscopeError
from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.config import LARGEST, short
from mqttscope.lint.rule import TIME_SETTINGS, Rule

TITLE = "profile"
"""Setting of the rules of profiles that holds the profile's title."""


class ProfileError(MqttscopeError, ValueError):
    """The profile does not exist, or its file is wrong; the message gives the remedy."""


@dataclass(slots=True)
class Profile:
    """The limits of one service."""

    name: str
    title: str
    dated: date
    """When the sources were read."""
    sources: tuple[str, ...]
    limits: dict[str, Any]
    path: Path | None = None
    """Its file; ``None`` for a built-in profile."""


def names() -> list[str]:
    folder = files("mqttscope.lint").joinpath("profiles")
    return sorted(path.name.removesuffix(".toml") for path in folder.iterdir() if path.name.endswith(".toml"))


def profile_rules() -> list[type[Rule]]:
    """The rules that run only with a profile."""
    return [rule for rule in all_rules().values() if rule.is_for_profiles()]


def limit_rules() -> dict[str, type[Rule]]:
    """A rule of each limit."""
    return {key: rule for rule in profile_rules() for key in rule.settings if key not in (TITLE, *TIME_SETTINGS)}


def load(name: str, folder: Path) -> Profile:
    """The profile with this name, or in this file (a path relative to ``folder``)."""
    if name in names():
        text = files("mqttscope.lint").joinpath("profiles", f"{name}.toml").read_text("utf-8")
        return parse(text, name, f"profile {name}")
    if not name.endswith(".toml") and "/" not in name:
        near = [known for known in names() if known.startswith(name)] or difflib.get_close_matches(
            name, names(), 1, 0.4
        )
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ProfileError(f"{name!r} is not a profile{hint} (there are {', '.join(names())}, or give a .toml file)")
    path = folder / name
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ProfileError(f"profile {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ProfileError(f"profile {path}: not UTF-8") from None
    profile = parse(text, path.stem, f"profile {path}")
    profile.path = path
    return profile


def parse(text: str, name: str, where: str) -> Profile:
    """Read the text of a profile; `ProfileError` for a mistake in it."""
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise ProfileError(f"{where}: nested too deeply") from None
    except ValueError as error:
        raise ProfileError(f"{where}: not TOML: {error}") from None
    known = ("title", "dated", "sources", "limits")
    for key in document:
        if key not in known:
            raise ProfileError(f"{where}: {key} is an unknown key; known are {', '.join(known)}")
    limits, sources, dated = document.get("limits"), document.get("sources", []), document.get("dated")
    if not isinstance(limits, dict) or not limits:
        raise ProfileError(f"{where}: has no limits")
    if not isinstance(dated, date):
        raise ProfileError(f"{where}: dated is not a date like 2026-11-21")
    if not isinstance(sources, list) or not all(isinstance(source, str) for source in sources):
        raise ProfileError(f"{where}: sources is not a list of strings")
    rules = limit_rules()
    for key, value in limits.items():
        if key not in rules:
            near = difflib.get_close_matches(key, rules, 1, 0.5)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(rules)}"
            raise ProfileError(f"{where}: limits.{key} is an unknown limit{hint}")
        default = rules[key].settings[key]
        if type(value) is not type(default) or (isinstance(value, int) and not 0 <= value <= LARGEST):
            raise ProfileError(f"{where}: limits.{key} is {short(value)}, must be like {default!r}")
    title = document.get("title", name)
    if not isinstance(title, str):
        raise ProfileError(f"{where}: title is not a string")
    return Profile(name, title, dated, tuple(sources), limits)


def rules_of(profile: Profile) -> list[Rule]:
    """The rules that check the limits of a profile."""
    rules = []
    for rule in profile_rules():
        settings = {key: profile.limits[key] for key in rule.settings if key in profile.limits}
        if settings:
            rules.append(rule({**settings, TITLE: f"{profile.title} ({profile.dated})"}))
    return rules
