"""Changes of the rows of a lake, one commit each: it forgets clients and users, expires rows, and drops rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from mqttscope.lake import delta
from mqttscope.lake import manifest as manifests
from mqttscope.lake.aggregates import write_sums
from mqttscope.lake.commit import commit, lake_lock
from mqttscope.lake.erasure import (
    ErasureResult,
    ForgottenConnections,
    batches_of,
    count_names,
    erase,
    erase_expired,
    find_connections,
    open_tombstones,
    rewrite,
)
from mqttscope.lake.manifest import LakeError, Manifest, check_files, read_manifest
from mqttscope.lake.name_mask import NameMask
from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import FINDINGS
from mqttscope.lake.store import Lake, Place, place
from mqttscope.lake.tombstones import EVERYWHERE, make_key, read_key
from mqttscope.lake.writer import begin_generation, check_settings, has_all_findings


def forget(
    lake: Lake, clients: Collection[str], users: Collection[str] = (), *, key_file: str | None = None,
    everywhere: bool = False, dry_run: bool = False,
) -> ErasureResult:  # fmt: skip
    """Erase all rows of connections of these clients and users, and keep them out of later ingests.

    ``everywhere``: replace the names by asterisks in the rows of other clients too.  ``dry_run``: only count.
    """
    root = place(lake)
    with lake_lock(root):
        before = _checked_manifest(root)
        wanted = {"client": set(clients), "user": set(users)}
        chosen = find_connections(root, before, before.table_files(), lambda kind, name: name in wanted.get(kind, ()))
        result = ErasureResult(unknown=sorted((wanted["client"] - chosen.clients) | (wanted["user"] - chosen.users)))
        mask = NameMask({*clients, *users}, chosen.others)
        after = before.following()
        if dry_run:
            count_names(root, before, chosen, mask, result)
            return result
        key = make_key(before, key_file)
        after.tombstone_key = key.identity
        names = {key.of_name(kind, name, everywhere=everywhere) for kind, some in wanted.items() for name in some}
        after.tombstones = sorted({*before.tombstones, *names, *open_tombstones(root, after, chosen, key)})
        erase(root, after, chosen, mask, after.table_files(), result.rows, everywhere=everywhere)
        if not everywhere:
            count_names(root, after, ForgottenConnections(), mask, result)
        _finish(root, before, after)
    return result


def lift(lake: Lake, clients: Collection[str], users: Collection[str] = (), *, key_file: str | None = None) -> int:
    """Remove the tombstones of names, so that later ingests keep their rows; return their number.

    Without names all tombstones are removed, and no key is needed.
    """
    root = place(lake)
    with lake_lock(root):
        before = _checked_manifest(root)
        after = before.following()
        after.tombstones = []
        if clients or users:
            key = read_key(before, key_file)
            gone = {key.of_name("client", name) for name in clients} | {key.of_name("user", name) for name in users}
            after.tombstones = [
                tombstone for tombstone in before.tombstones if tombstone.removesuffix(EVERYWHERE) not in gone
            ]
        if after.tombstones != before.tombstones:
            commit(root, before, after)
    return len(before.tombstones) - len(after.tombstones)


def expire(lake: Lake, before_ns: int) -> ErasureResult:
    """Erase rows from before a time, and connections that ended before it; later ingests add no such rows."""
    root, result = place(lake), ErasureResult()
    with lake_lock(root):
        before = _checked_manifest(root)
        after = before.following()
        after.expired_ns = before_ns if before.expired_ns is None else max(before_ns, before.expired_ns)
        erase_expired(root, after, set(after.table_files()), result.rows)
        if result.rows or after.expired_ns != before.expired_ns:
            _finish(root, before, after)
    return result


def _checked_manifest(root: Place) -> Manifest:
    manifest = read_manifest(root)
    if not manifest.generation:
        raise LakeError(f"{root} is not a lake")
    if not manifest.versions:
        raise LakeError(f"{root} is a lake of an earlier release: run 'mqttscope pipeline convert --lake {root}' first")
    check_files(root, manifest)
    delta.check(root, manifest)
    manifests.remove_strays(root, manifest)
    return manifest


def _finish(root: Place, before: Manifest, after: Manifest) -> None:
    write_sums(root, after)
    after.erased = manifests.unused_files(root, after)
    commit(root, before, after)


def keep_findings(lake: Lake, options: LakeOptions) -> dict[str, int] | None:
    """Leave out the findings of rules that are not among the present ones; return the number of findings by rule.

    ``None``, and no change, unless the lake has all findings of the present rules: all ingests had these rules with
    these settings.  The findings of a rule do not depend on the choice of other rules.
    """
    root, gone = place(lake), Counter[str]()
    with lake_lock(root):
        before = _checked_manifest(root)
        check_settings(before, options, root)
        if not has_all_findings(before, options):
            return None
        _, after = begin_generation(root, before, options)
        codes = pa.array([rule.code for rule in options.rules], pa.string())

        def edit(table: str, record_batch: pa.RecordBatch) -> pa.RecordBatch:
            if table != FINDINGS.name:
                return record_batch
            stays = pc.is_in(record_batch.column("rule"), value_set=codes)
            return record_batch if pc.all(stays).as_py() else record_batch.filter(stays)

        for record_batch in batches_of(root, before, FINDINGS.name, before.table_files(), ("rule",)):
            gone.update(record_batch.column("rule").to_pylist())
        rewrite(root, after, edit, after.table_files())
        commit(root, before, after)
    return {rule: count for rule, count in sorted(gone.items()) if rule not in set(codes.to_pylist())}
