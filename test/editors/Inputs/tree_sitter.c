/* Parses files with Tree-sitter and the grammar of tools/editors.
     tree_sitter FILE ..     "ok FILE" or "error FILE:LINE" for each
     tree_sitter -t FILE     its tree
     tree_sitter -q QUERY FILE   what the query captures: "CAPTURE TEXT" */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tree_sitter/api.h>

const TSLanguage *tree_sitter_attn(void);

static char *read_file(const char *path, uint32_t *n) {
  FILE *f = fopen(path, "rb");
  if (!f) {
    perror(path);
    exit(2);
  }
  fseek(f, 0, SEEK_END);
  long size = ftell(f);
  rewind(f);
  char *text = calloc(1, (size_t)size + 1);
  *n = (uint32_t)fread(text, 1, (size_t)size, f);
  fclose(f);
  return text;
}

/* The innermost node that has an error. */
static TSNode first_error(TSNode at) {
  for (uint32_t i = 0; i < ts_node_child_count(at); i++)
    if (ts_node_has_error(ts_node_child(at, i)))
      return first_error(ts_node_child(at, i));
  return at;
}

static void show(TSNode root, const char *path) {
  TSPoint at = ts_node_start_point(first_error(root));
  if (ts_node_has_error(root)) printf("error %s:%u\n", path, at.row + 1);
  else printf("ok %s\n", path);
}

static void query(TSNode root, const char *path, const char *text) {
  uint32_t n, where = 0, len;
  TSQueryError wrong = TSQueryErrorNone;
  char *source = read_file(path, &n);
  TSQuery *q = ts_query_new(tree_sitter_attn(), source, n, &where, &wrong);
  if (!q) {
    printf("query: error %d at byte %u\n", (int)wrong, where);
    exit(1);
  }
  TSQueryCursor *c = ts_query_cursor_new();
  ts_query_cursor_exec(c, q, root);
  TSQueryMatch m;
  for (uint32_t i; ts_query_cursor_next_capture(c, &m, &i);) {
    TSNode at = m.captures[i].node;
    uint32_t lo = ts_node_start_byte(at), hi = ts_node_end_byte(at);
    printf("%s %.*s\n", ts_query_capture_name_for_id(q, m.captures[i].index, &len),
           (int)(hi - lo), text + lo);
  }
  ts_query_cursor_delete(c);
  ts_query_delete(q);
  free(source);
}

int main(int argc, char **argv) {
  TSParser *p = ts_parser_new();
  if (!ts_parser_set_language(p, tree_sitter_attn())) return 2;
  bool tree = argc > 1 && !strcmp(argv[1], "-t");
  bool asks = argc > 2 && !strcmp(argv[1], "-q");
  for (int i = asks ? 3 : tree ? 2 : 1; i < argc; i++) {
    uint32_t n;
    char *text = read_file(argv[i], &n);
    TSTree *t = ts_parser_parse_string(p, NULL, text, n);
    TSNode root = ts_tree_root_node(t);
    char *s = tree ? ts_node_string(root) : NULL;
    if (tree) puts(s);
    else if (asks) query(root, argv[2], text);
    else show(root, argv[i]);
    free(s);
    ts_tree_delete(t);
    free(text);
  }
  ts_parser_delete(p);
  return 0;
}
