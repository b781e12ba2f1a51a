/* Grammar of .attn. LALR(1), no conflicts. Actions are one call each; tokens
   are those of token.def. Errors resume at SYNC, which attn_lex (parse.c)
   hands out where a statement or declaration ends. */
%define api.pure full
%define api.prefix {attn_}
%define api.token.prefix {TK_}
%define api.location.type {Loc}
%define api.value.type {Value}
%define api.token.raw
%define parse.error custom
%define parse.lac full
%locations
%param {Parse *p}
%expect 0

%code requires {
#include "frontend/parse.h"
}
%code {
#define YYLLOC_DEFAULT(cur, rhs, n)                                  \
  ((cur) = (n) ? (Loc){YYRHSLOC(rhs, 1).lo, YYRHSLOC(rhs, n).hi}     \
               : (Loc){YYRHSLOC(rhs, 0).hi, YYRHSLOC(rhs, 0).hi})
int attn_lex(Value *v, Loc *at, Parse *p);
static void attn_error(const Loc *at, Parse *p, const char *msg);
static Loc join(Loc a, Loc b) { return (Loc){a.lo, b.hi}; }
}

%token END 0 "end of file"
%token INVALID SYNC
%token <tok> IDENT INTLIT FLOATLIT STRING DTYPE
%token <tok> IMPORT LET FN ROW ASSUME IN WHERE RETURN IF THEN ELSE REVERSE
%token <tok> LAYOUT CONST NOGRAD INOUT TRUE FALSE INF INT ANYTYPE
%token <tok> AS MASK MOD ATTENTION RECURRENT CHECK SCHEDULE FOR INDEX STATE
%token <tok> STEP REPEAT RAGGED PAGED DYN INPUT EXPECT DIMS TOL
%token SEMI ";" COMMA "," COLON ":" ASSIGN "=" AT "@" RPAREN ")" RSQUARE "]"
%token LBRACE "{" RBRACE "}" ARROW "->" DOTDOT ".." APPROX "~=" NOT "!"
%token LPAREN "(" LSQUARE "[" DOT "." PIPE "|>" OR "|" AND "&"
%token LT "<" GT ">" LE "<=" GE ">=" EQ "==" NE "!="
%token PLUS "+" MINUS "-" STAR "*" SLASH "/" FLOORDIV "//" PERCENT "%"
%token MATMUL "@@" POW "**"

%type <attrs> attrs
%type <attr> attr
%type <args> args arglist
%type <decl> decl
%type <names> path idents stmt_names
%type <generics> generics gparams
%type <generic> gparam gkind range interval
%type <dtypes> dtypes
%type <params> params paramlist
%type <param> param
%type <num> qual relop
%type <type> type
%type <tok> elem
%type <layout> layout
%type <sig> fn_sig plain_sig row_sig program_sig
%type <types> ret types
%type <body> body
%type <exprs> where exprs
%type <stmts> stmts
%type <stmt> stmt
%type <expr> extent value expr pipe or and not rel chain add mul unary power
%type <expr> postfix callee primary
%type <flag> direction
%type <indices> indices
%type <index> index
%type <settings> settings
%type <checks> checks
%type <check> check binds
%type <arg> arg
%type <items> items
%type <item> item
%type <name> ident
%type <tok> soft
%%
file: %empty | file decl { fe_unit_add(p, (AttrList){0}, $2); }
  | file attrs decl { fe_unit_add(p, $2, $3); } ;

/* Never empty: an error must find a state that waits for it before any
   reduction. */
attrs: attr { $$ = (AttrList){0}; PUSH($$, $1); }
  | attrs attr { $$ = $1; PUSH($$, $2); } ;
attr: "@" ident { $$ = (Attr){.span = fe_span_of(p, @$), .name = $2.name}; }
  | "@" ident "(" args ")"
    { $$ = (Attr){.span = fe_span_of(p, @$), .name = $2.name}; VEC_MOVE($$.args, $4); } ;

