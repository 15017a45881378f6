"""Rules of session and broker scope in one ingest of `lake.writer`, on what they remember of the last one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType

import pyarrow as pa

from mqttscope.lake.options import LakeOptions
from mqttscope.lake.schemas import SCOPE_ROWS
from mqttscope.lake.scope_kernel import KEYS, SCOPE_ORDER, scope_batch, scope_kernel, state_batch
from mqttscope.lake.spill import Sorter
from mqttscope.lake.tables import table_batch


class WideRules:
    """Takes rows, then gives what the rules find.  Use it with ``with``: rows may lie on the disk meanwhile."""

    def __init__(self, options: LakeOptions) -> None:
        self._options = options
        self._sorters = {scope: Sorter(SCOPE_ROWS.arrow(), SCOPE_ORDER) for scope in KEYS if options.rules_by(scope)}
        self._stack = ExitStack()

    def __enter__(self) -> WideRules:
        for sorter in self._sorters.values():
            self._stack.enter_context(sorter)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def feed(self, found: pa.RecordBatch) -> None:
        """Take rows of ``scope_events``."""
        for scope, sorter in self._sorters.items():
            sorter.add(scope_batch(found, scope))

    def resume(self, found: pa.RecordBatch) -> None:
        """Take rows of ``scope_state``, as an earlier ingest left them."""
        for scope, sorter in self._sorters.items():
            sorter.add(state_batch(found, scope))

    def batches(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Rows of ``findings``, ``open/findings`` and ``scope_state``, once everything was taken."""
        for scope, sorter in self._sorters.items():
            for found in scope_kernel(sorter.batches(), scope, self._options, more=True):
                yield table_batch(found)
