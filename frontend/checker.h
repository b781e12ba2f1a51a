// Private to the checker. Files by meaning: types (shapes, dtypes), checkdim
// (dims, generics, `where`), checkexpr, checkcall (binding of arguments),
// checkbuiltin, checkbody (statements), roles, checkdecl (signatures),
// checklayout, checkattr (attributes, schedule), checkblock (check), checkmask
// (bounds, signs), specialize, checkunit and import (files).
#ifndef ATTNC_FRONTEND_CHECKER_H
#define ATTNC_FRONTEND_CHECKER_H

#include "frontend/check.h"
#include "frontend/scope.h"

enum {
  MAX_IMPORTS = 64,
  MAX_INDICES = 64,
  MAX_CALLS = 128,
  MAX_GENERICS = 128,  // dims and dtypes of a declaration
  MAX_PARAMS = 256,    // and outputs
  MAX_VALUES = 4096,   // of a const dim
};

typedef struct Loaded {
  const char *path;  // resolved; the key of the cache
  Unit *unit;
} Loaded;

// One fe_check with all files it reads.
typedef struct Session {
  Ctx *cx;
  Scope *builtins;
  Vec(Loaded) units;
  Vec(const char *) open;  // files being checked, outermost first
  Vec(Decl *) decls;       // declarations being checked, outermost first
} Session;

typedef struct Check {
  Ctx *cx;
  Arena *a;  // of the session
  Session *ses;
  Unit *unit;
  Scope *top;           // names of the unit
  Scope *scope;         // innermost
  Decl *decl;           // being checked; NULL in a check block's header
  DimTab *dims;         // of decl
  uint32_t errors;      // cx->nerrors when decl was begun
  const FeBind *binds;  // dtype generics bound by fe_retype
  uint32_t nbinds;
  Sym *step;             // inside a step: its index
  bool stepped;          // a step was seen
  int repeats;           // open repeat blocks
  uint64_t guarded;      // bits of indices that conditions around depend on
  const Sym *declaring;  // the index whose domain is checked, or NULL
  bool in_body;
  Stmt *returned;      // the return statement
  bool in_check;       // programs may be called
  bool in_input;       // generators may be called
  uint32_t *assigned;  // per output: number of equations
  Span *equation;      // per output: the first one
  bool roles_unsure;   // an output has none: which indices are keys is
                       // not known, and not worth a complaint
} Check;

static inline bool is_program(const Decl *d) {
  return d->kind == DE_ATTENTION || d->kind == DE_RECURRENT;
}
static inline bool is_function(const Decl *d) {
  return d->kind >= DE_FN && d->kind <= DE_ROW;
}
static inline uint64_t index_bit(const Sym *s) {
  return (uint64_t)1 << s->index_id;
}
static inline bool bad(const Ty *t) {
  return t->kind == TY_ERROR;
}

// --- types.c
Ty ty_error(void);
Ty ty_scalar(DType t, bool weak);
bool ty_is_float(const Ty *t);
bool ty_is_int(const Ty *t);
bool ty_is_bool(const Ty *t);
// Result of arithmetic on the two; dtypes of one class.
DType ty_arith(DType a, DType b);
DType ty_join(DType a, DType b);
const char *ty_text(Check *c, const Ty *t);
const char *fe_shape_text(Check *c, const Ty *t);
const char *dim_text(Check *c, Dim d);
const char *fe_span_text(Check *c, Span s);  // its source text
// Common shape of elementwise operands. False if reported.
bool ty_unify_shape(Check *c, Expr *const *at, uint32_t n, Ty *out);
// What values of e may be passed where `want` is; store: may round.
bool ck_fits(Check *c, Expr *e, const Ty *want, bool store, const char *what);
// The dtype of e converts to a float of its own accord.
bool ck_as_float(Check *c, Expr *e);
bool ck_value(Check *c, Expr *e);  // not a tuple, string, ..; reports

// --- checkdim.c
Dim ck_dim(Check *c, Expr *e, bool implicit);
// A note to d, if two dims that differ are one where a symbol is a multiple of
// some number.
void ck_advise_multiple(Check *c, Diag *d, Dim a, Dim b);
bool ck_const_int(Check *c, Expr *e, int64_t *v);
void ck_generics(Check *c, Decl *d);
void ck_where(Check *c, Decl *d);
bool ck_type(Check *c, TypeExpr *t, Ty *out);
// Fills e->dims from the arguments in e->bound. False if reported.
bool ck_solve(Check *c, Expr *e, const Decl *callee);

