// Starting and ending: what the client can do, what the server offers.
#include "tools/attn-ls/server.h"

Ls *ls_new(const LsHost *host) {
  Arena empty = {.oom = host->no_memory, .oom_data = host->data}, a = empty;
  Ls *ls = NEW(&a, Ls);
  ls->host = *host;
  ls->arena = a;
  ls->scratch = ls->inbox = empty;
  ls->names.arena = &ls->arena;
  ls->by_path.arena = &ls->arena;
  return ls;
}

Arena ls_arena(const Ls *ls) {
  return (Arena){.oom = ls->host.no_memory, .oom_data = ls->host.data};
}

void ls_free(Ls *ls) {
  ls_children_free(ls);
  for (uint32_t i = 0; i < ls->queue.n; i++) json_decref(ls->queue.at[i]);
  ls_drop_retired(ls);
  for (uint32_t i = 0; i < ls->docs.n; i++) ls_doc_free(ls->docs.at[i]);
  arena_drop(&ls->inbox);
  arena_drop(&ls->scratch);
  Arena a = ls->arena;
  arena_drop(&a);
}

json_t *ls_ignore(Ls *ls, const json_t *params, LsError *err) {
  (void)ls, (void)params, (void)err;
  return NULL;
}

// ---------------------------------------------------------------- client
static Encoding encoding_of(const json_t *client) {
  const json_t *list = js_path(client, "general.positionEncodings");
  static const struct {
    const char *name;
    Encoding enc;
  } known[] = {{"utf-8", ENC_UTF8},
               {"utf-16", ENC_UTF16},
               {"utf-32", ENC_UTF32}};
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *name = json_string_value(json_array_get(list, i));
    for (int k = 0; name && k < 3; k++)
      if (strcmp(name, known[k].name) == 0) return known[k].enc;
  }
  return ENC_UTF16;
}

static bool lists(const json_t *array, const char *word) {
  for (size_t i = 0; i < json_array_size(array); i++) {
    const char *s = json_string_value(json_array_get(array, i));
    if (s && strcmp(s, word) == 0) return true;
  }
  return false;
}

static bool yes(const json_t *client, const char *path) {
  return json_is_true(js_path(client, path));
}

static Client client_of(const json_t *c) {
  const json_t *formats = js_path(c, "textDocument.hover.contentFormat");
  return (Client){
      .snippets =
          yes(c, "textDocument.completion.completionItem.snippetSupport"),
      .markdown = lists(formats, "markdown"),
      .hierarchy = yes(c, "textDocument.documentSymbol."
                          "hierarchicalDocumentSymbolSupport"),
      .pull = js_path(c, "textDocument.diagnostic") != NULL,
      .progress = yes(c, "window.workDoneProgress"),
      .show_document = yes(c, "window.showDocument.support"),
      .changes_versioned = yes(c, "workspace.workspaceEdit.documentChanges"),
      .label_offsets = yes(c, "textDocument.signatureHelp.signatureInformation."
                              "parameterInformation.labelOffsetSupport"),
      .watches = yes(c, "workspace.didChangeWatchedFiles.dynamicRegistration"),
      .refreshes = yes(c, "workspace.diagnostics.refreshSupport"),
  };
}

static void add_root(Ls *ls, const char *uri) {
  const char *path = ls_path_of_uri(ls, uri);
  if (!path || path[0] != '/') return;
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;
  path = intern_n(&ls->names, path, n);
  for (uint32_t i = 0; i < ls->roots.n; i++)
    if (ls->roots.at[i] == path) return;
  vec_push(&ls->arena, &ls->roots, path);
}

static void roots_of(Ls *ls, const json_t *params) {
  const json_t *list = json_object_get(params, "workspaceFolders");
  for (size_t i = 0; i < json_array_size(list); i++)
    add_root(ls, js_get_str(json_array_get(list, i), "uri"));
  if (!ls->roots.n) add_root(ls, js_get_str(params, "rootUri"));
}

json_t *ls_folders(Ls *ls, const json_t *params, LsError *err) {
  const json_t *gone = js_path(params, "event.removed");
  const json_t *come = js_path(params, "event.added");
  (void)err;
  for (size_t i = 0; i < json_array_size(gone); i++) {
    const char *path =
        ls_path_of_uri(ls, js_get_str(json_array_get(gone, i), "uri"));
    uint32_t n = 0;
    for (uint32_t k = 0; k < ls->roots.n; k++)
      if (ls->roots.at[k] != path) ls->roots.at[n++] = ls->roots.at[k];
    ls->roots.n = n;
  }
  for (size_t i = 0; i < json_array_size(come); i++)
    add_root(ls, js_get_str(json_array_get(come, i), "uri"));
  return NULL;
}

