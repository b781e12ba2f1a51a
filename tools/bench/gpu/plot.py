"""Results of run.py as JSON, as a table, as a roofline in SVG."""
import json
import math
import os

COLOURS = {"ours": "#c0392b", "cudnn": "#2980b9", "flash": "#27ae60",
           "flex": "#8e44ad", "compiled": "#7f8c8d", "eager": "#7f8c8d",
           "twice": "#2980b9", "plain": "#d98880"}


def best_peer_error(row):
    errors = [i["error"] for n, i in row["contenders"].items()
              if n != "ours" and "error" in i]
    return min(errors, default=None)


def wrong(row):
    """Why our result does not count, or None."""
    ours = row["contenders"]["ours"]
    peer = best_peer_error(row)
    if "failed" in ours:
        return ours["failed"]
    if not ours["error"] < 1e-2:
        return f"error {ours['error']:.2g}"
    if peer is not None and ours["error"] > 2 * max(peer, 1e-3):
        return f"error {ours['error']:.2g}, a peer's {peer:.2g}"
    if not ours["repeats"]:
        return "two launches differ"
    return None if ours.get("graph", True) else "a graph's replay differs"


def failures(result):
    return [f"{r['name']}: {wrong(r)}" for r in result["cases"] if wrong(r)]


def ratios(row):
    """Rates over those of the others; per FLOP of tiles touched where a
    contender's work differs."""
    own = row["contenders"]["ours"].get("ms")
    return {n: i["ms"] / own * row["touched"] / i.get("touched", row["touched"])
            for n, i in row["contenders"].items()
            if n != "ours" and own and "ms" in i}


def bar_text(row):
    """'cudnn 1.12 of 1.08 ok' for each bar."""
    out, have = [], ratios(row)
    for peer, bar in row["bars"].items():
        if peer in have:
            ok = "met" if have[peer] >= bar else "missed"
            out.append(f"{peer} {have[peer]:.2f} of {bar:.2f} {ok}")
    return "; ".join(out)


def line(row):
    parts = []
    for n, i in row["contenders"].items():
        if "tflops" in i:
            parts.append(f"{n} {i['tflops']:.0f}")
        elif "failed" in i:
            parts.append(f"{n} - ({i['failed'][:60]})")
        elif "error" in i:
            parts.append(f"{n} err {i['error']:.1e}")
    ours = row["contenders"]["ours"]
    err = f" err {ours['error']:.1e}" if "error" in ours else ""
    bad = wrong(row)
    return (f"{row['name']}: " + ", ".join(parts) + err
            + (f" WRONG: {bad}" if bad else "")
            + (f" [{bar_text(row)}]" if bar_text(row) else ""))


def table(result):
    names = [n for n in COLOURS
             if any("tflops" in r["contenders"].get(n, {})
                    for r in result["cases"])]
    m = result["machine"] or {}
    out = [f"{m.get('name', '')}, torch {m.get('torch', '')}, CUDA "
           f"{m.get('cuda', '')}, cuDNN {m.get('cudnn', '')}; copy "
           f"{m.get('copy_gbs', 0):.0f} GB/s, bf16 product "
           f"{m.get('matmul_tflops', 0):.0f} TFLOP/s. Median of "
           f"{result['passes']} passes in rotated order, {result['rest_ms']} "
           "ms of rest before each; TFLOP/s over visible pairs.", "",
           "| case | " + " | ".join(names) + " | error | bars |",
           "|---|" + "---|" * (len(names) + 2)]
    for r in result["cases"]:
        cells = []
        for n in names:
            t = r["contenders"].get(n, {}).get("tflops")
            cells.append(f"{t:.0f}" if t else "-")
        bad = wrong(r)
        err = bad or f"{r['contenders']['ours']['error']:.1e}"
        out.append(f"| {r['name']} | " + " | ".join(cells)
                   + f" | {err} | {bar_text(r)} |")
    return "\n".join(out) + "\n"


# ---------------------------------------------------------------- roofline
W, H, LEFT, BOTTOM = 760, 480, 60, 50


def roofline(result):
    m = result["machine"]
    pts = [(r["flop"] / r["bytes"], i["tflops"], n, r["name"])
           for r in result["cases"] for n, i in r["contenders"].items()
           if "tflops" in i and n != "plain"]
    if not m or not pts:
        return None
    peak, slope = m["matmul_tflops"], m["copy_gbs"] * 1e-3
    x0 = min(p[0] for p in pts) / 4
    x1 = max(max(p[0] for p in pts), peak / slope) * 4
    y0 = min(p[1] for p in pts) / 4
    y1 = peak * 2

    def px(x):
        return LEFT + (W - LEFT - 20) * math.log(x / x0) / math.log(x1 / x0)

    def py(y):
        return H - BOTTOM - (H - BOTTOM - 20) * (math.log(y / y0)
                                                 / math.log(y1 / y0))

    ridge = min(max(peak / slope, x0), x1)
    start = max(slope * x0, y0)
    s = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {W} {H}" '
         'font-family="sans-serif" font-size="12">',
         f'<rect width="{W}" height="{H}" fill="white"/>',
         f'<path d="M{px(max(start / slope, x0)):.1f} {py(start):.1f}'
         f'L{px(ridge):.1f} {py(min(slope * ridge, peak)):.1f}'
         f'L{px(x1):.1f} {py(peak):.1f}" fill="none" stroke="black"/>',
         f'<text x="{px(x1) - 190:.0f}" y="{py(peak) - 6:.0f}">bf16 product '
         f'{peak:.0f} TFLOP/s</text>',
         f'<text x="{W / 2:.0f}" y="{H - 12}">FLOP per byte of arrays</text>',
         f'<text transform="translate(16 {H / 2:.0f}) rotate(-90)">'
         'TFLOP/s</text>']
    for k in range(math.ceil(math.log10(x0)), math.floor(math.log10(x1)) + 1):
        s.append(f'<text x="{px(10 ** k):.0f}" y="{H - BOTTOM + 18}" '
                 f'text-anchor="middle">{10 ** k:g}</text>')
    for k in range(math.ceil(math.log10(y0)), math.floor(math.log10(y1)) + 1):
        s.append(f'<text x="{LEFT - 6}" y="{py(10 ** k) + 4:.0f}" '
                 f'text-anchor="end">{10 ** k:g}</text>')
    for x, y, n, name in pts:
        s.append(f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="4" '
                 f'fill="{COLOURS[n]}" fill-opacity="0.7">'
                 f'<title>{name}: {n} {y:.1f}</title></circle>')
    for i, n in enumerate(dict.fromkeys(p[2] for p in pts)):
        s.append(f'<circle cx="{W - 110}" cy="{H - 130 + 18 * i}" r="4" '
                 f'fill="{COLOURS[n]}"/><text x="{W - 100}" '
                 f'y="{H - 126 + 18 * i}">{n}</text>')
    return "\n".join(s + ["</svg>\n"])


def write(result, folder):
    def save(name, text):
        with open(os.path.join(folder, name), "w") as f:
            f.write(text)

    save("results.json", json.dumps(result, indent=1))
    save("results.md", table(result))
    svg = roofline(result)
    if svg:
        save("roofline.svg", svg)
