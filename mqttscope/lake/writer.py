"""Writes a lake in this process: for small inputs, and as the reference for every other engine.

An ingest is all or nothing: files are written next to the present ones, then committed (`lake.commit`).  A capture with
known content is not read again, so that a repeated ingest changes nothing; of a capture that has grown, only the new
part is read.  A connection that is open when the captures end continues in the next ingest, from the memory of its
flow; until then its present rows are in the tables, with ``open`` as ``closed_how``.  The memories of rules about
sessions and servers continue likewise.  So the tables of several ingests equal the tables of one if the captures come
in the order of time; in any other order each packet still has one row (`lake.memory`).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc

from mqttscope.capture import fingerprint
from mqttscope.capture.files import NOT_REGULAR, NOTHING_THERE, SINCE, CapturePortion, why_not_opened
from mqttscope.capture.locations import PARALLEL, Location, open_location, open_named
from mqttscope.capture.read import BoundedFile
from mqttscope.lake import delta
from mqttscope.lake import files as lake_files
from mqttscope.lake import manifest as manifests
from mqttscope.lake.aggregates import batches, write_sums
from mqttscope.lake.commit import commit, lake_lock, merge_small
from mqttscope.lake.erasure import batches_of, end_open_connections, erase_again, rewrite
from mqttscope.lake.intake import STATE_ROWS, Intake, ReadDifferentlyError, SecondProcess
from mqttscope.lake.kernel import OpenFlowRows, begun, state_row
from mqttscope.lake.manifest import (
    DIGEST_DIGITS,
    PENDING,
    LakeError,
    Manifest,
    check_content,
    check_files,
    check_tables,
    read_manifest,
)
from mqttscope.lake.memory import open_connections
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.public import PUBLIC
from mqttscope.lake.schemas import EVENT_TABLES, RENAMED, SCOPE_STATE, STATE, TABLES
from mqttscope.lake.schemas import VERSION as SCHEMA_VERSION
from mqttscope.lake.state import VERSION as STATE_VERSION
from mqttscope.lake.state import dump
from mqttscope.lake.store import Lake, Place, place
from mqttscope.lake.tables import LOOK, Collector, batch
from mqttscope.lint.context import WIDE
from mqttscope.lint.engine import InternalError
from mqttscope.lint.rule import Rule
from mqttscope.mqtt.view import utf8
from mqttscope.net.frame import CaptureError

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

    from mqttscope.capture.taps import Taps

_READ = ("messages", "connections", "ingest_errors")
SETTLED_NS = 10_000_000_000
"""Minimum age of a settled object of a store: stores give write times in seconds, and an older object
surely has another time when it is written again."""
_SAME_NAME = "names several captures: the part of a URI after a question mark is not part of a name"


@dataclass(slots=True)
class IngestResult:
    """Result of an ingest."""

    captures: list[str] = field(default_factory=list)
    """Captures that were read."""
    grown: list[str] = field(default_factory=list)
    """Captures among them that the lake had in a shorter form: only the new part was read."""
    known: list[str] = field(default_factory=list)
    """Captures that the lake had already."""
    known_errors: list[CaptureError] = field(default_factory=list)
    """Errors of known captures, found when these or others with equal bytes were read."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Frames without TCP in the captures that were read, by reason."""
    rows: dict[str, int] = field(default_factory=dict)
    """Rows added to each table, without rows of connections that are still open."""
    open_flows: int = 0
    """Number of flows that the next ingest continues."""
    out_of_order: list[str] = field(default_factory=list)
    """Captures that begin before the last segment of an earlier ingest: connections that both have are not joined."""
    overlapping: list[str] = field(default_factory=list)
    """Captures that begin before an earlier one of this ingest ends: they are read one after the other."""
    taps: Taps | None = None
    """Statistics of the taps, if the captures come from several taps."""
    faults: dict[str, str] = field(default_factory=dict)
    """Reasons why captures could no longer be opened, by name; they can be ingested later."""
    internal_errors: list[InternalError] = field(default_factory=list)
    """The first failures of rules; findings may be missing."""
    failures_told: list[str] = field(default_factory=list)
    """How often each rule failed, as sentences."""
    waiting_rules: list[str] = field(default_factory=list)
    """New rules that compare connections, and have no memories of earlier ingests: they were not used."""
    ended: int = 0
    """Number of open connections that were ended, because another version of mqttscope wrote their memories."""


