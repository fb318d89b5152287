// The front end of every instrument, in the form of anywidget: the same module in JupyterLab and on a page.
// The model has `form` and `answer` (views are made by `inferlab.instruments.views`), `question` (the values of the
// form), `status` ({text, busy}) and messages about files and measurements. Nothing leaves the page: an answer comes
// from its kernel or from its worker. Another host is asked only for an address that a reader typed, at a press.
import { WebFile, textAt } from "./addressed.js";

const TAGS = `
  a button circle code details div em fieldset form h2 h3 input label legend li line optgroup option p pre rect
  section select span strong summary svg table tbody td text textarea th thead tr ul
`;
const ATTRIBUTES = `
  accept aria-describedby aria-hidden aria-label autocomplete checked class cx cy data-address data-ask data-but
  data-choices data-clear data-copy data-drop data-file data-label data-measured data-only data-part
  data-private data-read data-run data-save data-sort data-state data-text data-until data-value data-whole disabled
  height hidden href id inputmode label min multiple name novalidate open placeholder preserveAspectRatio r role rows
  scope selected spellcheck step type value viewBox width x x1 x2 y y1 y2
`;
const words = (text) => new Set(text.trim().split(/\s+/));
const [tags, attributes] = [words(TAGS), words(ATTRIBUTES)];
const SAFE_ADDRESS = /^(#|\.\.?\/|https:\/\/)/;
const DRAWN = new Set(["svg", "circle", "line", "rect", "text"]);
const [WAIT, WAIT_FOR_TEXT] = [200, 400]; // milliseconds without another keystroke before a question is asked
const LONGEST_READING = 300_000; // milliseconds for an address, with all that is read there
const LONGEST_TEXT = 4 * 2 ** 20; // bytes of a file of text; of a log, what matters most comes first

export function dom(view) {
  if (typeof view === "string") return document.createTextNode(view);
  const [tag, own, ...children] = view;
  if (!tags.has(tag)) throw new Error(`<${tag}> is not allowed in a view.`);
  const made = DRAWN.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(own)) {
    if (!attributes.has(name) || (name === "href" && !SAFE_ADDRESS.test(value))) {
      throw new Error(`${name}=${value} is not allowed in a view.`);
    }
    made.setAttribute(name, value);
  }
  made.append(...children.map(dom));
  return made;
}

// The beginning of a file as text: UTF-16 as PowerShell's redirection writes it, else UTF-8. A carriage return within
// a line is a blank, because a textarea would make a line end of it.
async function textOf(file) {
  const bytes = new Uint8Array(await file.slice(0, LONGEST_TEXT).arrayBuffer());
  const marks = { "255,254": "utf-16le", "254,255": "utf-16be" };
  const text = new TextDecoder(marks[bytes.subarray(0, 2).join()] ?? "utf-8").decode(bytes);
  return text.replaceAll("\r\n", "\n").replaceAll("\r", " ");
}

// Where a file of text was cut, in its lines, too.
function cutNote(file, text) {
  const [size, read] = [file.size, LONGEST_TEXT].map((bytes) => (bytes / 2 ** 20).toFixed(1));
  const lines = text.split("\n").length.toLocaleString("en");
  return `Only the first ${read} MiB of ${file.name} were read, of ${size} MiB: the rest, from line ${lines} on, is left out.`;
}

function part(el, selector, make) {
  return el.querySelector(`:scope > ${selector}`) ?? el.appendChild(make());
}

function block(tag, className, role) {
  const made = document.createElement(tag);
  made.className = className;
  if (role) made.setAttribute("role", role);
  return made;
}

// A control is shown for some values of another (data-only), or for all but some (data-but).
function showFitting(form) {
  for (const one of form.querySelectorAll("[data-only], [data-but]")) {
    const [name, values] = (one.dataset.only ?? one.dataset.but).split("=");
    one.hidden = values.split("|").includes(form.elements[name].value) === Boolean(one.dataset.but);
  }
}

