"""Writes a lake in a local folder, in process: for small inputs, and as the reference for every other engine.

An ingest is all or nothing: files are written beside those that count, then committed (`lake.commit`).  What is in
already, by content, is not read again, so that an ingest that is repeated changes nothing; of a capture that has grown
since, what is new is read.  A connection that is open when the captures end continues in the next ingest, from what its
flow remembers; until then its rows so far are in the tables as well, ``closed_how`` being ``open``.  What rules
remember of sessions and servers continues in the same way.  So the tables of several ingests are those of one, as long
as the captures come in the order of time; in any other order each packet is a row all the same (`lake.memory`).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from mqttscope.capture import fingerprint
from mqttscope.capture.files import NOT_REGULAR, NOTHING_THERE, SINCE, Part, why_not_opened
from mqttscope.capture.locations import PARALLEL, Location, open_location, open_named
from mqttscope.capture.read import BoundedFile
from mqttscope.lake import delta
from mqttscope.lake import files as lake_files
from mqttscope.lake import manifest as manifests
from mqttscope.lake.aggregates import CONNECTION_COLUMNS, TOPIC_COLUMNS, clients, sessions, topics
from mqttscope.lake.commit import commit, lake_lock, merge_small
from mqttscope.lake.intake import STATE_ROWS, Beside, Intake, ReadDifferentlyError
from mqttscope.lake.kernel import Unfinished, begun, state_row
from mqttscope.lake.manifest import LakeError, Manifest, check_content, check_files, check_tables, read_manifest
from mqttscope.lake.memory import open_connections
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.public import PUBLIC
from mqttscope.lake.schemas import EVENT_TABLES, RENAMED, SCOPE_STATE, STATE, TABLES
from mqttscope.lake.schemas import VERSION as SCHEMA_VERSION
from mqttscope.lake.state import VERSION as STATE_VERSION
from mqttscope.lake.state import dump
from mqttscope.lake.store import Lake, Place, opened, place
from mqttscope.lake.tables import LOOK, Collector, batch
from mqttscope.lint.engine import InternalError
from mqttscope.lint.rule import Rule
from mqttscope.net.frame import CaptureError

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

    from mqttscope.capture.taps import Taps

_SUMS = ("topics", "clients", "sessions")
_READ = ("messages", "connections", "ingest_errors")
SETTLED_NS = 10_000_000_000
"""Stores say in seconds when an object was written.  One that was written this long before it is read is another one
when it is written again."""
_SAME_NAME = "stands for several captures: what follows a question mark in a URI is not part of a name"


@dataclass(slots=True)
class Ingested:
    """What an ingest did."""

    captures: list[str] = field(default_factory=list)
    """Those that were read."""
    grown: list[str] = field(default_factory=list)
    """Those of them that were in already when they were shorter: only what follows was read."""
    known: list[str] = field(default_factory=list)
    """Those that were in already."""
    known_errors: list[CaptureError] = field(default_factory=list)
    """What is wrong with these: it was found when they, or others with the same bytes, were read."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Frames without TCP in what was read, by reason."""
    rows: dict[str, int] = field(default_factory=dict)
    """Rows that were added to each table; those of connections that are still open do not count yet."""
    open_flows: int = 0
    """Flows that the next ingest continues with."""
    out_of_order: list[str] = field(default_factory=list)
    """Captures that begin before the last segment of an earlier ingest: connections that both have are not joined."""
    overlapping: list[str] = field(default_factory=list)
    """Captures that begin before an earlier one of this ingest ends: they are read one after the other."""
    taps: Taps | None = None
    """What each tap has captured, where the captures are those of several."""
    faults: dict[str, str] = field(default_factory=dict)
    """Why captures could not be opened any more, by name; they can be given again."""
    internal_errors: list[InternalError] = field(default_factory=list)
    """Rules that failed, so that findings may be missing; the first ones."""
    failures_told: list[str] = field(default_factory=list)
    """How often they failed, as sentences."""


