#!/usr/bin/env python3
"""Times of the language server: keystroke to diagnostics on a file of 500
lines, the whole library indexed, start, hover and completion.
Usage: tools/bench/ls.py [attn-ls] [--check]; --check fails beyond the bars."""
import os
import statistics
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "test/lsp/Inputs"))
from lspclient import Client

args = [a for a in sys.argv[1:] if not a.startswith("--")]
server = args[0] if args else os.path.join(ROOT, "build/bin/attn-ls")
problems = []

PROGRAM = """
## Weights by the square of the positive scores.
row weights_%d(s: row f32, floor: f32 = 0.0) -> row f32 {
  let w = relu(s - floor) * relu(s - floor);
  return w / (sum(w) + 1e-6);
}

mask near_%d(q, k, reach: int = 64) = q - k < reach & k <= q;

attention program_%d<B, H, Hk, Sq, Sk, D: const {64, 128}>
  (Q: bf16[B, H, Sq, D], K: bf16[B, Hk, Sk, D], V: bf16[B, Hk, Sk, D])
  -> (O: bf16[B, H, Sq, D], LSE: f32[B, H, Sq])
  where H %% Hk == 0
{
  index b in B, h in H, q in Sq;
  index k in Sk where near_%d(q = q + Sk - Sq);
  let g = h // (H // Hk);
  let s = rsqrt(D) * dot(Q[b, h, q], K[b, g, k]) |> softcap(30.0);
  let (p, lse) = softmax(s);
  let r = weights_%d(s);
  O[b, h, q] = sum(k: (p + r) * V[b, g, k]);
  LSE[b, h, q] = lse;
}
"""


def text_of(lines):
    text = "import std.rows { softmax }\nimport std.mods { softcap }\n"
    i = 0
    while text.count("\n") < lines:
        text += PROGRAM % (i, i, i, i, i)
        i += 1
    return text


def report(name, seconds, bar=None):
    ms = 1000 * statistics.median(seconds)
    worst = 1000 * sorted(seconds)[int(len(seconds) * 0.99)]
    print(f"{name:<44} median {ms:7.2f} ms   p99 {worst:7.2f} ms" +
          (f"   bar {bar} ms" if bar else ""))
    if bar and ms > bar:
        problems.append(name)


def until_diagnostics(c):
    while True:
        m = c.read()
        if m.get("method") == "textDocument/publishDiagnostics":
            return


def keystrokes(lines, n, bar=None):
    c = Client([server])
    text = text_of(lines)
    uri = "file:///w/bench.attn"
    t = time.perf_counter()
    c.open(uri, text)
    until_diagnostics(c)
    report(f"open {text.count(chr(10))} lines", [time.perf_counter() - t])
    line = text[:text.rindex("let r =")].count("\n")
    times = []
    for i in range(n):
        at = {"line": line, "character": 2 + i % 2}
        new = " " if i % 3 else "x"
        t = time.perf_counter()
        c.change(uri, [{"range": {"start": at, "end": at}, "text": new}])
        until_diagnostics(c)
        times.append(time.perf_counter() - t)
        end = dict(at, character=at["character"] + 1)
        c.change(uri, [{"range": {"start": at, "end": end}, "text": ""}])
        until_diagnostics(c)
    report(f"keystroke to diagnostics, {text.count(chr(10))} lines", times, bar)
    for method in ["hover", "completion", "documentSymbol",
                   "semanticTokens/full"]:
        times = []
        for i in range(20):
            t = time.perf_counter()
            n = c.start("textDocument/" + method, {
                "textDocument": {"uri": uri},
                "position": {"line": line, "character": 7}})
            while c.read().get("id") != n:
                pass
            times.append(time.perf_counter() - t)
        report("  " + method, times)
    c.close()


def start_up():
    times, first = [], []
    for _ in range(10):
        t = time.perf_counter()
        c = Client([server])
        times.append(time.perf_counter() - t)
        t = time.perf_counter()
        r = c.request("workspace/symbol", {"query": ""})["result"]
        first.append(time.perf_counter() - t)
        c.close()
    report("start", times)
    report(f"whole library indexed ({len(r)} symbols)", first, 100)


start_up()
keystrokes(500, 60, 20)
keystrokes(10000, 8)
with open("/proc/cpuinfo") as f:
    print(next((x.split(":")[1].strip() for x in f if "model name" in x), ""))
if "--check" in sys.argv and problems:
    sys.exit("beyond the bar: " + ", ".join(problems))
