// The page: chooses a capture, asks the worker for reports, and shows them.  Reports are kept until another capture.

const REPORTS = {
  triage: () => ["triage", "CAPTURE"],
  explain: () => ["explain", "CAPTURE", "--format", "html", "--output", "/report.html"],
  lint: () => ["lint", "CAPTURE", "--no-config", "--format", "html", "--output", "/report.html"],
  packets: () => {
    const expression = element("expression").value.trim();
    const filter = expression ? ["--filter", expression] : [];
    return ["inspect", "CAPTURE", "--limit", element("limit").value || "2000", ...filter];
  },
};
const element = (id) => document.getElementById(id);

let worker, file, asked, shown, address;
let answers = new Map();

function start() {
  worker = new Worker("worker.js", { type: "module" });
  worker.onmessage = ({ data }) => handlers[data.kind](data);
  worker.onerror = (event) => state(`The page could not start: ${event.message || "Python was not loaded"}`);
  if (file) worker.postMessage({ file });
}

function state(text) {
  element("state").textContent = text;
}

const handlers = {
  ready() {
    document.body.dataset.ready = "yes";
    if (!asked) state(file ? "" : "Ready.");
  },
  progress({ text }) {
    state(text);
  },
  failed({ text }) {
    asked = undefined;
    element("cancel").hidden = true;
    state(text);
  },
  done({ words, out, messages, page, seconds }) {
    if (words !== asked) return;
    asked = undefined;
    element("cancel").hidden = true;
    answers.set(words, { out, messages, page });
    state(`Read in ${seconds.toFixed(1)} s.`);
    draw(answers.get(words));
  },
};

function open(chosen) {
  if (!chosen) return;
  file = chosen;
  answers = new Map();
  if (asked) restart();
  worker.postMessage({ file });
  element("name").textContent = file.name;
  element("tabs").hidden = false;
  show("triage");
}

function restart() {
  worker.terminate();
  asked = undefined;
  start();
}

function show(name) {
  shown = name;
  for (const tab of document.querySelectorAll("#tabs button")) {
    tab.setAttribute("aria-pressed", String(tab.dataset.report === name));
  }
  element("filter").hidden = name !== "packets";
  const words = JSON.stringify(REPORTS[name]());
  const answer = answers.get(words);
  if (answer) {
    draw(answer);
    return;
  }
  if (asked) restart();
  asked = words;
  draw({ out: "", messages: "", page: "" });
  document.body.dataset.shown = "";
  state("Reading …");
  element("cancel").hidden = false;
  worker.postMessage({ words });
}

function draw({ out, messages, page }) {
  element("messages").textContent = messages;
  element("text").hidden = Boolean(page);
  element("text").textContent = out;
  element("report").hidden = element("save").hidden = !page;
  element("report").srcdoc = page || "";
  if (address) URL.revokeObjectURL(address);
  address = page ? URL.createObjectURL(new Blob([page], { type: "text/html" })) : undefined;
  if (page) {
    element("link").href = address;
    element("link").download = `${file.name}.${shown}.html`;
  }
  document.body.dataset.shown = shown;
}

element("file").addEventListener("change", (event) => {
  open(event.target.files[0]);
  event.target.value = ""; // so that the same file can be chosen after it has changed
});
element("drop").addEventListener("dragover", (event) => {
  event.preventDefault();
  element("drop").classList.add("over");
});
element("drop").addEventListener("dragleave", () => element("drop").classList.remove("over"));
element("drop").addEventListener("drop", (event) => {
  event.preventDefault();
  element("drop").classList.remove("over");
  open(event.dataTransfer.files[0]);
});
element("tabs").addEventListener("click", (event) => event.target.dataset.report && show(event.target.dataset.report));
element("filter").addEventListener("submit", (event) => {
  event.preventDefault();
  show("packets");
});
element("cancel").addEventListener("click", () => {
  restart();
  element("cancel").hidden = true;
  state("Cancelled. Choose a report again.");
});
start();
