"""What is said to mypyc and means nothing else.  This module itself is never compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_):
        """Decorates a class.  With ``allow_interpreted_subclasses=True`` others may derive from it when it is compiled."""
        return lambda cls: cls
