"""A language client in plain Python: starts attn-ls, checks every message that
it sends against the structures of the protocol, gives answers as values."""
import json
import os
import select
import subprocess

import lsptypes

CAPABILITIES = {
    "general": {"positionEncodings": ["utf-16"]},
    "window": {"workDoneProgress": True, "showDocument": {"support": False}},
    "workspace": {"workspaceEdit": {"documentChanges": False}},
    "textDocument": {
        "hover": {"contentFormat": ["markdown", "plaintext"]},
        "completion": {"completionItem": {"snippetSupport": True}},
        "signatureHelp": {"signatureInformation": {
            "parameterInformation": {"labelOffsetSupport": True}}},
        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
    },
}


class Client:
    def __init__(self, command, root=None, capabilities=None, env=None):
        self.proc = subprocess.Popen(command, stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, env=env)
        self.fd = self.proc.stdout.fileno()
        self.buffer = b""
        self.ids = 0
        self.sent = {}          # id -> method
        self.answers = {}
        self.notes = []         # notifications and requests of the server
        self.diagnostics = {}
        self.messages = 0
        self.versions = {}
        self.init = self.request("initialize", {
            "processId": os.getpid(), "rootUri": root,
            "capabilities": capabilities or CAPABILITIES})
        self.notify("initialized", {})

    def write(self, message):
        body = json.dumps(message).encode()
        self.raw(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    def raw(self, data):
        self.proc.stdin.write(data)
        self.proc.stdin.flush()

    def notify(self, method, params):
        self.write({"jsonrpc": "2.0", "method": method, "params": params})

    def start(self, method, params):
        self.ids += 1
        self.sent[self.ids] = method
        self.write({"jsonrpc": "2.0", "id": self.ids, "method": method,
                    "params": params})
        return self.ids

    def request(self, method, params):
        return self.wait(self.start(method, params))

    def wait(self, want, timeout=20):
        while want not in self.answers:
            self.take(self.read(timeout))
        return self.answers.pop(want)

    def read(self, timeout=20):
        """The next message; None at the end."""
        while True:
            head, sep, rest = self.buffer.partition(b"\r\n\r\n")
            if sep:
                n = int(head.split(b":")[1])
                if len(rest) >= n:
                    self.buffer = rest[n:]
                    return json.loads(rest[:n])
            if not select.select([self.fd], [], [], timeout)[0]:
                raise TimeoutError("no answer")
            data = os.read(self.fd, 65536)
            if not data:
                raise EOFError("the server ended")
            self.buffer += data

    def take(self, m):
        self.messages += 1
        lsptypes.check_message(m, self.sent)
        if "method" in m:
            if "id" in m:
                self.write({"jsonrpc": "2.0", "id": m["id"], "result": None})
            self.notes.append(m)
            if m["method"] == "textDocument/publishDiagnostics":
                p = m["params"]
                self.diagnostics[p["uri"]] = p["diagnostics"]
        else:
            self.answers[m.get("id")] = m

    def open(self, uri, text, version=1):
        self.versions[uri] = version
        self.notify("textDocument/didOpen", {"textDocument": {
            "uri": uri, "languageId": "attn", "version": version,
            "text": text}})

    def change(self, uri, changes):
        self.versions[uri] += 1
        self.notify("textDocument/didChange", {
            "textDocument": {"uri": uri, "version": self.versions[uri]},
            "contentChanges": changes})

    def settle(self):
        """All that the server says before it answers this."""
        self.request("attn/nothing", {})
        self.request("attn/nothing", {})

    def close(self):
        self.request("shutdown", None)
        self.notify("exit", None)
        self.proc.stdin.close()
        code = self.proc.wait(10)
        self.proc.stdout.close()
        return code
