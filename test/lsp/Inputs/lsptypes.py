"""Structures of the Language Server Protocol 3.17 that a server sends, as
tables, and a check of messages against them. One line a structure: fields as
name:type, optional ones name?:type. Types: base types, structures, A|B, A[],
map<A>, 'literal', lo..hi."""
import re

STRUCTURES = """
Position line:uint character:uint
Range start:Position end:Position
Location uri:URI range:Range
LocationLink originSelectionRange?:Range targetUri:URI targetRange:Range targetSelectionRange:Range
TextEdit range:Range newText:string
AnnotatedTextEdit range:Range newText:string annotationId:string
InsertReplaceEdit newText:string insert:Range replace:Range
MarkupContent kind:'plaintext'|'markdown' value:string
Command title:string command:string arguments?:any[]
CodeDescription href:URI
DiagnosticRelated location:Location message:string
Diagnostic range:Range severity?:1..4 code?:int|string codeDescription?:CodeDescription source?:string message:string tags?:1..2[] relatedInformation?:DiagnosticRelated[] data?:any
PublishDiagnostics uri:URI version?:int diagnostics:Diagnostic[]
VersionedId version:int|null uri:URI
TextDocumentEdit textDocument:VersionedId edits:TextEdit[]
WorkspaceEdit changes?:map<TextEdit[]> documentChanges?:TextDocumentEdit[]
CodeAction title:string kind?:string diagnostics?:Diagnostic[] isPreferred?:bool disabled?:any edit?:WorkspaceEdit command?:Command data?:any
CodeLens range:Range command?:Command data?:any
Hover contents:MarkupContent range?:Range
LabelDetails detail?:string description?:string
CompletionItem label:string labelDetails?:LabelDetails kind?:1..25 tags?:1..1[] detail?:string documentation?:string|MarkupContent deprecated?:bool preselect?:bool sortText?:string filterText?:string insertText?:string insertTextFormat?:1..2 insertTextMode?:1..2 textEdit?:TextEdit|InsertReplaceEdit textEditText?:string additionalTextEdits?:TextEdit[] commitCharacters?:string[] command?:Command data?:any
CompletionList isIncomplete:bool itemDefaults?:any items:CompletionItem[]
ParameterInformation label:string|uint[] documentation?:string|MarkupContent
SignatureInformation label:string documentation?:string|MarkupContent parameters?:ParameterInformation[] activeParameter?:uint
SignatureHelp signatures:SignatureInformation[] activeSignature?:uint activeParameter?:uint
DocumentHighlight range:Range kind?:1..3
DocumentSymbol name:string detail?:string kind:1..26 tags?:1..1[] deprecated?:bool range:Range selectionRange:Range children?:DocumentSymbol[]
SymbolInformation name:string kind:1..26 tags?:1..1[] containerName?:string deprecated?:bool location:Location
FoldingRange startLine:uint startCharacter?:uint endLine:uint endCharacter?:uint kind?:'comment'|'imports'|'region' collapsedText?:string
SelectionRange range:Range parent?:SelectionRange
DocumentLink range:Range target?:URI tooltip?:string data?:any
SemanticTokens resultId?:string data:uint[]
SemanticTokensEdit start:uint deleteCount:uint data?:uint[]
SemanticTokensDelta resultId?:string edits:SemanticTokensEdit[]
InlayHint position:Position label:string kind?:1..2 textEdits?:TextEdit[] tooltip?:string|MarkupContent paddingLeft?:bool paddingRight?:bool data?:any
CallHierarchyItem name:string kind:1..26 tags?:1..1[] detail?:string uri:URI range:Range selectionRange:Range data?:any
CallHierarchyIncomingCall from:CallHierarchyItem fromRanges:Range[]
CallHierarchyOutgoingCall to:CallHierarchyItem fromRanges:Range[]
PrepareRename range:Range placeholder:string
FullReport kind:'full' resultId?:string items:Diagnostic[]
UnchangedReport kind:'unchanged' resultId:string
WorkspaceFullReport kind:'full' resultId?:string items:Diagnostic[] uri:URI version:int|null
WorkspaceUnchangedReport kind:'unchanged' resultId:string uri:URI version:int|null
WorkspaceReport items:WorkspaceDocumentReport[]
SaveOptions includeText?:bool
SyncOptions openClose?:bool change?:0..2 willSave?:bool willSaveWaitUntil?:bool save?:bool|SaveOptions
CompletionOptions triggerCharacters?:string[] allCommitCharacters?:string[] resolveProvider?:bool completionItem?:any workDoneProgress?:bool
SignatureHelpOptions triggerCharacters?:string[] retriggerCharacters?:string[] workDoneProgress?:bool
RenameOptions prepareProvider?:bool workDoneProgress?:bool
CodeActionOptions codeActionKinds?:string[] resolveProvider?:bool workDoneProgress?:bool
ResolveOptions resolveProvider?:bool workDoneProgress?:bool
CommandOptions commands:string[] workDoneProgress?:bool
Legend tokenTypes:string[] tokenModifiers:string[]
SemanticFull delta?:bool
SemanticOptions legend:Legend range?:bool full?:bool|SemanticFull workDoneProgress?:bool
DiagnosticOptions identifier?:string interFileDependencies:bool workspaceDiagnostics:bool workDoneProgress?:bool
FolderCapabilities supported?:bool changeNotifications?:bool|string
WorkspaceCapabilities workspaceFolders?:FolderCapabilities fileOperations?:any
ServerCapabilities positionEncoding?:'utf-8'|'utf-16'|'utf-32' textDocumentSync?:SyncOptions|0..2 notebookDocumentSync?:any completionProvider?:CompletionOptions hoverProvider?:bool signatureHelpProvider?:SignatureHelpOptions declarationProvider?:bool definitionProvider?:bool typeDefinitionProvider?:bool implementationProvider?:bool referencesProvider?:bool documentHighlightProvider?:bool documentSymbolProvider?:bool codeActionProvider?:bool|CodeActionOptions codeLensProvider?:ResolveOptions documentLinkProvider?:ResolveOptions colorProvider?:bool documentFormattingProvider?:bool documentRangeFormattingProvider?:bool documentOnTypeFormattingProvider?:any renameProvider?:bool|RenameOptions foldingRangeProvider?:bool selectionRangeProvider?:bool executeCommandProvider?:CommandOptions callHierarchyProvider?:bool linkedEditingRangeProvider?:bool semanticTokensProvider?:SemanticOptions monikerProvider?:bool typeHierarchyProvider?:bool inlineValueProvider?:bool inlayHintProvider?:bool|ResolveOptions diagnosticProvider?:DiagnosticOptions workspaceSymbolProvider?:bool|ResolveOptions workspace?:WorkspaceCapabilities experimental?:any
ServerInfo name:string version?:string
InitializeResult capabilities:ServerCapabilities serverInfo?:ServerInfo
ShowMessage type:1..4 message:string
ShowDocument uri:URI external?:bool takeFocus?:bool selection?:Range
ProgressCreate token:int|string
ProgressBegin kind:'begin' title:string cancellable?:bool message?:string percentage?:uint
ProgressReport kind:'report' cancellable?:bool message?:string percentage?:uint
ProgressEnd kind:'end' message?:string
Progress token:int|string value:ProgressBegin|ProgressReport|ProgressEnd
Registration id:string method:string registerOptions?:any
Registrations registrations:Registration[]
ResponseError code:int message:string data?:any
"""

