// Requests the facts every two seconds and shows them.  Captured text is only ever set as the text of an element.
"use strict";
const EVERY_MS = 2000, TIMEOUT_MS = 8000, FIRST = 6, SVG = "http://www.w3.org/2000/svg";
const element = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en");
let answered = Date.now();

function make(tag, text = "", kind = "", ...children) {
  const node = document.createElement(tag);
  if (text !== "") node.textContent = text;
  if (kind) node.className = kind;
  node.append(...children);
  return node;
}

function time(ns) {
  if (!ns) return "none";
  const [size, unit] = ns < 1e6 ? [1e3, "µs"] : ns < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  return `${(ns / size).toLocaleString("en", { maximumSignificantDigits: 3 })} ${unit}`;
}

function span(ns) {
  const seconds = Math.max(0, Math.round(ns / 1e9));
  if (seconds < 120) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const clock = (ns) => new Date(ns / 1e6).toLocaleTimeString("en-GB");

function table(id, titles, rows) {
  const head = make("tr", "", "", ...titles.map(([title, kind]) => make("th", title, kind)));
  const body = rows.map(({ kind = "", cells }) =>
    make("tr", "", kind, ...cells.map((cell, at) =>
      cell instanceof Node ? make("td", "", titles[at][1], cell) : make("td", cell, titles[at][1]))));
  const whole = make("table", "", "", make("thead", "", "", head), make("tbody", "", "", ...body));
  element(id).replaceChildren(rows.length ? whole : make("p", "None so far.", "note"));
}

function figures(facts) {
  const { latency, severities } = facts;
  const shown = [
    ["packets/s", number(Math.round(facts.rate))],
    ["connections open", number(facts.open)],
    ["reconnects", number(facts.reconnects), facts.reconnects && "odd"],
    ["refused", number(facts.refused), facts.refused && "bad"],
    ["ended without DISCONNECT", number(facts.broken), facts.broken && "bad"],
    ["errors found", number(severities.error), severities.error && "bad"],
    ["PUBLISH acknowledged (median)", latency.count ? time(latency.p50_ns) : "none"],
    ["99 % within", latency.count ? time(latency.p99_ns) : "none"],
    ["frames dropped", number(facts.dropped), facts.dropped && "odd"],
  ];
  element("figures").replaceChildren(...shown.map(([name, value, kind]) =>
    make("div", "", kind || "", make("dt", name), make("dd", value))));
}

function troubles(facts) {
  const cards = facts.troubles.map((row) => {
    const times = row.count > 1 ? `${number(row.count)} times, last ` : "";
    const when = `${times}${span(facts.now_ns - row.last_ns)} ago`;
    const doubt = row.undecided ? "; the cause may change with later packets" : "";
    const card = make("article", "", "card error", make("h3", `${row.client}: ${row.cause}`),
      make("p", row.text), make("p", `${row.certainty}; ${when}${doubt}`, "note"));
    if (row.advice) card.append(make("p", row.advice, "advice"));
    return card;
  });
  element("troubles").replaceChildren(...(cards.length ? cards.slice(0, FIRST) : [make("p", "None so far.", "note")]));
  element("more").hidden = cards.length <= FIRST;
  element("more").firstChild.textContent = `${cards.length - FIRST} more`;
  element("others").replaceChildren(...cards.slice(FIRST));
}

function chart(title, values, form, kind, history) {
  const most = Math.max(...values), svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${values.length} 100`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${title}, at most ${form(most)}`);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("class", `area ${kind}`);
  path.setAttribute("d", "M0 100" + values.map((value, at) => {
    const y = most ? 100 - (96 * value) / most : 100;
    return `V${y.toFixed(1)}H${at + 1}`;
  }).join("") + "V100Z");
  svg.append(path);
  const end = history.start_ns + values.length * history.interval_ns;
  return make("figure", "", "", make("figcaption", "", "", make("b", title), make("span", `at most ${form(most)}`)), svg,
    make("p", "", "", make("span", clock(history.start_ns)), make("span", clock(end))));
}

