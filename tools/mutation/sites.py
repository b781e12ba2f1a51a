"""Places of C code that can be changed, without a parser: code here is as
clang-format writes it, functions begin and end at column 0."""
import random
import re
from dataclasses import dataclass

MOST = 1 << 16  # mutants

HEADER = r"""#ifndef MUTANT_H
#define MUTANT_H
extern int mutant_on, mutant_noted;
extern unsigned char *mutant_seen;
static inline int mutant_at(int id) {
  mutant_seen[id] = 1;
  return mutant_on == id;
}
// For expressions without effects: seen where the change makes a difference.
#define mutant_or(id, new, old)                                     \
  __extension__({                                                   \
    __typeof__(0 ? (old) : (old)) mutant_##id = (old);              \
    if (mutant_noted && (new) != mutant_##id) mutant_seen[id] = 1;  \
    mutant_on == id ? (new) : mutant_##id;                          \
  })
#endif
"""

SWITCH = r"""// Which mutant is awake, and a note of those that were come by.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned char nobody[1 << 16];
unsigned char *mutant_seen = nobody;
int mutant_on = -1, mutant_noted;

__attribute__((constructor)) static void wake(void) {
  const char *on = getenv("ATTNC_MUTANT"), *path = getenv("ATTNC_MUTANTS_SEEN");
  if (on) mutant_on = atoi(on);
  int fd = path ? open(path, O_RDWR) : -1;
  if (fd < 0) return;
  void *p = mmap(0, sizeof nobody, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p != MAP_FAILED) mutant_seen = p;
  mutant_noted = p != MAP_FAILED;
  close(fd);
}
"""

SWAPS = {
    "order": {"<": "<=", "<=": "<", ">": ">=", ">=": ">"},
    "equal": {"==": "!=", "!=": "=="},
    "sum": {"+": "-", "-": "+"},
    "logic": {"&&": "||", "||": "&&"},
}
# Of C, and ops that passes make and look for.
PAIRS = ("fmin fmax, min max, OP_MIN OP_MAX, OP_ADD OP_SUB, OP_LT OP_LE, "
         "OP_AND OP_OR, OP_EQ OP_NE, true false")
NAMES = {a: b for pair in PAIRS.split(", ")
         for a, b in (pair.split(), pair.split()[::-1])}

TOKEN = re.compile(
    r"[A-Za-z_]\w*|0[xX][\w.]+|\d[\w.]*|->|\+\+|--|<<=|>>=|<<|>>|"
    r"[-+*/%&|^=!<>]=|&&|\|\||\.\.\.|\S")
ASSIGN = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
ENDS = {",", ";", "?", ":", "&&", "||", "(", "[", "{", ")", "]", "}", "return",
        "else", "do", "case"} | ASSIGN
FUNCTION = re.compile(r"^([A-Za-z_][^\n;{}=()]*?)(\w+)\([^;{}]*?\)\s*\{", re.M)
STATEMENT = re.compile(
    r"\*?[A-Za-z_]\w*(?:(?:->|\.)\w+|\[[^\];]*\])*\s*"
    r"(?:=(?!=)|[-+*/|&^%]=|<<=|>>=|\+\+|--|\()")
NOT_DROPPED = re.compile(
    r"(assert|if|for|while|switch|return|sizeof|do|else|case|default|goto)\b")


@dataclass
class Mutant:
    """A text of a file that another stands for. How: `value`, an expression;
    `free`, one without effects; `drop`, a statement."""
    file: str
    function: str
    start: int
    end: int
    new: str
    change: str
    how: str
    line: int = 0
    last: int = 0
    id: int = 0


def blank(text, what):
    return re.sub(what, lambda m: re.sub(r"[^\n]", " ", m[0]), text,
                  flags=re.S | re.M)


def uncommented(text):
    """Without comments and lines of the preprocessor; each place stays."""
    keep = r'"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])*'"
    text = re.sub(rf"({keep})|/\*.*?\*/|//[^\n]*",
                  lambda m: m[1] or re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)
    return blank(text, r"^#(?:[^\n]*\\\n)*[^\n]*")


