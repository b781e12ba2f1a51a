#!/usr/bin/env python3
"""Runs every program of the given .attn files in the interpreter before and
after each stage of the pipeline, on random inputs of small ragged shapes;
after the last one on three.

usage: levels.py BIN FILE.attn..
"""
import os
import re
import subprocess
import sys
import tempfile

STAGES = ['canon,cse,dce', 'stab', 'online', 'chunk,cse,dce', 'gauge,exp2', 'mask', 'tile']
SIZES = {'B': 2, 'H': 4, 'Hq': 4, 'Hk': 2, 'G': 2, 'T': 7, 'Sk': 7, 'P': 2}
INPUTS = [('len', 'lengths(0,5)'), ('cu', 'offsets(5)'), ('pt', 'const(0)'),
          ('sel', 'const(0)')]


def call(*args):
    return subprocess.run(args, capture_output=True, text=True, timeout=120)


def programs(tools, path):
    """The modules of a file, with every `const` dim set to 6, or to what divides it."""
    r = call(tools + '/attn-lower', path)
    if r.returncode:
        sys.exit('%s: %s' % (path, r.stderr))
    for text in re.split(r'(?m)^(?=module attn)', r.stdout):
        if text.strip():
            yield re.sub(r'(?m)^(dim \w+ spec) .*?(?:div (\d+))?$',
                         lambda m: '%s {%s}' % (m[1], m[2] or 6), text)


def options(text):
    dims = re.findall(r'(?m)^dim (\w+) (?!=)\S+(?: {(\d+)})?', text)
    size = {n: int(k) if k else SIZES.get(n, 5) for n, k in dims}
    yield '--dim=' + ','.join('%s=%d' % kv for kv in size.items())
    for name in re.findall(r'%(\w+): tensor<i32', text):
        for head, gen in INPUTS:
            if name.startswith(head):
                yield '--in=%s=%s' % (name, gen)


def check(tools, path, text, tmp):
    name = re.search(r'func program @(\w+)', text).group(1)
    raw, flat = tmp + '/raw.tir', tmp + '/flat.tir'
    with open(raw, 'w') as f:
        f.write(text)
    r = call(tools + '/attn-opt', raw, '--passes=inline', '-o', flat)
    known = call(tools + '/attn-opt', '--print-passes').stdout
    done, ok = [], r.returncode == 0
    for stage in STAGES:
        if not ok:
            break
        done += [p for p in stage.split(',')
                 if re.search(r'(?m)^%s\b' % p, known)]
        r = call(tools + '/attn-run', flat, '--passes=' + ','.join(done),
                 '--runs=%d' % (3 if stage == STAGES[-1] else 1), '--tol=1e-5', '--tile-q=4', '--tile-k=4', '--chunk=3',
                 *options(text))
        ok = r.returncode == 0
    where = os.path.basename(path) + ' ' + name
    print('same' if ok else 'DIFFERS', where,
          '' if ok else ','.join(done) + '\n' + r.stdout + r.stderr)
    return ok


def main():
    tools, ok = sys.argv[1], True
    with tempfile.TemporaryDirectory() as tmp:
        for path in sys.argv[2:]:
            for text in programs(tools, path):
                ok &= check(tools, path, text, tmp)
    print('all levels agree' if ok else 'FAILED')
    return not ok


sys.exit(main())
