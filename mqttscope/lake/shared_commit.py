"""Commits of a lake in an object store, which has no locks: any writer completes a commit that another one began.

The steps are the steps of `lake.commit`.  Each of the two manifests is written only if nobody else has written it
since it was read (`LakeStore.replace`):

1. The files are in the store.  `PENDING` is replaced: of several ingests that have read the same generation one wins
   here; the others are refused, and their files are deleted.
2. Each table adds the files of `PENDING`, in one Delta transaction; its log entry is not written twice.
3. `NAME` is replaced.

After the first step every writer does the second and the third, even while the first writer does them: it makes no
difference who is faster.  `PENDING` stays, so that a late writer cannot write it again for a past generation.  So
nobody waits for another process, and a process may be killed at any moment.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from dataclasses import dataclass

from mqttscope.installation import extra_command
from mqttscope.lake import delta
from mqttscope.lake.files import writing
from mqttscope.lake.manifest import NAME, PENDING, LakeError, Manifest, dump_manifest, load_manifest
from mqttscope.lake.schemas import FLOW_KEYS, SCOPE_STATE, STATE, TABLES
from mqttscope.lake.store import COPY, PROBE, StorePath

_OURS = {
    NAME, PENDING, NAME + COPY, PENDING + COPY, PROBE, *TABLES,
    *(table.name for table in (STATE, SCOPE_STATE, FLOW_KEYS)),
}  # fmt: skip
"""Names that an ingest makes in the place of a lake."""
_ATTEMPTS = 8
"""Maximum number of attempts at a step that others do at the same time."""
_PAUSE_S = 0.2
"""Maximum pause before the second attempt; it doubles each time."""


@dataclass(slots=True)
class _TaggedManifest:
    """A manifest, and the tag of its object."""

    manifest: Manifest
    tag: str | None


def begin(root: StorePath) -> None:
    """Check that a store can take an ingest, and complete a commit that another process has begun."""
    delta.require(root)
    if not root.store.single_writer:
        _require_conditions(root)
    _refuse_others(root)
    complete(root)


_ADVICE = "use --single-writer if no other ingest writes this lake"


def require_single_writer(root: StorePath) -> None:
    """Raise `LakeError` for stores that cannot keep two ingests from overwriting each other; sends no request."""
    if not root.store.single_writer and not root.store.is_s3:
        raise LakeError(f"{root}: only S3 keeps ingests from overwriting each other; {_ADVICE}")


def _require_conditions(root: StorePath) -> None:
    """Raise `LakeError` if two ingests could overwrite each other."""
    require_single_writer(root)
    try:
        import boto3  # noqa: F401
    except ImportError as error:
        raise LakeError(
            f"writing a lake in S3 needs what is not installed ({error}): {extra_command('s3')}; {_ADVICE}"
        ) from None
    with writing(root):
        if not root.store.is_conditional():
            raise LakeError(
                f"{root}: this store has no conditional writes (If-None-Match), so that two ingests could overwrite "
                f"each other; {_ADVICE}"
            )


def _refuse_others(root: StorePath) -> None:
    with writing(root):
        there = root.store.top()
        if NAME in there:
            return
        others, advice = sorted(set(there) - _OURS), "a new lake needs a place of its own"
        if others:
            raise LakeError(f"{root} is not a lake, and not empty (it holds {others[0]}): {advice}")
        if PENDING not in there and any((root / name / delta.LOG / f"{0:020d}.json").exists() for name in TABLES):
            raise LakeError(f"{root} holds the tables of a lake, but not its {NAME}: {advice}")


def commit(root: StorePath, before: Manifest, after: Manifest) -> None:
    """Put the written files in force; `LakeError` if another ingest was faster, or the lake cannot be written."""
    with writing(root):
        # In this order: the pending manifest is never older than the present one.
        pending, current = _read(root, PENDING), _read(root, NAME)
        if current.manifest.generation == before.generation >= pending.manifest.generation:
            tables = delta.open_tables(root, before, after)
            del tables  # only checked: are they what was written?
            try:
                root.store.replace(PENDING, dump_manifest(after), pending.tag)
            except FileExistsError:
                # A request with a lost answer was repeated: the present object may be ours.
                won = _is_ours(root, before, after)
            else:
                won = True
            if won:
                _finish(root, before, after)
                return
        _take_back(root, before, after)
    raise LakeError(f"{root} was changed by another ingest in the meantime; run this one again")


def complete(root: StorePath) -> None:
    """Complete a commit that another process has begun, whether that process still runs or not."""
    with writing(root):
        pending = _read(root, PENDING).manifest
        before = _read(root, NAME).manifest
        if pending.generation == before.generation + 1:
            _finish(root, before, pending)


def _finish(root: StorePath, before: Manifest, after: Manifest) -> None:
    """Steps 2 and 3, which others may be doing too."""
    for attempt in range(_ATTEMPTS):
        current = _read(root, NAME)
        if current.manifest.generation >= after.generation:
            # The present manifest has the versions of the tables.
            after.versions = current.manifest.versions
            return
        try:
            tables = delta.open_tables(root, before, after, again=True)
            after.versions = delta.publish(root, before, after, tables)
            root.store.replace(NAME, dump_manifest(after), current.tag)
            return
        except (LakeError, FileExistsError):
            if attempt + 1 == _ATTEMPTS:
                raise
            time.sleep(random.uniform(0, _PAUSE_S) * 2**attempt)


def _read(root: StorePath, name: str) -> _TaggedManifest:
    stored = root.store.read(name)
    if stored is None:
        return _TaggedManifest(Manifest(), None)
    return _TaggedManifest(load_manifest(stored[0], root / name), stored[1])


def _is_ours(root: StorePath, before: Manifest, after: Manifest) -> bool:
    """Whether an ingest is in force, or will be: its files have unique names."""
    pending = _read(root, PENDING).manifest
    new = after.all_files() - before.all_files()
    return pending == after or bool(new & (pending.all_files() | _read(root, NAME).manifest.all_files()))


def _take_back(root: StorePath, before: Manifest, after: Manifest) -> None:
    for name in after.all_files() - before.all_files():
        with suppress(OSError):
            (root / name).unlink()
