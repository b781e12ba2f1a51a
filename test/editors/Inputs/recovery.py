"""Cuts each line of each file short, at three places, and counts the
declarations that vanish beside the one that is cut.
Usage: recovery.py attn-ls FILE.attn .."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../lsp/Inputs"))
from lspclient import Client

server, *files = sys.argv[1:]
c = Client([server])
cuts, lost = 0, []


def names(uri):
    r = c.request("textDocument/documentSymbol", {"textDocument": {"uri": uri}})
    return [s["name"] for s in r["result"]]


for path in files:
    with open(path) as f:
        lines = f.read().split("\n")
    uri = "file:///w/" + os.path.basename(path)
    c.open(uri, "\n".join(lines))
    whole = names(uri)
    for i, line in enumerate(lines):
        if not line.strip() or line.startswith("#"):
            continue
        for n in {len(line) // 3, 2 * len(line) // 3, len(line) - 1}:
            c.change(uri, [{"text": "\n".join(
                lines[:i] + [line[:n]] + lines[i + 1:])}])
            left = names(uri)
            cuts += 1
            if sum(x not in left for x in whole) > 1:
                lost.append(f"{path}:{i + 1}: {line[:n]}")
    c.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
c.close()
print("\n".join(lost))
print(f"{cuts} cuts, {len(lost)} lose more than their declaration")
