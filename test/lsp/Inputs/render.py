"""Questions of cases: a word, places and arguments; the answer as lines."""
import runcase

KINDS = {1: "error", 2: "warning", 3: "info"}


def rng(r):
    a, b = r["start"], r["end"]
    return f"{a['line'] + 1}:{a['character'] + 1}-" \
           f"{b['line'] + 1}:{b['character'] + 1}"


def where(uri):
    return uri[len(runcase.ROOT):] if uri.startswith(runcase.ROOT) \
        else uri[uri.find("std/"):]


def loc(s, x):
    name = where(x["uri"])
    out = f"{name}:{rng(x['range'])}"
    if name in s.texts:
        lo, hi = (s.offset(name, x["range"][k]) for k in ("start", "end"))
        out += " " + s.texts[name][lo:hi].split("\n")[0]
    return out


def diagnostics(s, items):
    out = []
    for d in items:
        tags = " unused" if 1 in d.get("tags", []) else ""
        out.append(f"{rng(d['range'])} {KINDS[d['severity']]} {d['code']}"
                   f"{tags}: {d['message']}")
        for r in d.get("relatedInformation", []):
            out.append(f"  {loc(s, r['location'])}: {r['message']}")
    return [part for line in out for part in line.split("\n")]


def result(m):
    if "error" in m:
        return None, [f"error {m['error']['code']}: {m['error']['message']}"]
    return m["result"], None


def ask_at(s, method, words, more=None):
    name, pos = s.mark(words[1])
    return result(s.client.request(method, dict(
        {"textDocument": {"uri": runcase.ROOT + name}, "position": pos},
        **(more or {}))))


def ask_doc(s, method, more=None, name="main.attn"):
    return result(s.client.request(method, dict(
        {"textDocument": {"uri": runcase.ROOT + name}}, **(more or {}))))


def whole(s, words):
    """The range $1..$2, or all of main.attn."""
    if len(words) > 1 and ".." in words[1]:
        a, b = words[1].split("..")
        return {"start": s.mark(a)[1], "end": s.mark(b)[1]}
    if len(words) > 1 and words[1].startswith("$"):
        return {"start": s.mark(words[1])[1], "end": s.mark(words[1])[1]}
    return {"start": {"line": 0, "character": 0},
            "end": {"line": 9999, "character": 0}}


def q_diagnostics(s, words):
    s.client.settle()
    name = words[1] if len(words) > 1 else "main.attn"
    return diagnostics(s, s.client.diagnostics.get(runcase.ROOT + name, []))


def q_pull(s, words):
    more = {"previousResultId": s.last} if len(words) > 1 else {}
    r, e = ask_doc(s, "textDocument/diagnostic", more)
    if e:
        return e
    s.last = r["resultId"]
    return ["unchanged"] if r["kind"] == "unchanged" else \
        diagnostics(s, r["items"])


def q_hover(s, words):
    r, e = ask_at(s, "textDocument/hover", words)
    return e or (r["contents"]["value"].split("\n") +
                 ["range " + rng(r["range"])] if r else [])


def q_complete(s, words):
    r, e = ask_at(s, "textDocument/completion", words)
    return e or [f"{i['label']} | {i.get('detail', '')}" for i in r["items"]]


def q_insert(s, words):
    """complete $1 LABEL, put in: the resulting line"""
    r, _ = ask_at(s, "textDocument/completion", words)
    label = " ".join(words[2:])
    item = next(i for i in r["items"] if i["label"] == label)
    text = s.applied(s.mark(words[1])[0], [item["textEdit"]])
    return text.split("\n")


def q_resolve(s, words):
    r, _ = ask_at(s, "textDocument/completion", words)
    item = next(i for i in r["items"] if i["label"] == " ".join(words[2:]))
    r, e = result(s.client.request("completionItem/resolve", item))
    return e or r.get("documentation", {}).get("value", "").split("\n")


