"""Files on disk: the workspace, changes behind the editor's back, where the
library's files come from. Usage: workspace.py attn-ls FOLDER STDLIB"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../lsp/Inputs"))
from lspclient import Client

server, folder, stdlib = sys.argv[1:]
root = folder + "/a project"
uri = "file://" + root.replace(" ", "%20")
os.makedirs(root + "/sub")


def write(name, text):
    with open(f"{root}/{name}", "w") as f:
        f.write(text)


write("lib.attn", "fn f(x: f32) = x;\n")
write("sub/deep.attn", "import lib { f }\nfn h(x: f32) = f(x);\n")
env = dict(os.environ, XDG_CACHE_HOME=folder + "/cache", HOME=folder)
c = Client([server], uri, env=env)
main = uri + "/main.attn"
c.open(main, "import lib { f }\nimport std.rows { softmax }\n"
             "fn g(x: f32) = f(x);\n")


def place(line, character, method="definition", **more):
    return c.request("textDocument/" + method, dict(
        {"textDocument": {"uri": main},
         "position": {"line": line, "character": character}}, **more))["result"]


print("definition", place(2, 15)["uri"] == uri + "/lib.attn")
refs = place(2, 15, "references", context={"includeDeclaration": True})
print("references", sorted(os.path.basename(r["uri"]) for r in refs))
edit = place(2, 15, "rename", newName="better")["changes"]
print("rename", sorted((os.path.basename(u), len(e)) for u, e in edit.items()))
print("symbols", [s["name"] for s in c.request(
    "workspace/symbol", {"query": "h"})["result"] if s["name"] == "h"])

lib = place(1, 19)["uri"]
path = lib[7:]
print("library", lib.endswith("/cache/attnc/0.2.0/std/rows.attn"),
      oct(os.stat(path).st_mode & 0o777))
c.open(lib, open(path).read())
c.settle()
print("library is clean",
      [d for d in c.diagnostics[lib] if d["severity"] < 3])

write("lib.attn", "\n\nfn f(x: f32) = nothing;\n")
c.notify("workspace/didChangeWatchedFiles",
         {"changes": [{"uri": uri + "/lib.attn", "type": 2}]})
c.settle()
print("changed on disk", [d["code"] for d in c.diagnostics[main]])
os.remove(root + "/lib.attn")
c.notify("workspace/didChangeWatchedFiles",
         {"changes": [{"uri": uri + "/lib.attn", "type": 3}]})
c.settle()
print("removed", [d["code"] for d in c.diagnostics[main]])
n = len(c.request("workspace/diagnostic", {"previousResultIds": []})["result"][
    "items"])
print("workspace diagnostics of", n, "files")
print("exit", c.close())

c = Client([server], uri, env=dict(env, ATTNC_STDLIB=stdlib))
c.open(main, "import std.rows { softmax }\n")
print("ATTNC_STDLIB", place(0, 19)["uri"] == f"file://{stdlib}/rows.attn")
print("exit", c.close())