class Body:
    """The tokens of a function, and what closes what."""

    def __init__(self, file, text, function, result):
        self.file, self.text = file, text
        self.function, self.result = function, result
        self.tokens, self.pair, self.inside = [], {}, []

    def scan(self, start, end):
        code = blank(self.text[start:end],
                     r'"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])*'")
        self.tokens = [(m[0], start + m.start()) for m in TOKEN.finditer(code)]
        stack = []
        for k, (t, _) in enumerate(self.tokens):
            if t in ")]}" and stack:
                self.pair[k] = stack.pop()
                self.pair[self.pair[k]] = k
            self.inside.append(stack[-1] if stack else -1)
            if t in "([{":
                stack.append(k)

    def word(self, k):
        return self.tokens[k][0] if 0 <= k < len(self.tokens) else ""

    def asserted(self, k):
        while k >= 0:
            k = self.inside[k]
            if self.word(k - 1) == "assert":
                return True
        return False

    def around(self, k, chain=False):
        """First and last token of the expression that token k stands in, up to
        && and ||, or with them."""
        ends = ENDS - {"&&", "||"} if chain else ENDS
        i = k
        while i > 0 and (self.word(i - 1) in ")]" or self.word(i - 1) not in ends):
            i = self.pair.get(i - 1, i - 1) if self.word(i - 1) in ")]" else i - 1
        j = k
        while self.word(j + 1) and (self.word(j + 1) in "([" or
                                    self.word(j + 1) not in ends):
            j = self.pair.get(j + 1, j + 1) if self.word(j + 1) in "([" else j + 1
        return i, j

    def span(self, i, j):
        return self.tokens[i][1], self.tokens[j][1] + len(self.tokens[j][0])

    def free(self, i, j, chain):
        """Without effects, and what is not evaluated may be."""
        words = [self.word(k) for k in range(i, j + 1)]
        for a, b in zip(words, words[1:]):
            if b == "(" and re.match(r"\w", a):
                return False
        bad = ASSIGN | {"++", "--"}
        if chain:
            bad |= {"->", "[", "*", "/", "%"}
        return not bad & set(words)

    def near(self, at):
        """Whole words of the line around a place."""
        a = self.text.rfind("\n", 0, at) + 1
        line = self.text[a:self.text.find("\n", at)]
        first, last = max(0, at - a - 24), at - a + 24
        first -= len(re.search(r"\w*$", line[:first])[0])
        return line[first:last + len(re.match(r"\w*", line[last:])[0])].strip()

    def make(self, i, j, new, change, how):
        start, end = self.span(i, j)
        m = Mutant(self.file, self.function, start, end, " ".join(new.split()),
                   " ".join(change.split()), how)
        m.line = self.text.count("\n", 0, start) + 1
        m.last = self.text.count("\n", 0, end) + 1
        return m

    def swapped(self, k, kind, new):
        """The expression around operator k, with another."""
        i, j = self.around(k, kind == "logic")
        if i == k or j == k or self.word(i - 1) == "case":
            return None
        start, end = self.span(i, j)
        old, at = self.tokens[k]
        text = self.text[start:at] + new + self.text[at + len(old):end]
        how = "free" if self.free(i, j, kind == "logic") else "value"
        return self.make(i, j, text, f"{kind}: {old} is {new} in {self.near(at)}",
                         how)

    def statement_begins(self, k):
        p = self.word(k - 1)
        if p == ")":
            o = self.pair.get(k - 1, 0)
            return self.word(o - 1) in ("if", "for", "while")
        return p in ("", ";", "{", "}", "else") or (
            p == ":" and self.word(k - 3) in ("case",)) or (
            p == ":" and self.word(k - 2) == "default")

    def dropped(self, k):
        at = self.tokens[k][1]
        if not STATEMENT.match(self.text, at) or \
                NOT_DROPPED.match(self.text, at):
            return None
        j = k
        while self.word(j) not in (";", ""):
            j = self.pair.get(j, j) + 1 if self.word(j) in "([{" else j + 1
        o = self.inside[k]
        if not self.word(j) or (o >= 0 and self.word(o) == "("):
            return None
        start, end = self.span(k, j)
        return self.make(k, j, "", f"drop: {self.text[start:end][:60]}", "drop")

    def returned(self, k):
        j = k
        while self.word(j) not in (";", ""):
            j = self.pair.get(j, j) + 1 if self.word(j) in "([{" else j + 1
        if j <= k + 1:
            return None
        start, end = self.span(k + 1, j - 1)
        old = self.text[start:end]
        if re.search(r"\bbool\b", self.result):
            new = {"true": "false", "false": "true"}.get(old, f"!({old})")
        elif "*" in self.result:
            new = "NULL"
        elif re.search(r"\b(u?int\w*|size_t|double|Value|Dim)\b", self.result):
            new = "1" if old == "0" else "0"
        else:
            return None
        if new == old:
            return None
        return self.make(k + 1, j - 1, new, f"return: {new} for {old[:40]}", "value")

    def number(self, k, rng):
        m = re.fullmatch(r"(\d+)(u?|\.\d*)", self.word(k))
        if not m or self.word(k - 1) in ("case", "{"):
            return None
        n = int(m[1])
        new = str(n + rng.choice((-1, 1)) if n else 1) + m[2]
        at = self.tokens[k][1]
        return self.make(k, k, new,
                         f"number: {m[0]} is {new} in {self.near(at)}", "value")

    def at(self, k, rng):
        """Mutants that begin with token k."""
        word, before = self.word(k), self.word(k - 1)
        if self.asserted(k):
            return
        binary = re.match(r"[\w)\]]", before) and before not in ENDS - {")", "]"}
        for kind, swaps in SWAPS.items():
            if word in swaps and binary:
                yield kind, self.swapped(k, kind, swaps[word])
        if word[0].isdigit():
            yield "number", self.number(k, rng)
        if word in NAMES and before not in ("case", "return", "[") and (
                word not in ("min", "max") or f" {NAMES[word]}(" in self.text):
            yield "name", self.make(k, k, NAMES[word],
                                    f"name: {word} is {NAMES[word]}", "value")
        if word in ("if", "while") and self.word(k + 1) == "(":
            i, j = k + 2, self.pair[k + 1] - 1
            start, end = self.span(i, j)
            old = self.text[start:end]
            yield "negate", self.make(i, j, f"!({old})", f"negate: {old[:60]}",
                                      "value")
        if word == "return":
            yield "return", self.returned(k)
        if self.statement_begins(k):
            yield "drop", self.dropped(k)


def bodies(file, text):
    code = uncommented(text)
    for m in FUNCTION.finditer(code):
        if m[2].isupper() or m[1].startswith(("typedef", "struct", "enum")):
            continue
        end = code.find("\n", m.end())
        if code[m.end():end].rstrip()[-1:] != "}":
            end = code.find("\n}", m.end())
        body = Body(file, code, m[2], m[1])
        body.scan(m.end(), end)
        yield body


def draw(sources, seed, count):
    """`count` mutants, a kind as often as another; no two in one place. More of
    them begin with the same."""
    rng, found = random.Random(seed), {}
    for file in sorted(sources):
        for body in bodies(file, sources[file]):
            for k in range(len(body.tokens)):
                for kind, m in body.at(k, rng):
                    if m:
                        found.setdefault(kind, []).append(m)
    for places in found.values():
        rng.shuffle(places)
    out, taken = [], {}
    while len(out) < count and found:
        kind = rng.choice(sorted(found))
        m = found[kind].pop()
        if not found[kind]:
            del found[kind]
        used = taken.setdefault(m.file, [])
        if any(m.start < e and s < m.end for s, e in used):
            continue
        used.append((m.start, m.end))
        m.id = len(out)
        out.append(m)
    return out


def instrument(text, mutants):
    """The text with all of these, asleep."""
    code = uncommented(text)
    for m in sorted(mutants, key=lambda m: -m.start):
        old = code[m.start:m.end]
        if m.how == "drop":
            new = f"{{ if (!mutant_at({m.id})) {old} }}"
        elif m.how == "free":
            new = f"mutant_or({m.id}, ({m.new}), ({old}))"
        else:
            new = f"(mutant_at({m.id}) ? ({m.new}) : ({old}))"
        text = text[:m.start] + new + text[m.end:]
    return text