function fill(form, question) {
  if (!Object.keys(question).length) return;
  for (const control of form.elements) {
    if (!control.name) continue;
    if (control.type === "checkbox") control.checked = question[control.name] === control.value;
    else if (control.name in question) control.value = question[control.name];
  }
  for (const folded of form.querySelectorAll(".instrument-more")) folded.open = [...form.elements].some(changedIn(folded));
}

// Whether a control within a fold has another value than the form has at first.
function changedIn(folded) {
  const usualOf = (one) => [...one.options].find((option) => option.defaultSelected)?.value ?? one.options[0]?.value;
  const isChanged = (one) => {
    if (one.type === "checkbox") return one.checked !== one.defaultChecked;
    return one.value !== (one.tagName === "SELECT" ? usualOf(one) : one.defaultValue);
  };
  return (one) => folded.contains(one) && Boolean(one.name) && isChanged(one);
}

// Rows of a table by the column of a button in its head: the largest number or the first name comes first, and the
// same button again turns the order.
function sort(button) {
  const [head, table] = [button.closest("th"), button.closest("table")];
  const at = [...head.parentElement.children].indexOf(head);
  const before = head.getAttribute("aria-sort");
  const rising = before ? before === "descending" : !table.tBodies[0].querySelector(`td:nth-child(${at + 1})[data-value]`);
  const valueOf = (row) => row.children[at].dataset.value ?? row.children[at].textContent;
  const { compare } = new Intl.Collator("en", { numeric: true });
  const rows = [...table.tBodies[0].rows].sort((a, b) => compare(valueOf(a), valueOf(b)) * (rising ? 1 : -1));
  for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", rising ? "ascending" : "descending");
  table.tBodies[0].append(...rows);
}

export function valuesOf(form) {
  return Object.fromEntries([...new FormData(form)].filter(([, value]) => typeof value === "string"));
}

function partOf(data, name) {
  return name ? data[name] : data;
}

function save(name, data) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(data, null, 1)], { type: "application/json" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function copy(button) {
  const text = button.dataset.copy || button.parentElement.querySelector("pre").textContent;
  const said = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select it and press Ctrl-C";
  }
  setTimeout(() => (button.textContent = said), 1500);
}

