// grammar.json is what grammar.js says, and has all words of the language.
//   node tree_sitter_grammar.js GRAMMAR.js GRAMMAR.json TABLE ..
const assert = require("assert");
const fs = require("fs");
const [script, made, ...tables] = process.argv.slice(2);

const as = (type, more) => ({type, ...more});
const rule = (x) => {
  if (typeof x === "string") return as("STRING", {value: x});
  if (x instanceof RegExp) return as("PATTERN", {value: x.source});
  assert(x.type, `no rule: ${x}`);
  return x;
};
const wrap = (type) => (x) => as(type, {content: rule(x)});
const level = (type) => (value, x) =>
  x === undefined ? as(type, {value: 0, content: rule(value)})
    : as(type, {value, content: rule(x)});

Object.assign(global, {
  seq: (...all) => as("SEQ", {members: all.map(rule)}),
  choice: (...all) => as("CHOICE", {members: all.map(rule)}),
  optional: (x) => choice(x, as("BLANK")),
  repeat: wrap("REPEAT"), repeat1: wrap("REPEAT1"), token: wrap("TOKEN"),
  field: (name, x) => as("FIELD", {name, content: rule(x)}),
  alias: (x, to) => as("ALIAS", {content: rule(x), named: true, value: to.name}),
  prec: Object.assign(level("PREC"),
    {left: level("PREC_LEFT"), right: level("PREC_RIGHT")}),
  grammar(g) {
    const $ = new Proxy({}, {get: (_, name) => as("SYMBOL", {name})});
    const names = (f) => f($).map((x) => x.name);
    return {name: g.name, word: g.word($).name,
      rules: Object.fromEntries(Object.entries(g.rules).map(
        ([name, f]) => [name, rule(f($))])),
      extras: g.extras($).map(rule), conflicts: [], precedences: [],
      externals: [], inline: names(g.inline), supertypes: names(g.supertypes)};
  },
});

const json = fs.readFileSync(made, "utf8");
assert.deepStrictEqual(JSON.parse(json),
  JSON.parse(JSON.stringify(require(fs.realpathSync(script)))));
let words = 0;
for (const table of tables)
  for (const m of fs.readFileSync(table, "utf8").matchAll(
    /^(?:TOKEN\(\w+, |DTYPE\()"([^"]+)"/gm)) {
    assert(json.includes(`"value": "${m[1]}"`), `no ${m[1]} in grammar.js`);
    words++;
  }
console.log(`the same, ${words} words`);
