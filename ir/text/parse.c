// The text form of modules (docs/ir.md), read. Recursive descent over
// characters; everything that types and rules demand is left to verify.c.
#include "ir/infer.h"
#include "ir/text/parse.h"

#include <ctype.h>
#include <string.h>

// ---------------------------------------------------------------- values
static bool parse_value_name(Parser *p, const char **name, const char **at) {
  parse_skip(p);
  *at = p->p;
  if (!parse_accept(p, '%')) return parse_expected(p, "a value");
  size_t n = 0;
  while (isalnum((unsigned char)p->p[n]) || p->p[n] == '_' || p->p[n] == '.')
    n++;
  if (!n) return parse_expected(p, "a value name");
  *name = intern_n(&p->cx->names, p->p, n);
  p->p += n;
  return true;
}

static bool bind(Parser *p, const char *name, const char *at, Value v) {
  uint64_t key = (uint64_t)(uintptr_t)name, old;
  if (map_get(&p->values, key, &old))
    return parse_twice(p, "value", at, (size_t)(strlen(name) + 1));
  map_put(&p->values, key, v);
  return true;
}

static bool parse_use(Parser *p, Value *v) {
  const char *name, *at;
  uint64_t found;
  if (!parse_value_name(p, &name, &at)) return false;
  if (!map_get(&p->values, (uint64_t)(uintptr_t)name, &found))
    return parse_undefined(p, "value", at, (size_t)(p->p - at));
  *v = (Value)found;
  return true;
}

typedef struct Names {
  Vec(const char *) name;
  Vec(const char *) at;
} Names;

typedef Vec(Value) Values;

// "(%a, %b)"
static bool parse_operands(Parser *p, Values *args) {
  if (!parse_expect(p, '(')) return false;
  if (parse_accept(p, ')')) return true;
  do {
    Value v = 0;
    if (!parse_use(p, &v)) return false;
    if (args->n == PARSE_LIST) return parse_error(p, p->p, "too many operands");
    vec_push(&p->cx->session, args, v);
  } while (parse_accept(p, ','));
  return parse_expect(p, ')');
}

// "%a, %b ="
static bool parse_results(Parser *p, Names *names) {
  do {
    const char *name, *at;
    if (!parse_value_name(p, &name, &at)) return false;
    if (names->at.n == PARSE_LIST)
      return parse_error(p, p->p, "too many results");
    vec_push(&p->cx->session, &names->name, name);
    vec_push(&p->cx->session, &names->at, at);
  } while (parse_accept(p, ','));
  return parse_expect(p, '=');
}

// ---------------------------------------------------------------- ops
static bool parse_ops(Parser *p, Region *r);

static bool parse_region_params(Parser *p, Region *r) {
  if (!parse_expect(p, '(')) return false;
  do {
    const char *name, *at;
    Type t;
    if (!parse_value_name(p, &name, &at) || !parse_expect(p, ':') ||
        !parse_type(p, &t))
      return false;
    if (!bind(p, name, at, ir_region_param(r, t, name))) return false;
  } while (parse_accept(p, ','));
  return parse_expect(p, ')') && parse_expect(p, ':');
}

static bool parse_region(Parser *p, Op *op) {
  if (!parse_expect(p, '{')) return false;
  if (p->depth == PARSE_DEPTH)
    return parse_error(p, p->p - 1, "regions are nested deeper than %d levels",
                       PARSE_DEPTH);
  p->depth++;
  Region *r = op_add_region(op);
  bool ok =
      (!parse_accept(p, '^') || parse_region_params(p, r)) && parse_ops(p, r);
  p->depth--;
  return ok;
}

static bool parse_regions(Parser *p, Op *op) {
  if (!parse_accept(p, '(')) return true;
  do {
    if (op->nregions == 16)
      return parse_error(p, p->p, "an op has at most 16 regions");
    if (!parse_region(p, op)) return false;
  } while (parse_accept(p, ','));
  return parse_expect(p, ')');
}

static bool parse_result_types(Parser *p, Op *op, const Names *names) {
  Vec(Type) types = {0};
  uint32_t n = names->name.n;
  const char *at = p->p;
  if (parse_accept(p, ':')) {
    do {
      Type t;
      if (!parse_type(p, &t)) return false;
      vec_push(&p->cx->session, &types, t);
    } while (types.n <= n && parse_accept(p, ','));
  }
  if (types.n != n)
    return parse_error(p, at, "%u results but %s%u types", n,
                       types.n > n ? "at least " : "", types.n);
  op_add_results(op, types.at, n);
  for (uint32_t i = 0; i < n; i++) {
    const char *name = names->name.at[i];
    ir_set_hint(p->f, op->res[i], name);
    if (!bind(p, name, names->at.at[i], op->res[i])) return false;
  }
  return true;
}

