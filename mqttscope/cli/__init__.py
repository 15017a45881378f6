"""The command line: one file per command, imported only when the command runs."""

from __future__ import annotations

import sys


def run() -> None:
    """Entry point: run the command line and leave with its exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]) and sys.stdout is not None:
        # Scripts ask for the version in loops; it must not wait for click.
        from mqttscope import __version__

        sys.stdout.write(f"mqttscope {__version__}\n")
        return
    from mqttscope.cli.main import main

    main()