def q_signature(s, words):
    r, e = ask_at(s, "textDocument/signatureHelp", words)
    if e or not r:
        return e or []
    sig = r["signatures"][0]
    n = r["activeParameter"]
    out = [sig["label"]]
    if n < len(sig["parameters"]):
        lo, hi = sig["parameters"][n]["label"]
        out.append("active: " + sig["label"][lo:hi])
    return out + sig.get("documentation", {}).get("value", "").split("\n")


def locations(s, r):
    return [loc(s, x) for x in ([r] if isinstance(r, dict) else r or [])]


def q_definition(s, words):
    r, e = ask_at(s, "textDocument/definition", words)
    return e or locations(s, r)


def q_typedef(s, words):
    r, e = ask_at(s, "textDocument/typeDefinition", words)
    return e or locations(s, r)


def q_references(s, words):
    r, e = ask_at(s, "textDocument/references", words,
                  {"context": {"includeDeclaration": words[-1] == "all"}})
    return e or locations(s, r)


def q_highlight(s, words):
    r, e = ask_at(s, "textDocument/documentHighlight", words)
    return e or [f"{rng(h['range'])} {['text', 'read', 'write'][h['kind'] - 1]}"
                 for h in r]


def q_prepare(s, words):
    r, e = ask_at(s, "textDocument/prepareRename", words)
    return e or [f"{rng(r['range'])} {r['placeholder']}"]


def edited(s, edit):
    changes = dict(edit.get("changes", {}))
    for d in edit.get("documentChanges", []):
        changes[d["textDocument"]["uri"]] = d["edits"]
    out = []
    for uri in sorted(changes):
        name = where(uri)
        if name != "main.attn":
            out.append("+++ " + name)
        out += s.applied(name, changes[uri]).rstrip("\n").split("\n")
    return out


def q_rename(s, words):
    r, e = ask_at(s, "textDocument/rename", words, {"newName": words[2]})
    return e or edited(s, r)


def tree(symbols, depth=0):
    out = []
    for x in symbols:
        out.append("  " * depth + f"{x['name']} {x.get('detail', '')} "
                   f"k{x['kind']}")
        out += tree(x.get("children", []), depth + 1)
    return out


def q_symbols(s, words):
    r, e = ask_doc(s, "textDocument/documentSymbol")
    return e or tree(r)


def q_workspace(s, words):
    r, e = result(s.client.request("workspace/symbol", {"query": words[1]}))
    return e or [f"{x['name']} {loc(s, x['location'])}" for x in r]


def q_folding(s, words):
    r, e = ask_doc(s, "textDocument/foldingRange")
    return e or [f"{f['startLine'] + 1}-{f['endLine'] + 1} "
                 f"{f.get('kind', '')}".strip() for f in r]


def q_selection(s, words):
    name, pos = s.mark(words[1])
    r, e = ask_doc(s, "textDocument/selectionRange", {"positions": [pos]})
    out = []
    x = r[0] if r else None
    while x:
        lo, hi = (s.offset(name, x["range"][k]) for k in ("start", "end"))
        out.append(s.texts[name][lo:hi].split("\n")[0])
        x = x.get("parent")
    return e or out


def q_links(s, words):
    r, e = ask_doc(s, "textDocument/documentLink")
    return e or [f"{rng(x['range'])} {where(x['target'])}" for x in r]


def token_lines(s, data):
    legend = s.client.init["result"]["capabilities"]["semanticTokensProvider"][
        "legend"]
    out, line, col = [], 0, 0
    lines = s.texts["main.attn"].split("\n")
    for i in range(0, len(data), 5):
        dl, dc, n, kind, mods = data[i:i + 5]
        line, col = line + dl, dc if dl else col + dc
        names = [m for k, m in enumerate(legend["tokenModifiers"])
                 if mods >> k & 1]
        text = lines[line].encode("utf-16-le")[2 * col:2 * (col + n)].decode(
            "utf-16-le")
        out.append(" ".join([f"{line + 1}:{col + 1}", text,
                             legend["tokenTypes"][kind]] + names))
    return out


def q_tokens(s, words):
    if len(words) > 1:
        r, e = ask_doc(s, "textDocument/semanticTokens/range",
                       {"range": whole(s, words)})
    else:
        r, e = ask_doc(s, "textDocument/semanticTokens/full")
        s.tokens = r and (r["resultId"], r["data"])
    return e or token_lines(s, r["data"])


