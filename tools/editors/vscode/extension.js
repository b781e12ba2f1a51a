// Starts attn-ls and shows what its commands give back. Plain JavaScript; the
// protocol itself is vscode-languageclient.
"use strict";
const path = require("path");

// What the client is started with; apart from VS Code, so that tests can look
// at it without one.
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

let client;

async function start(vscode, languageClient) {
  const config = vscode.workspace.getConfiguration("attn");
  const options = serverOptions({
    server: config.get("server"),
    compiler: config.get("compiler"),
  });
  client = new languageClient.LanguageClient("attn", "attn", options, {
    documentSelector: [{ language: "attn" }],
    synchronize: {
      fileEvents: vscode.workspace.createFileSystemWatcher("**/*.attn"),
    },
    middleware: {
      async executeCommand(command, args, next) {
        const answer = await next(command, args);
        const view = viewOf(command, args, answer);
        if (view) await show(vscode, view);
        return answer;
      },
    },
  });
  await client.start();
}

async function activate(context) {
  const vscode = require("vscode");
  const languageClient = require("vscode-languageclient/node");
  context.subscriptions.push(
    vscode.commands.registerCommand("attn.restart", async () => {
      if (client) await client.stop();
      await start(vscode, languageClient);
    })
  );
  await start(vscode, languageClient);
}

function deactivate() {
  return client ? client.stop() : undefined;
}

module.exports = { activate, deactivate, serverOptions, viewOf,
                   folder: path.dirname(__filename) };
