// Mounts the instruments of a page: for each a model for its front end, and a worker with Python in place of a kernel.
// The worker starts when a reader first touches a control, or comes by a link that holds a question.
// What a control marked data-private holds, such as a log, is never part of a link, and nothing is stored.
// A button marked data-run carries out the plan of the answer: llama.js, a worker with llama.cpp, is loaded only then.
"use strict";

(() => {
  const here = (name) => new URL(name, own).href;
  const own = document.currentScript.src;
  const FROM_DISK =
    "This page computes with Python, which browsers do not start in pages opened from disk: run make serve in the book's folder and open the address that it prints. The answer below is the one to the question as it stands.";
  const BEFORE = "The rates below are those of the run before.";

  // What anywidget gives a front end, as far as instruments use it.
  class Model {
    constructor(state, backend) {
      Object.assign(this, { state, backend, listeners: new Map() });
    }
    get(name) {
      return this.state[name];
    }
    set(name, value) {
      this.state[name] = value;
    }
    save_changes() {
      this.backend.ask(this.state.question);
    }
    send(content, _, buffers) {
      this.backend.send(content, buffers?.[0]);
    }
    on(name, listener) {
      if (!this.listeners.has(name)) this.listeners.set(name, new Set());
      this.listeners.get(name).add(listener);
    }
    off(name, listener) {
      this.listeners.get(name)?.delete(listener);
    }
    tell(name, value) {
      for (const listener of this.listeners.get(name) ?? []) listener(value);
    }
    receive(name, value) {
      this.state[name] = value;
      this.tell(`change:${name}`);
    }
  }

  // One question at a time; of those that come meanwhile only the last one is asked.
  class Backend {
    constructor(instrument, linked) {
      Object.assign(this, { instrument, linked, worker: null, asked: null, next: null, ready: false });
      Object.assign(this, { llama: null, wanted: false });
    }
    start() {
      if (this.worker) return;
      this.worker = new Worker(here("worker.js"), { type: "module" });
      this.worker.addEventListener("message", ({ data }) => this.hear(data));
      this.worker.addEventListener("error", (problem) => this.fail(problem.message || "its worker was not loaded"));
    }
    busy(text) {
      this.model.receive("status", { text, busy: true });
    }
    ask(question) {
      if (this.llama) return; // a run is not disturbed: its results ask again
      this.start();
      if (this.asked) this.next = question;
      else this.post({ kind: "ask", question });
    }
    post(message, buffer) {
      this.asked = message;
      this.worker.postMessage({ ...message, instrument: this.instrument, data: buffer }, buffer ? [buffer] : []);
      if (this.ready) this.patience = setTimeout(() => this.busy("Computing …"), 400);
      else this.busy("Loading Python …");
    }
    send(content, buffer) {
      if (content.kind === "cancel") return this.cancel();
      if (content.kind === "run") return this.want();
      this.start();
      this.worker.postMessage({ ...content, instrument: this.instrument, data: buffer }, buffer ? [buffer] : []);
    }
    want() {
      this.wanted = true;
      if (!this.llama) this.busy("Computing …");
    }
    hear(message) {
      if (message.kind === "progress" && !this.asked) return; // it starts ahead of a question
      if (message.kind === "progress") this.busy(message.text);
      else if (message.kind === "ready") this.ready = true;
      else if (message.kind === "failed") this.fail(message.text);
      else if (message.kind === "answer") this.answered(message);
      else this.model.tell("msg:custom", message);
    }
    answered({ answer }) {
      clearTimeout(this.patience);
      const question = this.asked.question;
      this.asked = null;
      if (this.next) {
        const following = this.next;
        this.next = null;
        return this.post({ kind: "ask", question: following });
      }
      const plan = this.wanted && answer.data.plan;
      if (!plan || !this.hasRates) this.model.receive("answer", answer);
      keep(only(question, this.linked), this.linked);
      if (plan) this.run(plan);
      this.wanted = false;
    }
    // Rates of a run stay until those of the next are there.
    get hasRates() {
      return Array.isArray(this.model.get("answer")?.data);
    }
    run(plan) {
      this.busy("Loading llama.cpp …");
      this.llama = new Worker(here("llama.js"), { type: "module" });
      this.llama.addEventListener("message", ({ data }) => this.hearLlama(data));
      this.llama.addEventListener("error", (problem) => this.failLlama(problem.message || "its worker was not loaded"));
      this.llama.postMessage({ plan });
    }
    hearLlama(message) {
      if (message.kind === "progress") return this.busy(message.text + (this.hasRates ? ` ${BEFORE}` : ""));
      if (message.kind === "failed") return this.failLlama(message.text);
      this.endLlama();
      const { name, size, data } = message.header;
      this.send({ kind: "slice", name, size, start: 0 }, data);
      this.model.tell("msg:custom", { kind: "measured", results: message.results });
    }
    failLlama(text) {
      this.endLlama();
      const before = this.hasRates ? ` ${BEFORE}` : "";
      this.model.receive("status", { text: `llama.cpp gave no result: ${text}${before}` });
    }
    endLlama() {
      this.llama?.terminate();
      Object.assign(this, { llama: null, wanted: false });
    }
    stop() {
      clearTimeout(this.patience);
      this.worker?.terminate();
      Object.assign(this, { worker: null, asked: null, next: null, ready: false, wanted: false });
    }
    cancel() {
      if (this.llama) this.endLlama();
      else this.stop();
      this.model.receive("status", { text: "Cancelled. Nothing below has changed." });
    }
    fail(text) {
      this.stop();
      this.model.receive("status", { text: `This browser could not run the library: ${text}` });
    }
  }

  function only(question, names) {
    return Object.fromEntries(Object.entries(question).filter(([name]) => names.has(name)));
  }

  // The names of an instrument's controls that a link may hold.
  function linkedNames(el) {
    return new Set([...el.querySelectorAll("[name]:not([data-private])")].map(({ name }) => name));
  }

  // The address holds the question of each instrument of the page, so that it can be sent to somebody.
  function keep(question, own) {
    const address = new URL(location.href);
    const known = new Set(instruments.flatMap((el) => [...linkedNames(el)]));
    const others = [...address.searchParams].filter(([name]) => known.has(name) && !own.has(name));
    address.search = new URLSearchParams([...others, ...Object.entries(question)]);
    history.replaceState(history.state, "", address);
  }

  // A question of the answer's own, such as one model of a list, is a step of its own: Back has the one before again.
  function stepBack(el, model, asked) {
    el.addEventListener("click", ({ target }) => {
      if (target.closest(".instrument-answer [data-ask]")) history.pushState(history.state, "", location.href);
    });
    addEventListener("popstate", () => {
      const question = only(Object.fromEntries(new URLSearchParams(location.search)), linkedNames(el));
      const isOther = `${new URLSearchParams(question)}` !== `${new URLSearchParams(asked())}`;
      if (isOther && Object.keys(question).length) model.tell("msg:custom", { kind: "question", question });
    });
  }

  async function mount(el) {
    const status = el.querySelector(".instrument-status");
    if (location.protocol === "file:") {
      status.textContent = FROM_DISK;
      for (const button of el.querySelectorAll(".instrument-answer button")) button.remove(); // nothing would answer
      return;
    }
    const linked = linkedNames(el);
    const backend = new Backend(el.dataset.instrument, linked);
    const question = only(Object.fromEntries(new URLSearchParams(location.search)), linked);
    const model = (backend.model = new Model({ question }, backend));
    const { render, valuesOf } = await import(here("instrument.js"));
    render({ model, el });
    stepBack(el, model, () => only(valuesOf(el.querySelector("form")), linked));
    for (const sign of ["focusin", "dragenter"]) el.addEventListener(sign, () => backend.start(), { once: true });
    if (Object.keys(question).length) {
      el.closest(".instrument-fold")?.setAttribute("open", "");
      backend.ask(valuesOf(el.querySelector("form"))); // the form has what a link leaves out
    }
  }

  const instruments = [...document.querySelectorAll("[data-instrument]")];
  instruments.forEach(mount);
})();