def write_lake(
    captures: Sequence[str | os.PathLike[str] | Location],
    folder: Lake,
    options: LakeOptions | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    faults: Mapping[str, str] | None = None,
    progress: Callable[[int], None] | None = None,
    second_process: SecondProcess | None = None,
    rebuild: bool = False,
    without_missing: bool = False,
) -> IngestResult:
    """Ingest captures into a lake, which is created if it does not exist; `LakeError` if that is not possible.

    ``captures``: files, or locations that `locations.find` returned, perhaps in stores with these ``settings``.
    ``faults``: reasons why other captures cannot be opened, by name.  ``progress`` is called now and then with the
    number of processed segments.  ``second_process`` does a part of the work; the tables do not depend on it.
    ``rebuild``: the rows of these captures replace all rows; ``without_missing``: even if the lake has other captures.
    """
    root = place(folder)
    options = options or LakeOptions()
    locations = [
        path if isinstance(path, Location) else Location(os.fspath(path), os.path.abspath(path)) for path in captures
    ]
    with lake_lock(root):
        before = read_manifest(root)
        known, chosen = starting_point(root, before, options, rebuild=rebuild)
        done = IngestResult(waiting_rules=[rule.code for rule in options.rules if rule not in chosen.rules])
        identified = _fresh(locations, settings or {}, known)
        if rebuild and not without_missing:
            check_complete(root, before, identified, identified.names, settings or {})
        done.known = [name for name, _ in identified.known]
        done.faults = identified.faults
        manifests.remove_strays(root, before)
        resumed, after = begin_generation(root, known, chosen)
        if resumed is not known:
            done.ended = sum(before.rows.get(name, 0) for name in before.open_files.get("connections", ()))
        try:
            fresh = identified.names
            if fresh:
                _take(root, identified, chosen, resumed, after, done, progress, second_process)
                # Captures that were rotated, replaced or removed meanwhile are left to the next ingest.
                fresh = {digest: name for digest, name in fresh.items() if identified.parts[name].was_opened}
                identified.note(fresh, known, after)
                done.captures = list(fresh.values())
                done.grown = [name for name in done.captures if identified.parts[name].behind]
            faults = {**(faults or {}), **identified.faults}
            if note_errors(root, after, done, fresh, identified.known, faults) or identified.names:
                merge_small(root, known, after)
                commit(root, before, after)
            else:
                discard(root, before, after)
        except BaseException:
            discard(root, before, after)
            raise
    return done


def _take(
    root: Place,
    identified: _NewCaptures,
    options: LakeOptions,
    before: Manifest,
    after: Manifest,
    done: IngestResult,
    progress: Callable[[int], None] | None,
    second_process: SecondProcess | None,
) -> None:
    """Read new captures, and write the files of all tables."""
    after.open_files, after.state_files, after.scope_state_files = {}, [], []
    try:
        _read(root, identified, options, before, after, done, progress, second_process)
    except ReadDifferentlyError:
        for part in identified.parts.values():
            part.was_opened = False
        _read(root, identified, options, before, after, done, progress, None)
    erase_again(root, before, after, options.key_file)
    write_sums(root, after)


def discard(root: Place, before: Manifest, after: Manifest) -> None:
    """Delete the files of an ingest that failed, unless its commit has begun: the next ingest completes that."""
    with suppress(OSError, LakeError):
        if read_manifest(root, PENDING).generation == after.generation:
            return
        for name in {*after.all_files(), *after.erased} - before.all_files():
            with suppress(OSError):
                (root / name).unlink()
        manifests.remove_strays(root, before)