decl:
    IMPORT path ";" { $$ = de_import(p, @$, $2, (NameList){0}); }
  | IMPORT path "{" idents "}" { $$ = de_import(p, @$, $2, $4); }
  | IMPORT path AS ident ";"
    { $$ = de_import(p, @$, $2, (NameList){0}); $$->alias = $4; }
  | LET ident "=" expr ";"
    { $$ = de_new(p, @$, DE_LET, $2); $$->value = $4; }
  | FN ident fn_sig body { $$ = de_code(p, @$, DE_FN, $2, $3, $4); }
  | MASK ident plain_sig body { $$ = de_code(p, @$, DE_MASK, $2, $3, $4); }
  | MOD ident plain_sig body { $$ = de_code(p, @$, DE_MOD, $2, $3, $4); }
  | ROW ident row_sig body { $$ = de_code(p, @$, DE_ROW, $2, $3, $4); }
  | ATTENTION ident program_sig open stmts close
    { $$ = de_code(p, @$, DE_ATTENTION, $2, $3, (Body){NULL, $5, true}); }
  | RECURRENT ident program_sig open stmts close
    { $$ = de_code(p, @$, DE_RECURRENT, $2, $3, (Body){NULL, $5, true}); }
  | SCHEDULE path FOR STRING open settings close
    { $$ = de_new(p, @$, DE_SCHEDULE, $2.at[$2.n - 1]);
      VEC_MOVE($$->path, $2); $$->target = $4.name; VEC_MOVE($$->settings, $6); }
  | CHECK STRING open checks close
    { $$ = de_new(p, @$, DE_CHECK, fe_name_make(p, $2)); VEC_MOVE($$->checks, $4); }
  | error SYNC
    { $$ = de_new(p, @$, DE_ERROR, (NameRef){0}); yyerrok; } ;

open: "{" { p->blocks++; } ;
close: "}" { p->blocks--; } ;

path: ident { $$ = (NameList){0}; PUSH($$, $1); }
  | path "." ident { $$ = $1; PUSH($$, $3); } ;
idents: ident { $$ = (NameList){0}; PUSH($$, $1); }
  | idents "," ident { $$ = $1; PUSH($$, $3); } ;

/* ---- signatures ---- */

fn_sig: generics "(" params ")" ret
    { $$ = (Sig){.generics = $1, .params = $3, .ret = $5}; } ;
plain_sig: "(" params ")" { $$ = (Sig){.params = $2}; } ;
row_sig: "(" params ")" ret { $$ = (Sig){.params = $2, .ret = $4}; } ;
program_sig: generics "(" params ")" "->" "(" params ")" where
    { $$ = (Sig){.generics = $1, .params = $3, .outs = $7, .where = $9}; } ;

generics: %empty { $$ = (GenericList){0}; } | "<" gparams ">" { $$ = $2; } ;
gparams: gparam { $$ = (GenericList){0}; PUSH($$, $1); }
  | gparams "," gparam { $$ = $1; PUSH($$, $3); } ;
gparam: ident { $$ = fe_generic_make(p, @$, GEN_DYN); $$.name = $1.name; }
  | ident ":" gkind { $$ = $3; $$.name = $1.name; $$.span = fe_span_of(p, @$); } ;
gkind: DYN range { $$ = $2; $$.kind = GEN_DYN; }
  | CONST range { $$ = $2; $$.kind = GEN_CONST; }
  | RAGGED "(" ident ")" interval
    { $$ = $5; $$.kind = GEN_RAGGED; $$.by = $3.name; $$.by_span = $3.span; }
  | ANYTYPE "{" dtypes "}"
    { $$ = fe_generic_make(p, @$, GEN_DTYPE); VEC_MOVE($$.dtypes, $3); } ;
range: interval
  | "{" exprs "}" interval { $$ = $4; VEC_MOVE($$.values, $2); } ;
interval: %empty { $$ = fe_generic_make(p, @$, GEN_DYN); }
  | IN add ".." add
    { $$ = fe_generic_make(p, @$, GEN_DYN); $$.has_range = true; $$.lo = $2; $$.hi = $4; } ;
dtypes: DTYPE { $$ = (DTypeList){0}; PUSH($$, $1.dtype); }
  | dtypes "," DTYPE { $$ = $1; PUSH($$, $3.dtype); } ;

