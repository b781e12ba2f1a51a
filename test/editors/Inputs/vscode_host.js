// Runs the packed extension in a stand-in for VS Code, with the real server: the
// classes and registrations that it uses, one document, and what VS Code would
// ask. Usage: node vscode_host.js EXTENSION SERVER COMPILER FILE.attn
"use strict";
const assert = require("assert");
const fs = require("fs");
const path = require("path");
const Module = require("module");
const { pathToFileURL } = require("url");

const [dir, server, compiler, file] = process.argv.slice(2);

// ---- VS Code
const event = () => {
  const heard = [];
  const on = (f) => { heard.push(f); return { dispose() {} }; };
  on.fire = (x) => heard.forEach((f) => f(x));
  return on;
};
class Position { constructor(l, c) { this.line = l; this.character = c; } }
class Range { constructor(a, b) { this.start = a; this.end = b; } }
class Bag { constructor(...args) { this.args = args; } }
class Diagnostic {
  constructor(range, message, severity) {
    Object.assign(this, { range, message, severity });
  }
}
class WorkspaceEdit {
  constructor() { this.edits = new Map(); }
  set(uri, edits) { this.edits.set(uri.toString(), edits); }
}
class Uri {
  static parse(s) { const u = new Uri(); u.text = s; return u; }
  toString() { return this.text; }
}
const commands = {}, providers = {}, shown = [], problems = new Map();
const workspace = {
  textDocuments: [], workspaceFolders: undefined,
  onDidOpenTextDocument: event(), onDidCloseTextDocument: event(),
  onDidSaveTextDocument: event(), onDidChangeTextDocument: event(),
  getConfiguration: () => ({ get: (n) => ({ server, compiler })[n] }),
  createFileSystemWatcher: () => ({ onDidCreate: event(), onDidChange: event(),
                                    onDidDelete: event(), dispose() {} }),
  openTextDocument: async (o) => o,
  applyEdit: async () => true,
};
const languages = new Proxy({
  createDiagnosticCollection: () => ({
    set: (uri, list) => problems.set(uri.toString(), list), dispose() {} }),
}, { get: (t, name) => t[name] || ((...args) => {
  // registerXProvider([selector,] provider, ..)
  providers[/^register(.*)Provider$/.exec(name)[1]] =
    args.find((a) => typeof a === "object" && !Array.isArray(a));
  return { dispose() {} };
}) });
const vscode = new Proxy({
  Position, Range, Diagnostic, WorkspaceEdit, Uri, workspace, languages,
  ViewColumn: { Beside: -2 },
  commands: { registerCommand: (n, f) => {
    commands[n] = f;
    return { dispose() { delete commands[n]; } };
  } },
  window: { showTextDocument: async (d) => shown.push(d.content),
            showWarningMessage: (m) => shown.push(m),
            showErrorMessage: (m) => shown.push(m) },
}, { get: (t, name) => t[name] || (t[name] = class extends Bag {}) });
const load = Module._load;
Module._load = (name, ...rest) =>
  name === "vscode" ? vscode : load(name, ...rest);

// ---- a session
const text = fs.readFileSync(file, "utf8");
const doc = { uri: Uri.parse(pathToFileURL(file).href), version: 1, text,
              languageId: "attn", getText() { return this.text; } };
const until = async (f) => {
  for (let i = 0; i < 400 && !f(); i++)
    await new Promise((r) => setTimeout(r, 25));
  assert(f(), f.toString());
};
const find = (word) => {
  const lines = doc.text.split("\n");
  const line = lines.findIndex((l) => l.includes(word));
  return new Position(line, lines[line].indexOf(word));
};
const mine = () => problems.get(doc.uri.toString()) || [];

function change(from, to) {
  const start = find(from);
  const end = new Position(start.line, start.character + from.length);
  doc.text = doc.text.replace(from, to);
  doc.version++;
  workspace.onDidChangeTextDocument.fire({ document: doc, contentChanges: [
    { range: new Range(start, end), text: to }] });
}

async function requests() {
  const p = providers, q = find("softmax(dot");
  const hover = await p.Hover.provideHover(doc, q);
  assert(/row softmax/.test(hover.args[0].args[0]));
  const items = await p.CompletionItem.provideCompletionItems(
    doc, new Position(q.line, q.character + 4));
  const soft = items.find((i) => i.args[0] === "softmax" ||
                                 i.args[0].label === "softmax");
  assert(await p.CompletionItem.resolveCompletionItem(soft));
  const [place] = await p.Definition.provideDefinition(doc, q);
  assert(/rows\.attn$/.test(place.args[0].toString()));
  assert((await p.Reference.provideReferences(
    doc, q, { includeDeclaration: true })).length >= 1);
  assert((await p.DocumentSymbol.provideDocumentSymbols(doc)).length >= 2);
  const edit = await p.Rename.provideRenameEdits(doc, find("twice(s"), "doubled");
  assert(edit.edits.get(doc.uri.toString()).length >= 2);
  assert((await p.DocumentFormattingEdit.provideDocumentFormattingEdits(
    doc, { tabSize: 2, insertSpaces: true })).length >= 1);
  const all = new Range(new Position(0, 0), new Position(99, 0));
  assert((await p.InlayHints.provideInlayHints(doc, all)).length >= 1);
  const tokens = await p.DocumentSemanticTokens.provideDocumentSemanticTokens(
    doc);
  assert(tokens.args[0].length % 5 === 0 && tokens.args[0].length > 20);
  assert((await p.FoldingRange.provideFoldingRanges(doc)).length >= 1);
  assert((await p.DocumentLink.provideDocumentLinks(doc)).length >= 1);
  assert(await p.CodeActions.provideCodeActions(
    doc, mine()[0].range, { diagnostics: mine() }));
}

async function main() {
  const manifest = JSON.parse(fs.readFileSync(path.join(dir, "package.json")));
  const ext = require(path.join(path.resolve(dir), manifest.main));
  workspace.textDocuments.push(doc);
  const context = { subscriptions: [] };
  await ext.activate(context);
  for (const c of manifest.contributes.commands) assert(commands[c.command]);
  await until(() => mine().length === 1);
  const [d] = mine();
  assert(/unknown name 'misspeled'/.test(d.message) && d.severity === 0);
  assert(d.code === "A0100" || d.code.value === "A0100");
  await requests();
  change("misspeled", "1.0");
  await until(() => mine().length === 0);
  // A lens: what the compiler makes of the program.
  const lenses = await providers.CodeLens.provideCodeLenses(doc);
  const tile = lenses.map((l) => l.args[1]).find(
    (c) => c.command === "attn.show" && c.arguments.includes("tile"));
  await commands[tile.command](...tile.arguments);
  assert(/program|func/.test(shown.pop()));
  await commands["attn.restart"]();
  change("1.0", "misspeled");
  await until(() => mine().length === 1);
  await ext.deactivate();
  assert.deepStrictEqual(shown, []);
  console.log("the packed extension works");
}

main().catch((e) => { console.error(e); process.exit(1); });
