// Looks at the extension without VS Code: the manifest's files are there, the
// grammar's expressions compile and colour a line, the server that the options
// name answers. Usage: node vscode.js EXTENSION SERVER
"use strict";
const assert = require("assert");
const fs = require("fs");
const path = require("path");
const { spawn } = require("child_process");

const [dir, server] = process.argv.slice(2);
const read = (f) => JSON.parse(fs.readFileSync(path.join(dir, f), "utf8"));
const manifest = read("package.json");
const ext = require(path.join(path.resolve(dir), manifest.main));

for (const l of manifest.contributes.languages) read(l.configuration);
const grammar = read(manifest.contributes.grammars[0].path);
assert.strictEqual(grammar.scopeName,
                   manifest.contributes.grammars[0].scopeName);

function rules(r) {
  if (r.include) return rules(grammar.repository[r.include.slice(1)]);
  return r.patterns ? r.patterns.flatMap(rules) : [r];
}
const all = rules(grammar);
function scope(line, at) {
  for (let i = 0; i < line.length;) {
    let best;
    for (const r of all) {
      const re = new RegExp(r.match, "g");
      re.lastIndex = i;
      const m = re.exec(line);
      if (m && m[0] && (!best || m.index < best.m.index)) best = { m, r };
    }
    if (!best) return null;
    const end = best.m.index + best.m[0].length;
    if (best.m.index <= at && at < end)
      return best.r.name || Object.values(best.r.captures)[1].name;
    i = end;
  }
  return null;
}
const line = "row softmax(s: row f32) -> row f32 = exp(s - 1.5e-3);  # note";
assert.strictEqual(scope(line, line.indexOf("softmax")),
                   "entity.name.function.attn");
assert.strictEqual(scope(line, line.indexOf("f32")), "storage.type.attn");
assert.strictEqual(scope(line, line.indexOf("exp")),
                   "support.function.builtin.attn");
assert.strictEqual(scope(line, line.indexOf("1.5")), "constant.numeric.attn");
assert.strictEqual(scope(line, line.indexOf("note")),
                   "comment.line.number-sign.attn");

assert.deepStrictEqual(ext.viewOf("attn.show", ["u", "f", "asm"],
                                  { ok: true, text: "ret" }),
                       { title: "f (asm)", text: "ret", ok: true });
const options = ext.serverOptions({ server, compiler: "/x/attnc" });
assert.strictEqual(options.options.env.ATTNC, "/x/attnc");
const child = spawn(options.command, options.args, options.options);
const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize",
                              params: { capabilities: {} } });
child.stdin.write(`Content-Length: ${body.length}\r\n\r\n${body}`);
let out = "";
child.stdout.on("data", (data) => {
  out += data;
  const at = out.indexOf("\r\n\r\n");
  if (at < 0) return;
  let m;
  try { m = JSON.parse(out.slice(at + 4)); } catch (e) { return; }
  assert.strictEqual(m.result.serverInfo.name, "attn-ls");
  child.kill();
  console.log("the extension is sound");
});
