"""The command line; the module of a command is imported only when the command runs."""

from __future__ import annotations

import sys


def run() -> None:
    """Entry point: run the command line and leave with its exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]) and sys.stdout is not None and _said_version():
        return
    import signal

    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        # During imports Ctrl-C would show a traceback; nothing needs a cleanup yet, so let the system end the process.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from mqttscope.cli.main import EXIT_INTERRUPTED, Terminated, install, leave, main, uninstall

    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, handler)
    install()
    try:
        try:
            main()
        finally:
            # All output is written: from now on, a signal that raises would only show a traceback.
            uninstall()
    except SystemExit as left:
        leave(left.code)
        raise
    except KeyboardInterrupt as interrupt:
        # Ctrl-C during an error report.
        sys.exit(interrupt.exit_code if isinstance(interrupt, Terminated) else EXIT_INTERRUPTED)


def _said_version() -> bool:
    """Print the version without importing click, for scripts that call it in loops; returns whether that worked."""
    from mqttscope import __version__
    from mqttscope.kernel import status

    try:
        sys.stdout.write(f"mqttscope {__version__}\n{status()}\n")
        sys.stdout.flush()
    except OSError:
        return False
    return True
