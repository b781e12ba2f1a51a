"""C leaves open in which order the arguments of a call are evaluated, and
compilers differ. Where two of them make ops, or LLVM's instructions, the text
of the IR would depend on who compiled attnc: such values get names, in a row.
Elements of an initializer are evaluated in their order by all compilers.
Usage: check-order.py SOURCE_ROOT"""
import pathlib
import re
import sys

FOLDERS = ["ir", "frontend", "passes", "codegen", "tools"]
FIRST = re.compile(r"ir_op|op_make|grad_put|intern_node|dim_add_sym|LLVMBuild\w+")
DEFINITION = re.compile(r"^(static )?[A-Za-z_][^\n;{}=()]*?(\w+)\([^;{}]*?\)\s*\{",
                        re.M)
CALL = re.compile(r"\b([A-Za-z_]\w*)\s*\(")


def strip(text):
    """Without comments and the contents of strings; lines stay."""
    return re.sub(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""",
                  lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)


def functions(text):
    """Name, whether only this file has it, and body."""
    for m in DEFINITION.finditer(text):
        line = text.find("\n", m.end())
        end = line if text[line - 1] == "}" else text.find("\n}", m.end())
        yield m[2], bool(m[1]), text[m.end():end]


class Sources:
    def __init__(self, root):
        self.text = {path.relative_to(root): strip(path.read_text())
                     for folder in FOLDERS
                     for path in sorted((root / folder).rglob("*.[ch]"))}
        self.local = {(path, name) for path, text in self.text.items()
                      for name, static, _ in functions(text)
                      if static and path.suffix == ".c"}
        self.makers = self.find_makers()

    def key(self, path, name):
        return (path, name) if (path, name) in self.local else name

    def calls(self, path, text):
        return {self.key(path, name) for name in CALL.findall(text)}

    def find_makers(self):
        """Functions that make an op, or call one that does."""
        callers, todo = {}, set()
        for path, text in self.text.items():
            for name, _, body in functions(text):
                for callee in self.calls(path, body):
                    callers.setdefault(callee, set()).add(self.key(path, name))
        todo = {c for c in callers
                if FIRST.fullmatch(c if isinstance(c, str) else c[1])}
        makers = set()
        while todo:
            makers |= todo
            todo = set().union(*(callers.get(m, ()) for m in todo)) - makers
        return makers

    def problems(self):
        for path, text in self.text.items():
            for at, args in lists(text):
                if sum(bool(self.calls(path, a) & self.makers) for a in args) > 1:
                    yield (f"{path}:{text.count(chr(10), 0, at) + 1}: two "
                           "arguments of one call make ops: give them names")


def lists(text):
    """Where each (..) begins, and what its commas separate."""
    stack = []
    for i, c in enumerate(text):
        if c in "([{":
            stack.append([c, i, [i + 1]])
        elif c in ")]}" and stack:
            kind, at, cuts = stack.pop()
            if kind == "(" and len(cuts) > 1:
                cuts.append(i + 1)
                yield at, [text[a:b - 1] for a, b in zip(cuts, cuts[1:])]
        elif c == "," and stack:
            stack[-1][2].append(i + 1)


found = list(Sources(pathlib.Path(sys.argv[1])).problems())
print("\n".join(found) or "in order")
sys.exit(bool(found))
