"""What is said to mypyc and means nothing else.  This module itself is never compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_):
        """Decorates a class: ``allow_interpreted_subclasses=True`` lets others derive from it once it is compiled."""
        return lambda cls: cls