def starting_point(
    root: Place, before: Manifest, options: LakeOptions, *, rebuild: bool
) -> tuple[Manifest, LakeOptions]:
    """The manifest that an ingest continues, and its options; for a rebuild, the manifest without any capture."""
    if not rebuild:
        return before, check_settings(before, options, root)
    if before.streams:
        raise LakeError("a watch writes this lake, and continues at its own place: use another folder")
    unread = replace(
        before, captures={}, ingests={}, begins={}, objects={}, faulty={}, files={}, open_files={}, state_files=[],
        scope_state_files=[], last_ns=None, shift_ns=0, options={}, rule_sets=_earlier_rules(before),
        digest_digits=DIGEST_DIGITS,
    )  # fmt: skip
    return unread, replace(options, rule_generation=len(_rule_sets(before, options)))


def check_complete(
    root: Place, before: Manifest, identified: IdentifiedCaptures, new: Mapping[str, str], settings: Mapping[str, str]
) -> None:
    """Raise `LakeError` if captures of a lake are not among the identified ones, nor beginnings of these.

    ``new``: names to open of the identified captures that are read, by digest.
    """
    there = {*new, *(digest for _, digest in identified.known)}
    missing = {digest: name for digest, name in before.captures.items() if digest not in there}
    begun = {
        digest: fingerprint.Fingerprint(digest, digest, *before.begins[digest])
        for digest in missing
        if digest in before.begins
    }
    opened = partial(open_named, settings=settings)
    begins = {digest: content.manifest_entry[content.readable] for digest, content in identified.contents.items()}
    for digest in fingerprint.find_prefixes(begun, missing, begins, new, opened):
        del missing[digest]
    if missing:
        names = sorted(set(missing.values()))
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        raise LakeError(
            f"{root}: {', '.join(names[:_NAMED])}{more} cannot be found with the content of the ingest: name their "
            "places, or use --without-missing"
        )


def note_errors(
    root: Place,
    after: Manifest,
    done: IngestResult,
    fresh: Mapping[str, str],
    known: Sequence[tuple[str, str]],
    faults: Mapping[str, str],
) -> int:
    """Write missing rows for errors of captures that were not read; return the number of new rows.

    ``fresh``: names of captures that were read, by digest; ``known``: names and digests of captures that the lake has
    already, or copies of others; ``faults``: reasons why others cannot be opened, by name.
    """
    lake_files.remember_errors(root, after, fresh)
    _heal_errors(root, after, {utf8(name) for name in fresh.values()})
    done.known_errors = lake_files.known_errors(after, known)
    unopened = [CaptureError(name, why) for name, why in faults.items() if why not in NOTHING_THERE]
    added = lake_files.add_errors(root, after, [*done.known_errors, *unopened])
    if added:
        done.rows["ingest_errors"] = done.rows.get("ingest_errors", 0) + added
    return added


def _heal_errors(root: Place, after: Manifest, names: set[str]) -> None:
    """Mark earlier errors of captures that were read without an error now."""
    errors = after.files.get("ingest_errors", [])
    earlier = [name for name in errors if not manifests.is_of(name, after.generation)]
    if not earlier or not names:
        return
    for record_batch in batches_of(root, after, "ingest_errors", set(errors) - set(earlier), ("capture", "event")):
        names -= {row["capture"] for row in record_batch.to_pylist() if row["event"] == "capture_error"}
    captures = pa.array(sorted(names), pa.string())

    def edit(table: str, record_batch: pa.RecordBatch) -> pa.RecordBatch:
        healed = pc.and_(
            pc.is_in(record_batch.column("capture"), value_set=captures),
            pc.equal(record_batch.column("event"), "capture_error"),
        )
        if not pc.any(pc.and_(healed, pc.is_null(record_batch.column("healed")))).as_py():
            return record_batch
        marked = pc.if_else(healed, True, record_batch.column("healed"))
        return record_batch.set_column(record_batch.schema.get_field_index("healed"), "healed", marked)

    # Rows of this generation are new errors.
    rewrite(root, after, edit, set(earlier), generation=after.generation - 1)


