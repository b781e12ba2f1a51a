// Starts attn-ls, tells it of documents, and shows what its commands give back.
// Plain JavaScript without dependencies: client.js is the protocol, features.js
// what VS Code asks.
"use strict";
const path = require("path");
const { Client } = require("./client");
const { SELECTOR, converter, register } = require("./features");

// What the server is started with; apart from VS Code, so that tests can look at
// it without one.
function serverOptions(settings) {
  const env = Object.assign({}, process.env);
  if (settings.compiler) env.ATTNC = settings.compiler;
  return { command: settings.server || "attn-ls", args: [], options: { env } };
}

// The text of a command's answer and the language it is shown as.
function viewOf(command, args, answer) {
  if (!answer || typeof answer.text !== "string") return null;
  const stage = command === "attn.show" ? args[2] : command.split(".")[1];
  const title = `${args[1]} (${stage})`;
  return { title, text: answer.text, ok: answer.ok !== false };
}

async function show(vscode, view) {
  const doc = await vscode.workspace.openTextDocument({ content: view.text });
  await vscode.window.showTextDocument(doc, vscode.ViewColumn.Beside, true);
  if (!view.ok) vscode.window.showWarningMessage(`${view.title} failed`);
}

const CAPABILITIES = {
  general: { positionEncodings: ["utf-16"] },
  workspace: { applyEdit: true, workspaceEdit: { documentChanges: true } },
  textDocument: {
    synchronization: { didSave: true },
    publishDiagnostics: { relatedInformation: true, codeDescriptionSupport: true,
                          tagSupport: { valueSet: [1, 2] } },
    hover: { contentFormat: ["markdown"] },
    completion: { completionItem: { snippetSupport: true,
                                    labelDetailsSupport: true,
                                    documentationFormat: ["markdown"] } },
    documentSymbol: { hierarchicalDocumentSymbolSupport: true },
    codeAction: { codeActionLiteralSupport: { codeActionKind: {
      valueSet: ["quickfix", "source.fixAll", "source.organizeImports"] } },
                  isPreferredSupport: true },
    rename: { prepareSupport: true },
    inlayHint: {},
    semanticTokens: { requests: { full: true }, formats: ["relative"],
                      tokenTypes: [], tokenModifiers: [] },
  },
};

// Opening, changing, saving, closing.
function documents(vscode, client) {
  const ours = (doc) => doc.languageId === "attn";
  const name = (doc) => ({ uri: doc.uri.toString(), version: doc.version });
  const open = (doc) => ours(doc) && client.notify("textDocument/didOpen", {
    textDocument: { ...name(doc), languageId: "attn", text: doc.getText() } });
  const tell = (method) => (doc) => ours(doc) &&
    client.notify(method, { textDocument: { uri: name(doc).uri } });
  vscode.workspace.textDocuments.forEach(open);
  return [
    vscode.workspace.onDidOpenTextDocument(open),
    vscode.workspace.onDidCloseTextDocument(tell("textDocument/didClose")),
    vscode.workspace.onDidSaveTextDocument(tell("textDocument/didSave")),
    vscode.workspace.onDidChangeTextDocument((e) => {
      if (!ours(e.document) || !e.contentChanges.length) return;
      client.notify("textDocument/didChange", {
        textDocument: name(e.document),
        contentChanges: e.contentChanges.map((x) => ({
          range: { start: { line: x.range.start.line,
                            character: x.range.start.character },
                   end: { line: x.range.end.line,
                          character: x.range.end.character } },
          text: x.text })) });
    }),
  ];
}

// Files of the workspace that something else changes.
function watch(vscode, client) {
  const watcher = vscode.workspace.createFileSystemWatcher("**/*.attn");
  const tell = (type) => (uri) =>
    client.notify("workspace/didChangeWatchedFiles",
                  { changes: [{ uri: uri.toString(), type }] });
  watcher.onDidCreate(tell(1));
  watcher.onDidChange(tell(2));
  watcher.onDidDelete(tell(3));
  return watcher;
}

function commands(vscode, client, capabilities) {
  return capabilities.executeCommandProvider.commands.map((command) =>
    vscode.commands.registerCommand(command, async (...args) => {
      const answer = await client.request("workspace/executeCommand",
                                          { command, arguments: args });
      const view = viewOf(command, args, answer);
      if (view) await show(vscode, view);
      return answer;
    }));
}

let session;  // { client, disposables }

async function stop() {
  if (!session) return;
  const old = session;
  session = undefined;
  old.disposables.forEach((d) => d.dispose());
  await old.client.stop();
}

async function start(vscode) {
  const config = vscode.workspace.getConfiguration("attn");
  const c = converter(vscode);
  const found = vscode.languages.createDiagnosticCollection("attn");
  const { command, args, options } = serverOptions({
    server: config.get("server"), compiler: config.get("compiler") });
  const client = new Client(command, args, options, {
    "textDocument/publishDiagnostics": (p) =>
      found.set(c.uri(p.uri), p.diagnostics.map(c.diagnostic)),
    "window/showMessage": (p) => { vscode.window.showWarningMessage(p.message); },
    "workspace/applyEdit": async (p) =>
      ({ applied: await vscode.workspace.applyEdit(c.edit(p.edit)) }),
  }, (why) => vscode.window.showErrorMessage(
    `${why}. Is attn-ls in PATH, or "attn.server" set? ` +
    "\"attn: Restart the language server\" tries again."));
  session = { client, disposables: [found] };
  const roots = (vscode.workspace.workspaceFolders || []).map(
    (f) => ({ uri: f.uri.toString(), name: f.name }));
  const { capabilities } = await client.request("initialize", {
    processId: process.pid, capabilities: CAPABILITIES,
    rootUri: roots.length ? roots[0].uri : null, workspaceFolders: roots });
  client.notify("initialized", {});
  const ask = (method, params, token) => client.request(method, params, token);
  session.disposables.push(
    ...documents(vscode, client), watch(vscode, client),
    ...register(vscode, ask, capabilities),
    ...commands(vscode, client, capabilities));
}

async function activate(context) {
  const vscode = require("vscode");
  context.subscriptions.push(
    vscode.commands.registerCommand("attn.restart", async () => {
      await stop();
      await start(vscode);
    })
  );
  await start(vscode).catch(() => {});  // it was told by the client
}

module.exports = { activate, deactivate: stop, serverOptions, viewOf, SELECTOR,
                   folder: path.dirname(__filename) };