function charts({ history }) {
  if (!history.start_ns) return;
  const seconds = history.interval_ns / 1e9, per = ` in ${span(history.interval_ns)}`;
  const counted = (value) => number(value) + per;
  const ended = history.ends.map((count, at) => count + history.refused[at]);
  element("history").replaceChildren(
    chart("packets per second", history.packets.map((count) => count / seconds), (value) => number(Math.round(value)), "", history),
    chart("open connections", history.open, number, "", history),
    chart("refused, or ended without DISCONNECT", ended, counted, "bad", history),
    chart("connects", history.connects, counted, "odd", history),
    chart("errors and warnings found", history.findings, counted, "odd", history),
    chart("PUBLISH acknowledged, 99 % within", history.p99_ns, time, "slow", history));
}

function latencies({ latency }) {
  const names = latency.bounds_ns.map((bound) => `up to ${time(bound)}`);
  names.push(`above ${time(latency.bounds_ns.at(-1))}`);
  const used = latency.counts.map((count, at) => (count ? at : -1)).filter((at) => at >= 0);
  const rows = used.length ? names.slice(used[0], used.at(-1) + 1) : [];
  const most = Math.max(...latency.counts);
  table("latencies", [["time", ""], ["", "bars"], ["PUBLISH", "number"]], rows.map((name, row) => {
    const count = latency.counts[used[0] + row], bar = document.createElement("meter");
    bar.max = most;
    bar.value = count;
    bar.ariaLabel = `${count} PUBLISH ${name}`;
    return { cells: [name, bar, number(count)] };
  }));
}

function tables(facts) {
  table("findings", [["rule", ""], ["times", "number"], ["last", "time"], ["client", "name"], ["latest finding", "message"]],
    facts.findings.map((row) => ({ kind: row.severity, cells: [`${row.rule} ${row.slug}`, number(row.count),
      `${span(facts.now_ns - row.last_ns)} ago`, row.client, row.message] })));
  if (facts.unexplained) ends.push(["ended, cause unknown: reading lagged", facts.unexplained]);
  const refusals = Object.entries(facts.refusals).map(([reason, count]) => [`refused: ${reason.replaceAll("_", " ")}`, count]);
  const ends = facts.ends.map((row) => [row.title, row.count]);
  if (facts.undecided) ends.push(["ended, cause not decided yet", facts.undecided]);
  table("ends", [["", ""], ["connections", "number"]], [...ends, ...refusals].map(([name, count]) => ({ cells: [name, number(count)] })));
  for (const id of ["clients", "topics"]) {
    table(id, [[id, "name"], ["packets/s", "number"], ["packets", "number"]], facts[id].map((row) =>
      ({ cells: [row.name, row.rate.toFixed(1), number(row.packets)] })));
  }
}

function headline(facts) {
  const worst = facts.troubles[0], names = new Set(facts.troubles.map((row) => row.client));
  const errors = facts.severities.error ? `, ${number(facts.severities.error)} errors found` : "";
  const some = `${names.size === 1 ? "1 client is" : `${number(names.size)} clients are`} in trouble; the latest: ${worst?.client}, ${worst?.cause}`;
  const unknown = facts.unexplained ? `, ${number(facts.unexplained)} ends unexplained` : "";
  return `${worst ? some : "No client is known to be in trouble"}${errors}${unknown}.`;
}

function show(facts) {
  element("capture").textContent = facts.capture;
  element("when").textContent = `${number(facts.packets)} packets in ${span(facts.now_ns - facts.started_ns)}, since ${clock(facts.started_ns)}`;
  element("headline").textContent = headline(facts);
  document.title = `${facts.troubles.length ? `(${facts.troubles.length}) ` : ""}mqttscope ${facts.capture}`;
  figures(facts);
  troubles(facts);
  charts(facts);
  latencies(facts);
  tables(facts);
  const doubts = [...facts.errors];
  if (facts.dropped) doubts.push(`${number(facts.dropped)} frames were dropped while capturing`);
  if (facts.lost_bytes) doubts.push(`${number(facts.lost_bytes)} bytes are missing in the capture`);
  if (facts.forgotten) doubts.push(`limit: ${number(facts.forgotten)} clients and topics were discarded to make room`);
  state(doubts.join("; "));
}

function state(text) {
  element("state").hidden = !text;
  element("state").textContent = text;
}

async function update() {
  try {
    const answer = await fetch("facts.json", { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (!answer.ok) throw new Error(answer.statusText);
    show(await answer.json());
    answered = Date.now();
  } catch {
    state(`No answer for ${span((Date.now() - answered) * 1e6)}: the capture has ended, or the network is down. These are the last numbers.`);
  }
  setTimeout(update, EVERY_MS);
}

update();
