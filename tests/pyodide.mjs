// node tests/pyodide.mjs SRC SCRIPT: runs a Python script under Pyodide, with the folder SRC as its only argument.
// Pyodide is node_modules/pyodide with its own standard library; nothing is fetched, and a try would fail.
import path from "node:path";
import { loadPyodide } from "pyodide";

globalThis.fetch = (address) => {
  throw new Error(`the planner asked the network for ${address}`);
};
const python = await loadPyodide({ env: { HOME: "/home/pyodide", PYTHONDONTWRITEBYTECODE: "1" } });
for (const [place, folder] of [["/src", process.argv[2]], ["/script", path.dirname(process.argv[3])]]) {
  python.FS.mkdirTree(place);
  python.FS.mount(python.FS.filesystems.NODEFS, { root: path.resolve(folder) }, place);
}
python.globals.set("script", `/script/${path.basename(process.argv[3])}`);
python.runPython(`
import runpy, sys
sys.argv = [script, "/src"]
runpy.run_path(script, run_name="__main__")
`);