// ---------------------------------------------------------------- offers
static json_t *token_legend(void) {
  json_t *types = json_array(), *mods = json_array();
#define TYPE(id, name) json_array_append_new(types, json_string(name));
#define MODIFIER(id, name) json_array_append_new(mods, json_string(name));
#include "tools/attn-ls/tokens.def"
  return json_pack("{s:o, s:o}", "tokenTypes", types, "tokenModifiers", mods);
}

static json_t *capabilities(const Ls *ls) {
  static const char *const encs[] = {[ENC_UTF16] = "utf-16",
                                     [ENC_UTF8] = "utf-8",
                                     [ENC_UTF32] = "utf-32"};
  json_t *c = json_pack(
      "{s:s, s:{s:b, s:i, s:b}, s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:b}",
      "positionEncoding", encs[ls->enc], "textDocumentSync", "openClose", 1,
      "change", 2, "save", 1, "hoverProvider", 1, "definitionProvider", 1,
      "declarationProvider", 1, "typeDefinitionProvider", 1,
      "referencesProvider", 1, "documentHighlightProvider", 1,
      "documentSymbolProvider", 1, "workspaceSymbolProvider", 1);
  json_t *more = json_pack(
      "{s:{s:[s,s,s,s], s:b}, s:{s:[s,s,s]}, s:{s:b}, s:b, s:b, s:b, s:b, s:b}",
      "completionProvider", "triggerCharacters", ".", "@", "<", ":",
      "resolveProvider", 1, "signatureHelpProvider", "triggerCharacters", "(",
      ",", "|", "renameProvider", "prepareProvider", 1, "foldingRangeProvider",
      1, "selectionRangeProvider", 1, "documentFormattingProvider", 1,
      "documentRangeFormattingProvider", 1, "callHierarchyProvider", 1);
  json_object_update(c, more);
  json_decref(more);
  more = json_pack(
      "{s:b, s:{s:[s,s,s]}, s:{s:b}, s:{s:[s,s,s]}, s:{s:o, s:b, s:{s:b}},"
      " s:{s:s, s:b, s:b}, s:{s:{s:b, s:b}}}",
      "inlayHintProvider", 1, "codeActionProvider", "codeActionKinds",
      "quickfix", "source.fixAll", "source.organizeImports", "codeLensProvider",
      "resolveProvider", 0, "executeCommandProvider", "commands", "attn.check",
      "attn.show", "attn.explain", "semanticTokensProvider", "legend",
      token_legend(), "range", 1, "full", "delta", 1, "diagnosticProvider",
      "identifier", "attn", "interFileDependencies", 1, "workspaceDiagnostics",
      1, "workspace", "workspaceFolders", "supported", 1, "changeNotifications",
      1);
  json_object_update(c, more);
  json_decref(more);
  json_object_set_new(c, "documentLinkProvider",
                      json_pack("{s:b}", "resolveProvider", 0));
  return c;
}

json_t *ls_initialize(Ls *ls, const json_t *params, LsError *err) {
  if (ls->state != LS_NEW)
    return ls_fail(err, E_INVALID_REQUEST, "initialized before");
  if (!ls->id) return NULL;
  const json_t *client = json_object_get(params, "capabilities");
  ls->enc = encoding_of(client);
  ls->client = client_of(client);
  roots_of(ls, params);
  ls->state = LS_READY;
  return json_pack("{s:o, s:{s:s, s:s}}", "capabilities", capabilities(ls),
                   "serverInfo", "name", "attn-ls", "version", LS_VERSION);
}

// Files that change behind the editor's back.
json_t *ls_initialized(Ls *ls, const json_t *params, LsError *err) {
  (void)params, (void)err;
  if (ls->client.watches)
    ls_request(ls, "client/registerCapability",
               json_pack("{s:[{s:s, s:s, s:{s:[{s:s}]}}]}", "registrations",
                         "id", "attn-files", "method",
                         "workspace/didChangeWatchedFiles", "registerOptions",
                         "watchers", "globPattern", "**/*.attn"));
  return NULL;
}

json_t *ls_shutdown(Ls *ls, const json_t *params, LsError *err) {
  (void)params, (void)err;
  ls->state = LS_SHUTDOWN;
  ls_children_free(ls);
  return json_null();
}

json_t *ls_exit(Ls *ls, const json_t *params, LsError *err) {
  (void)params, (void)err;
  ls->code = ls->state == LS_SHUTDOWN ? 0 : 1;
  ls->state = LS_EXITED;
  return NULL;
}
