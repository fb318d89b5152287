// llama.cpp in a page: a module worker that carries out a plan of `inferlab.instruments.browser_run` with wllama.
// Everything comes from the folder of this script; nothing is stored, and nothing is sent anywhere.
//
//   to the worker    {plan}                                  its step is "check" (GPU against CPU) or "measure"
//   from the worker  {kind: "progress", text}                before each sample
//                    {kind: "measured", results, header}     header: {name, size, data}, the beginning of the model
//                    {kind: "failed", text}                  it could not run
import { Wllama } from "./wllama/index.min.js";

const here = (name) => new URL(name, import.meta.url).href;
const [MODEL, HEADER] = ["tiny.gguf", 2 ** 20];
const ALL_LAYERS = 99999;
const STORING_NOTHING = { cacheManager: {}, modelManager: {} };
const PASSAGE = "The following function returns";
const NEEDED = ["shader-f16"]; // without it llama.cpp's WebGPU has no device (ggml-webgpu.cpp: "requires f16 support")
const progress = (text) => postMessage({ kind: "progress", text });

// A worker of wllama's that cannot start says so only to its logger; what llama.cpp itself writes is left out.
let fail;
const failed = new Promise((_, reject) => (fail = reject));
const nothing = () => {};
const logger = {
  debug: nothing,
  log: nothing,
  warn: nothing,
  error: (...told) => fail(new Error(told.map((one) => one?.message ?? String(one)).join(" "))),
};

async function fetched(name) {
  const response = await fetch(here(name));
  if (!response.ok) throw new Error(`${name} was not served: ${response.status} ${response.statusText}`);
  return response.blob();
}

async function adapterOf(backend) {
  if (backend !== "webgpu") return null;
  const adapter = await navigator.gpu?.requestAdapter();
  if (!adapter) throw new Error("this browser offers no GPU by WebGPU, so no self-test took place. Choose CPU.");
  return adapter;
}

// llama.cpp asks for an adapter as this does. A fallback adapter is one in software, as the standard calls it.
function gpuOf(adapter) {
  const { vendor, architecture, description, isFallbackAdapter } = adapter.info;
  return {
    gpu_name: [vendor, architecture, description].filter(Boolean).join(" "),
    software: isFallbackAdapter ?? adapter.isFallbackAdapter ?? false,
    lacks: NEEDED.filter((feature) => !adapter.features.has(feature)),
  };
}

// A device that is lost ends llama.cpp; its log says so first.
function inWords(text) {
  if (!/device lost/i.test(text)) return text;
  const lost = "WebGPU lost its device while llama.cpp used it, as after a crash of the GPU's driver.";
  return `${lost} Choose CPU, or press Start again. (${text})`;
}

function nThreads(asked) {
  if (!self.crossOriginIsolated) return 1;
  const most = navigator.hardwareConcurrency || 1;
  return Math.min(asked || Math.max(1, Math.floor(most / 2)), most);
}

// llama.cpp's own log goes to `heard`, where somebody listens; its errors then end the run.
async function load(model, plan, backend, heard) {
  const told = { suppressNativeLog: !heard, logger: { ...logger, debug: heard ?? nothing } };
  const llama = new Wllama({ default: here("wllama/wllama.wasm") }, { ...told, ...STORING_NOTHING });
  llama.setCompat({ worker: here("wllama/compat/wllama.js"), wasm: here("wllama/compat/wllama.wasm") });
  await llama.loadModel([model], {
    n_ctx: plan.n_ctx,
    n_threads: nThreads(plan.n_threads),
    n_gpu_layers: backend === "webgpu" ? ALL_LAYERS : 0,
    n_parallel: 1,
  });
  return llama;
}

// Greedy tokens, and never the end of the text before there are as many as asked for. wllama takes a prompt as text.
function complete(llama, prompt, n_predict, more = {}) {
  return llama.createCompletion({ prompt, n_predict, temperature: 0, ignore_eos: true, cache_prompt: true, ...more });
}

// --- the self-test: the same prompt on both ----------------------------------------------------------------------

async function written(model, plan, backend, heard) {
  progress(`Self-test: ${plan.n_checked} tokens on ${backend === "cpu" ? "the CPU" : "WebGPU"} …`);
  const llama = await load(model, plan, backend, heard);
  const answer = await complete(llama, PASSAGE, plan.n_checked, { logprobs: 1 });
  await llama.exit();
  return answer.choices[0].logprobs.content.map(({ id, logprob }) => [id, logprob]);
}

// A backend that cannot use a GPU leaves all layers to the CPU, without an error: its log says how many it took.
async function check(model, plan, adapter) {
  const log = [];
  const cpu = await written(model, plan, "cpu");
  const gpu = await written(model, plan, plan.backend, (...told) => log.push(told.join(" ")));
  const offloaded = /offloaded (\d+)\/(\d+) layers to GPU/.exec(log.join("\n"));
  return { check: { cpu, gpu, offloaded: offloaded ? offloaded.slice(1).map(Number) : [0, 0], ...gpuOf(adapter) } };
}

// --- samples -----------------------------------------------------------------------------------------------------

