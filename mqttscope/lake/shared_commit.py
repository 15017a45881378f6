"""Commits of a lake in a store, which has no locks: whoever comes completes what was begun.

The steps are those of `lake.commit`, and each of the two manifests is written only where nobody else has written it
since it was read (`Store.replace`):

1. The files are in the store.  `PENDING` is replaced: of several ingests that have read the same generation one wins
   here, and the others are refused; what they wrote goes away.
2. Each table takes in what `PENDING` names, in one transaction of Delta, whose entry in the log is not written twice.
3. `NAME` is replaced.

From the first step on, everybody who wants to write does the second and the third, also while the first one does: it
makes no difference who was faster.  `PENDING` stays, so that nobody who is late writes it again for a generation that
is over.  So no process has to be waited for, and none can be killed at a moment that matters.
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
    NAME, PENDING, NAME + COPY, PENDING + COPY, PROBE, *TABLES, *(one.name for one in (STATE, SCOPE_STATE, FLOW_KEYS)),
}  # fmt: skip
"""What an ingest makes in the place of a lake."""
_ATTEMPTS = 8
"""How often a step is done again that others have done at the same time."""
_PAUSE_S = 0.2
"""So long one waits before, at most; each time twice as long."""


@dataclass(slots=True)
class _Read:
    """A manifest, and the tag of the object that it was read from."""

    manifest: Manifest
    tag: str | None


def begin(root: StorePath) -> None:
    """Look whether a store can take an ingest, and complete a commit that another one has begun."""
    delta.require(root)
    if not root.store.single_writer:
        _require_conditions(root)
    _refuse_others(root)
    complete(root)


_ADVICE = "if no other ingest writes this lake, --single-writer says so"


def require_single_writer(root: StorePath) -> None:
    """`LakeError` for stores in which two ingests could write over each other whatever they answer; asks nothing."""
    if not root.store.single_writer and not root.store.is_s3:
        raise LakeError(f"{root}: only in S3 ingests are kept from writing over each other; {_ADVICE}")


def _require_conditions(root: StorePath) -> None:
    """`LakeError` where two ingests could write over each other."""
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
                f"{root}: this store has no conditional writes (If-None-Match), so that two ingests could write over "
                f"each other; {_ADVICE}"
            )


def _refuse_others(root: StorePath) -> None:
    """A lake is not made among other things."""
    with writing(root):
        there = root.store.top()
        if NAME in there:
            return
        others, advice = sorted(set(there) - _OURS), "a new lake needs a place of its own"
        if others:
            raise LakeError(f"{root} is no lake, and not empty (it holds {others[0]}): {advice}")
        if PENDING not in there and any((root / name / delta.LOG / f"{0:020d}.json").exists() for name in TABLES):
            raise LakeError(f"{root} holds the tables of a lake, but not its {NAME}: {advice}")


def commit(root: StorePath, before: Manifest, after: Manifest) -> None:
    """Make what was written count; `LakeError` where another ingest was faster, or it cannot be written."""
    with writing(root):
        # In this order: what is pending is never older than what counts.
        pending, current = _read(root, PENDING), _read(root, NAME)
        if current.manifest.generation == before.generation >= pending.manifest.generation:
            tables = delta.open_tables(root, before, after)
            del tables  # whether they are what was written
            try:
                root.store.replace(PENDING, dump_manifest(after), pending.tag)
            except FileExistsError:
                # An answer that got lost was asked for again: what is there may be ours.
                won = _is_ours(root, before, after)
            else:
                won = True
            if won:
                _finish(root, before, after)
                return
        _take_back(root, before, after)
    raise LakeError(f"{root} was changed by another ingest in the meantime; run this one again")


def complete(root: StorePath) -> None:
    """Complete a commit that another process has begun, whether that process still lives or not."""
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
            # What counts has the versions of the tables.
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


def _read(root: StorePath, name: str) -> _Read:
    found = root.store.read(name)
    if found is None:
        return _Read(Manifest(), None)
    return _Read(load_manifest(found[0], root / name), found[1])


def _is_ours(root: StorePath, before: Manifest, after: Manifest) -> bool:
    """Whether an ingest counts, or will: its files have names that no other has."""
    pending = _read(root, PENDING).manifest
    new = after.all_files() - before.all_files()
    return pending == after or bool(new & (pending.all_files() | _read(root, NAME).manifest.all_files()))


def _take_back(root: StorePath, before: Manifest, after: Manifest) -> None:
    for name in after.all_files() - before.all_files():
        with suppress(OSError):
            (root / name).unlink()
