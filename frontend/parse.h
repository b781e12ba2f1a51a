// Private to the reader: tokens, the parser's state and the constructors that
// the grammar's actions call. Trees live in the session arena; the scanner's
// and the parser's own memory in the scratch arena.
#ifndef ATTNC_FRONTEND_PARSE_H
#define ATTNC_FRONTEND_PARSE_H

#include "frontend/frontend.h"
#include <setjmp.h>

// Levels of nesting in a file and of any expression tree. Walkers recurse.
enum { MAX_DEPTH = 256 };

typedef struct Loc {
  uint32_t lo, hi;
} Loc;

typedef struct Token {
  int kind;  // TK_* of the grammar
  Loc at;
  const char *name;  // identifiers, soft words, strings (contents), dtypes
  int64_t ival;
  double fval;
  DType dtype;
} Token;

typedef Vec(Expr *) ExprList;
typedef Vec(Stmt *) StmtList;
typedef Vec(Arg) ArgList;
typedef Vec(Item) ItemList;
typedef Vec(NameRef) NameList;
typedef Vec(Attr) AttrList;
typedef Vec(Generic) GenericList;
typedef Vec(Param) ParamList;
typedef Vec(TypeExpr *) TypeList;
typedef Vec(IndexDecl) IndexList;
typedef Vec(Setting) SettingList;
typedef Vec(CheckStmt) CheckList;
typedef Vec(DType) DTypeList;

typedef struct Body {  // `= value;` or `{ stmts }`
  Expr *value;
  StmtList stmts;
  bool braces;
} Body;

typedef struct Sig {  // what stands between a name and its body
  GenericList generics;
  ParamList params, outs;
  TypeList ret;
  ExprList where;
} Sig;

typedef union Value {
  Token tok;
  NameRef name;
  Expr *expr;
  Stmt *stmt;
  Decl *decl;
  TypeExpr *type;
  Layout *layout;
  Arg arg;
  Attr attr;
  Item item;
  Generic generic;
  Param param;
  IndexDecl index;
  CheckStmt check;
  Body body;
  Sig sig;
  bool flag;
  int num;
  ExprList exprs;
  StmtList stmts;
  ArgList args;
  ItemList items;
  NameList names;
  AttrList attrs;
  GenericList generics;
  ParamList params;
  TypeList types;
  IndexList indices;
  SettingList settings;
  CheckList checks;
  DTypeList dtypes;
} Value;

typedef struct Parse {
  Ctx *cx;
  Arena *a;  // the session arena
  Source *src;
  Unit *unit;
  void *scanner;
  uint8_t slot[256];  // hash of token.def: row + 1
  jmp_buf fatal;      // where flex's fatal errors land
  // scanner
  Token tok;                // the token just read
  uint32_t pos;             // bytes read
  int depth;                // open brackets
  Loc open[MAX_DEPTH + 1];  // where they stand
  // parser
  int blocks;         // open statement blocks: what an error resumes in
  Token last;         // the token handed to the parser last
  Token before;       // the one before it
  uint32_t prev_end;  // end of the one before it
  // recovery
  bool quiet;     // skipping: lexical errors are not reported
  bool stop;      // give up: every further token is the end
  bool has_sync;  // hand out SYNC, then `closers` braces, then `again`
  int closers;
  int nagain;  // tokens to read again: again[0] is the next
  Token again[2];
  uint32_t resumed_at;  // offset of the token the last recovery put back
} Parse;

#define PUSH(list, x) vec_push(p->a, &(list), x)
#define VEC_MOVE(dst, src) \
  ((dst).at = (src).at, (dst).n = (src).n, (dst).cap = (src).cap)

// lexer.l
int scan_token(Parse *p);   // fills p->tok, returns its kind
bool scan_start(Parse *p);  // over p->src, memory from the scratch arena

// tokens.c: token.def
typedef enum TokenClass {
  TC_WORD,
  TC_SOFT,
  TC_SIGN,
  TC_OPER,
  TC_OTHER
} TokenClass;
void fe_tokens_init(Parse *p);
int token_find(const Parse *p, const char *s, uint32_t n);  // 0: none
const char *token_text(int kind);  // "->", "let"; NULL for identifiers, ...
TokenClass token_class(int kind);

// parse.c
Span fe_span_of(const Parse *p, Loc at);
void fe_too_deep(Parse *p, Loc at);
// Does nothing but space stand before offset `at` on its line?
bool fe_begins_line(const Parse *p, uint32_t at);
// Reports the token p->last where one of the kinds `want` could stand, and
// arranges where the parser resumes.
void fe_syntax_error(Parse *p, const int *want, int n);

// build.c: constructors
Expr *ex_leaf(Parse *p, Loc at, ExprKind kind, Token t);
Expr *ex_name(Parse *p, NameRef n);
Expr *ex_unary(Parse *p, Loc at, UnOp op, Expr *a);
Expr *ex_binary(Parse *p, Loc at, BinOp op, Expr *a, Expr *b);
Expr *ex_relate(Parse *p, Loc at, BinOp op, Expr *chain, Expr *b);
Expr *ex_if(Parse *p, Loc at, Expr *c, Expr *t, Expr *e);
Expr *ex_call(Parse *p, Loc at, Expr *callee, ArgList args);
Expr *ex_pipe(Parse *p, Loc at, Expr *value, Expr *callee, ArgList args);
Expr *ex_index(Parse *p, Loc at, Expr *base, ItemList items);
Expr *ex_member(Parse *p, Loc at, Expr *base, NameRef name);
Expr *ex_cast(Parse *p, Loc at, Token t, Expr *a);
Expr *ex_tuple(Parse *p, Loc at, Expr *first, ExprList rest);
Arg fe_arg_make(Parse *p, Loc at, ArgKind kind, NameRef *name, Expr *value);
Item fe_item_make(Parse *p, Loc at, ItemKind kind, Expr *lo, Expr *hi);
NameRef fe_name_make(Parse *p, Token t);

Stmt *st_new(Parse *p, Loc at, StmtKind kind);
Stmt *st_let(Parse *p, Loc at, NameList names, Expr *value);
Stmt *st_index(Parse *p, Loc at, IndexList list);
Stmt *st_return(Parse *p, Loc at, ExprList list);
Stmt *st_expr(Parse *p, Loc at, StmtKind kind, Expr *e);
Stmt *st_assign(Parse *p, Loc at, NameRef target, ItemList *items, Expr *e);
Stmt *st_state(Parse *p, Loc at, NameRef name, TypeExpr *type, Expr *e);
Stmt *st_loop(Parse *p, Loc at, StmtKind kind, NameRef name, Expr *extent);

TypeExpr *type_make(Parse *p, Loc at, Token elem, ExprList shape, bool row);
Layout *layout_make(Parse *p, Loc at, LayoutKind kind);
Generic fe_generic_make(Parse *p, Loc at, GenericKind kind);
Param fe_param_make(Parse *p, Loc at, int qual, NameRef name, TypeExpr *type);
CheckStmt fe_check_make(Parse *p, Loc at, CheckKind kind, NameList names,
                        ExprList exprs);
Decl *de_new(Parse *p, Loc at, DeclKind kind, NameRef name);
Decl *de_code(Parse *p, Loc at, DeclKind kind, NameRef name, Sig sig,
              Body body);
Decl *de_import(Parse *p, Loc at, NameList path, NameList names);
void fe_unit_add(Parse *p, AttrList attrs, Decl *d);
void fe_unit_docs(Parse *p);  // attaches `##` comments once all is read

#endif
