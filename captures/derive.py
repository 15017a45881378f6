"""Make the derived and synthesised captures of this folder; the same input gives the same bytes.

Usage: `python captures/derive.py [NAME...]`, all of them without; `--check` writes nothing and says what is stale.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import derived_damage
import derived_examples
import derived_streams
import derived_trouble
import derived_violations
import dpkt
import pcapng
from about import HERE, About, Expected, folder
from derived import DERIVATIONS, Derivation

MODULES = (derived_damage, derived_examples, derived_streams, derived_violations, derived_trouble)
"""Importing them registers what they make."""


def make(derivation: Derivation, target: Path) -> None:
    """Write `capture.pcapng` and `about.toml` into a folder."""
    made = derivation.build()
    about = About(
        title=derivation.title,
        shows=derivation.shows,
        origin=derivation.origin,
        tool=f"derive.py, dpkt {dpkt.__version__}",
        notes=derivation.notes,
        explain=derivation.explain,
        expect=Expected(
            connections=made.connections,
            frames=len(made.frames),
            versions=made.versions,
            packets=made.packets,
            malformed=made.malformed,
            gaps=made.gaps,
            transport=made.transport,
            ports=made.ports,
            topics=made.topics,
        ),
    )
    pcapng.write(target / "capture.pcapng", made.frames, "mqttscope captures/derive.py", "lo", made.snaplen)
    (target / "about.toml").write_text(about.text())


def stale(derivation: Derivation) -> bool:
    """Whether the committed capture differs from what would be made now."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        make(derivation, fresh)
        committed = HERE / derivation.name
        return any(
            not (committed / file.name).is_file() or file.read_bytes() != (committed / file.name).read_bytes()
            for file in fresh.iterdir()
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script; exit 1 when `--check` found something, 2 for unknown names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="captures to make (all when none is given)")
    parser.add_argument("--check", action="store_true", help="write nothing, name the captures that are stale")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in DERIVATIONS]
    if unknown:
        parser.error(f"no such capture: {', '.join(unknown)}")
    wanted = [DERIVATIONS[name] for name in options.names or DERIVATIONS]
    if options.check:
        found = [one.name for one in wanted if stale(one)]
        sys.stdout.write("".join(f"{name} is stale\n" for name in found))
        return 1 if found else 0
    for one in wanted:
        make(one, folder(one.name))
        sys.stderr.write(f"{one.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
