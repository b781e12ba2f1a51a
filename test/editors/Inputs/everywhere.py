"""Every request at many places of every file: each answer is checked against
the protocol. Usage: everywhere.py attn-ls PLACES FOLDER FILE.attn .."""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../lsp/Inputs"))
from lspclient import Client

server, places, folder, *files = sys.argv[1:]
AT = ["hover", "completion", "signatureHelp", "definition", "declaration",
      "typeDefinition", "implementation", "references", "documentHighlight",
      "prepareRename", "rename", "prepareCallHierarchy"]
WHOLE = ["documentSymbol", "foldingRange", "documentLink", "codeLens",
         "semanticTokens/full", "semanticTokens/full/delta", "formatting",
         "diagnostic"]
RANGE = ["inlayHint", "semanticTokens/range", "rangeFormatting", "codeAction"]
random.seed(1)
c = Client([server], env=dict(os.environ, XDG_CACHE_HOME=folder, HOME=folder))


def ask(method, params):
    return c.request("textDocument/" + method, params).get("result")


def session(uri, text):
    doc = {"textDocument": {"uri": uri}}
    lines = text.split("\n")
    options = {"options": {"tabSize": 2, "insertSpaces": True},
               "context": {"diagnostics": [], "includeDeclaration": True},
               "newName": "renamed", "previousResultId": "1"}
    for m in WHOLE:
        ask(m, {**doc, **options})
    for _ in range(int(places)):
        line = random.randrange(len(lines))
        pos = {"line": line, "character": random.randint(0, len(lines[line]))}
        end = {"line": min(line + 9, len(lines)), "character": 0}
        for m in AT:
            r = ask(m, {**doc, **options, "position": pos})
            if m == "completion":
                for i in r["items"][:3]:
                    c.request("completionItem/resolve", i)
            if m == "prepareCallHierarchy" and r:
                for way in ["incoming", "outgoing"]:
                    c.request(f"callHierarchy/{way}Calls", {"item": r[0]})
        for m in RANGE:
            ask(m, {**doc, **options, "range": {"start": pos, "end": end}})
        ask("selectionRange", {**doc, "positions": [pos, end]})


for path in files:
    with open(path, encoding="utf-8", errors="replace") as f:
        text = f.read()
    uri = "file://" + os.path.abspath(path)
    c.open(uri, text)
    session(uri, text)
    # The same with a line that is being written.
    cut = random.randrange(len(text) + 1)
    c.change(uri, [{"text": text[:cut] + " = (" + text[cut:]}])
    session(uri, text)
    c.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
print(f"{len(files)} files, {c.messages} valid messages, exit {c.close()}")
