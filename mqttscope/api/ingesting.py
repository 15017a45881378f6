"""Ingests captures into a lake from a program or a notebook, like ``mqttscope pipeline ingest`` in one process."""

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
    """Result of an ingest, and new contents of the lake."""

    generation: int
    """Generation of the lake, for `open`."""
    captures: list[str] = field(default_factory=list)
    """Captures read by this ingest."""
    grown: list[str] = field(default_factory=list)
    """Captures that were partly in the lake already: only the rest was read."""
    known: list[str] = field(default_factory=list)
    """Captures that the lake already had, identified by content, not by name."""
    rows: dict[str, int] = field(default_factory=dict)
    """Number of new rows by table."""
    findings: dict[str, int] = field(default_factory=dict)
    """Number of new findings by severity."""
    open_connections: int = 0
    """Number of connections without a captured end, which the next ingest continues."""
    out_of_order: list[str] = field(default_factory=list)
    """Captures that start before the end of earlier captures in the lake: their connections are not joined."""
    errors: list[CaptureError] = field(default_factory=list)
    """Errors of captures; their readable parts are in the lake."""
    failed: dict[str, str] = field(default_factory=dict)
    """Rules that failed on a packet, with the error: findings may be missing. Usually own rules."""


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
    """Add captures to a lake, or create it: decode and lint them, and write all tables.

    ``captures``: files, globs, directories and URIs of object stores; captures already in the lake are not read again.
    ``lake``: its folder, or its URL in an object store.  ``settings``: for the object stores of captures and lake, as
    for `open`; ``lake_settings`` replace them for a lake in another store.  ``payload_limit``: bytes of each payload
    to keep.  ``group``: name of the site; a lake contains one group.  The other arguments are described at
    `mqttscope.lint`, and must be equal for all ingests into a lake.  No configuration file is read.

    `CaptureNotFoundError` for a name without a capture, `LakeError` if the lake cannot be written or was created with
    other settings, `ArgumentError`, `UnknownRuleError` and `ProfileError` for arguments, and `MissingPackageError`
    without the packages of ``mqttscope[lake]``.  After an error the lake is unchanged.
    """
    if not captures:
        raise TypeError("name at least one capture, as ingest('a.pcapng', lake='lake')")
    names = capture_names(captures)
    where = arguments.path("lake", lake, "a folder, or a URL in an object store")
    arguments.text("group", group, "the name of a site")
    of_captures = arguments.settings("settings", settings)
    of_lake = arguments.settings("lake_settings", lake_settings) or of_captures
    read_limit(payload_limit)
    for package in ("pyarrow", "msgspec", "deltalake"):
        optional_package(package, extra="lake")
    from mqttscope.capture.locations import NoCapturesError, find
    from mqttscope.lake.manifest import read_manifest
    from mqttscope.lake.options import LakeOptions, allow_rule_state
    from mqttscope.lake.summary import summarize
    from mqttscope.lake.writer import write_lake

    chosen = chosen_rules(
        selected_names(select), names_of(extend_select, "extend_select"), names_of(ignore, "ignore"), rules
    )
    limits = read_path(profile, "profile")
    chosen += () if limits is None else rules_of(load(limits, FilePath.cwd()))
    allow_rule_state(chosen)
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
        located = find(names, settings, before.objects)
    except NoCapturesError as error:
        raise CaptureNotFoundError(str(error)) from None
    faults = {capture.name: capture.fault for capture in located if capture.fault is not None}
    for name, fault in faults.items():
        if fault in NOTHING_THERE:
            raise CaptureNotFoundError(f"{name} {fault}")
    done = write_lake(
        [capture for capture in located if capture.fault is None], root, options, settings=settings, faults=faults
    )
    summary = summarize(root, before, done)
    unopened = {**faults, **done.faults}
    reported = {(error.capture, error.message) for error in summary.errors}
    errors = [CaptureError(name, why) for name, why in unopened.items() if (name, why) not in reported]
    return Ingested(
        generation=summary.generation, captures=done.captures, grown=done.grown, known=done.known, rows=summary.rows,
        findings=summary.findings, open_connections=summary.open_connections, out_of_order=done.out_of_order,
        errors=[*errors, *summary.errors, *(error for error in done.known_errors if error not in summary.errors)],
        failed={failure.rule: failure.error for failure in done.internal_errors},
    )  # fmt: skip


__all__ = ["Ingested", "ingest"]
