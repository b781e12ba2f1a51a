"""replay.py TARGET FILE.attn DIMS [PROGRAM]: the text of every level and what is dumped
behind every pass, given to attn-opt, ends in the text of level mach that attnc
ends in."""
import os
import subprocess
import sys
import tempfile

LEVELS = 'attn', 'stream', 'tile', 'mach'


def out(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(' '.join(command) + '\n' + done.stderr)
    return done.stdout


def bare(text):
    lines = text.split('\n')
    return [line for line in lines if not line.startswith('# ')]


def main():
    target, path, dims, *fn = sys.argv[1:]
    attnc = ['attnc', path, '--target', target, '-D', dims]
    if fn:
        attnc += ['--fn', *fn]
    with tempfile.TemporaryDirectory() as tmp:
        end = bare(out(*attnc, '--emit=mach', '--dump-dir', tmp))
        texts = {name: open(os.path.join(tmp, name)).read()
                 for name in sorted(os.listdir(tmp))}
        for level in LEVELS:
            texts[level] = out(*attnc, '--emit=' + level)
        if len(texts) < 20:
            sys.exit('too few dumps')
        behind = None
        for name, text in texts.items():
            # Behind a pass that has changed nothing, all but that pass runs again.
            if bare(text) == behind and name not in LEVELS:
                continue
            behind = bare(text)
            again = os.path.join(tmp, 'again.tir')
            with open(again, 'w') as f:
                f.write(text)
            if bare(out('attn-opt', again)) != end:
                sys.exit('%s %s: other code behind %s' % (target, path, name))
    print('same', target)


main()
