// Reads the beginning of a file at an address that a reader typed: ranges of bytes, asked for one after the other.
// Whom a page may ask, its policy says; no cookie and no address of a page goes along, only the site's own (Origin).

const SILENT = 10_000; // milliseconds in which a server may send nothing
const PAUSES = [500, 2000]; // milliseconds before each further try
const PASSING = new Set([408, 425, 429, 500, 502, 503, 504]);

class Passing extends Error {}

const shown = (number) => Number(number).toLocaleString("en");
const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// The answer to one request, and of its bytes no more than `most`.
async function request(url, headers, most, cancelled) {
  cancelled.throwIfAborted(); // while another try was waited for
  const control = new AbortController();
  const stop = () => control.abort();
  cancelled.addEventListener("abort", stop);
  let timer, silent, refused;
  const patience = () => {
    clearTimeout(timer);
    timer = setTimeout(() => (silent = true) && stop(), SILENT);
  };
  const onRefusal = ({ blockedURI }) => (refused = blockedURI);
  document.addEventListener("securitypolicyviolation", onRefusal);
  let { host } = new URL(url);
  let begun = false;
  try {
    patience();
    const options = { credentials: "omit", referrerPolicy: "no-referrer", signal: control.signal };
    const response = await fetch(url, { headers, ...options });
    [{ host }, begun] = [new URL(response.url), true];
    const parts = [];
    let n = 0;
    for (const reader = response.body.getReader(); n < most; ) {
      patience();
      const { done, value } = await reader.read();
      if (done) break;
      parts.push(value);
      n += value.length;
    }
    control.abort(); // a server that knows no ranges would send the rest of the file
    return { response, bytes: new Uint8Array(await new Blob(parts).arrayBuffer()).subarray(0, most) };
  } catch (problem) {
    if (cancelled.aborted) throw problem;
    if (silent) throw new Passing(`${host} sent nothing for ${SILENT / 1000} seconds`);
    await wait(0); // the policy's refusal is told after the failure
    if (refused) throw new Error(`${host} sent on to ${refused}, which this page may not ask`);
    throw new Passing(begun ? `${host} broke off its answer` : `${host} was not reached (${problem.message})`);
  } finally {
    clearTimeout(timer);
    cancelled.removeEventListener("abort", stop);
    document.removeEventListener("securitypolicyviolation", onRefusal);
  }
}

async function tried(act, say) {
  for (const pause of [...PAUSES, null]) {
    try {
      return await act();
    } catch (problem) {
      if (!(problem instanceof Passing)) throw problem;
      if (pause === null) throw new Error(`${problem.message}, in ${PAUSES.length + 1} tries`);
      say(`${problem.message}; trying again …`);
      await wait(pause);
    }
  }
}

// A small answer as text: a list in JSON, of at most 16 MiB.
export function textAt(url, cancelled, say) {
  return tried(async () => {
    const { response, bytes } = await request(url, {}, 2 ** 24, cancelled);
    if (PASSING.has(response.status)) throw new Passing(`${new URL(url).host} answered ${response.status}`);
    return { status: response.status, link: response.headers.get("Link"), text: new TextDecoder().decode(bytes) };
  }, say);
}

// What a File of the reader's is to the front end: a name, a size, and slices of its bytes.
export class WebFile {
  constructor({ name, size, url, source, command }, cancelled, say) {
    Object.assign(this, { name, size, url, source, command, cancelled, say });
  }
  slice(start, end) {
    return { arrayBuffer: () => tried(() => this.read(start, end), this.say) };
  }
  async read(start, end) {
    const { response, bytes } = await this.asked(start, end);
    const told = response.headers.get("Content-Range")?.match(/^bytes (\d+)-\d+\/(\d+|\*)$/);
    if (told && Number(told[1]) !== start) throw new Error("the server sent other bytes than were asked for");
    if (told && told[2] !== "*" && Number(told[2]) !== this.size) {
      throw new Error(`the list of files tells ${shown(this.size)} bytes, and its server ${shown(told[2])}`);
    }
    if (bytes.length < end - start) {
      throw new Passing(`the answer ended after ${shown(bytes.length)} of ${shown(end - start)} bytes`);
    }
    return bytes.slice().buffer;
  }
  async asked(start, end) {
    const { response, bytes } = await request(this.url, { Range: `bytes=${start}-${end - 1}` }, end - start, this.cancelled);
    if (PASSING.has(response.status)) throw new Passing(`${new URL(response.url).host} answered ${response.status}`);
    if (response.status === 206) return { response, bytes };
    if (response.status !== 200) throw new Error(`it was answered ${response.status}`);
    if (response.headers.get("Content-Type")?.startsWith("text/html")) throw new Error("it was answered with an HTML page");
    if (!start) return { response, bytes };
    const all = await request(this.url, {}, end, this.cancelled); // a server that knows no ranges
    return { response: all.response, bytes: all.bytes.subarray(start) };
  }
}
