"""Writes the file of names that a test compares the catalogue with: ``python -m tests.mutate.names``."""

from __future__ import annotations

from pathlib import Path

from mqttscope.mutate import catalogue

FILE = Path(__file__).with_name("names.txt")


def main() -> None:
    """Add the names that are new; none is ever taken out."""
    known = FILE.read_text("utf-8").split() if FILE.exists() else []
    FILE.write_text("".join(f"{name}\n" for name in sorted({*known, *(one.name for one in catalogue())})), "utf-8")


if __name__ == "__main__":
    main()