def begin_generation(root: Place, before: Manifest, options: LakeOptions) -> tuple[Manifest, Manifest]:
    """The manifest to continue from, and the manifest of the next ingest, before anything of it is written.

    If another version of mqttscope wrote the memories, nothing is continued, and open connections end.
    """
    after = replace(
        before.following(),
        group=options.group,
        settings=settings_digest(options),
        options=option_words(options),
        rule_sets=_rule_sets(before, options),
    )
    if not is_of_other_version(before):
        return before, after
    end_open_connections(root, after)
    return replace(before, open_files={}, state_files=[], scope_state_files=[]), after


def is_of_other_version(manifest: Manifest) -> bool:
    """Whether another version of mqttscope wrote the memories of a lake, so that they cannot be continued."""
    return manifest.options.get(_VERSION, _version()) != _version()


def _rule_sets(before: Manifest, options: LakeOptions) -> list[str]:
    """The sets of rules of all ingests, up to the next one."""
    sets, words = _earlier_rules(before), option_words(options)[_RULES]
    return sets if sets and sorted(sets[-1].splitlines()) == sorted(words.splitlines()) else [*sets, words]


def _earlier_rules(manifest: Manifest) -> list[str]:
    return manifest.rule_sets or [manifest.options[name] for name in (_RULES,) if name in manifest.options]


def has_all_findings(manifest: Manifest, options: LakeOptions) -> bool:
    """Whether all ingests of a lake had these rules, with these settings."""
    sets, words = _earlier_rules(manifest), option_words(options)[_RULES].splitlines()
    return bool(sets) and all(set(words) <= set(text.splitlines()) for text in sets)


def _codes(rules: str) -> set[str]:
    """The codes of a set of rules."""
    return {line.partition(" ")[0] for line in rules.splitlines()}


def _continued(before: Manifest, options: LakeOptions) -> LakeOptions:
    """The options without new rules that compare connections: they would need the memories of earlier ingests."""
    sets = _earlier_rules(before)
    if sets and not is_of_other_version(before):
        known = _codes(sets[-1])
        options = replace(
            options, rules=tuple(rule for rule in options.rules if rule.scope not in WIDE or rule.code in known)
        )
    sets = _rule_sets(before, options)
    without = {
        rule.code: [generation for generation, text in enumerate(sets, 1) if rule.code not in _codes(text)]
        for rule in options.rules
    }
    since = {code: generations[-1] + 1 for code, generations in without.items() if generations}
    return replace(options, rule_generation=len(sets), since=since, digest_digits=before.digest_digits)


def read_table(
    folder: Lake,
    name: str,
    columns: Sequence[str] | None = None,
    *,
    manifest: Manifest | None = None,
) -> pa.Table:
    """A table of a lake, open connections included; `LakeError` if it does not exist or cannot be read.

    ``manifest``: of a lake that was opened and checked before, so that several tables are of one generation.
    """
    root = place(folder)
    if manifest is None:
        manifest = read_manifest(root)
        check_tables(root, manifest, (name,))
    with lake_files.reading(root / name):
        source = _dataset(root, manifest, name)
        old = RENAMED.get(name, {}) if manifest.schema == 1 else {}
        wanted = [old.get(column, column) for column in columns or TABLES[name].names]
        return source.to_table(columns=wanted).rename_columns(list(columns or TABLES[name].names))