// --- checkexpr.c
void ck_expr(Check *c, Expr *e);    // any, tuples included
bool ck_single(Check *c, Expr *e);  // one value; false if bad
Sym *ck_lookup(Check *c, const char *name, Span at);
Sym *ck_member(Check *c, Expr *e);
const char *ck_kind(const Sym *s);  // "a mask", for messages
void ck_fail(Expr *e);
// Values of indices an extent or domain depends on.
uint64_t ck_domain_vary(const Check *c, const Sym *index);
// e is a plain name of an index in scope.
Sym *ck_bare_index(Check *c, const Expr *e);
void ck_wrong_type(Check *c, const Expr *e, const char *want);
// An item of an output's target that is no parallel index.
void ck_bad_target(Check *c, Item *it, const char *output);
void ck_undeclared_index(Check *c, const char *name, Span at);

// --- checkextent.c
// An index as an item of e, at an axis of that extent.
void ck_index_extent(Check *c, const Expr *e, const Item *it, Dim axis);
// What could not be told in a function, with the dims of a call of it. False if
// reported.
bool ck_call_extents(Check *c, const Expr *call, const Decl *callee);

// --- checkcall.c
void ck_call(Check *c, Expr *e);
void ck_named_call(Check *c, Expr *e, Sym *sym);  // EX_NAME of a mask
void ck_bind(Check *c, Expr *e, Decl *callee);

// --- checkbuiltin.c
void ck_builtin(Check *c, Expr *e, Sym *sym);
// The one key index (else the one vector index) in vary; reports if none or
// several. `what` is the reducing function.
Sym *ck_find_binder(Check *c, Expr *e, uint64_t vary, const char *what);
bool ck_may_bind(Check *c, Expr *e, const Sym *index);

// --- checkbody.c
void ck_program_body(Check *c, Decl *d);
void ck_function_body(Check *c, Decl *d);
Sym *ck_new_index(Check *c, NameRef *n, IndexRole role, Dim extent);
bool ck_declare(Check *c, Sym *sym);  // false if the name is taken
Sym *ck_sym(Check *c, SymKind kind, const char *name, Span span);

// --- roles.c
// Whether each output is the target of some statement.
bool ck_outputs_assigned(const Decl *d);
// Where d's body reads the parameter; NULL: nowhere.
const Expr *ck_read_of(const Decl *d, const char *name);
IndexRole ck_role(const Decl *d, const DimTab *t, const IndexDecl *x,
                  Dim extent);
Dim ck_step_extent(Check *c, const Decl *d, const Stmt *step);
// Extent of an axis that the name indexes somewhere, or DIM_NONE.
Dim ck_axis_of_name(Check *c, const char *name);

// --- checkdecl.c
bool ck_decl(Check *c, Decl *d);  // on demand; false if it failed

// --- checklayout.c
void ck_layouts(Check *c, Decl *d);
// A ragged extent needs an index over its batch axis.
void ck_ragged_index(Check *c, Dim extent, Span at);

// --- checkmask.c
// What lets and functions are made of, so that no walk goes through them:
// whether a float or a key reduction is in e, and the sign of its value.
uint32_t ck_facts(const Expr *e);
uint32_t ck_function_facts(const Decl *d);
// First subexpression that makes e depend on a float, through lets and calls.
const Expr *ck_float_part(const Expr *e);
void ck_empty_domain(Check *c, const Sym *index);
void ck_normalizers(Check *c, const Decl *row);

// --- checkattr.c
void ck_attrs(Check *c, Decl *d);
void ck_schedule(Check *c, Decl *d);

// --- specialize.c
// Value of a constraint for values of the dim symbols; known[i] tells which
// are set. False if it cannot be told.
bool ck_constraint(const Decl *d, const Expr *e, const int64_t *sym,
                   const bool *known, int64_t *v);

// --- checkblock.c
void ck_check_block(Check *c, Decl *d);
void ck_check_call(Check *c, Expr *e, Decl *program);
void ck_check_builtin(Check *c, Expr *e, Sym *sym);

// --- import.c
// The unit of an import, parsed and checked. NULL if reported.
Unit *fe_import_unit(Check *c, const Decl *import);
// std/masks.attn as std.masks
const char *ck_module_of(Check *c, const char *path);

// --- checkunit.c
bool ck_unit(Session *ses, Unit *unit);
Scope *ck_unit_scope(Check *c, Unit *unit, bool report);
Sym *ck_unit_find(const Unit *unit, const char *name);

#endif