params: %empty { $$ = (ParamList){0}; } | paramlist | paramlist "," ;
paramlist: param { $$ = (ParamList){0}; PUSH($$, $1); }
  | paramlist "," param { $$ = $1; PUSH($$, $3); } ;
param: qual ident { $$ = fe_param_make(p, join($1 ? @1 : @2, @2), $1, $2, NULL); }
  | qual ident ":" type { $$ = fe_param_make(p, join($1 ? @1 : @2, @4), $1, $2, $4); }
  | qual ident ":" type "=" expr
    { $$ = fe_param_make(p, join($1 ? @1 : @2, @6), $1, $2, $4); $$.deflt = $6; }
  | qual ident ":" type layout
    { $$ = fe_param_make(p, join($1 ? @1 : @2, @5), $1, $2, $4); $$.layout = $5; } ;
qual: %empty { $$ = PQ_NONE; } | NOGRAD { $$ = PQ_NOGRAD; } | INOUT { $$ = PQ_INOUT; } ;

type: elem { $$ = type_make(p, @$, $1, (ExprList){0}, false); }
  | elem "[" exprs "]" { $$ = type_make(p, @$, $1, $3, false); }
  | ROW elem { $$ = type_make(p, @$, $2, (ExprList){0}, true); } ;
elem: DTYPE | INT | ident { $$ = (Token){.kind = TK_IDENT, .at = @1, .name = $1.name}; } ;
layout: LAYOUT "(" idents ")" { $$ = layout_make(p, @$, LAY_ORDER); VEC_MOVE($$->order, $3); }
  | LAYOUT PAGED "(" args ")" { $$ = layout_make(p, @$, LAY_PAGED); VEC_MOVE($$->args, $4); }
  | LAYOUT RAGGED "(" args ")" { $$ = layout_make(p, @$, LAY_RAGGED); VEC_MOVE($$->args, $4); } ;

ret: %empty { $$ = (TypeList){0}; }
  | "->" type { $$ = (TypeList){0}; PUSH($$, $2); }
  | "->" "(" types ")" { $$ = $3; } ;
types: type { $$ = (TypeList){0}; PUSH($$, $1); }
  | types "," type { $$ = $1; PUSH($$, $3); } ;
where: %empty { $$ = (ExprList){0}; } | WHERE exprs { $$ = $2; } ;
body: "=" expr ";" { $$ = (Body){.value = $2}; }
  | open stmts close { $$ = (Body){.stmts = $2, .braces = true}; } ;

/* ---- statements ---- */

stmts: %empty { $$ = (StmtList){0}; } | stmts stmt { $$ = $1; PUSH($$, $2); } ;
stmt: LET stmt_names "=" expr ";" { $$ = st_let(p, @$, $2, $4); }
  | INDEX indices ";" { $$ = st_index(p, @$, $2); }
  | RETURN exprs ";" { $$ = st_return(p, @$, $2); }
  | ASSUME expr ";" { $$ = st_expr(p, @$, ST_ASSUME, $2); }
  | ident "=" expr ";" { $$ = st_assign(p, @$, $1, NULL, $3); }
  | ident "[" items "]" "=" expr ";" { $$ = st_assign(p, @$, $1, &$3, $6); }
  | STATE ident ":" type "=" expr ";" { $$ = st_state(p, @$, $2, $4, $6); }
  | STEP ident extent direction open stmts close
    { $$ = st_loop(p, @$, ST_STEP, $2, $3); $$->reverse = $4; VEC_MOVE($$->body, $6); }
  | REPEAT ident IN add open stmts close
    { $$ = st_loop(p, @$, ST_REPEAT, $2, $4); VEC_MOVE($$->body, $6); }
  | error SYNC { $$ = st_new(p, @$, ST_ERROR); yyerrok; } ;
stmt_names: ident { $$ = (NameList){0}; PUSH($$, $1); } | "(" idents ")" { $$ = $2; } ;
extent: %empty { $$ = NULL; } | IN add { $$ = $2; } ;
direction: %empty { $$ = false; } | REVERSE { $$ = true; } ;
indices: index { $$ = (IndexList){0}; PUSH($$, $1); }
  | indices "," index { $$ = $1; PUSH($$, $3); } ;