def write_lake(
    captures: Sequence[str | os.PathLike[str] | Location],
    folder: Lake,
    options: LakeOptions | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    faults: Mapping[str, str] | None = None,
    progress: Callable[[int], None] | None = None,
    beside: Beside | None = None,
) -> Ingested:
    """Take captures into the lake of a folder, which is made where there is none; `LakeError` where that cannot be.

    ``captures``: files, or what `locations.find` found, which may be in stores; ``settings`` are those of these stores.
    ``faults``: why others cannot be opened, by name.  ``progress`` is called with the number of segments so far, now
    and then.  ``beside`` does a part of the work in another process; the tables are the same.
    """
    root = place(folder)
    options = options or LakeOptions()
    locations = [
        one if isinstance(one, Location) else Location(os.fspath(one), os.path.abspath(one)) for one in captures
    ]
    with lake_lock(root):
        before = read_manifest(root)
        check_settings(before, options, root)
        done = Ingested()
        found = _fresh(locations, settings or {}, before)
        fresh, known = found.names, found.known
        done.known = [name for name, _ in known]
        done.faults = found.faults
        manifests.remove_strays(root, before)
        after = next_generation(before, options)
        if fresh:
            after.open_files, after.state_files, after.scope_state_files = {}, [], []
            try:
                _read(root, found, options, before, after, done, progress, beside)
            except ReadDifferentlyError:
                for part in found.parts.values():
                    part.was_opened = False
                _read(root, found, options, before, after, done, progress, None)
            except BaseException:
                if beside is not None:
                    # The other process was ended, and has left what it had written.
                    manifests.remove_strays(root, before)
                raise
            write_sums(root, after)
            # What was rotated, replaced or removed in between is left to the next ingest.
            fresh = {digest: name for digest, name in fresh.items() if found.parts[name].was_opened}
            found.note(fresh, before, after)
            done.captures = list(fresh.values())
            done.grown = [name for name in done.captures if found.parts[name].behind]
        if note_errors(root, after, done, fresh, known, {**(faults or {}), **found.faults}) or found.names:
            merge_small(root, before, after)
            commit(root, before, after)
    return done


def note_errors(
    root: Place,
    after: Manifest,
    done: Ingested,
    fresh: Mapping[str, str],
    known: Sequence[tuple[str, str]],
    faults: Mapping[str, str],
) -> int:
    """Write rows for what is wrong with captures that were not read, where there are none yet; returns how many.

    ``fresh``: names of those that were read, by digest; ``known``: names and digests of those that are in already, or
    have the same bytes as another; ``faults``: why others cannot be opened, by name.
    """
    lake_files.remember_errors(root, after, fresh)
    done.known_errors = lake_files.known_errors(after, known)
    unopened = [CaptureError(name, why) for name, why in faults.items() if why not in NOTHING_THERE]
    added = lake_files.add_errors(root, after, [*done.known_errors, *unopened])
    if added:
        done.rows["ingest_errors"] = done.rows.get("ingest_errors", 0) + added
    return added


def next_generation(before: Manifest, options: LakeOptions) -> Manifest:
    """The manifest of the next ingest, before anything of it is written."""
    return replace(
        before,
        generation=before.generation + 1,
        schema=SCHEMA_VERSION,
        group=options.group,
        settings=settings_digest(options),
        options=option_words(options),
        captures=dict(before.captures),
        begins=dict(before.begins),
        faulty=dict(before.faulty),
        checksums=dict(before.checksums),
        files={name: list(names) for name, names in before.files.items()},
    )


def read_table(
    folder: Lake,
    name: str,
    columns: Sequence[str] | None = None,
    *,
    manifest: Manifest | None = None,
) -> pa.Table:
    """A table of a lake, what is still open included; `LakeError` where there is none, or it cannot be read.

    ``manifest``: of a lake that was opened before, and checked, so that several tables are of one generation.
    """
    root = place(folder)
    if manifest is None:
        manifest = read_manifest(root)
        check_tables(root, manifest, (name,))
    with lake_files.reading(root / name):
        found = _dataset(root, manifest, name)
        old = RENAMED.get(name, {}) if manifest.schema == 1 else {}
        wanted = [old.get(one, one) for one in columns or TABLES[name].names]
        return found.to_table(columns=wanted).rename_columns(list(columns or TABLES[name].names))


