// attnc.wasm for a page and for tests: compile(text, dims, target) gives the
// sections that page.c names, as strings.
"use strict";

const OUT_OF_REACH = 8; // WASI's EBADF: there are no files

// What wasi-libc asks of its host: no files, arguments or clock.
function host(memory) {
  const words = () => new DataView(memory().buffer);
  const zero = (...at) => {
    for (const p of at) words().setUint32(p, 0, true);
    return 0;
  };
  const calls = {
    environ_sizes_get: zero,
    environ_get: () => 0,
    clock_time_get: (id, precision, at) => {
      words().setBigUint64(at, 0n, true);
      return 0;
    },
    proc_exit: (code) => {
      throw new Error(`the compiler ended with ${code}`);
    },
  };
  return new Proxy(calls, {
    get: (all, name) => all[name] || (() => OUT_OF_REACH),
  });
}

async function load(bytes) {
  const module = await WebAssembly.compile(bytes);
  let exports;

  // A fault leaves an instance as it was: the next request has a new one.
  async function start() {
    const wasi = host(() => exports.memory);
    const names = WebAssembly.Module.imports(module).map((x) => x.name);
    const imports = Object.fromEntries(names.map((n) => [n, wasi[n]]));
    const made = await WebAssembly.instantiate(
      module, { wasi_snapshot_preview1: imports });
    exports = made.exports;
    exports._initialize();
  }

  function put(text) {
    const from = new TextEncoder().encode(text);
    const at = exports.page_alloc(from.length + 1);
    const to = new Uint8Array(exports.memory.buffer, at, from.length + 1);
    to.set(from);
    to[from.length] = 0;
    return at;
  }

  function get(at) {
    const all = new Uint8Array(exports.memory.buffer);
    return new TextDecoder().decode(all.subarray(at, all.indexOf(0, at)));
  }

  function sections(text) {
    const found = { formatted: "", explained: "", picture: "", diagnostics: "" };
    for (const part of text.split("\n\u0001").slice(1)) {
      const end = part.indexOf("\n");
      found[part.slice(0, end)] += part.slice(end + 1);
    }
    return found;
  }

  return async function compile(text, dims = "", target = "sm_90a") {
    if (!exports) await start();
    try {
      const given = [text, dims, target].map(put);
      const found = sections(get(exports.page_run(...given)));
      given.forEach((at) => exports.page_free(at));
      return found;
    } catch (e) {
      exports = undefined;
      return { ...sections(""), diagnostics: `internal error: ${e.message}` };
    }
  };
}

if (typeof module !== "undefined") module.exports = { load };

// ---------------------------------------------------------------- the page
// Of requests that come while one is served, the last one counts.
function latest(work) {
  let busy = false, again = false;
  return async function run() {
    if (busy) return void (again = true);
    busy = true;
    do {
      again = false;
      await work();
    } while (again);
    busy = false;
  };
}

async function page() {
  const at = (id) => document.getElementById(id);
  const response = await fetch("attnc.wasm");
  const compile = await load(await response.arrayBuffer());
  const update = latest(async () => {
    const r = await compile(at("text").value, at("dims").value, at("target").value);
    at("said").textContent = r.diagnostics.trim() || "no diagnostics";
    at("explained").textContent = r.explained;
    at("picture").innerHTML = r.picture;
    at("format").disabled = !r.formatted;
    at("format").onclick = () => {
      at("text").value = r.formatted;
    };
  });
  let waits;
  for (const id of ["text", "dims", "target"])
    at(id).addEventListener("input", () => {
      clearTimeout(waits);
      waits = setTimeout(update, 200);
    });
  await update();
}

if (typeof document !== "undefined") page();