static bool parse_op(Parser *p, Region *r) {
  Names names = {0};
  Values args = {0};
  const IrAttr *attrs = NULL;
  uint32_t nattrs = 0;
  const char *s;
  size_t n;
  OpCode code;
  parse_skip(p);
  if (*p->p == '%' && !parse_results(p, &names)) return false;
  if (!parse_name(p, "an op", &s, &n)) return false;
  if (!op_by_name(s, n, &code)) return parse_undefined(p, "op", s, n);
  if (!parse_operands(p, &args) || !parse_attrs(p, &attrs, &nattrs))
    return false;
  Op *op = op_make(r, NULL, code, args.at, args.n, attrs, nattrs);
  op->span = parse_span(p, s, s + n);
  return parse_regions(p, op) && parse_result_types(p, op, &names);
}

static bool parse_ops(Parser *p, Region *r) {
  while (!parse_accept(p, '}')) {
    if (!*p->p) return parse_expected(p, "an op or '}'");
    if (!parse_op(p, r)) return false;
  }
  return true;
}

// ---------------------------------------------------------------- functions
static bool parse_param(Parser *p) {
  const char *name, *at;
  Type t;
  uint32_t role;
  if (!parse_value_name(p, &name, &at) || !parse_expect(p, ':') ||
      !parse_type(p, &t) || !parse_word(p, WS_PARAM_ROLE, "a role", &role))
    return false;
  Value v = ir_param(p->f, name, (ParamRole)role, t);
  p->f->params.at[p->f->params.n - 1].nograd = parse_keyword(p, "nograd");
  return bind(p, name, at, v);
}

static bool parse_params(Parser *p) {
  if (!parse_expect(p, '(')) return false;
  if (parse_accept(p, ')')) return true;
  do {
    if (!parse_param(p)) return false;
  } while (parse_accept(p, ','));
  return parse_expect(p, ')');
}

static bool axis_known(const Func *f, const char *name) {
  for (uint32_t i = 0; i < f->axes.n; i++)
    if (f->axes.at[i].name == name) return true;
  return false;
}

static bool parse_axis_decl(Parser *p) {
  const char *s;
  size_t n;
  uint32_t role;
  Dim extent;
  if (!parse_name(p, "an axis", &s, &n) ||
      !parse_word(p, WS_AXIS_ROLE, "a role", &role) || !parse_dim(p, &extent))
    return false;
  const char *name = intern_n(&p->cx->names, s, n);
  if (axis_known(p->f, name)) return parse_twice(p, "axis", s, n);
  if (p->f->axes.n == PARSE_AXES)
    return parse_error(p, s, "more than %d axes", PARSE_AXES);
  ir_axis(p->f, name, (AxisRole)role, extent);
  return true;
}

static bool parse_axes(Parser *p) {
  if (!parse_keyword(p, "axes")) return true;
  if (!parse_expect(p, '(')) return false;
  do {
    if (!parse_axis_decl(p)) return false;
  } while (parse_accept(p, ','));
  return parse_expect(p, ')');
}

static bool parse_grid(Parser *p) {
  if (!parse_keyword(p, "grid")) return true;
  if (!parse_expect(p, '(')) return false;
  do {
    GridDim g = {0};
    if (!parse_axis(p, &g.axis) || !parse_expect(p, ':') ||
        !parse_int(p, &g.tile))
      return false;
    g.serial = parse_keyword(p, "serial");
    if (p->f->grid.n == PARSE_AXES)
      return parse_error(p, p->p, "grid is too long");
    vec_push(p->m->arena, &p->f->grid, g);
  } while (parse_accept(p, ','));
  return parse_expect(p, ')');
}

static bool parse_key(Parser *p) {
  if (!parse_keyword(p, "key")) return true;
  uint32_t axis;
  if (!parse_expect(p, '(') || !parse_axis(p, &axis)) return false;
  p->f->key = (int)axis;
  return parse_expect(p, ')');
}

static void skip_parens(Parser *p) {
  int depth = 0;
  do {
    parse_skip(p);
    if (!*p->p) return;
    if (*p->p == '(') depth++;
    if (*p->p == ')') depth--;
    p->p++;
  } while (depth > 0);
}

// Parameters may have axes, which are declared after them: the declarations
// are read first.
static bool parse_signature(Parser *p) {
  parse_skip(p);
  const char *params = p->p;
  if (*params != '(') return parse_expected(p, "'('");
  skip_parens(p);
  if (!parse_axes(p) || !parse_grid(p) || !parse_key(p)) return false;
  const char *end = p->p;
  p->p = params;
  if (!parse_params(p)) return false;
  p->p = end;
  return true;
}

