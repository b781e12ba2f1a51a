#!/usr/bin/env python3
"""A picture of Neovim with attn-ls: drives it in tmux, writes what the
terminal shows as SVG.

    tools/editors/picture.py FILE.attn LINE COLUMN KEYS OUT.svg

KEYS are typed (tmux names) with the cursor there. ATTN_LS names the server
(default build/bin/attn-ls). Needs tmux and nvim."""
import html
import os
import re
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INIT = """vim.opt.runtimepath:prepend("%s/tools/editors/vim")
vim.o.termguicolors = true; vim.o.number = true; vim.o.signcolumn = "yes"
vim.o.laststatus = 0; vim.o.ruler = false; vim.o.showmode = false
vim.cmd("syntax on | filetype plugin on | colorscheme desert")
vim.cmd("hi Normal guibg=#1e1e24 | hi NonText guibg=#1e1e24 guifg=#555560")
vim.cmd("hi NormalFloat guibg=#2c2c38 | hi SignColumn guibg=#1e1e24")
require("attn").setup({ cmd = { "%s" } })
"""
COLS, ROWS, CW, CH = 100, 26, 8.4, 18
BACK, FORE = "#1e1e24", "#e4e4e8"


def capture(file, line, col, keys):
    server = os.environ.get("ATTN_LS", os.path.join(TOP, "build/bin/attn-ls"))
    tmux = ["tmux", "-L", "picture", "-f", "/dev/null"]
    with tempfile.TemporaryDirectory() as d:
        init = os.path.join(d, "init.lua")
        with open(init, "w") as f:
            f.write(INIT % (TOP, server))
        subprocess.run(tmux + ["new-session", "-d", "-x", str(COLS), "-y",
                               str(ROWS), f"nvim -u {init} {file}"], check=True)
        time.sleep(2)
        subprocess.run(tmux + ["send-keys", f":call cursor({line},{col})", "Enter"])
        time.sleep(0.5)
        for k in keys.split():
            subprocess.run(tmux + ["send-keys", k])
        time.sleep(2)
        out = subprocess.run(tmux + ["capture-pane", "-p", "-e"],
                             capture_output=True, text=True, check=True).stdout
        subprocess.run(tmux + ["kill-server"])
    return out.split("\n")[:ROWS]


def color(codes, now):
    """The colors and weight after an SGR sequence."""
    fore, back, bold = now
    c = [int(x or 0) for x in codes.split(";")]
    i = 0
    while i < len(c):
        if c[i] == 0:
            fore, back, bold = FORE, None, False
        elif c[i] == 1:
            bold = True
        elif c[i] in (38, 48) and c[i + 1:i + 2] == [2]:
            rgb = "#%02x%02x%02x" % tuple(c[i + 2:i + 5])
            fore, back = (rgb, back) if c[i] == 38 else (fore, rgb)
            i += 4
        elif c[i] == 39:
            fore = FORE
        elif c[i] == 49:
            back = None
        i += 1
    return fore, back, bold


def draw(lines):
    w, h = COLS * CW + 20, ROWS * CH + 20
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{w:.0f}" height="{h}" '
           f'font-family="DejaVu Sans Mono, Menlo, monospace" font-size="14">',
           f'<rect width="100%" height="100%" rx="6" fill="{BACK}"/>']
    for row, text in enumerate(lines):
        at, now = 0, (FORE, None, False)
        for part in re.split(r"(\x1b\[[0-9;]*m)", text):
            if part.startswith("\x1b"):
                now = color(part[2:-1], now)
                continue
            if not part:
                continue
            x, y = 10 + at * CW, 10 + row * CH
            if now[1]:
                out.append(f'<rect x="{x:.1f}" y="{y}" width="{len(part) * CW:.1f}" '
                           f'height="{CH}" fill="{now[1]}"/>')
            weight = ' font-weight="bold"' if now[2] else ""
            if part.strip():
                out.append(f'<text x="{x:.1f}" y="{y + 14}" fill="{now[0]}"{weight} '
                           f'textLength="{len(part) * CW:.1f}" xml:space="preserve">'
                           f'{html.escape(part)}</text>')
            at += len(part)
    return "\n".join(out + ["</svg>", ""])


def main():
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    file, line, col, keys, out = sys.argv[1:]
    with open(out, "w") as f:
        f.write(draw(capture(file, line, col, keys)))


if __name__ == "__main__":
    main()
