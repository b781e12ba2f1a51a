// What the server knows, as VS Code asks for it: one provider for each request,
// and conversions between the protocol's types and VS Code's.
"use strict";

const SELECTOR = [{ language: "attn" }];

// Conversions from the protocol.
function converter(vscode) {
  const c = {
    position: (p) => new vscode.Position(p.line, p.character),
    range: (r) => new vscode.Range(c.position(r.start), c.position(r.end)),
    uri: (u) => vscode.Uri.parse(u),
    location: (l) => new vscode.Location(
      c.uri(l.uri || l.targetUri),
      c.range(l.range || l.targetSelectionRange)),
    textEdit: (e) => new vscode.TextEdit(c.range(e.range), e.newText),
    markdown: (m) => new vscode.MarkdownString(
      typeof m === "string" ? m : m.value),
    // Of edits by document, with or without versions.
    edit(e) {
      const out = new vscode.WorkspaceEdit();
      for (const [uri, edits] of Object.entries(e.changes || {}))
        out.set(c.uri(uri), edits.map(c.textEdit));
      for (const d of e.documentChanges || [])
        out.set(c.uri(d.textDocument.uri), d.edits.map(c.textEdit));
      return out;
    },
    command: (x) => x && { title: x.title, command: x.command,
                           arguments: x.arguments },
    diagnostic(d) {
      const out = new vscode.Diagnostic(c.range(d.range), d.message,
                                        (d.severity || 1) - 1);
      out.source = d.source;
      out.code = d.codeDescription
        ? { value: d.code, target: c.uri(d.codeDescription.href) } : d.code;
      out.tags = d.tags;
      out.relatedInformation = (d.relatedInformation || []).map(
        (r) => new vscode.DiagnosticRelatedInformation(c.location(r.location),
                                                       r.message));
      out.raw = d;  // as the server knows it, for code actions
      return out;
    },
    symbol(s) {
      const out = new vscode.DocumentSymbol(
        s.name, s.detail || "", s.kind - 1, c.range(s.range),
        c.range(s.selectionRange));
      out.children = (s.children || []).map(c.symbol);
      return out;
    },
    completion(i) {
      const label = i.labelDetails
        ? { label: i.label, ...i.labelDetails } : i.label;
      const out = new vscode.CompletionItem(label, (i.kind || 1) - 1);
      Object.assign(out, { detail: i.detail, sortText: i.sortText,
                           filterText: i.filterText, raw: i });
      if (i.documentation) out.documentation = c.markdown(i.documentation);
      const text = i.textEdit ? i.textEdit.newText : i.insertText || i.label;
      out.insertText = i.insertTextFormat === 2
        ? new vscode.SnippetString(text) : text;
      if (i.textEdit) out.range = c.range(i.textEdit.range ||
                                          i.textEdit.replace);
      if (i.additionalTextEdits)
        out.additionalTextEdits = i.additionalTextEdits.map(c.textEdit);
      return out;
    },
    signature(s) {
      const out = new vscode.SignatureHelp();
      out.activeSignature = s.activeSignature || 0;
      out.activeParameter = s.activeParameter || 0;
      out.signatures = s.signatures.map((x) => {
        const one = new vscode.SignatureInformation(
          x.label, x.documentation && c.markdown(x.documentation));
        one.parameters = (x.parameters || []).map(
          (p) => new vscode.ParameterInformation(
            p.label, p.documentation && c.markdown(p.documentation)));
        return one;
      });
      return out;
    },
    action(a) {
      const out = new vscode.CodeAction(
        a.title, new vscode.CodeActionKind(a.kind || "quickfix"));
      out.isPreferred = a.isPreferred;
      if (a.edit) out.edit = c.edit(a.edit);
      out.command = c.command(a.command);
      return out;
    },
    hint(h) {
      const text = typeof h.label === "string"
        ? h.label : h.label.map((p) => p.value).join("");
      const out = new vscode.InlayHint(c.position(h.position), text, h.kind);
      out.paddingLeft = h.paddingLeft;
      out.paddingRight = h.paddingRight;
      if (h.tooltip) out.tooltip = c.markdown(h.tooltip);
      return out;
    },
  };
  return c;
}

const at = (doc, pos) => ({ textDocument: { uri: doc.uri.toString() },
                            position: { line: pos.line,
                                        character: pos.character } });
const whole = (doc) => ({ textDocument: { uri: doc.uri.toString() } });
const plain = (r) => ({ start: { line: r.start.line,
                                 character: r.start.character },
                        end: { line: r.end.line,
                               character: r.end.character } });
const list = (x) => (Array.isArray(x) ? x : x ? [x] : []);

