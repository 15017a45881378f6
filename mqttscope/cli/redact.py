"""``mqttscope redact``: write a capture without what is private in it."""

from __future__ import annotations

from mqttscope.cli.command import make_command
from mqttscope.cli.redacting_options import RedactOptions


@make_command(
    RedactOptions,
    epilog="""\b
Examples:
  mqttscope redact site.pcapng -o shared.pcapng --format text
  mqttscope redact site.pcapng -o shared.pcapng --keep topics --check-file secrets.txt
  mqttscope redact shared.pcapng --check "$TOKEN"

Exit code 1 when a text of --check is found; then no capture is written.
""",
)
def command(given: RedactOptions) -> int:
    """Write a capture that may leave the house: without passwords, names, topics, payloads and addresses.

    Each value becomes another one of the same length and form, and equal values become equal ones, so that packets,
    segments and frames keep their lengths, and lint finds the same as before. CAPTURE is a file, a glob, a directory,
    or - for standard input. Without --output, captures are only looked through for the texts of --check.
    """
    from mqttscope.cli.redacting import RedactRun

    return RedactRun(given).execute()
