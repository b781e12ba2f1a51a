"""Commands over the protocol: views of each stage, checks, progress,
cancellation. Usage: commands.py attn-ls attnc FOLDER"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../lsp/Inputs"))
from lspclient import Client

server, attnc, folder = sys.argv[1:]
TEXT = """attention mean_of<B, S>(X: f32[B, S]) -> (O: f32[B]) {
  index b in B, k in S;
  O[b] = sum(k: X[b, k]);
}
check "small" {
  dims B = 2, S = 5;
  input X = normal(0, 1);
  expect mean_of(X) ~= reference tol 1e-5;
}
"""
env = dict(os.environ, XDG_CACHE_HOME=folder + "/cache", HOME=folder,
           ATTNC=attnc)
c = Client([server], "file://" + folder, env=env)
uri = "file://" + folder + "/unsaved.attn"
c.open(uri, TEXT)


def run(command, *args):
    return c.request("workspace/executeCommand",
                     {"command": command, "arguments": [uri, *args]})


for stage in ["attn", "stream", "tile", "frag", "mach", "llvm", "asm", "ptx"]:
    r = run("attn.show", "mean_of", stage)["result"]
    head = r["text"].split("\n")
    print(stage, r["ok"], os.path.exists(r["uri"][7:]),
          "mean_of" in r["text"], len(head) > 5)
r = run("attn.check", "small")["result"]
print("check", r["ok"], r["text"].strip().split("\n")[-1])
r = run("attn.explain", "mean_of")["result"]
print("explain", r["ok"], "work" in r["text"])
kinds = [m["params"]["value"]["kind"] for m in c.notes
         if m["method"] == "$/progress"]
print("progress", kinds.count("begin"), kinds.count("end"))

# A program of several specializations shows the first.
several = TEXT.replace("B, S>", "T: dtype {bf16, f32}, B, S: const {64, 128}>")
c.change(uri, [{"text": several.split("check")[0].replace("f32[", "T[")}])
r = run("attn.show", "mean_of", "ptx")["result"]
print("first", r["ok"], r["text"].count(".entry"), "mean_of_bf16" in r["text"])
c.change(uri, [{"text": TEXT}])

# The text is bad: the answer says so.
c.change(uri, [{"text": TEXT.replace("X[b, k]", "Y[b, k]")}])
r = run("attn.show", "mean_of", "asm")["result"]
print("broken", r["ok"], "unknown name 'Y'" in r["text"])

# Cancelled while it runs.
c.change(uri, [{"text": TEXT}])
n = c.start("workspace/executeCommand",
            {"command": "attn.explain", "arguments": [uri, "mean_of"]})
c.notify("$/cancelRequest", {"id": n})
e = c.wait(n).get("error", {})
print("cancelled", e.get("code"))

# A child that never ends is ended with the server.
print("exit", c.close())
print("left", os.listdir(folder + "/cache/attnc/0.2.0/view").count(
    "unsaved.attn"))