def _dataset(root: Place, manifest: Manifest, name: str) -> Dataset:
    if name not in TABLES:
        raise LakeError(f"table {name!r} does not exist; tables: {', '.join(TABLES)}")
    names = (*manifest.files.get(name, ()), *manifest.open_files.get(name, ()))
    schema = TABLES[name].arrow()
    for today, then in RENAMED.get(name, {}).items() if manifest.schema == 1 else ():
        place = schema.get_field_index(today)
        schema = schema.set(place, schema.field(place).with_name(then))
    return lake_files.dataset([root / file for file in names], schema)


def settings_digest(options: LakeOptions) -> str:
    """Digest of the options that rows depend on; all ingests of a lake have equal ones."""
    rules = [(rule.code, sorted(rule.set.items())) for rule in options.rules]
    text = repr((SCHEMA_VERSION, STATE_VERSION, options.reading(), options.payload_limit, rules, options.secret_length))
    if options.complete:
        text += repr(sorted(options.complete))
    if options.deduplicate:
        text += "deduplicate"
    if not options.dissect.verify_checksums:
        text += "checksums not verified"
    return hashlib.sha256(text.encode()).hexdigest()


def option_words(options: LakeOptions) -> dict[str, str]:
    """The options that rows depend on, in words, so that a difference can be named."""
    reading = options.reading()
    return {
        "--port": ", ".join(f"{port}:{name}" for port, name in sorted(reading.ports.items())) or "none",
        "--mqtt-version": "auto" if reading.version is None else str(reading.version),
        "--payload-limit": str(options.payload_limit),
        "--complete": ", ".join(sorted(options.complete)) or "none",
        "length of secrets (SEC104)": str(options.secret_length),
        "longest packet": str(reading.max_packet_bytes),
        "detection on every port": "on" if reading.detect else "off",
        "decryption": "on" if reading.decrypting else "off",
        "--deduplicate": "on" if options.deduplicate else "off",
        "--dont-verify-checksums": "off" if reading.verify_checksums else "on",
        _VERSION: _version(),
        _RULES: "\n".join(_rule_words(rule) for rule in options.rules),
    }


_RULES = "rules"
_NAMED = 3
"""Maximum number of captures in a message."""
_VERSION = "version of the tables"


def _version() -> str:
    """Version of the tables and of the state that flows and rules leave for the next ingest."""
    return f"{SCHEMA_VERSION}.{STATE_VERSION}"


