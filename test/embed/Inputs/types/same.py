"""Names and parameters of the type stubs are those of the modules.

    same.py PACKAGE"""
import ast
import pathlib
import sys


def parameters(f):
    a = f.args
    many = [x.arg for x in (a.vararg, a.kwarg) if x]
    return [x.arg for x in a.posonlyargs + a.args], \
        sorted(x.arg for x in a.kwonlyargs), many


def public(body):
    """Functions and classes by name, those without an underscore."""
    return {x.name: x for x in body
            if isinstance(x, (ast.FunctionDef, ast.ClassDef))
            and (not x.name.startswith("_") or x.name == "__call__")}


def imported(tree, package):
    """What a module takes of others of the package, by its name here."""
    found = {}
    for x in tree.body:
        if not isinstance(x, ast.ImportFrom) or not x.module:
            continue
        body = public(ast.parse((package / f"{x.module}.py").read_text()).body)
        found.update({n.name: body[n.name] for n in x.names if n.name in body})
    return found


def compare(stub, code, where):
    """Differences of functions; those of a class that the stub leaves out stay
    its own."""
    for name, s in public(stub).items():
        c, at = code.get(name), f"{where}.{name}"
        if c is None:
            yield f"{at}: is in the stub only"
        elif isinstance(s, ast.ClassDef):
            yield from compare(s.body, public(c.body), at)
        elif parameters(s) != parameters(c) and parameters(s)[2] == []:
            yield f"{at}: {parameters(s)} in the stub, {parameters(c)}"


def main(folder):
    package, n = pathlib.Path(folder), 0
    for path in sorted(package.glob("*.pyi")):
        tree = ast.parse(path.with_suffix(".py").read_text())
        code = {**imported(tree, package), **public(tree.body)}
        stub = [x for x in ast.parse(path.read_text()).body
                if not (path.stem == "__init__" and isinstance(x, ast.ClassDef)
                        and x.name.endswith("Error"))]
        for text in compare(stub, code, path.stem):
            print(text)
            n += 1
    print(f"{n} differences")


main(*sys.argv[1:])
