"""The first sentences of a fleet report: faults and losses, since when, the time before, where to look, and trust."""

from __future__ import annotations

from mqttscope.lint.catalogue import all_rules
from mqttscope.report.fleet import model
from mqttscope.report.numbers import plural
from mqttscope.report.when import duration, moment


def sentences(report: model.FleetReport) -> list[str]:
    """At most seven sentences, most important first."""
    news, rules = report.news, report.rules.rows
    errors = [row for row in rules if row.severity == "error"]
    text = [_broken(report, errors)]
    if news.now.lost:
        first = news.lost.rows[0]
        text.append(
            f"{plural(news.now.subscribers, 'subscriber')} lost {plural(news.now.lost, 'message')};"
            f" {first.subscriber or '(no Client Identifier)'} lost {first.messages:,}."
        )
    elif news.now.packets:
        text.append("No message is known to be lost.")
    if news.silent:
        quiet = news.silent.rows[0]
        number = news.silent.total
        text.append(
            f"{plural(number, 'device')} {'has' if number == 1 else 'have'} fallen silent; {quiet.client_identifier}"
            f" sent nothing for {duration(quiet.silent_ns)}, usually {duration(quiet.usual_period_ns)}."
        )
    if news.now.first_ns is not None:
        text.append(f"The first error was at {moment(news.now.first_ns)} UTC.")
    before = _before(report)
    if before:
        text.append(before)
    if errors:
        worst = f"Look first at rule {errors[0].rule}"
        named = next((row.group for row in report.by_client.rows if row.group), "")
        text.append(f"{worst}{f', and at client {named} with most errors' if named else ''}.")
    text.append(_trust(report))
    return text


def meaning(code: str) -> str:
    """The finding of a rule as one sentence without its full stop; its code if the rule is unknown."""
    rule = all_rules().get(code)
    return code if rule is None else (rule.__doc__ or code).partition("\n")[0].strip().rstrip(".")


def _broken(report: model.FleetReport, errors: list[model.RuleRow]) -> str:
    seen, news = report.overview, report.news.now
    if errors:
        row = errors[0]
        return (
            f"{news.clients:,} of {plural(seen.clients, 'client')} {'has' if news.clients == 1 else 'have'} errors;"
            f" {row.clients:,} of them: {meaning(row.rule)} ({row.rule} {row.slug})."
        )
    if report.rules:
        return f"No client has an error; there are {plural(seen.findings, 'finding')} of lower severity."
    return "Nothing was found: rules run when captures are ingested."


def _before(report: model.FleetReport) -> str:
    """Comparison with the time before ``--since``."""
    now, before = report.news.now, report.news.before
    if before is None:
        return ""
    if not before.packets:
        return "The captures have nothing of the time of equal length before, so nothing is compared."
    return (
        f"In the time of equal length before, {plural(before.clients, 'client')} had {plural(before.errors, 'error')},"
        f" and {plural(before.lost, 'message')} {'was' if before.lost == 1 else 'were'} lost; now"
        f" {_more(now.clients, before.clients)} clients have errors, and {_more(now.lost, before.lost)} messages are"
        " lost."
    )


def _more(now: int, before: int) -> str:
    return "more" if now > before else "fewer" if now < before else "as many"


def _trust(report: model.FleetReport) -> str:
    trust = report.trust
    incomplete = trust.joined + trust.with_gaps
    if trust.errors or trust.dropped or trust.gaps or trust.joined:
        return (
            f"Parts are missing: {plural(trust.gaps, 'gap')}, {plural(trust.dropped, 'dropped frame')},"
            f" {plural(trust.errors, 'capture error')}; {incomplete:,} of {plural(trust.connections, 'connection')} are"
            " incomplete."
        )
    return "The captures are complete: no gap, no dropped frame, and the CONNECT of each connection."
