// The list of a page: its rows are blocks of JSON, and elements are made of those alone that are shown.
// Whatever comes from a capture becomes text by `safe` and a text node, never markup.
"use strict";
(() => {
  const section = document.getElementById("list");
  const kind = section.dataset.kind;
  const read = (name) =>
    Array.from(document.querySelectorAll(`script.${name}`), (one) => JSON.parse(one.textContent)).flat();
  const rows = read(kind);
  const words = read("words")[0];

  // Text and elements.

  const HARMFUL =
    /[\p{C}\p{Zl}\p{Zp}\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/gu;
  const PILED_UP = /(\p{M}{3})(\p{M}+)/gu;
  const SHORT = { "\t": "\\t", "\n": "\\n", "\r": "\\r" };

  function escaped(char) {
    const code = char.codePointAt(0);
    const digits = code.toString(16);
    if (char in SHORT) return SHORT[char];
    if (code > 0xffff) return `\\U${digits.padStart(8, "0")}`;
    return code > 0x7f ? `\\u${digits.padStart(4, "0")}` : `\\x${digits.padStart(2, "0")}`;
  }

  // As report.escape: nothing that turns, hides or piles up over what stands beside it.
  const safe = (text) =>
    String(text)
      .replace(HARMFUL, escaped)
      .replace(PILED_UP, (_, kept, more) => kept + Array.from(more, escaped).join(""));

  function fill(made, parts) {
    for (const one of parts.flat(Infinity)) {
      if (one === null || one === undefined || one === false || one === "") continue;
      made.append(one instanceof Node ? one : document.createTextNode(safe(one)));
    }
    return made;
  }

  function el(tag, name, ...parts) {
    const made = document.createElement(tag);
    if (name) made.className = name;
    return fill(made, parts);
  }

  // A packet and its bytes; carets show what is to blame.
  function lines(name, given) {
    const made = el("pre", name);
    for (const one of given) made.append(el("span", /^ *\^\^/.test(one) ? "carets" : "", one), "\n");
    return made;
  }

  function svg(tag, attributes, ...parts) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return fill(made, parts);
  }

  function button(text, act, label) {
    const made = el("button", "", text);
    made.type = "button";
    if (label) made.setAttribute("aria-label", label);
    made.addEventListener("click", act);
    return made;
  }

  const count = (number) => number.toLocaleString("en");
  const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  const hex = (number) => typeof number !== "number" ? "" : `0x${number.toString(16).toUpperCase().padStart(2, "0")}`;

  // A text or binary value of the JSON form.
  function plain(value) {
    if (value === null || value === undefined) return "";
    if (typeof value !== "object") return String(value);
    if (value.redacted && !("text" in value) && !("hex" in value)) return `(hidden, ${value.length} bytes)`;
    return "text" in value ? value.text : "hex" in value ? `hex ${value.hex}` : "";
  }

  // A payload: what a decoder made of it, else its text.
  function payload(row, fields) {
    const made = row.payload;
    const text = cut(plain(fields.payload), 120);
    if (!made) return text;
    if (made.error) return `${text} (not ${made.format}: ${made.error})`;
    return made.value === undefined ? text : `${made.format}: ${cut(JSON.stringify(made.value), 200)}`;
  }

  const time = (timestamp) => (timestamp ? timestamp.slice(11, 26) : "");
  const moment = (ns) => {
    const found = new Date(ns / 1e6);
    return Number.isNaN(found.getTime()) ? `${ns / 1e9} s` : found.toISOString().replace("T", " ").slice(0, 23);
  };

  function lasted(ns) {
    if (ns < 1e3) return `${ns} ns`;
    if (ns < 1e6) return `${(ns / 1e3).toFixed(1)} µs`;
    if (ns < 1e9) return `${(ns / 1e6).toFixed(1)} ms`;
    return `${(ns / 1e9).toFixed(ns < 1e10 ? 2 : 1)} s`;
  }

  // Events: a table of packets, with all fields of those that are opened, and the ladder of one connection.

  const reason = (fields) => `${hex(fields.reason_code)} ${fields.reason ?? ""}`.trim();

  // What matters of a packet, in one line.
  function told(row) {
    if (row.event === "malformed") {
      const found = row.malformed;
      return `MALFORMED ${found.reason} at byte ${found.offset}${found.field ? ` (${found.field})` : ""}`;
    }
    if (row.event === "gap") return `${row.length} bytes were not captured (${row.reason})`;
    if (row.event === "unparsed") return `${row.length} bytes are no packet (${row.reason})`;
    if (row.event === "discarded") return `${row.length} bytes belong to no connection (${row.reason})`;
    if (row.event === "connection_opened") return `${row.client} → ${row.server} opened, ${row.transport}`;
    if (row.event === "connection_ending") return `${row.how} by the ${row.by ?? "unknown"}`;
    if (row.event === "connection_closed") return `${row.how ?? "end not seen"}${row.by ? ` by the ${row.by}` : ""}`;
    if (row.event === "capture_error") return plain(row.message);
    const fields = row[row.type] ?? {};
    const parts = [];
    const id = fields.packet_identifier;
    if (row.type === "connect") {
      parts.push(row.version, fields.clean_start ? "clean start" : "", `keep alive ${fields.keep_alive} s`);
      if (fields.will) parts.push(`will ${plain(fields.will.will_topic)}`);
      if (fields.user_name !== null && fields.user_name !== undefined) parts.push(`user ${plain(fields.user_name)}`);
    } else if (row.type === "connack") {
      parts.push(reason(fields), fields.session_present ? "session present" : "");
    } else if (row.type === "publish") {
      parts.push(`q${fields.qos}`, fields.dup ? "dup" : "", fields.retain ? "retain" : "", id ? `id=${id}` : "");
      parts.push(plain(row.topic ?? fields.topic_name) || "(unknown topic)", payload(row, fields));
    } else {
      if (id !== null && id !== undefined) parts.push(`id=${id}`);
      for (const one of fields.subscriptions ?? []) parts.push(`${plain(one.topic_filter)} (q${one.maximum_qos})`);
      for (const one of fields.topic_filters ?? []) parts.push(plain(one));
      if (fields.reasons) parts.push(fields.reasons.join(", "));
      else if (fields.reason_codes) parts.push(fields.reason_codes.map(hex).join(", "));
      if ("reason_code" in fields && (fields.reason_code || row.type === "disconnect")) parts.push(reason(fields));
    }
    const text = fields.properties?.reason_string;
    if (text) parts.push(`“${plain(text)}”`);
    return parts.filter(Boolean).join(" ");
  }

  const typeOf = (row) => (row.type ?? row.event.replace("connection_", "").replace("_", " ")).toUpperCase();
  const isBad = (row) => ["malformed", "gap", "unparsed", "discarded", "capture_error"].includes(row.event);
  const arrow = (row) =>
    row.direction === "client_to_server" ? "→" : row.direction === "server_to_client" ? "←" : "";

  // A value of JSON with all that is in it.
  function tree(value) {
    if (value === null || typeof value !== "object") return el("span", "value", value === null ? "none" : String(value));
    if (Array.isArray(value)) return el("ul", "", value.map((one) => el("li", "", tree(one))));
    const list = el("dl", "");
    for (const [name, one] of Object.entries(value)) list.append(el("dt", "", name), el("dd", "", tree(one)));
    return list;
  }

  const NUMBERS = ["frame", "connection"];
  const COLUMNS = ["time (UTC)", "frame", "connection", "client", "", "type", "what"];

  function eventTable(shown) {
    const body = el("tbody", "");
    for (const row of shown) {
      const line = el("tr", isBad(row) ? "bad" : row.direction ?? "event");
      const open = button(time(row.timestamp), () => toggle(row, line, open), "all fields");
      open.className = "open";
      open.setAttribute("aria-label", `${time(row.timestamp)}, all fields`);
      open.setAttribute("aria-expanded", "false");
      line.append(el("td", "time", open), el("td", "number", row.frame ?? ""));
      line.append(el("td", "number", row.connection === undefined ? "" : `#${row.connection}`));
      line.append(el("td", "name", cut(plain(row.client_identifier) || row.client || "", 60)));
      line.append(el("td", "way", arrow(row)), el("td", "type", typeOf(row)), el("td", "what", cut(told(row), 400)));
      body.append(line);
    }
    const head = el("tr", "", COLUMNS.map((one) => el("th", NUMBERS.includes(one) ? "number" : "", one)));
    return el("div", "table", el("table", "events", el("thead", "", head), body));
  }

  function toggle(row, line, open) {
    const next = line.nextSibling;
    const isOpen = next !== null && next.className === "fields";
    open.setAttribute("aria-expanded", String(!isOpen));
    if (isOpen) return next.remove();
    const cell = el("td", "");
    cell.colSpan = COLUMNS.length;
    if (row.connection !== undefined && ladder) {
      cell.append(button(`ladder of connection #${row.connection}`, () => ladder.show(row.connection, row)));
    }
    // Nanoseconds since 1970 are more than a number of JavaScript holds; the timestamp has them.
    const { schema, timestamp_ns, ...fields } = row;
    cell.append(tree(fields));
    return line.after(el("tr", "fields", cell));
  }

  // What begins an exchange, and what ends it; a PUBREC that refuses ends one as well.
  const BEGINS = { connect: "connack", subscribe: "suback", unsubscribe: "unsuback", pingreq: "pingresp" };
  const ENDS = Object.fromEntries(Object.entries(BEGINS).map(([begin, end]) => [end, begin]));
  const RUNGS = 100;

  // The tag of each packet of a connection: what belongs together, and how long it took.
  function exchanges(found) {
    const running = new Map();
    let next = 0;
    return found.map((row) => {
      if (row.event !== "packet") return null;
      const id = row[row.type]?.packet_identifier ?? "";
      const fromClient = row.direction === "client_to_server";
      const key = (name, ofClient) => `${name} ${ofClient} ${id}`;
      const isPublish = row.type === "publish" && row.publish.qos > 0;
      if (row.type in BEGINS || isPublish) {
        const name = key(row.type, fromClient);
        if (isPublish && row.publish.dup && running.has(name)) return { tag: running.get(name).tag };
        next += 1;
        running.set(name, { tag: next, from: row.timestamp_ns });
        return { tag: next };
      }
      const asked = ENDS[row.type] ?? (/^pub(ack|rec|rel|comp)$/.test(row.type) ? "publish" : "");
      const name = key(asked, row.type === "pubrel" ? fromClient : !fromClient);
      const begun = asked ? running.get(name) : undefined;
      if (begun === undefined) return null;
      const isOver = row.type !== "pubrel" && (row.type !== "pubrec" || row.pubrec.reason_code >= 0x80);
      if (!isOver) return { tag: begun.tag };
      running.delete(name);
      return { tag: begun.tag, took: row.timestamp_ns - begun.from };
    });
  }

  const circled = (number) => (number <= 10 ? String.fromCodePoint(0x2460 + number - 1) : `(${number})`);

  class Ladder {
    constructor() {
      this.names = new Map();
      for (const row of rows) {
        if (row.connection === undefined) continue;
        const name = plain(row.client_identifier) || row.client;
        if (!this.names.has(row.connection) || row.client_identifier) this.names.set(row.connection, name);
      }
      this.select = el("select", "");
      this.select.setAttribute("aria-label", "connection of the ladder");
      for (const [number, name] of this.names) {
        const option = el("option", "", `#${number} ${cut(safe(name), 60)}`);
        option.value = number;
        this.select.append(option);
      }
      this.select.addEventListener("change", () => this.show(Number(this.select.value)));
      this.place = el("div", "ladder");
      this.pages = el("nav", "pager");
      this.section = el("section", "", el("h2", "", "Ladder of a connection"));
      this.section.id = "ladder";
      this.section.append(el("p", "controls", el("label", "", "Connection ", this.select)), this.pages, this.place);
    }

    // A row of the list is shown in its place among the packets of its connection.
    show(number, row) {
      this.found = rows.filter((one) => one.connection === number);
      this.tags = exchanges(this.found);
      this.select.value = String(number);
      this.draw(row ? Math.floor(this.found.indexOf(row) / RUNGS) : 0, row);
      if (row) this.section.scrollIntoView();
    }

    draw(page, marked) {
      const from = page * RUNGS;
      const shown = this.found.slice(from, from + RUNGS);
      const last = Math.ceil(this.found.length / RUNGS) - 1;
      pager(this.pages, page, last, (to) => this.draw(to), `${count(from + 1)} to ${count(from + shown.length)} of ` +
        `${count(this.found.length)}`);
      this.place.replaceChildren(picture(shown, this.tags.slice(from, from + RUNGS), marked));
    }
  }

  const [WIDTH, LEFT, RIGHT, TOP, RUNG] = [960, 150, 940, 34, 30];

  function picture(shown, tags, marked) {
    const height = TOP + shown.length * RUNG + 12;
    const made = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", class: "rungs" });
    const first = shown[0];
    made.setAttribute("aria-label", safe(`ladder of connection ${first.connection}`));
    const client = plain(shown.find((one) => one.client_identifier)?.client_identifier) || first.client;
    made.append(svg("text", { x: LEFT, y: 16, class: "end" }, cut(safe(client), 40)));
    made.append(svg("text", { x: RIGHT, y: 16, class: "end last" }, `broker ${first.server}`));
    for (const x of [LEFT, RIGHT]) made.append(svg("line", { x1: x, x2: x, y1: 24, y2: height - 4, class: "post" }));
    shown.forEach((row, at) => made.append(rung(row, tags[at], TOP + at * RUNG, row === marked)));
    return made;
  }

  function rung(row, tag, y, isMarked) {
    const group = svg("g", { class: isBad(row) ? "bad" : row.direction ?? "event" });
    const middle = (LEFT + RIGHT) / 2;
    if (isMarked) group.append(svg("rect", { x: 0, y: y - 8, width: WIDTH, height: RUNG, class: "marked" }));
    group.append(svg("title", {}, `frame ${row.frame ?? ""}, ${told(row)}`));
    group.append(svg("text", { x: LEFT - 10, y: y + 14, class: "when" }, time(row.timestamp)));
    if (row.event !== "packet" && row.event !== "malformed") {
      group.append(svg("line", { x1: LEFT, x2: RIGHT, y1: y + 18, y2: y + 18, class: "break" }));
      group.append(svg("text", { x: middle, y: y + 12, class: "notice" }, cut(safe(`${typeOf(row)} ${told(row)}`), 110)));
      return group;
    }
    const toServer = row.direction === "client_to_server";
    const [from, to] = toServer ? [LEFT + 2, RIGHT - 2] : [RIGHT - 2, LEFT + 2];
    const head = toServer ? -9 : 9;
    group.append(svg("line", { x1: from, x2: to, y1: y + 18, y2: y + 18, class: "wire" }));
    group.append(svg("path", { d: `M${to} ${y + 18}l${head} -4.5v9z`, class: "head" }));
    const name = row.event === "malformed" ? "" : typeOf(row);
    const label = svg("text", { x: toServer ? LEFT + 14 : RIGHT - 14, y: y + 13, class: toServer ? "label" : "label last" });
    if (tag) label.append(svg("tspan", { class: `tag tag${tag.tag % 5}` }, `${circled(tag.tag)} `));
    label.append(svg("tspan", { class: "kind" }, `${name} `), svg("tspan", {}, cut(safe(told(row)), 96)));
    if (tag?.took !== undefined && tag.took >= 0) label.append(svg("tspan", { class: "took" }, `  ${lasted(tag.took)}`));
    group.append(label);
    return group;
  }

  // Findings.

  const evidence = kind === "findings" ? read("evidence") : [];

  function findingCard(row) {
    const shown = evidence[row.at];
    const rule = words.rules[row.rule] ?? {};
    const card = el("article", `card ${row.severity}`);
    card.append(el("h3", "", el("span", "badge", row.severity), el("span", "code", row.rule), ` ${row.message} `,
      el("span", "slug", `(${row.slug})`)));
    const who = `${row.client} ${arrow(row) || "–"} ${row.server}`;
    const name = row.client_identifier === null ? "" : ` (${cut(plain(row.client_identifier), 120)})`;
    card.append(el("p", "where", el("span", "time", shown.time), ` ${plain(row.capture)}: frame ${row.frame}, ` +
      `#${row.connection} ${who}${name}`));
    if (shown.repeats) card.append(el("p", "repeats", shown.repeats));
    if (shown.lines.length) card.append(lines("dump", [...shown.lines, ...shown.dump]));
    const list = el("ul", "statements");
    for (const one of row.related ?? []) list.append(el("li", "", `see ${one.message}: frame ${one.frame}`));
    for (const key of row.statements) {
      const known = words.statements[key];
      list.append(el("li", "", "breaks ", el("b", "", key), known ? ` (section ${known.section}): ${known.summary}` : ""));
    }
    if (row.reason_code !== null && row.version === "5.0") {
      list.append(el("li", "", `reason code ${hex(row.reason_code)} ${words.reasons[row.reason_code] ?? ""}`));
    }
    if (row.confidence !== "certain") list.append(el("li", "", words.confidences[row.confidence] ?? row.confidence));
    if (list.childNodes.length) card.append(list);
    if (rule.advice) card.append(el("p", "advice", rule.advice));
    return card;
  }

  // Explanations.

  const proof = (one, before = "") =>
    el("li", "", one.timestamp_ns === null ? "" : el("span", "time", `${moment(one.timestamp_ns)} `),
      one.frame === null ? "" : el("span", "frame", `frame ${one.frame} `), before + plain(one.text));

  const broken = (one) =>
    el("li", "violation", `broken by the ${one.by === "server" ? "broker" : "client"}: ${one.statements.join(", ")} ` +
      `[${one.rule} ${one.slug}], frame ${one.frame}: ${plain(one.message)}`);

  const reasons = (one) =>
    el("ul", "proofs", one.for.map((each) => proof(each)), one.against.map((each) => proof(each, "against it: ")),
      one.broken.map(broken));

  const titleOf = (one) => words.titles[one.cause] ?? one.cause;

  function explanationCard(row) {
    const [first, ...others] = row.causes;
    const card = el("article", `card ${words.kinds[row.certainty] ?? ""}`);
    const name = cut(plain(row.client_identifier) || "(no Client Identifier)", 120);
    card.append(el("h3", "", el("span", "badge", row.certainty), el("span", "code", titleOf(row)), ` #${row.connection} ${name}`));
    const over = row.transport === "tcp" ? "" : ` over ${row.transport}`;
    card.append(el("p", "where", `${row.client} → ${row.server}, MQTT ${row.version}${over}, ended ${moment(row.ended_ns)} ` +
      `after ${lasted(Math.max(0, row.ended_ns - row.opened_ns))}, ${plain(row.capture)} frame ${row.ended_frame}`));
    card.append(el("p", "headline", plain(row.headline)), reasons(first));
    if (first.advice.length) {
      card.append(el("h4", "", "What to change"), el("ul", "advice", first.advice.map((one) => el("li", "", one))));
    }
    for (const one of others) {
      card.append(el("h4", "", `Also possible: ${titleOf(one)} (${one.certainty})`), el("p", "", plain(one.headline)), reasons(one));
    }
    if (row.afterwards.length) {
      card.append(el("h4", "", "Afterwards"), el("ul", "proofs", row.afterwards.map((one) => proof(one))));
    }
    const before = row.left_out ? ` (${count(row.left_out)} before)` : "";
    const story = el("table", "story");
    for (const one of row.timeline) {
      const way = one.by === "client" ? "→" : one.by === "server" ? "←" : "";
      story.append(el("tr", one.by === "client" ? "client_to_server" : one.by === "server" ? "server_to_client" : "event",
        el("td", "time", moment(one.timestamp_ns).slice(11)), el("td", "number", one.frame), el("td", "way", way),
        el("td", "what", plain(one.text))));
    }
    card.append(el("h4", "", `Last packets${before}`), el("div", "table", story));
    for (const one of row.notes) card.append(el("p", "note", one));
    return card;
  }

  // The list: filter, pages.

  const KINDS = {
    events: {
      each: 100, noun: "lines", make: eventTable,
      text: (row) => [row.type, row.event, row.topic && plain(row.topic), row.client, row.server, plain(row.client_identifier), told(row)],
    },
    findings: {
      each: 20, noun: "findings", make: (shown) => shown.map(findingCard),
      text: (row) => [row.severity, row.confidence, row.rule, row.slug, row.message, row.client, row.server, row.packet_type,
        plain(row.client_identifier), plain(row.topic), ...row.statements, words.reasons[row.reason_code]],
    },
    explanations: {
      each: 10, noun: "explanations", make: (shown) => shown.map(explanationCard),
      text: (row) => [row.cause, titleOf(row), row.certainty, row.client, row.server, plain(row.client_identifier),
        plain(row.headline)],
    },
  };
  const list = KINDS[kind];
  const isOfTables = list === undefined;
  const RANKS = { error: 0, warning: 1, info: 2 };
  if (kind === "findings") {
    rows.forEach((row, at) => { row.at = at; });
    rows.sort((one, other) => RANKS[one.severity] - RANKS[other.severity] || one.at - other.at);
  }

  const texts = new Array(rows.length);
  const textOf = (at) => (texts[at] ??= list.text(rows[at]).filter(Boolean).join(" ").toLowerCase());

  // All words of a filter must be there; a - before one means without it.
  const wordsOf = (query) => query.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (asked, holds) =>
    asked.every((word) => (word.length > 1 && word[0] === "-" ? !holds(word.slice(1)) : holds(word)));

  // #7 is the connection of that number.
  function matching(query) {
    const asked = wordsOf(query);
    if (!asked.length) return null;
    const found = [];
    const holds = (at) => (word) =>
      /^#\d+$/.test(word) ? rows[at].connection === Number(word.slice(1)) : textOf(at).includes(word);
    for (let at = 0; at < rows.length; at += 1) if (fits(asked, holds(at))) found.push(at);
    return found;
  }

  // Tables that are in the page: rows that do not match are hidden, and levels of topics with nothing left.
  function hide(query) {
    const asked = wordsOf(query);
    const holds = (text) => (word) => text.toLowerCase().includes(word);
    for (const row of document.querySelectorAll(".table tbody tr")) row.hidden = !fits(asked, holds(row.textContent));
    const named = (one) => one.querySelector(".name").textContent;
    for (const leaf of document.querySelectorAll(".topics .leaf:not(.head)")) {
      let path = named(leaf);
      for (let up = leaf.parentElement.closest("details"); up; up = up.parentElement.closest("details")) {
        path = `${named(up)}${path}`;
      }
      leaf.hidden = !fits(asked, holds(path));
    }
    for (const level of document.querySelectorAll(".topics details")) {
      level.hidden = !level.querySelector(".leaf:not([hidden])");
      if (asked.length && !level.hidden) level.open = true;
    }
  }

  function pager(place, page, last, go, text) {
    const step = (name, label, to, isThere) => {
      const made = button(name, () => go(to), label);
      made.disabled = !isThere;
      return made;
    };
    const parts = last < 1 ? [] : [
      step("«", "first page", 0, page > 0), step("‹", "page before", page - 1, page > 0),
      step("›", "next page", page + 1, page < last), step("»", "last page", last, page < last),
    ];
    place.replaceChildren(...parts, el("span", "note", text));
  }

  const ladder = kind === "events" && rows.some((row) => row.connection !== undefined) ? new Ladder() : null;
  const filter = el("input", "");
  filter.type = "search";
  filter.id = "filter";
  filter.placeholder = isOfTables ? "client, topic, connection, type …" : "type, topic, client, #connection, reason …";
  filter.autocomplete = "off";
  const label = el("label", "", "Filter ", filter);
  const pages = el("nav", "pager");
  const said = el("output", "note");
  const place = el("div", "rows");
  said.setAttribute("aria-live", "polite");
  section.append(el("p", "controls", label, " ", said), pages, place);
  if (ladder) {
    section.after(ladder.section);
    ladder.show(ladder.names.keys().next().value);
  }
  let found = null;

  function draw(page) {
    if (isOfTables) return;
    const total = found === null ? rows.length : found.length;
    const last = Math.ceil(total / list.each) - 1;
    const from = page * list.each;
    const to = Math.min(from + list.each, total);
    const shown = [];
    for (let at = from; at < to; at += 1) shown.push(rows[found === null ? at : found[at]]);
    said.textContent = found === null ? "" : `${count(total)} of ${count(rows.length)} ${list.noun} match`;
    pager(pages, page, last, draw, total ? `${count(from + 1)} to ${count(to)} of ${count(total)}` : "");
    place.replaceChildren(...[list.make(shown)].flat());
  }

  function apply() {
    if (isOfTables) return hide(filter.value);
    found = matching(filter.value);
    return draw(0);
  }

  let timer = 0;
  filter.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(apply, 120);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "")) {
      event.preventDefault();
      filter.focus();
    } else if (event.key === "Escape" && document.activeElement === filter) {
      filter.value = "";
      apply();
    }
  });
  draw(0);
})();