def q_delta(s, words):
    """The tokens after the edits, which must be those asked for anew."""
    r, e = ask_doc(s, "textDocument/semanticTokens/full/delta",
                   {"previousResultId": s.tokens[0]})
    if e:
        return e
    data = list(s.tokens[1])
    for x in reversed(r.get("edits", [])):
        data[x["start"]:x["start"] + x["deleteCount"]] = x["data"]
    full, _ = ask_doc(s, "textDocument/semanticTokens/full")
    assert full["data"] == data, "the difference leads elsewhere"
    return [f"{len(r['edits'])} edits"] + token_lines(s, data)


def q_format(s, words):
    options = {"options": {"tabSize": 2, "insertSpaces": True}}
    method = "textDocument/formatting"
    if len(words) > 1:
        options["range"] = whole(s, words)
        method = "textDocument/rangeFormatting"
    r, e = ask_doc(s, method, options)
    return e or s.applied("main.attn", r).rstrip("\n").split("\n")


def q_inlay(s, words):
    r, e = ask_doc(s, "textDocument/inlayHint", {"range": whole(s, words)})
    if e:
        return e
    edits = [{"range": {"start": h["position"], "end": h["position"]},
              "newText": "[" + h["label"] + "]"} for h in r]
    return s.applied("main.attn", edits).rstrip("\n").split("\n") if r else []


def actions(s, words):
    r, e = ask_doc(s, "textDocument/codeAction", {
        "range": whole(s, words), "context": {"diagnostics": []}})
    return r or []


def q_actions(s, words):
    return [f"{a['kind']}: {a['title']}" for a in actions(s, words)]


def q_apply(s, words):
    title = " ".join(words[2:])
    a = next(a for a in actions(s, words) if title in a["title"])
    return edited(s, a["edit"])


def q_lens(s, words):
    r, e = ask_doc(s, "textDocument/codeLens")
    return e or [f"{rng(x['range'])} {x['command']['title']} "
                 f"{x['command']['command']} "
                 f"{' '.join(x['command']['arguments'][1:])}" for x in r]


def calls(s, words, method, key):
    items, _ = ask_at(s, "textDocument/prepareCallHierarchy", words)
    if not items:
        return []
    r, e = result(s.client.request(method, {"item": items[0]}))
    return e or [f"{where(x[key]['uri'])} {x[key]['detail']} {x[key]['name']} "
                 + ", ".join(rng(y) for y in x["fromRanges"]) for x in r]


def q_incoming(s, words):
    return calls(s, words, "callHierarchy/incomingCalls", "from")


def q_outgoing(s, words):
    return calls(s, words, "callHierarchy/outgoingCalls", "to")


def q_edit(s, words):
    """edit $1..$2 TEXT: replaces; the marks behind it are lost."""
    a, _, b = words[1].partition("..")
    name, start = s.mark(a)
    end = s.mark(b or a)[1]
    new = " ".join(words[2:]).replace("\\n", "\n")
    edit = {"range": {"start": start, "end": end}, "newText": new}
    s.client.change(runcase.ROOT + name,
                    [{"range": edit["range"], "text": new}])
    s.texts[name] = s.applied(name, [edit])
    return None


def q_watched(s, words):
    s.client.notify("workspace/didChangeWatchedFiles", {"changes": [
        {"uri": runcase.ROOT + "main.attn", "type": 2}]})
    return None


def q_said(s, words):
    """Methods of the server's own messages."""
    s.client.settle()
    return [m["method"] for m in s.client.notes]


def q_close(s, words):
    s.client.notify("textDocument/didClose",
                    {"textDocument": {"uri": runcase.ROOT + words[1]}})
    return None


def q_raw(s, words):
    """raw METHOD JSON: the error's code, or ok"""
    import json
    m = s.client.request(words[1], json.loads(" ".join(words[2:])))
    return [f"error {m['error']['code']}" if "error" in m else "ok"]


def ask(s, words):
    return globals()["q_" + words[0].replace("-", "_")](s, words)