RESULTS = {
    "initialize": "InitializeResult",
    "shutdown": "null",
    "textDocument/diagnostic": "FullReport|UnchangedReport",
    "workspace/diagnostic": "WorkspaceReport",
    "textDocument/codeAction": "CodeActionOrCommand[]|null",
    "textDocument/hover": "Hover|null",
    "textDocument/inlayHint": "InlayHint[]|null",
    "textDocument/completion": "CompletionItem[]|CompletionList|null",
    "completionItem/resolve": "CompletionItem",
    "textDocument/signatureHelp": "SignatureHelp|null",
    "textDocument/definition": "Location|Location[]|LocationLink[]|null",
    "textDocument/declaration": "Location|Location[]|LocationLink[]|null",
    "textDocument/typeDefinition": "Location|Location[]|LocationLink[]|null",
    "textDocument/implementation": "Location|Location[]|LocationLink[]|null",
    "textDocument/references": "Location[]|null",
    "textDocument/documentHighlight": "DocumentHighlight[]|null",
    "textDocument/prepareRename": "Range|PrepareRename|null",
    "textDocument/rename": "WorkspaceEdit|null",
    "textDocument/documentSymbol": "DocumentSymbol[]|SymbolInformation[]|null",
    "workspace/symbol": "SymbolInformation[]|null",
    "textDocument/foldingRange": "FoldingRange[]|null",
    "textDocument/selectionRange": "SelectionRange[]|null",
    "textDocument/documentLink": "DocumentLink[]|null",
    "textDocument/semanticTokens/full": "SemanticTokens|null",
    "textDocument/semanticTokens/full/delta":
        "SemanticTokens|SemanticTokensDelta|null",
    "textDocument/semanticTokens/range": "SemanticTokens|null",
    "textDocument/formatting": "TextEdit[]|null",
    "textDocument/rangeFormatting": "TextEdit[]|null",
    "textDocument/prepareCallHierarchy": "CallHierarchyItem[]|null",
    "callHierarchy/incomingCalls": "CallHierarchyIncomingCall[]|null",
    "callHierarchy/outgoingCalls": "CallHierarchyOutgoingCall[]|null",
    "textDocument/codeLens": "CodeLens[]|null",
    "workspace/executeCommand": "any",
}

