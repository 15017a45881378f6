"""``mqttscope redact``: write a copy of captures that can be shared safely."""

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

Exit code 1 when a text of --check is found; no capture is written in that case.
""",
)
def command(args: RedactOptions) -> int:
    """Write a copy of captures that can be shared: passwords, names, topics, payloads and addresses are replaced.

    Replacements have the length and form of the original, and equal values get equal replacements. Packets, segments
    and frames keep their lengths, and lint reports the same findings. CAPTURE is a file, a glob, a directory, or - for
    standard input. Without --output, nothing is replaced: the captures are searched for the texts of --check.
    """
    from mqttscope.cli.redacting import RedactRun

    return RedactRun(args).execute()
