"""Tables of MQTT traffic for analysis: events as rows of Arrow, and a folder of Delta tables.

=========  ================================================================================================
table      rows of one kind, with a documented and versioned schema (`schemas`)
key        identifier of a connection or a packet that does not depend on how captures are cut (`keys`)
kernel     segment rows of sorted flows in, event rows of all tables out (`kernel`); every engine runs it
state      memory of a flow between two ingests, as bytes (`state`)
lake       a folder of tables with a record of the ingested captures (`writer`)
=========  ================================================================================================

Tables need pyarrow, state msgspec, commits deltalake: the extra ``lake``.

`ingest` makes a lake and `open` reads it.  Both are parts of the library (docs/library.md), imported on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mqttscope.api.ingesting import Ingested, ingest
    from mqttscope.api.lakes import (
        Lake,
        LakeError,
        Relation,
        open,  # noqa: A004
    )

__all__ = ["Ingested", "Lake", "LakeError", "Relation", "ingest", "open"]


if not TYPE_CHECKING:  # as in the package above

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module 'mqttscope.lake' has no attribute {name!r}")
        home = "ingesting" if name.lower().startswith("ingest") else "lakes"
        attribute = globals()[name] = getattr(import_module(f"mqttscope.api.{home}"), name)
        return attribute


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