PARAMS = {  # what a server may send of its own accord
    "textDocument/publishDiagnostics": "PublishDiagnostics",
    "window/logMessage": "ShowMessage",
    "window/showMessage": "ShowMessage",
    "$/progress": "Progress",
    "window/workDoneProgress/create": "ProgressCreate",
    "window/showDocument": "ShowDocument",
    "client/registerCapability": "Registrations",
    "workspace/diagnostic/refresh": "null",
}
REQUESTS = {"window/workDoneProgress/create", "window/showDocument",
            "client/registerCapability", "workspace/diagnostic/refresh"}

ALIASES = {
    "CodeActionOrCommand": "CodeAction|Command",
    "WorkspaceDocumentReport": "WorkspaceFullReport|WorkspaceUnchangedReport",
}


class Invalid(Exception):
    pass


def is_int(v):
    return isinstance(v, int) and not isinstance(v, bool)


BASE = {
    "any": lambda v: True,
    "null": lambda v: v is None,
    "bool": lambda v: isinstance(v, bool),
    "string": lambda v: isinstance(v, str),
    "int": lambda v: is_int(v) and -2**31 <= v < 2**31,
    "uint": lambda v: is_int(v) and 0 <= v < 2**31,
    "URI": lambda v: isinstance(v, str)
    and re.match(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s\"<>\\^`{|}]*$", v) is not None,
}


def read_tables():
    out = {}
    for line in STRUCTURES.split("\n"):
        name, *fields = line.split(" ") if line else [None]
        if not name:
            continue
        out[name] = {}
        for f in fields:
            key, kind = f.split(":", 1)
            out[name][key.rstrip("?")] = (kind, key.endswith("?"))
    return out


TABLES = read_tables()


def alternatives(kind):
    depth, part, out = 0, "", []
    for c in kind:
        depth += c == "<"
        depth -= c == ">"
        if c == "|" and not depth:
            out.append(part)
            part = ""
        else:
            part += c
    return out + [part]


def check_struct(v, name, path):
    if not isinstance(v, dict):
        raise Invalid(f"{path}: {name} expected, got {v!r}")
    fields = TABLES[name]
    for key, (kind, optional) in fields.items():
        if key in v:
            check(v[key], kind, f"{path}.{key}")
        elif not optional:
            raise Invalid(f"{path}: {name} without {key}")
    for key in v:
        if key not in fields:
            raise Invalid(f"{path}: {name} has no {key}")


def ordered(v, path):
    """A range does not end before it starts."""
    a, b = v["start"], v["end"]
    if (a["line"], a["character"]) > (b["line"], b["character"]):
        raise Invalid(f"{path}: a range that ends before it starts")


def check_one(v, kind, path):
    if kind in ALIASES:
        check(v, ALIASES[kind], path)
    elif kind.endswith("[]"):
        if not isinstance(v, list):
            raise Invalid(f"{path}: an array expected, got {v!r}")
        for i, x in enumerate(v):
            check(x, kind[:-2], f"{path}[{i}]")
    elif kind.startswith("map<"):
        if not isinstance(v, dict):
            raise Invalid(f"{path}: an object expected, got {v!r}")
        for k, x in v.items():
            check(x, kind[4:-1], f"{path}[{k}]")
    elif kind.startswith("'"):
        if v != kind.strip("'"):
            raise Invalid(f"{path}: {kind} expected, got {v!r}")
    elif ".." in kind:
        lo, hi = map(int, kind.split(".."))
        if not is_int(v) or not lo <= v <= hi:
            raise Invalid(f"{path}: {kind} expected, got {v!r}")
    elif kind in BASE:
        if not BASE[kind](v):
            raise Invalid(f"{path}: {kind} expected, got {v!r}")
    else:
        check_struct(v, kind, path)
        if kind == "Range":
            ordered(v, path)


def check(v, kind, path="message"):
    problems = []
    for k in alternatives(kind):
        try:
            check_one(v, k, path)
            return
        except Invalid as e:
            problems.append(str(e))
    raise Invalid(problems[0] if len(problems) == 1 else
                  " or ".join(problems))


def check_message(m, sent):
    """A message of the server; `sent` maps ids of requests to methods."""
    if not isinstance(m, dict) or m.get("jsonrpc") != "2.0":
        raise Invalid("no JSON-RPC message")
    if "method" in m:
        name = m["method"]
        if name not in PARAMS:
            raise Invalid(f"the server may not send {name}")
        if ("id" in m) != (name in REQUESTS):
            raise Invalid(f"{name}: request or notification?")
        check(m.get("params"), PARAMS[name], name)
        return
    if "id" not in m or ("result" in m) == ("error" in m):
        raise Invalid("an answer has an id and either result or error")
    if "error" in m:
        check(m["error"], "ResponseError", "error")
        return
    if m["id"] not in sent:
        raise Invalid(f"an answer to nothing: {m['id']}")
    check(m["result"], RESULTS[sent[m["id"]]], sent[m["id"]])
