"""The command line: the modules of commands are imported only when a command runs."""

from __future__ import annotations

import sys


def run() -> None:
    """Entry point: run the command line and leave with its exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]) and sys.stdout is not None and _said_version():
        return
    import signal

    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        # Ctrl-C while modules are imported would show where in them; nothing is begun yet that would have to be ended.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from mqttscope.cli.main import EXIT_INTERRUPTED, Terminated, install, leave, main, uninstall

    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, handler)
    install()
    try:
        try:
            main()
        finally:
            # All is written: what Python does at its end would show a traceback where a signal raises.
            uninstall()
    except SystemExit as left:
        leave(left.code)
        raise
    except KeyboardInterrupt as interrupt:
        # It came while an error was being reported.
        sys.exit(interrupt.exit_code if isinstance(interrupt, Terminated) else EXIT_INTERRUPTED)


def _said_version() -> bool:
    """Print the version: scripts ask for it in loops, and it must not wait for click.  Where this fails, click does."""
    from mqttscope import __version__

    try:
        sys.stdout.write(f"mqttscope {__version__}\n")
        sys.stdout.flush()
    except OSError:
        return False
    return True
