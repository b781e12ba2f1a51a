"""Bytes as they may come: in pieces, with other headers, damaged, ended.
Usage: framing.py attn-ls"""
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../lsp/Inputs"))
from lspclient import Client

server = sys.argv[1]


def message(**m):
    body = json.dumps(dict(m, jsonrpc="2.0")).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def whole(data):
    p = subprocess.run([server], input=data, capture_output=True, timeout=20)
    return p.returncode, [json.loads(x.split(b"\r\n\r\n", 1)[1])
                          for x in p.stdout.split(b"Content-Length: ")[1:]
                          for x in [b"C" + x]]


INIT = message(id=1, method="initialize", params={"capabilities": {}})
STOP = message(id=2, method="shutdown") + message(method="exit")
c = Client([server])
for b in message(id="text", method="attn/none"):
    c.raw(bytes([b]))
print("in pieces", c.wait("text")["error"]["code"])
body = b'{"jsonrpc":"2.0","id":77,"method":"attn/none"}'
c.raw(b"content-type: application/vscode-jsonrpc; charset=utf-8\r\n"
      b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
print("other headers", c.wait(77)["error"]["code"])
body = b'{"jsonrpc":"2.0","id":78,"method":'
c.raw(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
print("half a message", c.wait(None)["error"]["code"])
body = b'{"jsonrpc":"2.0","id":79,"method":"\\ud800"}'
c.raw(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
print("a lone surrogate", c.wait(None)["error"]["code"])
body = b"[" * 100000
c.raw(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
print("deep nesting", c.wait(None)["error"]["code"])
c.open("file:///w/a.attn", "fn f(x: f32) = x;\n")
wait = [c.start("workspace/symbol", {"query": "softmax"}) for _ in range(50)]
c.notify("$/cancelRequest", {"id": wait[-1]})
answers = [c.wait(n) for n in wait]
print("all are answered", len(answers), all(
    "result" in a or a["error"]["code"] == -32800 for a in answers))
print("exit", c.close())

print("before initialize", whole(message(id=5, method="textDocument/hover") +
                                 message(method="exit"))[1][0]["error"]["code"])
code, out = whole(INIT + STOP.replace(b"exit", b"none") + message(
    id=3, method="textDocument/hover") + message(method="exit"))
print("after shutdown", out[-1]["error"]["code"], "exit", code)
print("exit without shutdown", whole(INIT + message(method="exit"))[0])
print("end of input", whole(INIT)[0])
print("no length", whole(b"Content-Type: x\r\n\r\n{}")[0])
print("huge length", whole(b"Content-Length: 99999999999\r\n\r\n{}")[0])
print("endless header", whole(b"x" * 10000)[0])
start = time.time()
print("cancelled first", sorted(m.get("error", {}).get("code", 0) for m in whole(
    INIT + message(id=9, method="workspace/symbol", params={"query": "f"}) +
    message(method="$/cancelRequest", params={"id": 9}) + STOP)[1]))