index: ident IN add { $$ = (IndexDecl){$1, $3, NULL}; }
  | ident IN add WHERE expr { $$ = (IndexDecl){$1, $3, $5}; } ;

settings: %empty { $$ = (SettingList){0}; }
  | settings ident "=" value ";"
    { $$ = $1; PUSH($$, ((Setting){fe_span_of(p, join(@2, @5)), $2.name, $4})); }
  | settings error SYNC { $$ = $1; yyerrok; } ;
checks: %empty { $$ = (CheckList){0}; }
  | checks check { $$ = $1; PUSH($$, $2); }
  | checks error SYNC { $$ = $1; yyerrok; } ;
check: DIMS binds ";" { $$ = $2; $$.span = fe_span_of(p, @$); }
  | INPUT idents "=" expr ";"
    { ExprList v = {0}; PUSH(v, $4); $$ = fe_check_make(p, @$, CK_INPUT, $2, v); }
  | EXPECT expr "~=" expr TOL expr ";"
    { $$ = fe_check_make(p, @$, CK_EXPECT, (NameList){0}, (ExprList){0});
      $$.got = $2; $$.want = $4; $$.tol = $6; }
  | LET ident "=" expr ";"
    { NameList n = {0}; ExprList v = {0}; PUSH(n, $2); PUSH(v, $4);
      $$ = fe_check_make(p, @$, CK_LET, n, v); } ;
binds: ident "=" value
    { $$ = fe_check_make(p, @$, CK_DIMS, (NameList){0}, (ExprList){0});
      PUSH($$.names, $1); PUSH($$.exprs, $3); }
  | binds "," ident "=" value { $$ = $1; PUSH($$.names, $3); PUSH($$.exprs, $5); } ;

/* ---- expressions ---- */

exprs: expr { $$ = (ExprList){0}; PUSH($$, $1); }
  | exprs "," expr { $$ = $1; PUSH($$, $3); } ;
value: expr | DTYPE { $$ = ex_leaf(p, @$, EX_NAME, $1); }
  | INT { $$ = ex_leaf(p, @$, EX_NAME, $1); } ;
expr: pipe | IF expr THEN expr ELSE expr { $$ = ex_if(p, @$, $2, $4, $6); } ;
pipe: or
  | pipe "|>" callee { $$ = ex_pipe(p, @$, $1, $3, (ArgList){0}); }
  | pipe "|>" callee "(" args ")" { $$ = ex_pipe(p, @$, $1, $3, $5); } ;
callee: ident { $$ = ex_name(p, $1); }
  | callee "." ident { $$ = ex_member(p, @$, $1, $3); } ;
or: and | or "|" and { $$ = ex_binary(p, @$, BO_OR, $1, $3); } ;
and: not | and "&" not { $$ = ex_binary(p, @$, BO_AND, $1, $3); } ;
not: rel | "!" not { $$ = ex_unary(p, @$, UO_NOT, $2); } ;
rel: add | chain ;
chain: add relop add { $$ = ex_binary(p, @$, (BinOp)$2, $1, $3); }
  | chain relop add { $$ = ex_relate(p, @$, (BinOp)$2, $1, $3); } ;
relop: "<" { $$ = BO_LT; } | ">" { $$ = BO_GT; } | "<=" { $$ = BO_LE; }
  | ">=" { $$ = BO_GE; } | "==" { $$ = BO_EQ; } | "!=" { $$ = BO_NE; } ;
add: mul
  | add "+" mul { $$ = ex_binary(p, @$, BO_ADD, $1, $3); }
  | add "-" mul { $$ = ex_binary(p, @$, BO_SUB, $1, $3); } ;
mul: unary
  | mul "*" unary { $$ = ex_binary(p, @$, BO_MUL, $1, $3); }
  | mul "/" unary { $$ = ex_binary(p, @$, BO_DIV, $1, $3); }
  | mul "//" unary { $$ = ex_binary(p, @$, BO_FLOORDIV, $1, $3); }
  | mul "%" unary { $$ = ex_binary(p, @$, BO_MOD, $1, $3); }
  | mul "@@" unary { $$ = ex_binary(p, @$, BO_MATMUL, $1, $3); } ;