def _rule_words(rule: Rule) -> str:
    return " ".join([rule.code, *(f"{name}={value!r}" for name, value in sorted(rule.set.items()))])


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The old and new values of options that differ, without rules; empty if they are unknown."""
    changes = [
        f"{name} was {before[name]} and is {value}"
        for name, value in now.items()
        if name not in (_RULES, _VERSION) and before.get(name, value) != value
    ]
    return "; ".join(changes)


def check_settings(before: Manifest, options: LakeOptions, root: Place) -> LakeOptions:
    """The options of the next ingest, with the rules that can continue.

    `LakeError` if the lake was written with other options, or its files are damaged.
    """
    if not before.generation:
        return options
    if not before.versions:
        raise LakeError(
            f"{root} is a lake of an earlier release: run 'mqttscope pipeline convert --lake {root}' before an ingest; "
            "reports and questions can read it as it is"
        )
    check_files(root, before)
    delta.check(root, before)
    # The ingest reads the memories of flows and rules, and the tables for the sums.
    check_content(root, before, [*before.state_files, *before.scope_state_files])
    check_tables(root, before, _READ)
    if before.group != options.group:
        raise LakeError(f"{root} holds captures of the group {before.group!r}, not of {options.group!r}")
    changes = differences(before.options, option_words(options))
    if changes:
        raise LakeError(
            f"{root} was written with other options: {changes}; use the same options, or another folder, or "
            f"'mqttscope pipeline rebuild'"
        )
    if not before.options and before.settings != settings_digest(options):
        raise LakeError(
            f"{root} was written by an early release with other options, rules or schemas, which it did not note; "
            "use 'mqttscope pipeline rebuild', or another folder"
        )
    return _continued(before, options)


@dataclass(slots=True)
class IdentifiedCaptures:
    """Captures, identified by their content."""

    contents: dict[str, fingerprint.Fingerprint] = field(default_factory=dict)
    """Fingerprints of captures to be read, by digest."""
    known: list[tuple[str, str]] = field(default_factory=list)
    """Names and digests of captures that the lake has already, and of copies among the given ones."""
    faults: dict[str, str] = field(default_factory=dict)
    """Reasons why captures cannot be read, by name."""
    objects: dict[str, list[Any]] = field(default_factory=dict)
    """Captures of stores, as in the manifest."""

    def note(self, read: Mapping[str, str], before: Manifest, after: Manifest) -> None:
        """Add captures that were read to the manifest; ``read``: their names by digest."""
        after.add_captures(read)
        for digest in read:
            after.begins |= self.contents[digest].manifest_entry
        after.objects = before.objects | {name: own for name, own in self.objects.items() if own[0] in after.captures}


@dataclass(slots=True)
class _NewCaptures(IdentifiedCaptures):
    """Identified captures, with the parts to be read."""

    names: dict[str, str] = field(default_factory=dict)
    """Names of captures that the lake lacks, by digest."""
    parts: dict[str, CapturePortion] = field(default_factory=dict)
    """Part of each capture to be read, by name: it may have been read before, and may be growing."""


@dataclass(slots=True)
class _ExaminedCapture:
    """A capture after examination."""

    location: Location
    digest: str = ""
    """Digest of the content; empty if it cannot be read."""
    content: fingerprint.Fingerprint | None = None
    """``None`` if it was not read."""
    part: CapturePortion | None = None
    fault: str = ""
    """Reason why it cannot be read."""


def _fresh(locations: Sequence[Location], settings: Mapping[str, str], before: Manifest) -> _NewCaptures:
    identified, begins = _NewCaptures(), fingerprint.KnownFingerprints.from_manifest(before.begins, before.captures)
    look = partial(_look, settings=settings, begins=begins, before=before)
    targets: dict[str, str] = {}
    now_ns = time.time_ns()
    for capture in _each(look, locations):
        name, digest = capture.location.name, capture.digest
        written_ns = capture.location.written_ns
        if capture.part is not None and written_ns and now_ns - written_ns >= SETTLED_NS:
            identified.objects[name] = [digest, capture.part.size, written_ns]
        if not digest:
            identified.faults[name] = capture.fault
        elif capture.content is None or capture.part is None or digest in before.captures or digest in identified.names:
            identified.known.append((name, digest))
        elif name in identified.parts:
            identified.faults[name] = _SAME_NAME
        else:
            identified.names[digest], targets[digest] = name, capture.location.target
            identified.contents[digest] = capture.content
            identified.parts[name] = capture.part
    if identified.faults and not identified.names and not identified.known:
        raise LakeError(f"nothing is done: {'; '.join(f'{name} {why}' for name, why in identified.faults.items())}")
    opened = partial(open_named, settings=settings)
    for digest in fingerprint.find_prefixes(identified.contents, targets, before.begins, before.captures, opened):
        identified.known.append((identified.names.pop(digest), digest))
    return identified


def _each(look: Callable[[Location], _ExaminedCapture], locations: Sequence[Location]) -> Iterator[_ExaminedCapture]:
    """Examine captures; remote ones in parallel, since nearly all of the time is waiting."""
    if any(location.is_remote for location in locations):
        with ThreadPoolExecutor(PARALLEL) as pool:
            yield from pool.map(look, locations)
    else:
        yield from map(look, locations)


def _look(
    location: Location, settings: Mapping[str, str], begins: fingerprint.KnownFingerprints, before: Manifest
) -> _ExaminedCapture:
    target, known = location.target, location.known_as(before.objects)
    if known is not None and known in before.captures:
        return _ExaminedCapture(location, known)
    if not location.is_remote and os.path.exists(target) and not os.path.isfile(target):
        # A pipe would wait for its writer, a device may never end.
        return _ExaminedCapture(location, fault=NOT_REGULAR)
    opener = partial(open_location, target, settings)
    try:
        with opener() as opened:
            size = opened.seek(0, os.SEEK_END)
            begun = fingerprint.head_crc(opened, size)
            file = cast(BinaryIO, BoundedFile(opened, size))
            content = fingerprint.fingerprint_of(file, begins)
            read_before = 0 if content.digest in before.captures else fingerprint.resume_offset(file, content)[0]
    except (OSError, ValueError) as error:
        # It was there when it was found; the other captures are still read.
        return _ExaminedCapture(location, fault=f"{why_not_opened(error, '' if location.is_remote else target)}{SINCE}")
    part = CapturePortion(read_before, size, begun, opener if location.is_remote else None)
    return _ExaminedCapture(location, content.digest, content, part)


def _read(
    root: Place,
    fresh: _NewCaptures,
    options: LakeOptions,
    before: Manifest,
    after: Manifest,
    done: IngestResult,
    progress: Callable[[int], None] | None,
    second_process: SecondProcess | None,
) -> None:
    collector = Collector(options, rules=options.rules)
    collector.note_drops(dropping_captures(root, before))
    with lake_files.LakeFiles(root, after.generation) as files:
        intake = Intake(collector, files.write, before.last_ns, progress)
        intake.dissector.clock.resume(before.shift_ns, before.last_ns)
        intake.resume(root, before)
        names = list(fresh.names.values())
        if second_process is None:
            intake.read(names, fresh.parts)
        else:
            intake.read_beside(second_process, names, fresh.parts, root, after.generation, files)
        memories = intake.flow_memories()
        intake.flush(everything=True)
        for start in range(0, len(memories), STATE_ROWS):
            states = list(map(state_row, memories[start : start + STATE_ROWS]))
            files.write(STATE.name, batch(STATE.name, states))
        keys = collector.key_memories(open_connections(memories))
        if keys:
            known = [(key, dump(memory, shown=PUBLIC), None, None, None, None) for key, memory in keys.items()]
            files.write(SCOPE_STATE.name, batch(SCOPE_STATE.name, known))
        unfinished = OpenFlowRows(collector)
        for memory in sorted(memories, key=begun):
            unfinished.feed(memory)
            if collector.waiting >= LOOK:
                _write(files, unfinished.batches())
        _write(files, unfinished.batches(everything=True))
    after.last_ns, after.shift_ns = intake.last_ns, intake.dissector.clock.shift_ns
    done.skipped += intake.skipped
    if collector.linter is not None:
        done.internal_errors = collector.linter.internal_errors
        done.failures_told = collector.linter.failure_sentences()
    done.out_of_order, done.open_flows = sorted(intake.out_of_order), len(memories)
    done.overlapping, done.taps = sorted(intake.overlapping), intake.taps
    lake_files.add_files(after, files.names, files.checksums)
    done.rows = {name: rows for name, rows in files.rows.items() if name in EVENT_TABLES}


def dropping_captures(root: Place, manifest: Manifest) -> set[str]:
    """Captures that report dropped frames: open connections may have their last frames there."""
    if not manifest.files.get("ingest_errors"):
        return set()
    with lake_files.reading(root / "ingest_errors"):
        notices = list(batches(root, manifest, "ingest_errors", ("capture", "dropped")))
    return {row["capture"] for record_batch in notices for row in record_batch.to_pylist() if row["dropped"]}


def _write(files: lake_files.LakeFiles, batches: Iterable[tuple[str, pa.RecordBatch]]) -> None:
    for name, record_batch in batches:
        files.write(name, record_batch)