def _dataset(root: Place, manifest: Manifest, name: str) -> Dataset:
    if name not in TABLES:
        raise LakeError(f"there is no table {name!r}; there are {', '.join(TABLES)}")
    names = (*manifest.files.get(name, ()), *manifest.open_files.get(name, ()))
    schema = TABLES[name].arrow()
    for today, then in RENAMED.get(name, {}).items() if manifest.schema == 1 else ():
        place = schema.get_field_index(today)
        schema = schema.set(place, schema.field(place).with_name(then))
    return lake_files.dataset([root / one for one in names], schema)


def _batches(root: Place, manifest: Manifest, name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Columns of a table of this version, file by file; those that a file does not have are null.

    `dataset` does the same, and loads pandas where that is installed.
    """
    schema = TABLES[name].arrow()
    for path in (*manifest.files.get(name, ()), *manifest.open_files.get(name, ())):
        # Of files in a store nobody has compared the checksums.
        file = pq.ParquetFile(opened(root / path), page_checksum_verification=True)
        known = [one for one in columns if one in file.schema_arrow.names]
        for found in file.iter_batches(columns=known):
            arrays = [
                found.column(one) if one in known else pa.nulls(found.num_rows, schema.field(one).type)
                for one in columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, list(columns))


def settings_digest(options: LakeOptions) -> str:
    """What rows depend on; the tables of a lake are made with the same."""
    rules = [(rule.code, sorted(rule.set.items())) for rule in options.rules]
    told = repr((SCHEMA_VERSION, STATE_VERSION, options.reading(), options.payload_limit, rules, options.secret_length))
    if options.complete:
        told += repr(sorted(options.complete))
    if options.deduplicate:
        told += "deduplicate"
    if not options.dissect.verify_checksums:
        told += "checksums not verified"
    return hashlib.sha256(told.encode()).hexdigest()


def option_words(options: LakeOptions) -> dict[str, str]:
    """The same by option, in words, so that a difference can be named."""
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
_VERSION = "version of the tables"
_TOLD_RULES = 5
"""Rules that the message about a difference names."""


def _version() -> str:
    """Version of the tables and of the state that flows and rules leave for the next ingest."""
    return f"{SCHEMA_VERSION}.{STATE_VERSION}"


def _rule_words(rule: Rule) -> str:
    return " ".join([rule.code, *(f"{name}={value!r}" for name, value in sorted(rule.set.items()))])


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What options were and are, where they differ; empty where that is not known."""
    told = [
        f"{name} was {before[name]} and is {value}"
        for name, value in now.items()
        if name != _RULES and before.get(name, value) != value
    ]
    old, new = (one.get(_RULES, "").splitlines() for one in (before, now))
    if _RULES in before and old != new:
        gone, come = [one for one in old if one not in new], [one for one in new if one not in old]
        parts = [f"rules without {_named(gone)}"] if gone else []
        parts += [f"rules with {_named(come)} in addition"] if come else []
        told += parts or ["rules in another order"]
    return "; ".join(told)


def _named(rules: Sequence[str]) -> str:
    more = len(rules) - _TOLD_RULES
    return ", ".join(rules[:_TOLD_RULES]) + (f" and {more} more" if more > 0 else "")


def check_settings(before: Manifest, options: LakeOptions, root: Place) -> None:
    """`LakeError` where a lake was made with other options than these, or files of it are damaged."""
    if not before.generation:
        return
    if not before.versions:
        raise LakeError(
            f"{root} is a lake of an earlier release: 'mqttscope pipeline convert --lake {root}' makes its tables "
            "Delta tables, which an ingest needs; reports and questions read it as it is"
        )
    check_files(root, before)
    delta.check(root, before)
    # What the ingest reads: what flows and rules remember, and the tables that it makes sums of.
    check_content(root, before, [*before.state_files, *before.scope_state_files])
    check_tables(root, before, _READ)
    if before.group != options.group:
        raise LakeError(f"{root} holds captures of the group {before.group!r}, not of {options.group!r}")
    written = before.options.get(_VERSION, _version())
    if written != _version():
        raise LakeError(
            f"{root}: another version of mqttscope wrote this lake (tables {written}, this version writes "
            f"{_version()}): reports and questions read it; ingest into another folder"
        )
    if before.settings != settings_digest(options):
        told = _differences(before.options, option_words(options))
        if told:
            raise LakeError(
                f"{root} was written with other options: {told}; ingest with the same ones, or take another folder"
            )
        raise LakeError(f"{root} was written with other options, rules or schemas; take another folder")


@dataclass(slots=True)
class IdentifiedCaptures:
    """Captures, identified by their content."""

    contents: dict[str, fingerprint.Fingerprint] = field(default_factory=dict)
    """What those hold that are to be read, by digest."""
    known: list[tuple[str, str]] = field(default_factory=list)
    """Names and digests of those that are in already, and of copies among those that are given."""
    faults: dict[str, str] = field(default_factory=dict)
    """Why some cannot be read, by name."""
    objects: dict[str, list[Any]] = field(default_factory=dict)
    """Those of stores, as the manifest has them."""

    def note(self, read: Mapping[str, str], before: Manifest, after: Manifest) -> None:
        """Put captures that were read into the manifest; ``read``: their names by digest."""
        after.captures |= read
        for digest in read:
            after.begins |= self.contents[digest].begins
        after.objects = before.objects | {name: one for name, one in self.objects.items() if one[0] in after.captures}


@dataclass(slots=True)
class _Fresh(IdentifiedCaptures):
    """The same, with what is to be read."""

    names: dict[str, str] = field(default_factory=dict)
    """Those that are not in yet, by digest."""
    parts: dict[str, Part] = field(default_factory=dict)
    """What is to be read of each of them, by name: it may have been read before, and may be growing."""


@dataclass(slots=True)
class _Looked:
    """A capture as it was looked at."""

    location: Location
    digest: str = ""
    """Of its content; empty where it cannot be read."""
    content: fingerprint.Fingerprint | None = None
    """``None``: it was not read."""
    part: Part | None = None
    fault: str = ""
    """Why it cannot be read."""


def _fresh(locations: Sequence[Location], settings: Mapping[str, str], before: Manifest) -> _Fresh:
    found, begins = _Fresh(), fingerprint.KnownFingerprints.of(before.begins, before.captures)
    look = partial(_look, settings=settings, begins=begins, before=before)
    targets: dict[str, str] = {}
    now_ns = time.time_ns()
    for one in _each(look, locations):
        name, digest = one.location.name, one.digest
        written_ns = one.location.written_ns
        if one.part is not None and written_ns and now_ns - written_ns >= SETTLED_NS:
            found.objects[name] = [digest, one.part.size, written_ns]
        if not digest:
            found.faults[name] = one.fault
        elif one.content is None or one.part is None or digest in before.captures or digest in found.names:
            found.known.append((name, digest))
        elif name in found.parts:
            found.faults[name] = _SAME_NAME
        else:
            found.names[digest], targets[digest] = name, one.location.target
            found.contents[digest] = one.content
            found.parts[name] = one.part
    if found.faults and not found.names and not found.known:
        raise LakeError(f"nothing is done: {'; '.join(f'{name} {why}' for name, why in found.faults.items())}")
    opened = partial(open_named, settings=settings)
    for digest in fingerprint.find_prefixes(found.contents, targets, before.begins, before.captures, opened):
        found.known.append((found.names.pop(digest), digest))
    return found


def _each(look: Callable[[Location], _Looked], locations: Sequence[Location]) -> Iterator[_Looked]:
    """Look at captures; those of stores at the same time, since nearly all of that is waiting."""
    if any(one.is_remote for one in locations):
        with ThreadPoolExecutor(PARALLEL) as pool:
            yield from pool.map(look, locations)
    else:
        yield from map(look, locations)


def _look(
    one: Location, settings: Mapping[str, str], begins: fingerprint.KnownFingerprints, before: Manifest
) -> _Looked:
    target, known = one.target, one.known_as(before.objects)
    if known is not None and known in before.captures:
        return _Looked(one, known)
    if not one.is_remote and os.path.exists(target) and not os.path.isfile(target):
        # A pipe would wait for its writer, a device may never end.
        return _Looked(one, fault=NOT_REGULAR)
    opener = partial(open_location, target, settings)
    try:
        with opener() as opened:
            size = opened.seek(0, os.SEEK_END)
            begun = fingerprint.head_crc(opened, size)
            file = cast(BinaryIO, BoundedFile(opened, size))
            content = fingerprint.fingerprint_of(file, begins)
            read_before = 0 if content.digest in before.captures else fingerprint.resume_offset(file, content)[0]
    except (OSError, ValueError) as error:
        # It was there when it was found, and costs the others nothing.
        return _Looked(one, fault=f"{why_not_opened(error, '' if one.is_remote else target)}{SINCE}")
    part = Part(read_before, size, begun, opener if one.is_remote else None)
    return _Looked(one, content.digest, content, part)


def _read(
    root: Place,
    fresh: _Fresh,
    options: LakeOptions,
    before: Manifest,
    after: Manifest,
    done: Ingested,
    progress: Callable[[int], None] | None,
    beside: Beside | None,
) -> None:
    collector = Collector(options, rules=options.rules)
    collector.note_drops(dropping_captures(root, before))
    with lake_files.LakeFiles(root, after.generation) as files:
        intake = Intake(collector, files.write, before.last_ns, progress)
        intake.dissector.clock.resume(before.shift_ns, before.last_ns)
        intake.resume(root, before)
        names = list(fresh.names.values())
        if beside is None:
            intake.read(names, fresh.parts)
        else:
            intake.read_beside(beside, names, fresh.parts, root, after.generation, files)
        memories = intake.remembered()
        intake.flush(everything=True)
        for start in range(0, len(memories), STATE_ROWS):
            states = list(map(state_row, memories[start : start + STATE_ROWS]))
            files.write(STATE.name, batch(STATE.name, states))
        keys = collector.key_memories(open_connections(memories))
        if keys:
            known = [(key, dump(one, shown=PUBLIC), None, None, None, None) for key, one in keys.items()]
            files.write(SCOPE_STATE.name, batch(SCOPE_STATE.name, known))
        unfinished = Unfinished(collector)
        for memory in sorted(memories, key=begun):
            unfinished.feed(memory)
            if collector.waiting >= LOOK:
                _write(files, unfinished.batches())
        _write(files, unfinished.batches(everything=True))
    after.last_ns, after.shift_ns = intake.last_ns, intake.dissector.clock.shift_ns
    done.skipped += intake.skipped
    if collector.linter is not None:
        done.internal_errors = collector.linter.internal_errors
        done.failures_told = collector.linter.failures_told()
    done.out_of_order, done.open_flows = sorted(intake.out_of_order), len(memories)
    done.overlapping, done.taps = sorted(intake.overlapping), intake.taps
    lake_files.add_files(after, files.names, files.checksums)
    done.rows = {name: rows for name, rows in files.rows.items() if name in EVENT_TABLES}


def dropping_captures(root: Place, manifest: Manifest) -> set[str]:
    """Captures that report dropped frames; connections that are open may have their last frames there."""
    if not manifest.files.get("ingest_errors"):
        return set()
    with lake_files.reading(root / "ingest_errors"):
        notices = list(_batches(root, manifest, "ingest_errors", ("capture", "dropped")))
    return {row["capture"] for found in notices for row in found.to_pylist() if row["dropped"]}


def _write(files: lake_files.LakeFiles, made: Iterable[tuple[str, pa.RecordBatch]]) -> None:
    for name, found in made:
        files.write(name, found)


def write_sums(root: Place, after: Manifest) -> None:
    """Make topics, clients and sessions again of all that there is, and put their files into ``after``."""
    made = {}
    with lake_files.reading(root / "messages"):
        made["topics"] = topics(_batches(root, after, "messages", TOPIC_COLUMNS))
    with lake_files.reading(root / "connections"):
        found = _batches(root, after, "connections", CONNECTION_COLUMNS)
        connections = [row for one in found for row in one.to_pylist()]
    made |= {"clients": clients(connections), "sessions": sessions(connections)}
    with lake_files.LakeFiles(root, after.generation) as files:
        for name, table in made.items():
            _write(files, ((name, one) for one in table.to_batches()))
    for name in _SUMS:
        after.files[name] = files.names.get(name, [])
