"""Findings in full: what is wrong, where, the packet with its bytes, the statements, what to do instead.

    error[CON105]: Password without User Name  (password-without-user-name)
      a.pcap: frame 4, 10.0.0.4:51234 → 10.0.0.2:1883 (dev1)
      2026-01-02T03:04:05.123456789Z #0 dev1   → broker CONNECT    3.1.1, clean session, ...
      0000  10 12 00 04 4d 51 54 54 04 42 00 3c 00 04 64 65  ....MQTT.B.<..de
      0010  76 31 00 02 ** **                                v1..**
                  ^^^^^^^^^^^ password
      breaks 3.1.1 MQTT-3.1.2-22 (section 3.1.2.9): ...
      Instead, ...

What a rule advises is said once, with its first finding.
"""

from __future__ import annotations

from mqttscope.lint.catalogue import all_rules
from mqttscope.lint.finding import Confidence, Finding
from mqttscope.lint.gate import Suppression
from mqttscope.lint.statements import all_statements
from mqttscope.mqtt.constants import REASON_CODES
from mqttscope.report.base import Sink, View
from mqttscope.report.explain import CONFIDENCES
from mqttscope.report.findings.base import Summary, message, place
from mqttscope.report.findings.conceal import concealed
from mqttscope.report.findings.ending import MAX_LINES, STYLES, lines
from mqttscope.report.findings.packet import PacketView
from mqttscope.report.style import Wrapped, encoded
from mqttscope.report.when import duration


class Full:
    """Writes every finding that counts as a block."""

    def __init__(self, sink: Sink, view: View) -> None:
        self.sink = sink
        self.view = view
        self.packets = PacketView(view)
        self.painter = self.packets.painter
        self._advised: set[str] = set()

    def feed(self, finding: Finding, suppressed: Suppression | None = None) -> None:
        """Write one finding."""
        if suppressed is None:
            self.sink.write(encoded([*self.block(finding), ""]))

    def block(self, finding: Finding) -> list[str]:
        """The lines of a finding."""
        painter = self.painter
        without = concealed(finding, self.view)
        finding = without.finding
        style = STYLES[finding.severity]
        text = Wrapped(painter.line(), most=MAX_LINES)
        text.add(f"{finding.severity}[{finding.rule}]", style)
        text.add(f": {message(finding, painter)}")
        text.add(f"  ({finding.slug})", "dim")
        out = text.texts()
        out += self._told(place(finding, painter), "dim")
        event = self.packets.event(without.decoded)
        if event is not None:
            out += self.packets.lines(event)
            out += self.packets.dump(without.decoded, event, without.hidden)
        for one in finding.related:
            ago = finding.timestamp_ns - one.timestamp_ns
            when = f", {duration(ago, unicode=painter.unicode)} before" if ago > 0 else ""
            out += self._told(f"see {painter.safe(one.message)}: frame {one.frame}, packet {one.packet}{when}", "note")
        for key in finding.statements:
            known = all_statements().get(key)
            told = f" (section {known.section}): {known.summary}" if known is not None else ""
            out += self._told(f"breaks {key}{painter.safe(told)}", "")
        if finding.reason_code is not None and finding.version == "5.0":
            name = REASON_CODES.get(finding.reason_code, "")
            out += self._told(f"reason code 0x{finding.reason_code:02X} {name}".rstrip(), "dim")
        if finding.confidence is not Confidence.CERTAIN:
            out += self._told(CONFIDENCES[finding.confidence], "note")
        if finding.rule not in self._advised:
            self._advised.add(finding.rule)
            rule = all_rules().get(finding.rule)
            advice = rule.paragraphs()[-1] if rule is not None else ""
            out += self._told(painter.safe(advice), "topic") if advice else []
        return out

    def _told(self, told: str, style: str) -> list[str]:
        line = self.painter.line()
        line.put("  ", 2)
        text = Wrapped(line, most=MAX_LINES)
        text.add(told, style)
        return text.texts()

    def close(self, summary: Summary) -> None:
        """Write the end."""
        self.sink.write(encoded(lines(summary, self.painter)))
