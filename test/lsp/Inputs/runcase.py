"""Cases of the language server. A file holds many:

    === what the case shows
    @utf-8                         optional: a setting of the client
    let x = $1rsqrt(2.0);          main.attn; $1 marks a place, and is not text
    +++ lib.attn                   optional: another open file
    ..
    --- hover $1                   a question ..
    square root                    .. each line is found in the answer, in order
    !cube                          this is not found anywhere
    --- format
    EXACT                          what follows is the whole answer
    let x = rsqrt(2.0);

`none` is an empty answer. Run by hand: runcase.py attn-ls FILE [TITLE]"""
import copy
import re
import sys

import lspclient
import render

ROOT = "file:///w/"


class Case:
    def __init__(self, title):
        self.title = title
        self.settings = []
        self.files = {"main.attn": []}
        self.asks = []          # (words, expected lines)


def titles(path):
    return [line[4:].strip() for line in open(path, encoding="utf-8")
            if line.startswith("=== ")]


def read(path):
    cases, sink = [], None
    for line in open(path, encoding="utf-8"):
        line = line.rstrip("\n")
        if line.startswith("=== "):
            cases.append(Case(line[4:].strip()))
            sink = cases[-1].files["main.attn"]
        elif line.startswith("+++ ") and not cases[-1].asks:
            sink = cases[-1].files[line[4:].strip()] = []
        elif line.startswith("--- "):
            cases[-1].asks.append((line[4:].split(" "), []))
            sink = cases[-1].asks[-1][1]
        elif line.startswith("@") and sink is not None and not sink and \
                line[1:] in SETTINGS:
            cases[-1].settings.append(line[1:])
        elif sink is not None:
            sink.append(line)
    return cases


def path_set(o, path, value):
    *head, last = path.split(".")
    for key in head:
        o = o.setdefault(key, {})
    o[last] = value


SETTINGS = {
    "utf-8": ("general.positionEncodings", ["utf-8"]),
    "utf-32": ("general.positionEncodings", ["utf-32"]),
    "plain": ("textDocument.hover.contentFormat", ["plaintext"]),
    "flat": ("textDocument.documentSymbol.hierarchicalDocumentSymbolSupport",
             False),
    "no-snippets": ("textDocument.completion.completionItem.snippetSupport",
                    False),
    "pull": ("textDocument.diagnostic", {}),
    "watches": ("workspace.didChangeWatchedFiles.dynamicRegistration", True),
    "refreshes": ("workspace.diagnostics.refreshSupport", True),
    "versioned": ("workspace.workspaceEdit.documentChanges", True),
}


class Session:
    """The open files of a case and where its marks are."""

    def __init__(self, case, command):
        caps = copy.deepcopy(lspclient.CAPABILITIES)
        for s in case.settings:
            path_set(caps, *SETTINGS[s])
        self.texts, self.marks = {}, {}
        for name, lines in case.files.items():
            self.add(name, lines)
        self.client = lspclient.Client(command, None, caps)
        self.encoding = self.client.init["result"]["capabilities"][
            "positionEncoding"]
        for name, text in self.texts.items():
            self.client.open(ROOT + name, text)

    def add(self, name, lines):
        while lines and not lines[-1]:
            lines.pop()
        text, at = "", 0
        raw = "\n".join(lines) + "\n" if lines else ""
        for m in re.finditer(r"\$(\d)", raw):
            text += raw[at:m.start()]
            self.marks[m[1]] = (name, len(text))
            at = m.end()
        self.texts[name] = text + raw[at:]

    def width(self, s):
        if self.encoding == "utf-8":
            return len(s.encode())
        if self.encoding == "utf-32":
            return len(s)
        return len(s.encode("utf-16-le")) // 2

    def pos(self, name, offset):
        before = self.texts[name][:offset]
        line = before.rfind("\n") + 1
        return {"line": before.count("\n"),
                "character": self.width(before[line:])}

    def offset(self, name, pos):
        lines = self.texts[name].split("\n")
        if pos["line"] >= len(lines):
            return len(self.texts[name])
        line, n = lines[pos["line"]], 0
        while self.width(line[:n]) < pos["character"]:
            n += 1
        return sum(len(s) + 1 for s in lines[:pos["line"]]) + n

    def mark(self, word):
        name, offset = self.marks[word[1]]
        return name, self.pos(name, offset)

    def applied(self, name, edits):
        text, spans = self.texts[name], []
        for e in edits:
            spans.append((self.offset(name, e["range"]["start"]),
                          self.offset(name, e["range"]["end"]), e["newText"]))
        for lo, hi, new in sorted(spans, reverse=True):
            text = text[:lo] + new + text[hi:]
        return text


def expect(lines, want):
    want = list(want)
    while want and not want[-1]:
        want.pop()
    if want == ["none"]:
        if lines:
            raise AssertionError("nothing expected, got:\n" + "\n".join(lines))
        return
    if want and want[0] == "EXACT":
        if lines != want[1:]:
            raise AssertionError("expected exactly:\n" + "\n".join(want[1:]) +
                                 "\ngot:\n" + "\n".join(lines))
        return
    if not want:
        raise AssertionError("nothing is expected; got:\n" + "\n".join(lines))
    at = 0
    for w in want:
        if w.startswith("!"):
            if any(w[1:] in line for line in lines):
                raise AssertionError(f"unexpected: {w[1:]}\n" +
                                     "\n".join(lines))
            continue
        while at < len(lines) and w not in lines[at]:
            at += 1
        if at == len(lines):
            raise AssertionError(f"not found: {w}\nin:\n" + "\n".join(lines))
        at += 1


def run(case, command):
    s = Session(case, command)
    try:
        for words, want in case.asks:
            lines = render.ask(s, words)
            if lines is not None:
                try:
                    expect(lines, want)
                except AssertionError as e:
                    raise AssertionError("--- " + " ".join(words) + "\n" +
                                         str(e)) from None
        if s.client.close() != 0:
            raise AssertionError("the server's exit code is not 0")
    finally:
        if s.client.proc.poll() is None:
            s.client.proc.kill()


if __name__ == "__main__":
    failed = 0
    for c in read(sys.argv[2]):
        if len(sys.argv) > 3 and sys.argv[3] not in c.title:
            continue
        try:
            run(c, [sys.argv[1]])
        except Exception as e:
            failed += 1
            print(f"=== {c.title}\n{e}\n")
    print(f"{failed} failed")
    sys.exit(bool(failed))
