"""Allocations of the language server that fail in turn: it answers as ever, or
ends with a word about memory and exit code 3. usage: FAILING.so COUNT FILE"""
import json
import os
import pathlib
import subprocess
import sys

library, count, path = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3]
text = pathlib.Path(path).read_text()
uri = pathlib.Path(path).absolute().as_uri()
at = {"textDocument": {"uri": uri}, "position": {"line": 9, "character": 8}}
messages = [
    ("initialize", 1, {"processId": None, "rootUri": None, "capabilities": {}}),
    ("initialized", None, {}),
    ("textDocument/didOpen", None, {"textDocument": {
        "uri": uri, "languageId": "attn", "version": 1, "text": text}}),
    ("textDocument/hover", 2, at),
    ("textDocument/completion", 3, at),
    ("textDocument/rename", 4, {**at, "newName": "other"}),
    ("textDocument/formatting", 5, {"textDocument": {"uri": uri}, "options": {
        "tabSize": 2, "insertSpaces": True}}),
    ("textDocument/semanticTokens/full", 6, {"textDocument": {"uri": uri}}),
    ("textDocument/inlayHint", 7, {"textDocument": {"uri": uri}, "range": {
        "start": {"line": 0, "character": 0},
        "end": {"line": 30, "character": 0}}}),
    ("textDocument/didChange", None, {
        "textDocument": {"uri": uri, "version": 2},
        "contentChanges": [{"text": text + "let = 1;"}]}),
    ("shutdown", 8, None),
    ("exit", None, None),
]
stream = b""
for method, number, params in messages:
    m = {"jsonrpc": "2.0", "method": method, "params": params}
    if number:
        m["id"] = number
    body = json.dumps(m).encode()
    stream += b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def run(n, on):
    env = {**os.environ, "LD_PRELOAD": library, "FAIL_AT": str(n),
           "FAIL_ON": str(on), "FAIL_COUNT": count, "XDG_CACHE_HOME": "",
           "HOME": ""}
    pathlib.Path(count).unlink(missing_ok=True)
    return subprocess.run(["attn-ls"], input=stream, env=env, timeout=60,
                          capture_output=True)


good = run(0, 0)
assert good.returncode == 0, good
total = int(pathlib.Path(count).read_text())
step = max(1, (total - 100) // 60)
bad = tried = 0
for n in [*range(1, min(total, 100) + 1), *range(101, total + 1, step)]:
    for on in 0, 1:
        r = run(n, on)
        tried += 1
        if r.returncode == 0 and r.stdout.count(b"Content-Length") >= 8:
            continue
        if r.returncode == 3 and b"out of memory" in r.stderr:
            continue
        bad += 1
        print(n, on, r.returncode, r.stderr[-300:])
print(f"{bad} of them wrong")
assert tried > 100
