// Python in a page: a module worker that starts Pyodide with the handbook's library and answers its instruments.
// Everything comes from the folder of this script; nothing is sent anywhere. An address that a reader typed is asked
// by the page, with what is found here.
//
//   to the worker    {kind: "ask", instrument, question}               the values of a form
//                    {kind: "slice", name, size, start, data, whole, source}   a slice of a file (ArrayBuffer), and its
//                                                                      whole size; whether all of it is wanted, or a
//                                                                      model's header; the address that it came from
//                    {kind: "address", text, …}                        an address, and what was answered for it
//   from the worker  {kind: "progress", text}                          while it starts
//                    {kind: "ready"}                                   it has started
//                    {kind: "failed", text}                            it could not start, or stopped
//                    {kind: "answer", answer}                          one for each question, in their order
//                    {kind: "more" | "read" | "refused", name, …}      one for each slice, see `inferlab.instruments`
import { loadPyodide } from "./pyodide/pyodide.mjs";

const here = (name) => new URL(name, import.meta.url).href;
const BEGIN = `
import json
from pathlib import Path
from inferlab import instruments
from inferlab.instruments import telling
from inferlab.instruments.dropped import DroppedFiles

folder = Path("/files")
folder.mkdir()
files = DroppedFiles(folder)
telling.hears = progress

def ask(instrument, question):
    return json.dumps(instruments.answered(instrument, json.loads(question), files))

def take(name, size, start, data, whole, source):
    where = {"source": source} if source else {}
    return json.dumps(instruments.sent(files, name, int(size), int(start), data.to_bytes(), whole, **where))

def hear(message):
    return json.dumps(instruments.heard(files, json.loads(message)))
`;

const progress = (text) => postMessage({ kind: "progress", text });

async function bytes(name) {
  const response = await fetch(here(name));
  if (!response.ok) throw new Error(`${name} was not served: ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
}

async function start() {
  progress("Loading Python …");
  const [python, library] = await Promise.all([
    loadPyodide({ indexURL: here("pyodide/") }),
    bytes("inferlab.zip"),
  ]);
  progress("Loading the library …");
  python.unpackArchive(library, "zip");
  python.globals.set("progress", progress);
  python.runPython(BEGIN);
  postMessage({ kind: "ready" });
  return python.globals;
}

const started = start();
let last = started;

async function reply(message) {
  const { kind, instrument, question, name, size, start, data, whole, source } = message;
  const python = await started;
  if (kind === "slice") {
    return JSON.parse(python.get("take")(name, size, start, new Uint8Array(data), Boolean(whole), source ?? ""));
  }
  if (kind === "address") return JSON.parse(python.get("hear")(JSON.stringify(message)));
  return { kind: "answer", answer: JSON.parse(python.get("ask")(instrument, JSON.stringify(question))) };
}

// What an error says, without the lines of code that Python lists before it.
function fail({ type, message }) {
  const start = type ? message.search(new RegExp(`^([\\w.]+\\.)?${type}\\b`, "m")) : 0;
  postMessage({ kind: "failed", text: message.slice(Math.max(start, 0)).trim() });
}

started.catch(fail);
addEventListener("message", ({ data: message }) => {
  last = last.then(() => reply(message)).then((answer) => postMessage(answer), fail);
});
