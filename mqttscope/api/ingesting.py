"""Captures into a lake, from a program or a notebook: what ``mqttscope pipeline ingest`` does in one process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from mqttscope import arguments
from mqttscope.api.captures import Path, Ports, capture_names
from mqttscope.api.errors import optional_package
from mqttscope.api.reading import CaptureNotFoundError, read_limit, read_path, read_ports, read_servers, read_version
from mqttscope.capture.files import NOTHING_THERE
from mqttscope.dissect.options import Options
from mqttscope.lake.store import place
from mqttscope.lint.given_rules import chosen_rules, names_of, selected_names
from mqttscope.lint.profile import load, rules_of
from mqttscope.lint.rule import Rule
from mqttscope.net.frame import CaptureError


@dataclass(slots=True)
class Ingested:
    """What an ingest did, and what the lake holds now."""

    generation: int
    """The generation of the lake, which `open` reads."""
    captures: list[str] = field(default_factory=list)
    """Captures that were read."""
    grown: list[str] = field(default_factory=list)
    """Those of them that were in already when they were shorter: only what follows was read."""
    known: list[str] = field(default_factory=list)
    """Captures that were in already, by their content and whatever their names."""
    rows: dict[str, int] = field(default_factory=dict)
    """Rows of each table of the lake that has any."""
    findings: dict[str, int] = field(default_factory=dict)
    """New findings by severity."""
    open_connections: int = 0
    """Connections that no capture shows the end of: the next ingest continues them."""
    out_of_order: list[str] = field(default_factory=list)
    """Captures that begin before the end of what the lake held: connections are not joined over that."""
    errors: list[CaptureError] = field(default_factory=list)
    """What could not be read: everything else of these captures is in the lake."""
    failed: dict[str, str] = field(default_factory=dict)
    """Rules that failed on some packet, with the reason, so that findings may be missing: rules of one's own may."""


def ingest(
    *captures: Path,
    lake: Path,
    select: Iterable[str] = (),
    extend_select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    rules: Iterable[type[Rule] | Rule] = (),
    profile: Path | None = None,
    complete: Iterable[str] = (),
    ports: Ports = (),
    version: str | None = None,
    payload_limit: int = 0,
    group: str = "",
    settings: Mapping[str, str] | None = None,
    lake_settings: Mapping[str, str] | None = None,
) -> Ingested:
    """Take captures into a lake, which is made where there is none: decode and lint them, and write all tables.

    ``captures``: files, globs, directories and URIs of stores; those that are in already are not read again.  ``lake``:
    its folder, or its place in a store.  ``settings``: of the stores of captures and lake, as for `open`;
    ``lake_settings`` take their place for a lake in another store.  ``payload_limit``: bytes of each payload that are
    kept.  ``group``: name of the site; a lake holds one.  The other arguments are those of `mqttscope.lint`; each
    ingest into a lake takes the same ones.  No configuration file is read.

    `CaptureNotFoundError` where a name stands for no capture, `LakeError` where the lake cannot be written or was made
    with other settings, `ArgumentError`, `UnknownRuleError` and `ProfileError` for arguments, and `MissingPackageError`
    without the packages of ``mqttscope[lake]``.  Nothing has changed then.
    """
    if not captures:
        raise TypeError("name at least one capture, as ingest('a.pcapng', lake='lake')")
    names = capture_names(captures)
    where = arguments.path("lake", lake, "a folder, or a place in a store")
    arguments.text("group", group, "the name of a site")
    of_captures = arguments.settings("settings", settings)
    of_lake = arguments.settings("lake_settings", lake_settings) or of_captures
    read_limit(payload_limit)
    for package in ("pyarrow", "msgspec", "deltalake"):
        optional_package(package, extra="lake")
    from mqttscope.capture.locations import NoCapturesError, find
    from mqttscope.lake.manifest import read_manifest
    from mqttscope.lake.options import LakeOptions, let_be_remembered
    from mqttscope.lake.summary import summarize
    from mqttscope.lake.writer import write_lake

    chosen = chosen_rules(
        selected_names(select), names_of(extend_select, "extend_select"), names_of(ignore, "ignore"), rules
    )
    limits = read_path(profile, "profile")
    chosen += () if limits is None else rules_of(load(limits, FilePath.cwd()))
    let_be_remembered(chosen)
    options = LakeOptions(
        dissect=Options(ports=read_ports(ports), version=read_version(version)),
        group=group,
        payload_limit=payload_limit,
        rules=tuple(chosen),
        complete=read_servers(complete),
    )
    root = place(where, of_lake)
    before = read_manifest(root)
    try:
        found = find(names, settings, before.objects)
    except NoCapturesError as error:
        raise CaptureNotFoundError(str(error)) from None
    faults = {one.name: one.fault for one in found if one.fault is not None}
    for name, fault in faults.items():
        if fault in NOTHING_THERE:
            raise CaptureNotFoundError(f"{name} {fault}")
    done = write_lake([one for one in found if one.fault is None], root, options, settings=settings, faults=faults)
    made = summarize(root, before, done)
    unopened = {**faults, **done.faults}
    said = {(one.capture, one.message) for one in made.errors}
    errors = [CaptureError(name, why) for name, why in unopened.items() if (name, why) not in said]
    return Ingested(
        generation=made.generation,
        captures=done.captures,
        grown=done.grown,
        known=done.known,
        rows=made.rows,
        findings=made.findings,
        open_connections=made.open_connections,
        out_of_order=done.out_of_order,
        errors=[*errors, *made.errors, *(one for one in done.known_errors if one not in made.errors)],
        failed={one.rule: one.error for one in done.internal_errors},
    )


__all__ = ["Ingested", "ingest"]
