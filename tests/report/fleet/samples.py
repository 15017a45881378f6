"""Fleet reports made by hand: one with everything, of hostile names, and one with nothing."""

from __future__ import annotations

from mqttscope.report.fleet.model import (
    AcknowledgeRow,
    CaptureTrust,
    ClientEndings,
    ClientNames,
    ClientTimeline,
    ConnectionSpan,
    DayRow,
    DeliveryRow,
    EndingReport,
    EndingRow,
    Expiry,
    FilterRow,
    FleetReport,
    FleetTopicRow,
    GroupRow,
    Latency,
    LatencyBucket,
    LostRow,
    NewsPeriod,
    NewsReport,
    Overview,
    Percentiles,
    RankedRows,
    Reconnects,
    ReportQuery,
    RetainedReport,
    RetainedRow,
    RuleClientCount,
    RuleRow,
    SilentRow,
    StormRow,
    TopicReport,
    TrustReport,
)

HOSTILE = "<script>alert('&\"1')</script>\x1b[31m\u202e\n"
LONG = "plant/" + "ä日" * 400
NOW = 1_767_323_045_123_456_789
"""2026-01-02T03:04:05.123456789Z."""
HOUR = 3_600 * 10**9
SERVER = "10.0.0.2:1883"


def rule(group: str | None, code: str = "PUB101", severity: str = "error") -> RuleRow:
    return RuleRow(group, code, "qos-3", severity, 1_234, 3, 2, NOW, NOW + HOUR)


def full() -> FleetReport:
    """A report whose lists all have rows."""
    times = Percentiles(1_000, 850_000, 12_300_000, 2_500_000_000, 3_000_000_000)
    spans = [ConnectionSpan(NOW, NOW + HOUR, "fin"), ConnectionSpan(NOW + 2 * HOUR, None, "open")]
    few = ClientNames(7, [HOSTILE, "pump-1", "pump-2", LONG, ""])
    return FleetReport(
        "lakes/<b>north</b>",
        ReportQuery(NOW, NOW + 9 * HOUR, ["pump-*"], ["plant/#"], [SERVER], ["PUB"], 5, ["firmware", HOSTILE]),
        Overview(3, 2, 40, 120, 98_765, 4_000, 8_000, 70, 1_300, 20, NOW, NOW + 8 * HOUR),
        RankedRows([rule(None), rule(None, "OPS103", "info")], 9),
        RankedRows([rule(HOSTILE), rule(LONG), rule(None)], 3),
        RankedRows([rule("pump-#"), rule("")], 2),
        RankedRows([rule("1.4"), rule(HOSTILE)], 2),
        RankedRows([GroupRow("pump-#", 30, 90, 900, 20, 80), GroupRow(HOSTILE, 1, 1, 0, 0, 0)], 5),
        RankedRows([GroupRow("1.4", 30, 90, 900, 20, 80), GroupRow(None, 1, 1, 3, 0, 0)], 2),
        [DayRow("2026-01-02", 100, 9_000, 3_000, 15, 70, 900), DayRow("2026-01-03", 20, 2_000, 1_000, 5, 10, 300)],
        Latency(
            [AcknowledgeRow("client", 1, times, 3, 2, 1), AcknowledgeRow("server", 2, Percentiles(), 9, 0, 0)],
            times,
            12,
            34,
            RankedRows([DeliveryRow(HOSTILE, times), DeliveryRow(LONG, times)], 8),
            RankedRows([DeliveryRow("pump-1", times)], 1),
            [LatencyBucket(10_000, 5, 0), LatencyBucket(20_000, 0, 0), LatencyBucket(None, 1, 7)],
        ),
        TopicReport(
            RankedRows([FleetTopicRow(SERVER, HOSTILE, 100, 300, 5_000, few, few, few)], 70),
            RankedRows([FilterRow(SERVER, LONG, few, 12)], 4),
            1,
            2,
            3,
        ),
        RetainedReport(10, 2, 1, 30, 6, 1, 2, RankedRows([RetainedRow(SERVER, HOSTILE, 5, 1, 20, "held", NOW)], 9)),
        Expiry(20, 30, Percentiles(30, 40, 55, 60, 60), 4, 3, 2, 1, 20),
        Reconnects(
            109,
            9,
            RankedRows(
                [
                    StormRow(SERVER, None, NOW, NOW + HOUR, 77, 51, 4.5, 30),
                    StormRow(SERVER, HOSTILE, NOW, NOW + HOUR, 9, 9, 1.0, 1),
                ],
                2,
            ),
            [(NOW + index * HOUR, index % 4) for index in range(30)],
            60,
        ),
        TrustReport(
            120, 5, 2, 1, 4, 6, 638, 1, 818, 1, 17, 1, 3,
            RankedRows([CaptureTrust(HOSTILE, 6, 638, 1, 818, 17, [HOSTILE, "ends in the middle of a frame"])], 1),
        ),
        EndingReport(
            [EndingRow("disconnect", "client", 80), EndingRow("fin", "server", 30), EndingRow("idle", None, 10)],
            RankedRows([ClientEndings(SERVER, HOSTILE, 12, 11, 3, 1, 6, 1, 1)], 4),
            RankedRows(
                [
                    ClientTimeline(SERVER, HOSTILE, 3, spans),
                    ClientTimeline(SERVER, LONG, 1, [ConnectionSpan(NOW - HOUR, NOW + 9 * HOUR, "disconnect")]),
                    ClientTimeline(SERVER, "", 1, [ConnectionSpan(NOW + HOUR, NOW + HOUR, "reset")]),
                ],
                9,
            ),
        ),
        [RuleClientCount(HOSTILE, "PUB101", 1_234, "error"), RuleClientCount(None, "OPS103", 1, "info")],
        news=NewsReport(
            NewsPeriod(98_765, 20, 12, NOW, 7, 2), NewsPeriod(50_000, 5, 3, NOW - HOUR, 9, 2),
            RankedRows([LostRow(SERVER, HOSTILE, 5, 2, NOW, NOW + HOUR, "not_sent")], 2),
            RankedRows([SilentRow(SERVER, HOSTILE, 2 * HOUR, HOUR // 60, NOW, True)], 3),
        ),
    )  # fmt: skip


def empty() -> FleetReport:
    """A report of a lake without any MQTT."""
    return FleetReport("lake")
