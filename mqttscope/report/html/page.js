// Adds to a page: filter, pages and ladder of its list, sorted tables, all rows on paper.
// Rows are markup that Python wrote; text of a capture in them is escaped there, and stays text here.
"use strict";
(() => {
  const MAX_PRINTED = 2000;
  const section = document.getElementById("list");
  const all = (selector, from = document) => Array.from(from.querySelectorAll(selector));
  const count = (number) => number.toLocaleString("en");

  function el(tag, name, ...parts) {
    const element = document.createElement(tag);
    if (name) element.className = name;
    element.append(...parts);
    return element;
  }

  function button(text, act, label) {
    const element = el("button", "", text);
    element.type = "button";
    if (label) element.setAttribute("aria-label", label);
    element.addEventListener("click", act);
    return element;
  }

  // Tables: sorted by a click on a title, worst or highest first; a table that is wider than the page says so.

  const UNITS = { "µs": 1e-6, ms: 1e-3, min: 60, h: 3600, d: 86400, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12 };
  const ORDER = { error: 3, warning: 2, info: 1 };

  function amount(text) {
    if (text in ORDER) return ORDER[text];
    if (!/^[<>]? ?-?[\d.,]+( ?[a-zµ%]+)?( \d+ [a-z]+)*$/i.test(text)) return NaN;
    const parts = Array.from(text.matchAll(/([\d.,]+) ?([a-zµ]*)/gi));
    return parts.reduce((sum, [, number, unit]) => sum + Number(number.replaceAll(",", "")) * (UNITS[unit] ?? 1), 0);
  }

  function sort(head, at) {
    const body = head.closest("table").tBodies[0];
    const turns = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
    const keys = new Map(Array.from(body.rows, (row) => [row, row.cells[at].textContent]));
    const compared = (one, other) => {
      const [left, right] = [amount(keys.get(one)), amount(keys.get(other))];
      if (Number.isNaN(left) || Number.isNaN(right)) {
        if (Number.isNaN(left) && Number.isNaN(right)) return -turns * keys.get(one).localeCompare(keys.get(other));
        return Number.isNaN(left) ? 1 : -1;
      }
      return turns * (left - right);
    };
    for (const cell of head.parentElement.cells) cell.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", turns < 0 ? "descending" : "ascending");
    body.append(...Array.from(body.rows).sort(compared));
  }

  for (const head of all(".table:not(.lanes *) th")) {
    if (head.textContent) head.replaceChildren(button(head.textContent, () => sort(head, head.cellIndex)));
  }
  function mark() {
    for (const table of all(".table")) table.classList.toggle("scrolls", table.scrollWidth > table.clientWidth + 1);
  }
  addEventListener("resize", mark);
  mark();
  if (section === null) return;

  // The rows of the list: lines of markup, which become elements when they are shown.

  const rows = all("noscript.rows").flatMap((block) => block.textContent.trim().split("\n"));
  const { noun, each } = section.dataset;
  const parser = new DOMParser();
  const elements = (lines) => Array.from(parser.parseFromString(lines.join(""), "text/html").body.children);

  // A JSON document in lines, with the escapes that it has.
  function outline(json) {
    const tokens = json.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s"[\]{},:]+/g) ?? [];
    let depth = 0;
    let text = "";
    tokens.forEach((token, at) => {
      if (token === "{" || token === "[") depth += 1;
      else if (token === "}" || token === "]") depth -= 1;
      else if (token === ":") text += ": ";
      if (/^[{[\]}:,]$/.test(token)) return;
      if (tokens[at - 1] !== ":") text += `\n${"  ".repeat(depth - 1)}`;
      text += tokens[at + 1] === ":" ? token.slice(1, -1) : token.replace(/\\u00(3c|3e|26)/g, (_, code) =>
        String.fromCharCode(parseInt(code, 16)));
    });
    return text.trim();
  }

  section.addEventListener("toggle", (event) => {
    const code = event.target.querySelector(":scope > code");
    if (code === null || code.className) return;
    code.className = "outline";
    code.textContent = outline(code.textContent);
    const number = event.target.dataset.c;
    if ("ladder" in section.dataset && number !== undefined) {
      code.before(button(`ladder of connection #${number}`, () => show(number)));
    }
  }, true);

  // All words of a filter must be there; a - before one means without it; #7 is the connection of that number.

  const MARKUP = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;" };
  const texts = new Array(rows.length);
  const textOf = (at) =>
    (texts[at] ??= rows[at].split(/<div class="more"|<code/)[0].replace(/<[^>]*>/g, " ").toLowerCase());
  const wordsOf = (query) => query.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (words, holds) =>
    words.every((word) => (word.length > 1 && word[0] === "-" ? !holds(word.slice(1)) : holds(word)));
  const isOf = (at, number) => rows[at].slice(0, 40).includes(` data-c="${number}"`);

  function matching(query) {
    const words = wordsOf(query);
    const number = select.value;
    const holds = (at) => (word) => /^#\d+$/.test(word) ? isOf(at, word.slice(1))
      : textOf(at).includes(word.replace(/[&<>"']/g, (mark) => MARKUP[mark]));
    const places = Array.from(rows.keys());
    return places.filter((at) => (number === "" || isOf(at, number)) && fits(words, holds(at)));
  }

  // Tables of a page without a list: rows that do not match are hidden, and levels of topics with nothing left.
  function hide(query) {
    const words = wordsOf(query);
    const holds = (text) => (word) => text.toLowerCase().includes(word);
    for (const row of all(".table tbody tr")) row.hidden = !fits(words, holds(row.textContent));
    const named = (level) => level.querySelector(".name").textContent;
    for (const leaf of all(".topics .leaf:not(.head)")) {
      let path = named(leaf);
      for (let up = leaf.parentElement.closest("details"); up; up = up.parentElement.closest("details")) {
        path = `${named(up)}${path}`;
      }
      leaf.hidden = !fits(words, holds(path));
    }
    for (const level of all(".topics details")) {
      level.hidden = !level.querySelector(".leaf:not([hidden])");
      if (words.length && !level.hidden) level.open = true;
    }
  }

  const filter = el("input", "");
  filter.type = "search";
  filter.id = "filter";
  filter.placeholder = "words, -without, #connection";
  filter.autocomplete = "off";
  const select = el("select", "", new Option("all", ""));
  const status = el("output", "note");
  status.setAttribute("aria-live", "polite");
  const pager = el("nav", "pager");
  const place = el("div", "rows");
  const controls = el("p", "controls", el("label", "", "Filter ", filter), " ");
  if ("ladder" in section.dataset) {
    const names = new Map();
    for (const row of rows) {
      const [, number] = /^<details data-c="(\d+)"/.exec(row) ?? [];
      const [, name] = number === undefined ? [] : /<b class="name">([^<]*)/.exec(row);
      if (number !== undefined && (!names.has(number) || /^[\d.:[\]]*$/.test(names.get(number)))) names.set(number, name);
    }
    for (const [number, name] of names) {
      const text = parser.parseFromString(name, "text/html").body.textContent;
      select.append(new Option(`#${number} ${text.slice(0, 60)}`, number));
    }
    controls.append(el("label", "", "Ladder of connection ", select), " ");
  }
  controls.append(status);
  const heading = section.querySelector("h2");
  if (heading) heading.after(controls, pager);
  else section.append(controls);
  if (rows.length) section.append(place);
  let found = [];
  let page = 0;

  function draw(to, most = Number(each)) {
    page = to;
    const from = page * most;
    const shown = found.slice(from, from + most);
    const last = Math.ceil(found.length / most) - 1;
    const step = (name, label, target) => {
      const element = button(name, () => draw(target), label);
      element.disabled = target < 0 || target > last || target === page;
      return element;
    };
    const steps = last < 1 ? [] : [
      step("«", "first page", 0), step("‹", "previous page", page - 1),
      step("›", "next page", page + 1), step("»", "last page", last),
    ];
    const range = shown.length ? `${count(from + 1)} to ${count(from + shown.length)} of ${count(found.length)}` : "";
    status.textContent = found.length === rows.length ? "" : `${count(found.length)} of ${count(rows.length)} ${noun} match`;
    pager.replaceChildren(...steps, el("span", "note", range));
    section.classList.toggle("ladder", select.value !== "");
    place.replaceChildren(...elements(shown.map((at) => rows[at])));
    mark();
  }

  function apply() {
    if (!rows.length) return hide(filter.value);
    found = matching(filter.value);
    return draw(0);
  }

  function show(number) {
    select.value = number;
    filter.value = "";
    apply();
    section.scrollIntoView();
  }

  let timer = 0;
  filter.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(apply, 120);
  });
  select.addEventListener("change", apply);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "")) {
      event.preventDefault();
      filter.focus();
    } else if (event.key === "Escape" && document.activeElement === filter) {
      filter.value = "";
      apply();
    }
  });
  if (!rows.length) return;
  let before = 0;
  addEventListener("beforeprint", () => {
    before = page;
    draw(0, MAX_PRINTED);
  });
  addEventListener("afterprint", () => draw(before));
  apply();
})();