export function render({ model, el }) {
  el.classList.add("instrument");
  const form = part(el, "form", () => dom(model.get("form")));
  const status = part(el, ".instrument-status", () => block("p", "instrument-status", "status"));
  status.tabIndex = -1;
  const shown = part(el, ".instrument-answer", () => block("div", "instrument-answer"));
  const files = new Map();
  const whole = form.querySelector("[data-whole]")?.dataset.whole; // the field for names of files that are kept whole
  let unsent = []; // names of files in the order in which they are sent
  let waiting = 0;
  let verdict = { text: status.textContent, state: status.dataset.state ?? "" }; // of the answer that is shown
  let earlier = null; // results of the run before, while another one is under way
  let note = ""; // what the line of the verdict says about a file besides
  let saving = null; // a button to save that was pressed before there was an answer
  let asking = new AbortController(); // ends the requests for an address
  let press = 0; // the number of the last press that asked for one
  let tooLong = 0; // the end of the time for it

  function ask() {
    clearTimeout(waiting);
    showFitting(form);
    model.set("question", valuesOf(form));
    model.save_changes();
  }

  // What is going on stands beside the verdict, which belongs to the answer below. The button to cancel stays the same
  // one while the text before it changes, so that a press is not lost.
  function say({ text, busy }, state = "") {
    if (busy && status.querySelector(".instrument-cancel")) {
      status.querySelector(".instrument-said").textContent = text;
      return;
    }
    const hadFocus = status.contains(document.activeElement);
    const said = block("span", "instrument-said");
    said.textContent = text;
    said.dataset.state = state;
    status.replaceChildren(verdict.text);
    if (text) status.append(verdict.text && " ", said);
    status.dataset.state = verdict.text ? verdict.state : state;
    el.toggleAttribute("aria-busy", Boolean(busy));
    if (hadFocus) status.focus(); // the button to cancel had it, and is gone
    if (!busy) return;
    const cancel = block("button", "instrument-cancel");
    cancel.type = "button";
    cancel.textContent = "Cancel";
    cancel.addEventListener("click", () => model.send({ kind: "cancel" }));
    status.append(" ", cancel);
  }

  function show(answer) {
    if (!answer?.view) return;
    const opened = [...shown.querySelectorAll("details[open][id]")].map((one) => one.id);
    const focused = shown.contains(document.activeElement) && document.activeElement;
    shown.replaceChildren(dom(answer.view));
    for (const id of opened) shown.querySelector(`#${CSS.escape(id)}`)?.setAttribute("open", "");
    enable();
    if (focused) focusAgain(focused.id);
    verdict = { text: answer.summary, state: answer.state };
    say({ text: note });
    if (["refused", "no"].includes(answer.state)) putBack();
    if (!answer.data.plan) earlier = null;
    if (saving) saveFrom(saving);
    el.dispatchEvent(new CustomEvent("answered", { detail: answer }));
  }

  // A control of the answer before keeps the focus in the next one; where it is gone, the line of the verdict has it.
  function focusAgain(id) {
    const control = id && shown.querySelector(`#${CSS.escape(id)}`);
    (control || status).focus({ preventScroll: true });
  }

  // What a page shows at first has no data yet: its question is asked before they are saved.
  function saveFrom(button) {
    const data = model.get("answer")?.data;
    saving = data ? null : button;
    if (data) save(button.dataset.save, partOf(data, button.dataset.part));
    else ask();
  }

  function enable() {
    for (const group of el.querySelectorAll("fieldset")) group.disabled = false;
  }

  // The form has the results of the run before again, because the next one brought none.
  function putBack() {
    if (earlier !== null) form.querySelector("[data-measured]").value = earlier;
    earlier = null;
  }

  async function sendSlice(name, start, end) {
    const file = files.get(name);
    try {
      const bytes = await file.slice(start, end).arrayBuffer();
      if (files.get(name) !== file || file.cancelled?.aborted) return; // another file was chosen meanwhile
      const about = { name, size: file.size, start, whole: Boolean(whole), source: file.source ?? "" };
      model.send({ kind: "slice", ...about }, undefined, [bytes]);
    } catch (problem) {
      if (file.cancelled?.aborted) return;
      const text = `${name} cannot be read: ${problem.message}`;
      onMessage({ kind: "refused", name, text: file.source ? `${text}. ${inTerminal(file.command)}` : text });
    }
  }

  async function fillFrom(file, name) {
    say({ text: `Reading ${file.name} …` });
    try {
      form.elements[name].value = (await textOf(file)) || "\n"; // an empty file is no empty form
    } catch (problem) {
      return say({ text: `${file.name} cannot be read: ${problem.message}` }, "refused");
    }
    note = file.size > LONGEST_TEXT ? cutNote(file, form.elements[name].value) : "";
    ask();
  }

  // A file of results stays beside one of the same name, unless it is the same file again.
  function nameFor(file) {
    const isOther = ({ size, lastModified }) => size !== file.size || lastModified !== file.lastModified;
    let name = file.name;
    for (let n = 2; files.has(name) && isOther(files.get(name)); n++) name = `${n} ${file.name}`;
    return name;
  }

  // What Python wants next for an address: a page of a list, or files, of which the beginnings are read.
  let pages = [];
  function readAddress(text) {
    asking.abort();
    [asking, pages, note, unsent] = [new AbortController(), [], "", []];
    say({ text: `Reading ${text.trim()} …`, busy: true });
    model.send({ kind: "address", text, press: ++press });
  }
  // What is said of another press, or of one that was ended, is about other files.
  const ofThisPress = (message) => message.press === press && !asking.signal.aborted;
  function endLater(address, command) {
    const mine = asking;
    clearTimeout(tooLong);
    tooLong = setTimeout(() => {
      mine.abort();
      refuse(`${address} was not read in ${LONGEST_READING / 60_000} minutes. ${inTerminal(command)}`);
    }, LONGEST_READING);
    mine.signal.addEventListener("abort", () => clearTimeout(tooLong));
  }
  async function fetchPage({ url, address, command }) {
    if (!pages.length) endLater(address, command);
    const { signal } = asking;
    try {
      const { text, ...told } = await textAt(url, signal, (said) => say({ text: said, busy: true }));
      if (signal.aborted) return;
      pages.push(text);
      model.send({ kind: "address", text: address, press, pages, url, ...told });
    } catch (problem) {
      if (!signal.aborted) refuse(`${address} was not read: ${problem.message}. ${inTerminal(command)}`);
    }
  }
  function readFiles({ source, command, files: parts, choices }) {
    const { signal } = asking;
    files.clear();
    for (const part of parts) {
      files.set(part.name, new WebFile({ ...part, source, command }, signal, (said) => say({ text: said, busy: true })));
    }
    offer(choices, source);
    unsent = [...files.keys()];
    sendNext();
  }
  function offer(choices, chosen) {
    const select = form.querySelector("[data-choices]");
    select.replaceChildren(...choices.map(([value, text]) => new Option(text, value, false, value === chosen)));
    select.hidden = choices.length < 2;
  }
  function refuse(text) {
    clearTimeout(tooLong);
    unsent = [];
    note = text;
    say({ text }, "refused");
  }
  const inTerminal = (command) => `In a terminal: ${command}`;

  // One file after the other, so that a part of a split model is never read while another one is half there.
  function take(list) {
    const text = form.querySelector("[data-text]")?.dataset.text;
    if (text) return list.length ? fillFrom(list[0], text) : undefined;
    const sending = whole && unsent.length > 0;
    asking.abort();
    if (!whole) [unsent] = [[], files.clear()];
    note = "";
    for (const file of list) {
      const name = whole ? nameFor(file) : file.name;
      files.set(name, file);
      unsent.push(name);
    }
    if (!sending && unsent.length) sendNext();
  }

  // A plan that is carried out step by step: results of a step go into the form, and the next answer has the next step.
  function run(results) {
    const measured = form.querySelector("[data-measured]");
    earlier ??= measured.value;
    measured.value = results;
    model.send({ kind: "run" });
    ask();
  }

  function sendNext() {
    const [name] = unsent;
    if (!name) return finish();
    say({ text: `Reading ${whole ? name : `the header of ${name}`} …`, busy: true });
    sendSlice(name, 0, Math.min(files.get(name).size, 2 ** 20));
  }

  function sendMore({ name, start, end }) {
    if (!whole) say({ text: `Reading the header of ${name}, ${(start / 2 ** 20).toFixed(1)} MiB so far …`, busy: true });
    sendSlice(name, start, end);
  }

  // A small file that is refused is named beside the answer to the others; a model's part that is refused ends all.
  function onMessage(message) {
    if (message.kind === "measured") return run(JSON.stringify(message.results));
    if (message.kind === "question") return fill(form, message.question), ask();
    if ("press" in message && !ofThisPress(message)) return;
    if (message.kind === "fetch") return fetchPage(message);
    if (message.kind === "files") return readFiles(message);
    if (message.kind === "unread") return refuse(message.text);
    if (message.name !== unsent[0]) return;
    if (message.kind === "more") return sendMore(message);
    if (message.kind === "refused" && !whole) {
      clearTimeout(tooLong);
      note = message.text; // the answer to what was asked before the file came may still follow
      return say({ text: note }, "refused");
    }
    if (message.kind === "refused") {
      files.delete(message.name);
      note = [note, message.text].filter(Boolean).join(" ");
    }
    unsent.shift();
    sendNext();
  }

  function removeOne(name) {
    files.delete(name);
    note = form.querySelector("[data-whole]").value = "";
    finish();
  }

  function removeFiles(name) {
    files.clear();
    unsent = [];
    note = form.elements[name].value = form.querySelector("[data-whole]").value = "";
    ask();
  }

  function finish() {
    clearTimeout(tooLong);
    if (whole && !files.size && note) return say({ text: note }, "refused");
    if (whole) {
      form.elements[whole].value = files.size ? JSON.stringify([...files.keys()]) : "";
      return ask();
    }
    const target = form.querySelector("[data-file]").dataset.file;
    form.elements[target].value = [...files.keys()].sort()[0];
    forget(target);
    for (const select of form.querySelectorAll("select")) {
      if ([...select.options].some((option) => option.value === "file")) select.value = "file";
    }
    ask();
  }

  // A button of the form or of the answer has values for controls of the form, and asks.
  function askWith(values) {
    for (const [name, value] of new URLSearchParams(values)) form.elements[name].value = value;
    note = "";
    ask();
  }

  // What such a button asked for holds for the next questions, too, until a control changes with which it ends.
  function forget(changed) {
    for (const one of form.querySelectorAll("[data-until]")) {
      if (one.dataset.until.split(" ").includes(changed)) one.value = "";
    }
  }

  // A control of the answer changes the hidden one of its name in the form.
  const onInput = ({ target }) => {
    if (target.hasAttribute("data-address")) return; // nobody is asked before a press
    if (target.dataset.choices) return void (form.elements[target.dataset.choices].value = target.value);
    note = "";
    forget(target.name);
    const kept = shown.contains(target) && form.elements[target.name];
    if (kept) kept.value = target.value;
    showFitting(form);
    clearTimeout(waiting);
    waiting = setTimeout(ask, target.type === "textarea" ? WAIT_FOR_TEXT : WAIT);
  };
  const hasFiles = ({ dataTransfer }) => dataTransfer.types.includes("Files");
  const handlers = {
    input: (event) => (event.target.type === "file" ? take(event.target.files) : onInput(event)),
    submit: (event) => (event.preventDefault(), ask()),
    dragover: (event) => hasFiles(event) && (event.preventDefault(), el.classList.add("dropping")),
    dragleave: () => el.classList.remove("dropping"),
    drop: (event) =>
      hasFiles(event) && (event.preventDefault(), el.classList.remove("dropping"), take(event.dataTransfer.files)),
    click: (event) => {
      if (event.target.type === "file") event.target.value = ""; // else the same file again would be no change
      const button = event.target.closest("button");
      if (button?.hasAttribute("data-copy")) copy(button);
      if (button?.hasAttribute("data-run")) run("");
      if (button?.hasAttribute("data-sort")) sort(button);
      if (button?.dataset.ask) askWith(button.dataset.ask);
      if (button?.dataset.ask && shown.contains(button)) status.scrollIntoView(); // its answer begins far above
      if (button?.dataset.read) readAddress(form.elements[button.dataset.read].value);
      if (button?.dataset.clear) removeFiles(button.dataset.clear);
      if (button?.dataset.drop) removeOne(button.dataset.drop);
      if (button?.dataset.save) saveFrom(button);
    },
  };
  for (const [name, handler] of Object.entries(handlers)) el.addEventListener(name, handler);
  const onAnswer = () => show(model.get("answer"));
  const onStatus = () => {
    if (!model.get("status").busy) {
      unsent = []; // Python was stopped, and what it had of a file is gone
      asking.abort();
      saving = null;
      putBack();
    }
    say(model.get("status"));
  };
  model.on("change:answer", onAnswer);
  model.on("change:status", onStatus);
  model.on("msg:custom", onMessage);

  fill(form, model.get("question") ?? {});
  enable();
  showFitting(form);
  onAnswer();

  return () => {
    clearTimeout(waiting);
    asking.abort();
    for (const [name, handler] of Object.entries(handlers)) el.removeEventListener(name, handler);
    model.off("change:answer", onAnswer);
    model.off("change:status", onStatus);
    model.off("msg:custom", onMessage);
  };
}

export default { render };