// Each is one token after a blank. The beginning of a text (BOS) is one more: a text of n tokens has n - 1 words.
const WORDS = `the this that and with from for which into not can will function value values type name file list table
object string module argument returns following example default method class given number`.split(/\s+/);

// The same words in each run (xorshift).
function randomWords() {
  let state = 4096;
  return (count) =>
    Array.from({ length: count }, () => {
      for (const shift of [13, -17, 5]) state ^= shift > 0 ? state << shift : state >>> -shift;
      return ` ${WORDS[(state >>> 0) % WORDS.length]}`;
    });
}

const nanoseconds = (ms) => Math.round(1e6 * ms);

function asPlanned(timings, processed, cached) {
  if (timings.prompt_n === processed && timings.cache_n === cached) return;
  const found = `${timings.prompt_n} tokens after ${timings.cache_n}`;
  throw new Error(`llama.cpp processed ${found} in place of ${processed} after ${cached}.`);
}

// A prefill and a decode after the same tokens. The first request brings them into the cache and takes out all others;
// at depth 0 none is taken from there. The first token that is generated comes with the prompt: the time of a decode
// begins after it.
async function atDepth(llama, plan, depth, before, random) {
  const base = before.slice(0, Math.max(depth - 1, 0));
  const words = [...base, ...random(depth ? plan.n_prompt : plan.n_prompt - 1)];
  await complete(llama, base.join(""), 1);
  const prefill = (await complete(llama, words.join(""), 1, { cache_prompt: depth > 0 })).timings;
  asPlanned(prefill, plan.n_prompt, depth);
  const decode = (await complete(llama, base.join(""), plan.n_gen + 1)).timings;
  asPlanned(decode, 1, base.length);
  return [
    { n_prompt: plan.n_prompt, n_gen: 0, n_depth: depth, ns: nanoseconds(prefill.prompt_ms) },
    { n_prompt: 0, n_gen: plan.n_gen, n_depth: depth, ns: nanoseconds(decode.predicted_ms) },
  ];
}

// What remains, in words: for each depth that is to come the mean time that it took so far. In the first round
// nothing is said, because not all depths were measured yet.
function remaining(took, plan, round, place) {
  if (!round) return "";
  const mean = (times) => times.reduce((sum, one) => sum + one, 0) / times.length;
  const ms = plan.depths.reduce((sum, depth, at) => {
    return sum + mean(took.get(depth)) * (plan.repeats - round + (at >= place ? 1 : 0));
  }, 0);
  const seconds = Math.ceil(ms / 1000);
  return `, about ${seconds > 90 ? `${Math.ceil(seconds / 60)} min` : `${seconds} s`} left`;
}

// All depths once in each round, so that a slow moment falls on all of them; the first round warms up.
async function samplesOf(llama, plan) {
  const random = randomWords();
  const before = random(plan.n_ctx);
  const [samples, took] = [[], new Map(plan.depths.map((depth) => [depth, []]))];
  for (let round = 0; round <= plan.repeats; round++) {
    for (const [place, depth] of plan.depths.entries()) {
      const what = round ? `Round ${round} of ${plan.repeats}` : "Warming up";
      progress(`${what}: depth ${depth}${remaining(took, plan, round, place)} …`);
      const start = performance.now();
      const found = await atDepth(llama, plan, depth, before, random);
      took.get(depth).push(performance.now() - start);
      if (round) samples.push(...found);
    }
  }
  return samples;
}

async function measure(model, plan, adapter) {
  progress("Starting llama.cpp …");
  const llama = await load(model, plan, plan.backend, adapter ? nothing : undefined);
  const samples = await samplesOf(llama, plan);
  const { n_batch, n_ubatch } = llama.getLoadedContextInfo();
  const resources = llama.getWorkerResources();
  const facts = {
    build: Wllama.getLibllamaVersion(),
    compat: resources.compat,
    isolated: self.crossOriginIsolated,
    mmap: !WebAssembly.Suspending && !resources.compat,
    n_processors: navigator.hardwareConcurrency || 1,
    n_threads: llama.getNumThreads(),
    n_batch,
    n_ubatch,
    user_agent: navigator.userAgent,
    gpu: adapter ? gpuOf(adapter).gpu_name : "",
    model: MODEL,
    date: new Date().toISOString().replace(/\.\d+/, ""),
  };
  await llama.exit();
  return { ...facts, samples };
}

async function carryOut(plan) {
  const adapter = await adapterOf(plan.backend);
  progress("Loading llama.cpp and the model …");
  const model = await fetched(MODEL);
  const found = plan.step === "check" ? await check(model, plan, adapter) : await measure(model, plan, adapter);
  const data = await model.slice(0, HEADER).arrayBuffer();
  const header = { name: MODEL, size: model.size, data };
  postMessage({ kind: "measured", results: { plan, step: plan.step, ...found }, header }, [data]);
}

addEventListener("message", ({ data: { plan } }) => {
  Promise.race([carryOut(plan), failed]).catch((problem) => {
    postMessage({ kind: "failed", text: inWords(problem?.message ?? String(problem)) });
  });
});
