"""Tables of MQTT traffic for analysis: events as rows of Arrow, and a folder of Delta tables.

=========  ================================================================================================
table      one kind of rows with a schema that is documented and versioned (`schemas`)
key        what names a connection or a packet however a collection of captures was cut (`keys`)
kernel     segment rows of sorted flows in, event rows of all tables out (`kernel`): the same for every engine
state      what a flow remembers between two ingests, as bytes (`state`)
lake       a folder of tables with a record of what was ingested (`writer`)
=========  ================================================================================================

Tables need pyarrow, state msgspec, commits deltalake: the extra ``lake``.

`ingest` makes a lake and `open` reads it.  Both are parts of the library (docs/library.md), loaded when they are asked
for.
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
        found = globals()[name] = getattr(import_module(f"mqttscope.api.{home}"), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