unary: power | "-" unary { $$ = ex_unary(p, @$, UO_NEG, $2); } ;
power: postfix | postfix "**" unary { $$ = ex_binary(p, @$, BO_POW, $1, $3); } ;
postfix: primary
  | postfix "[" items "]" { $$ = ex_index(p, @$, $1, $3); }
  | postfix "." ident { $$ = ex_member(p, @$, $1, $3); }
  | postfix "(" args ")" { $$ = ex_call(p, @$, $1, $3); }
  | CONST "(" args ")"   /* the generator of checks */
    { $$ = ex_call(p, @$, ex_name(p, fe_name_make(p, $1)), $3); } ;
primary: ident { $$ = ex_name(p, $1); }
  | INTLIT { $$ = ex_leaf(p, @$, EX_INT, $1); }
  | FLOATLIT { $$ = ex_leaf(p, @$, EX_FLOAT, $1); }
  | STRING { $$ = ex_leaf(p, @$, EX_STRING, $1); }
  | TRUE { $$ = ex_leaf(p, @$, EX_BOOL, $1); $$->ival = 1; }
  | FALSE { $$ = ex_leaf(p, @$, EX_BOOL, $1); }
  | INF { $$ = ex_leaf(p, @$, EX_INF, $1); }
  | DTYPE "(" expr ")" { $$ = ex_cast(p, @$, $1, $3); }
  | INT "(" expr ")" { $$ = ex_cast(p, @$, $1, $3); }
  | "(" expr ")" { $$ = $2; }
  | "(" expr "," exprs ")" { $$ = ex_tuple(p, @$, $2, $4); } ;
args: %empty { $$ = (ArgList){0}; } | arglist | arglist "," ;
arglist: arg { $$ = (ArgList){0}; PUSH($$, $1); }
  | arglist "," arg { $$ = $1; PUSH($$, $3); } ;
arg: value { $$ = fe_arg_make(p, @$, ARG_POS, NULL, $1); }
  | ident "=" value { $$ = fe_arg_make(p, @$, ARG_NAMED, &$1, $3); }
  | ident ":" expr { $$ = fe_arg_make(p, @$, ARG_BINDER, &$1, $3); } ;
items: item { $$ = (ItemList){0}; PUSH($$, $1); }
  | items "," item { $$ = $1; PUSH($$, $3); } ;
item: expr { $$ = fe_item_make(p, @$, ITEM_EXPR, $1, NULL); }
  | expr ":" expr { $$ = fe_item_make(p, @$, ITEM_SLICE, $1, $3); }
  | expr ":" { $$ = fe_item_make(p, @$, ITEM_SLICE, $1, NULL); }
  | ":" expr { $$ = fe_item_make(p, @$, ITEM_SLICE, NULL, $2); }
  | ":" { $$ = fe_item_make(p, @$, ITEM_SLICE, NULL, NULL); } ;

ident: IDENT { $$ = fe_name_make(p, $1); } | soft { $$ = fe_name_make(p, $1); } ;
soft: AS | MASK | MOD | ATTENTION | RECURRENT | CHECK | SCHEDULE | FOR | INDEX
  | STATE | STEP | REPEAT | RAGGED | PAGED | DYN | INPUT | EXPECT | DIMS | TOL ;
%%
/* Called at each error: hands what could have followed to parse.c, which
   reports it and finds the place to go on from. */
static int yyreport_syntax_error(const yypcontext_t *at, Parse *p) {
  yysymbol_kind_t want[YYNTOKENS];
  int n = yypcontext_expected_tokens(at, want, YYNTOKENS), kinds[YYNTOKENS];
  for (int i = 0; i < n; i++) kinds[i] = (int)want[i];
  fe_syntax_error(p, kinds, n);
  return 0;
}

/* Only "memory exhausted" comes this way. */
static void attn_error(const Loc *at, Parse *p, const char *msg) {
  (void)msg;
  fe_too_deep(p, *at);
}
