// Python in a worker, so that the page stays responsive: loads Pyodide and mqttscope, and runs its commands on a file.

import { loadPyodide } from "./pyodide/pyodide.mjs";

const FOLDER = "/capture";
let file, mounted, run;

async function load() {
  const python = await loadPyodide({ indexURL: new URL("pyodide/", import.meta.url).href });
  const archive = await fetch(new URL("mqttscope.zip", import.meta.url));
  if (!archive.ok) throw new Error(`mqttscope.zip: ${archive.status}`);
  python.unpackArchive(await archive.arrayBuffer(), "zip", { extractDir: "/program" });
  python.FS.mkdir(FOLDER);
  python.runPython("import sys; sys.path.insert(0, '/program')");
  run = python.pyimport("in_browser").run;
  return python;
}

const loading = load();
loading.then(
  () => postMessage({ kind: "ready" }),
  (error) => postMessage({ kind: "failed", text: `Python could not be loaded: ${error.message}` }),
);

onmessage = async ({ data }) => {
  if (data.file) {
    file = data.file;
    return;
  }
  let python;
  try {
    python = await loading;
  } catch {
    return;
  }
  try {
    if (mounted !== file) {
      if (mounted) python.FS.unmount(FOLDER);
      // The file is read piece by piece where it is, not copied.
      python.FS.mount(python.FS.filesystems.WORKERFS, { files: [file] }, FOLDER);
      mounted = file;
    }
    const began = performance.now();
    const name = file.name.startsWith("-") ? `./${file.name}` : file.name;
    const words = JSON.parse(data.words).map((word) => (word === "CAPTURE" ? name : word));
    const report = (text) => postMessage({ kind: "progress", text });
    const answer = run(python.toPy(words), report);
    const [out, messages, page] = answer.toJs();
    answer.destroy();
    const seconds = (performance.now() - began) / 1000;
    postMessage({ kind: "done", words: data.words, out, messages, page, seconds });
  } catch (error) {
    postMessage({ kind: "failed", text: `This cannot be shown: ${error.message}` });
  }
};
