"""Erases rows of a lake: of forgotten clients and users, and of a time; each ingest does so again (`erase_again`).

An erasure is a commit like any other.  It writes each file with such rows again, without them, and computes the tables
of sums again.  The old files, and all files of earlier versions, are named in the manifest of the commit (`erased`) and
deleted after it; if the process is killed before that, by the next ingest.

The memories of an open connection of a forgotten client stay, under a random name (`lake.name_mask`), until it ends:
rules about other clients need them, and a later capture would otherwise begin a connection without a name.  The
manifest has tombstones of such connections too, so that no later row of them is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mqttscope.lake.files import LakeFiles, reading, rows_in_order, rows_of
from mqttscope.lake.manifest import LakeError, Manifest, unused_files
from mqttscope.lake.name_mask import NameMask, is_program_word, leaves, texts_in
from mqttscope.lake.schemas import EVENT_TABLES, FINDINGS, OPEN, SCOPE_STATE, STATE, TABLES
from mqttscope.lake.state import unpacked
from mqttscope.lake.store import Place, opened
from mqttscope.lake.tombstones import EVERYWHERE, TombstoneKey, read_key
from mqttscope.net.segment import group_key

Edit = Callable[[str, pa.RecordBatch], pa.RecordBatch]
"""Returns the rows of a table to keep: the same object if all of them stay as they are."""


@dataclass(slots=True)
class ForgottenConnections:
    """The connections of forgotten names."""

    ids: set[str] = field(default_factory=set)
    clients: set[str] = field(default_factory=set)
    """Their Client Identifiers."""
    users: set[str] = field(default_factory=set)
    """Their user names."""
    flows: set[bytes] = field(default_factory=set)
    """Their addresses and ports, as in the table of memories."""
    others: set[str] = field(default_factory=set)
    """Client Identifiers of all other connections."""
    first_ns: int = 1 << 63
    """Begin of the first one."""


@dataclass(slots=True)
class ErasureResult:
    """Changes of an erasure, or of one that is not done."""

    rows: Counter[str] = field(default_factory=Counter)
    """Number of erased rows, by table."""
    elsewhere: Counter[str] = field(default_factory=Counter)
    """Number of values with a forgotten name in rows and memories of other clients, by table and column."""
    unknown: list[str] = field(default_factory=list)
    """Names that the lake does not have."""


def erase_again(root: Place, before: Manifest, after: Manifest, key_file: str | None = None) -> None:
    """Leave rows of forgotten names, and expired rows, out of a new generation before its commit."""
    if after.expired_ns is not None:
        erase_expired(root, after, after.table_files() - before.table_files(), Counter())
    if after.tombstones:
        _forget_again(root, before, after, read_key(after, key_file))


def _forget_again(root: Place, before: Manifest, after: Manifest, key: TombstoneKey) -> None:
    known, new = frozenset(after.tombstones), after.table_files() - before.table_files()
    chosen = find_connections(root, after, new, partial(key.is_in, known))
    named = key.names_in((tombstone for tombstone in known if tombstone.endswith(EVERYWHERE)), _texts(root, after, new))
    if chosen.ids:
        names = {name for name in chosen.clients if key.is_in(known, "client", name)}
        names |= {name for name in chosen.users if key.is_in(known, "user", name)}
        # An open connection has its name in new topics.
        own = [unpacked(row["state"]) for row in _state_rows(root, after.state_files) if row["flow"] in chosen.flows]
        names |= key.names_in(known, texts_in(own), apart=False)
        after.tombstones = sorted(known.union(open_tombstones(root, after, chosen, key)))
        if before.last_ns is not None and chosen.first_ns <= before.last_ns:
            # A connection that names itself only now has rows of earlier ingests.
            new = after.table_files()
        erase(root, after, chosen, NameMask(names, chosen.others), new, Counter())
        if not {name for names in before.files.values() for name in names} <= after.all_files():
            after.erased = unused_files(root, after)
    if named:
        new = after.table_files() - before.table_files()
        mask = NameMask(named, chosen.others)
        # Their topics have other names in the memories of rules, so that rules misjudge them.
        rewrite(root, after, lambda table, rows: mask.without_rows(rows) if table == FINDINGS.name else rows, new)
        new = after.table_files() - before.table_files()
        erase(root, after, ForgottenConnections(), mask, new, Counter(), everywhere=True)


def find_connections(
    root: Place, manifest: Manifest, files: Collection[str], is_forgotten: Callable[[str, str], bool]
) -> ForgottenConnections:
    """The connections with a forgotten Client Identifier or user name, and parts of them without a CONNECT.

    ``files``: the files to search.  ``is_forgotten`` gets the kind of a name, and the name.
    """
    chosen = ForgottenConnections()
    parts: list[tuple[str, bytes]] = []
    names: dict[str, set[str]] = {}
    users: dict[str, set[str]] = {}
    for record_batch in batches_of(root, manifest, "packets", files, ("connection_id", "connect")):
        known = record_batch.filter(pc.is_valid(record_batch.column("connect")))
        for number, connect in zip(*(column.to_pylist() for column in known.columns), strict=True):
            names.setdefault(number, set()).update({connect["client_identifier"]} - {None, ""})
            users.setdefault(number, set()).update({connect["user_name"]} - {None, ""})
    columns = ("connection_id", "client_identifier", "flow_key", "timestamp_ns")
    for record_batch in batches_of(root, manifest, "connections", files, columns):
        for number, name, flow, begun_ns in zip(*(column.to_pylist() for column in record_batch.columns), strict=True):
            key = group_key(flow)
            own_names = names.get(number, set()) | ({name} - {None, ""})
            is_part = number not in names and not own_names
            if (
                is_forgotten("connection", number)
                or any(is_forgotten("client", identifier) for identifier in own_names)
                or any(is_forgotten("user", user) for user in users.get(number, ()))
                or (is_part and is_forgotten("flow", key.hex()))
            ):
                chosen.ids.add(number)
                chosen.clients |= own_names
                chosen.users |= users.get(number, set())
                chosen.flows.add(key)
                chosen.first_ns = min(begun_ns, chosen.first_ns)
            elif is_part:
                parts.append((number, key))
            else:
                chosen.others |= own_names
    chosen.ids |= {number for number, key in parts if key in chosen.flows}
    return chosen


def open_tombstones(root: Place, after: Manifest, chosen: ForgottenConnections, key: TombstoneKey) -> Iterator[str]:
    """Tombstones of the open connections."""
    names = after.open_files.get("connections", ())
    for record_batch in batches_of(root, after, "connections", names, ("connection_id", "flow_key")):
        for number, flow in zip(*(column.to_pylist() for column in record_batch.columns), strict=True):
            if number in chosen.ids:
                yield key.tombstone("connection", number)
                yield key.tombstone("flow", group_key(flow).hex())


def erase(
    root: Place, after: Manifest, chosen: ForgottenConnections, mask: NameMask, files: Collection[str],
    counts: Counter[str], *, everywhere: bool = False,
) -> None:  # fmt: skip
    """Write files and memories again without the rows and names of forgotten connections."""
    ids = pa.array(sorted(chosen.ids), pa.string())

    def edit(table: str, record_batch: pa.RecordBatch) -> pa.RecordBatch:
        record_batch = _without(record_batch, _is_of(record_batch, ids))
        return mask.mask_rows(record_batch) if everywhere else record_batch

    rewrite(root, after, edit, files, counts)
    _rename_states(root, after, chosen, mask, everywhere=everywhere)
    if everywhere:
        after.captures = {digest: mask.masked(name) for digest, name in after.captures.items()}
        after.objects = {mask.masked(name): known for name, known in after.objects.items()}
        after.faulty = {
            digest: [[mask.masked(error[0]), *error[1:]] for error in errors] for digest, errors in after.faulty.items()
        }


def _is_of(record_batch: pa.RecordBatch, ids: pa.Array) -> pa.Array:
    if "connection_id" not in record_batch.schema.names:
        return pa.array([False] * record_batch.num_rows, pa.bool_())
    return pc.is_in(record_batch.column("connection_id"), value_set=ids)


def _without(record_batch: pa.RecordBatch, is_erased: pa.Array) -> pa.RecordBatch:
    return record_batch.filter(pc.invert(is_erased)) if pc.any(is_erased).as_py() else record_batch


def _rename_states(
    root: Place, after: Manifest, chosen: ForgottenConnections, mask: NameMask, *, everywhere: bool
) -> None:
    """Give forgotten names random ones in the memories of flows and rules."""
    words = sorted(name for name in mask.names if is_program_word(name))
    if words and after.all_files() - after.table_files():
        raise LakeError(f"{root}: {words[0]} is a word of the memories of open connections, which cannot be changed")
    named = NameMask(
        {name for name in chosen.clients if not is_program_word(name)} - chosen.others | mask.names, like=mask
    )
    own_users = {name for name in chosen.users if not is_program_word(name)}
    own = NameMask(named.names | own_users, chosen.others, like=named)

    def rename_row(row: dict[str, Any]) -> dict[str, Any]:
        # Rows of both tables may concern one flow; only memories of flows have keys.
        is_own = row.get("flow") in chosen.flows
        names = own if is_own else mask if everywhere else named
        changed: dict[str, Any] = {"state": names.rename_state(row["state"], everywhere=everywhere or is_own)}
        if is_own and row.get("keys"):
            changed["keys"] = [own.rename(key, everywhere=True) for key in row["keys"]]
        if "key" in row:
            server, space, name = row["key"].partition(" ")
            changed["key"] = f"{server}{space}{named.rename(name, everywhere=everywhere)}"
        return row | changed

    for schema, files in ((STATE, after.state_files), (SCOPE_STATE, after.scope_state_files)):
        for at, file in enumerate(files):
            rows = list(_state_rows(root, [file]))
            with reading(root / file):
                renamed = [rename_row(row) for row in rows]
            if renamed != rows:
                with LakeFiles(root, after.generation) as written:
                    written.write(schema.name, pa.RecordBatch.from_pylist(renamed, schema=schema.arrow()))
                files[at : at + 1] = written.names[schema.name]
                after.erased.append(file)
                after.checksums |= written.checksums


def erase_expired(root: Place, after: Manifest, files: Collection[str], counts: Counter[str]) -> None:
    """Write files again without expired rows; rows of open connections stay."""
    assert after.expired_ns is not None
    limit = pa.scalar(after.expired_ns, pa.int64())
    is_open = {name for names in after.open_files.values() for name in names}

    def edit(table: str, record_batch: pa.RecordBatch) -> pa.RecordBatch:
        column = "closed_ns" if table == "connections" else "timestamp_ns"
        if column not in record_batch.schema.names:
            return record_batch
        return _without(record_batch, pc.fill_null(pc.less(record_batch.column(column), limit), False))

    rewrite(root, after, edit, set(files) - is_open, counts)


def end_open_connections(root: Place, after: Manifest) -> None:
    """Make the rows of open connections final: they end with the captures up to now."""

    def edit(table: str, record_batch: pa.RecordBatch) -> pa.RecordBatch:
        column, value = {"connections": ("closed_how", "capture_end"), "messages": ("ended", "connection")}.get(
            table, ("", "")
        )
        if not column:
            return record_batch
        values = pa.array([value] * record_batch.num_rows, pa.string())
        if table == "messages":
            values = pc.coalesce(record_batch.column(column), values)
        return record_batch.set_column(record_batch.schema.get_field_index(column), column, values)

    rewrite(root, after, edit, after.table_files())
    for table, names in after.open_files.items():
        after.files.setdefault(table, []).extend(names)
    after.open_files, after.state_files, after.scope_state_files = {}, [], []


def rewrite(
    root: Place, after: Manifest, edit: Edit, files: Collection[str], counts: Counter[str] | None = None,
    generation: int | None = None,
) -> None:  # fmt: skip
    """Write the ``files`` of event tables again that an edit changes; ``counts``: number of rows left out, by table.

    ``generation``: for the names of files, by default of ``after``.
    """
    for prefix, tables in (("", after.files), (OPEN, after.open_files)):
        for table in EVENT_TABLES:
            names = tables.get(table, [])
            for name in [file for file in names if file in files]:
                edited = partial(_edited, root, name, table, edit)
                if all(same for _, same in edited()):
                    continue
                with LakeFiles(root, generation or after.generation) as written:
                    for record_batch, _ in edited():
                        if record_batch.num_rows:
                            written.write(prefix + table, record_batch)
                at = names.index(name)
                names[at : at + 1] = written.names.get(prefix + table, [])
                after.erased.append(name)
                after.checksums |= written.checksums
                if counts is not None and (gone := rows_of(root / name) - sum(written.rows.values())):
                    counts[table] += gone


def _edited(root: Place, name: str, table: str, edit: Edit) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """The edited rows of a file, and whether they are the rows of the file."""
    for record_batch in rows_in_order(root, (name,), TABLES[table].arrow()):
        changed = edit(table, record_batch)
        yield changed, changed is record_batch


def count_names(
    root: Place, manifest: Manifest, chosen: ForgottenConnections, mask: NameMask, result: ErasureResult
) -> None:
    """Count the rows of forgotten connections, and their names in other rows and memories."""
    ids = pa.array(sorted(chosen.ids), pa.string())
    for table in EVENT_TABLES:
        for record_batch in batches_of(root, manifest, table, manifest.table_files()):
            other = _without(record_batch, _is_of(record_batch, ids))
            if other is not record_batch:
                result.rows[table] += record_batch.num_rows - other.num_rows
            for column, count in mask.places(other).items():
                result.elsewhere[f"{table}.{column}"] += count
    for schema, names in ((STATE, manifest.state_files), (SCOPE_STATE, manifest.scope_state_files)):
        for row in _state_rows(root, names):
            if row.get("flow") not in chosen.flows and mask.has_in_state(row["state"]):
                result.elsewhere[schema.name] += 1
    if count := sum(mask.is_in(name) for name in manifest.captures.values()):
        result.elsewhere["names of captures"] = count


def _texts(root: Place, manifest: Manifest, files: Collection[str]) -> set[str | bytes]:
    """All texts and bytes in files of event tables and in memories."""
    texts: set[str | bytes] = set(manifest.captures.values())
    for table in EVENT_TABLES:
        for record_batch in batches_of(root, manifest, table, files):
            for name, column in zip(record_batch.schema.names, record_batch.columns, strict=True):
                for leaf in leaves(name, column):
                    texts.update(pc.unique(leaf).drop_null().to_pylist())
    for row in _state_rows(root, [*manifest.state_files, *manifest.scope_state_files]):
        texts.update(texts_in(unpacked(row["state"])))
    return texts


def _state_rows(root: Place, names: Collection[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        with reading(root / name):
            yield from pq.read_table(opened(root / name), partitioning=None).to_pylist()


def batches_of(
    root: Place, manifest: Manifest, table: str, files: Collection[str], columns: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Rows of a table from some of its files."""
    names = (*manifest.files.get(table, ()), *manifest.open_files.get(table, ()))
    chosen = [name for name in names if name in files]
    for record_batch in rows_in_order(root, chosen, TABLES[table].arrow()):
        yield record_batch.select(list(columns)) if columns else record_batch