// Registers all; `ask(method, params, token)` is a request to the server. Gives
// what is to be disposed of.
function register(vscode, ask, capabilities) {
  const c = converter(vscode);
  const l = vscode.languages;
  const places = (method) => async (doc, pos, token) =>
    list(await ask(method, at(doc, pos), token)).map(c.location);
  const edits = async (method, params, token) =>
    list(await ask(method, params, token)).map(c.textEdit);
  const style = (o) => ({ tabSize: o.tabSize, insertSpaces: o.insertSpaces });
  const legend = capabilities.semanticTokensProvider.legend;

  return [
    l.registerHoverProvider(SELECTOR, {
      async provideHover(doc, pos, token) {
        const h = await ask("textDocument/hover", at(doc, pos), token);
        return h && new vscode.Hover(c.markdown(h.contents),
                                     h.range && c.range(h.range));
      } }),
    l.registerCompletionItemProvider(SELECTOR, {
      async provideCompletionItems(doc, pos, token) {
        const got = await ask("textDocument/completion", at(doc, pos), token);
        return list(got && got.items ? got.items : got).map(c.completion);
      },
      async resolveCompletionItem(item, token) {
        const got = await ask("completionItem/resolve", item.raw, token);
        if (got.documentation)
          item.documentation = c.markdown(got.documentation);
        if (got.detail) item.detail = got.detail;
        return item;
      } }, ...capabilities.completionProvider.triggerCharacters),
    l.registerSignatureHelpProvider(SELECTOR, {
      async provideSignatureHelp(doc, pos, token) {
        const s = await ask("textDocument/signatureHelp", at(doc, pos), token);
        return s && c.signature(s);
      } }, ...capabilities.signatureHelpProvider.triggerCharacters),
    l.registerDefinitionProvider(SELECTOR, {
      provideDefinition: places("textDocument/definition") }),
    l.registerTypeDefinitionProvider(SELECTOR, {
      provideTypeDefinition: places("textDocument/typeDefinition") }),
    l.registerReferenceProvider(SELECTOR, {
      async provideReferences(doc, pos, context, token) {
        return list(await ask("textDocument/references",
                              { ...at(doc, pos), context }, token))
          .map(c.location);
      } }),
    l.registerDocumentHighlightProvider(SELECTOR, {
      async provideDocumentHighlights(doc, pos, token) {
        return list(await ask("textDocument/documentHighlight", at(doc, pos),
                              token))
          .map((h) => new vscode.DocumentHighlight(c.range(h.range),
                                                   (h.kind || 1) - 1));
      } }),
    l.registerRenameProvider(SELECTOR, {
      async provideRenameEdits(doc, pos, newName, token) {
        const e = await ask("textDocument/rename", { ...at(doc, pos), newName },
                            token);
        return e && c.edit(e);
      },
      async prepareRename(doc, pos, token) {
        const r = await ask("textDocument/prepareRename", at(doc, pos), token);
        if (!r) throw new Error("nothing that can be renamed");
        return { range: c.range(r.range || r),
                 placeholder: r.placeholder ||
                              doc.getText(c.range(r.range || r)) };
      } }),
    l.registerDocumentSymbolProvider(SELECTOR, {
      async provideDocumentSymbols(doc, token) {
        return list(await ask("textDocument/documentSymbol", whole(doc),
                              token)).map(c.symbol);
      } }),
    l.registerWorkspaceSymbolProvider({
      async provideWorkspaceSymbols(query, token) {
        return list(await ask("workspace/symbol", { query }, token)).map(
          (s) => new vscode.SymbolInformation(
            s.name, s.kind - 1, s.containerName || "",
            c.location(s.location)));
      } }),
    l.registerDocumentFormattingEditProvider(SELECTOR, {
      provideDocumentFormattingEdits: (doc, options, token) =>
        edits("textDocument/formatting",
              { ...whole(doc), options: style(options) }, token) }),
    l.registerDocumentRangeFormattingEditProvider(SELECTOR, {
      provideDocumentRangeFormattingEdits: (doc, range, options, token) =>
        edits("textDocument/rangeFormatting",
              { ...whole(doc), range: plain(range), options: style(options) },
              token) }),
    l.registerFoldingRangeProvider(SELECTOR, {
      async provideFoldingRanges(doc, context, token) {
        return list(await ask("textDocument/foldingRange", whole(doc), token))
          .map((f) => new vscode.FoldingRange(f.startLine, f.endLine));
      } }),
    l.registerInlayHintsProvider(SELECTOR, {
      async provideInlayHints(doc, range, token) {
        return list(await ask("textDocument/inlayHint",
                              { ...whole(doc), range: plain(range) }, token))
          .map(c.hint);
      } }),
    l.registerDocumentSemanticTokensProvider(SELECTOR, {
      async provideDocumentSemanticTokens(doc, token) {
        const t = await ask("textDocument/semanticTokens/full", whole(doc),
                            token);
        return t && new vscode.SemanticTokens(Uint32Array.from(t.data),
                                              t.resultId);
      } }, new vscode.SemanticTokensLegend(legend.tokenTypes,
                                           legend.tokenModifiers)),
    l.registerDocumentLinkProvider(SELECTOR, {
      async provideDocumentLinks(doc, token) {
        return list(await ask("textDocument/documentLink", whole(doc), token))
          .map((x) => new vscode.DocumentLink(c.range(x.range),
                                              c.uri(x.target)));
      } }),
    l.registerCodeActionsProvider(SELECTOR, {
      async provideCodeActions(doc, range, context, token) {
        const only = context.only && [context.only.value];
        const given = { diagnostics: context.diagnostics.map((d) => d.raw)
                                       .filter((d) => d) };
        if (only) given.only = only;
        return list(await ask("textDocument/codeAction",
                              { ...whole(doc), range: plain(range),
                                context: given }, token)).map(c.action);
      } }, { providedCodeActionKinds: capabilities.codeActionProvider
               .codeActionKinds.map((k) => new vscode.CodeActionKind(k)) }),
    l.registerCodeLensProvider(SELECTOR, {
      async provideCodeLenses(doc, token) {
        return list(await ask("textDocument/codeLens", whole(doc), token)).map(
          (x) => new vscode.CodeLens(c.range(x.range), c.command(x.command)));
      } }),
  ];
}

module.exports = { SELECTOR, converter, register };