static bool parse_func(Parser *p) {
  const char *s;
  size_t n;
  uint32_t kind;
  if (!parse_word(p, WS_FUNC_KIND, "a kind", &kind) || !parse_expect(p, '@') ||
      !parse_name(p, "a function name", &s, &n))
    return false;
  const char *name = intern_n(&p->cx->names, s, n);
  if (ir_find(p->m, name)) return parse_twice(p, "function", s, n);
  if (p->m->funcs.n == PARSE_FUNCS)
    return parse_error(p, s, "more than %d functions", PARSE_FUNCS);
  p->f = ir_func(p->m, (FuncKind)kind, name);
  p->f->span = parse_span(p, s, s + n);
  p->values = (Map){.arena = &p->cx->session};
  return parse_signature(p) && parse_expect(p, '{') && parse_ops(p, p->f->body);
}

// ---------------------------------------------------------------- modules
static bool parse_by(Parser *p, DimSym *sym) {
  const char *s;
  size_t n;
  if (!parse_expect(p, '(')) return false;
  if (parse_accept(p, ')')) return true;
  if (!parse_name(p, "a parameter", &s, &n)) return false;
  sym->by = intern_n(&p->cx->names, s, n);
  return parse_expect(p, ')');
}

#define MAX_BOUND ((int64_t)1 << 62)

static bool parse_bound(Parser *p, int64_t lo, int64_t *v) {
  parse_skip(p);
  const char *at = p->p;
  if (!parse_int(p, v)) return false;
  if (*v >= lo && *v <= MAX_BOUND) return true;
  return parse_error(p, at, "out of range [%lld, %lld]", (long long)lo,
                     (long long)MAX_BOUND);
}

static bool parse_values(Parser *p, DimSym *sym) {
  do {
    int64_t v = 0, lo = -MAX_BOUND;
    if (sym->values.n) lo = sym->values.at[sym->values.n - 1] + 1;
    if (!parse_bound(p, lo, &v)) return false;
    vec_push(p->m->arena, &sym->values, v);
  } while (parse_accept(p, ','));
  return parse_expect(p, '}');
}

static bool parse_dim_facts(Parser *p, DimSym *sym) {
  if (sym->kind == DIM_RAGGED && !parse_by(p, sym)) return false;
  bool range = parse_keyword(p, "in");
  if (range && !(parse_expect(p, '[') && parse_bound(p, -MAX_BOUND, &sym->lo) &&
                 parse_expect(p, ',') && parse_bound(p, sym->lo, &sym->hi) &&
                 parse_expect(p, ']')))
    return false;
  if (parse_accept(p, '{') && !parse_values(p, sym)) return false;
  sym->open = range && sym->values.n &&
              (sym->lo < sym->values.at[0] ||
               sym->hi > sym->values.at[sym->values.n - 1]);
  return !parse_keyword(p, "div") || parse_bound(p, 1, &sym->divisor);
}

// Behind "dim NAME =".
static bool parse_dim_name(Parser *p, const char *name) {
  Dim d;
  if (!parse_dim(p, &d)) return false;
  dim_add_name(&p->m->dims, name, d);
  return true;
}

static bool parse_dim_decl(Parser *p) {
  const char *s;
  size_t n;
  uint32_t kind, at;
  if (!parse_name(p, "a dim", &s, &n)) return false;
  const char *name = intern_n(&p->cx->names, s, n);
  const DimTab *t = &p->m->dims;
  if (dim_find_sym(t, name, &at) || dim_find_name(t, name))
    return parse_twice(p, "dim", s, n);
  if (t->syms.n + t->names.n == PARSE_DIMS)
    return parse_error(p, s, "more than %d dims", PARSE_DIMS);
  if (parse_accept(p, '=')) return parse_dim_name(p, name);
  if (!parse_word(p, WS_DIM_KIND, "a kind", &kind)) return false;
  at = dim_add_sym(&p->m->dims, name, (DimKind)kind);
  return parse_dim_facts(p, &p->m->dims.syms.at[at]);
}

// The target's name stands on the line of the level.
static void parse_target(Parser *p) {
  while (*p->p == ' ' || *p->p == '\t') p->p++;
  size_t n = 0;
  while ((unsigned char)p->p[n] > ' ' && p->p[n] != '#') n++;
  if (n) p->m->target = intern_n(&p->cx->names, p->p, n);
  p->p += n;
}

static bool parse_module(Parser *p) {
  uint32_t level;
  if (!parse_keyword(p, "module")) return parse_expected(p, "'module'");
  if (!parse_word(p, WS_LEVEL, "a level", &level)) return false;
  p->m = ir_module(p->cx, (Level)level);
  parse_target(p);
  while (parse_keyword(p, "dim"))
    if (!parse_dim_decl(p)) return false;
  while (parse_keyword(p, "func"))
    if (!parse_func(p)) return false;
  parse_skip(p);
  if (p->p == p->src->text + p->src->len) return true;
  return parse_expected(p, p->m->funcs.n ? "'func'" : "'dim' or 'func'");
}

Module *ir_parse(Ctx *cx, Source *src) {
  Parser p = {.cx = cx, .src = src, .p = src->text};
  return parse_module(&p) ? p.m : NULL;
}
