// What the checker writes into the tree, and questions about it.
//
// Every Expr of a checked unit has `ty` and `vary`; unit->checked is set and
// fe_check has returned true. Names are resolved; nothing here needs scopes.
//
// ty.kind TY_VALUE: `dtype`, and `shape` for the axes that are left over.
//   dtype   arithmetic never rounds: an operation on floats is f32, or f64 if
//           an operand is; an operation on integers is i64. Names, loads,
//           slices, concat, vec, if, select, stop_grad keep the dtype of what
//           they move (if it is one dtype; else as arithmetic). Comparisons,
//           `& | !` and any, all are bool; count is i64.
//   weak    made of literals and dims only. A weak integer used where a float
//           is needed converts (checked: ty stays i64, the user of the value
//           casts). `/`, `**` and float functions of weak integers are f32.
//   shape   dims of the enclosing Decl's table (Decl.dims).
// Operands of an elementwise operation are aligned to the shape of its ty by
//   fe_align; scalars (rank 0) always broadcast, so do axes of extent 1.
// vary: indices the value may depend on (a superset), bits are
//   Decl.indices.at[i]->index_id == i of the enclosing Decl. It includes what
//   a reduction's domain depends on, and the batch index of ragged extents.
//
// EX_NAME    sym. SY_DIM: the dim's value; of a ragged dim, `binder` is the
//            batch index at whose point it is meant. SY_INDEX: its
//            coordinate. SY_LET: the value of sym->value, element
//            sym->tuple_at of it if sym->is_tuple; the same function of the
//            free indices, so binders around the use apply to it; states in
//            it are those at the let. SY_STATE: the state at that point of
//            the step. SY_DECL: a call with no written arguments (`causal`):
//            `bound`, `dims`, as EX_CALL.
// EX_MEMBER  sym is what it names in the module e->a->sym->unit; as EX_NAME.
//            In checks: an output (SY_OUT) of the program call e->a.
// EX_CALL    sym is the callee (e->a->sym too). sym->kind SY_BUILTIN: row
//            sym->builtin of builtins.def; args as written. Otherwise
//            sym->decl, `bound` (one per parameter) and `dims`.
// EX_PIPE    the same; a builtin's first argument is e->a, then args.
// Bound      index != NULL: an index parameter that is this index of the
//            caller. value != NULL: an expression, of the caller; but if
//            value == callee->params.at[i].deflt it is the default, an
//            expression of the callee's dims. In a check, index is the
//            `input` (SY_LET) that is bound by its name.
// rows       the call's key is `binder`, an index of the caller (for a row
//            that calls a row: its Decl.key). Row parameters and results vary
//            with it. Ty.row tells in Decl.results and in tuple elements.
// reductions `binder` is the index they bind; args.at[0] is the operand (a
//            pipe: e->a), with or without a written binder. They run over the
//            domain of the binder (Sym.domain, and its extent Sym.dim).
//            `elementwise`: max, min of several arguments.
// scans      the same; `exclusive` is fe_exclusive(e). Still vary with binder.
// vec        `binder`; shape is [extent of binder, shape of the operand..].
// dot        both rank 1, equal dims. outer [M],[N] -> [M,N]. concat along
//            axis 0. `@@`: [K]@@[K,N], [M,K]@@[K], [M,K]@@[K,N], [K]@@[K].
// EX_INDEX   items in order of the base's axes; item.new_axis consumes none
//            and adds an axis of extent 1; a slice keeps its axis, an
//            expression drops it; trailing axes stay. Slice ends are dim
//            expressions (fe_dim_of); missing ends are 0 and the axis' end.
//            item.shifted: t plus or minus a constant inside `step t`, reads 0
//            outside the sequence.
// EX_IF      a is the condition; all three align to the shape of ty.
// EX_CHAIN   neighbours compare pairwise; the conjunction.
//
// ST_LET     names[i].sym (NULL for `_`). ST_INDEX names: role, extent, domain
//            in the Sym. ST_ASSIGN target.sym SY_OUT: items are plain distinct
//            indices, in the order of the output's leading axes; the value has
//            the shape of the remaining axes (or is a scalar) and rounds to
//            the output's dtype. SY_PARAM, an inout tensor: the same, but items
//            may be entries of tables, `slot[n]` (item.shifted: nothing is
//            written outside of the axis). SY_STATE: whole state, aligned and
//            rounded.
// ST_STEP    names[0].sym: IX_STEP, extent Sym.dim (also when not written).
// ST_REPEAT  names[0].sym: IX_REPEAT.
// ST_STATE   names[0].sym: SY_STATE, its type and initial value; varies with
//            all parallel indices. fe_state_inout: where it is written back.
//
// Decl.indices all indices of the declaration. Roles: IX_PARALLEL stands in
//            an output. IX_VEC: bound by `vec`, or (compile-time extent, no
//            domain, used only for last axes) reduced like a vector's axis.
//            Else IX_KEY. In mask, mod, fn: IX_PARAM and IX_VEC; in a row the
//            implicit Decl.key as well.
// Decl.results of mask, mod, row, fn; dims of that declaration.
// A parameter of a row with `row T` has Sym.vary = bit of the key.
// dtype generics: the annotations are those of the first dtype of each. Call
//            fe_retype before reading a program for another choice.
#ifndef ATTNC_FRONTEND_CHECK_H
#define ATTNC_FRONTEND_CHECK_H

#include "frontend/builtins.h"
#include "frontend/frontend.h"

// How a value of shape `from` lies in shape `to`: axis i is axis map[i] of
// `to`; where from's extent is 1 and to's is not, it broadcasts. False if it
// does not fit or fits in more than one way.
bool fe_align(const DimTab *t, const Ty *from, const Ty *to,
              uint8_t map[MAX_RANK]);

// Equal, or made of the same const dims and equal for each of their values
// (D // 2 and D - D // 2). Two dims D and E are never equal.
bool fe_dims_equal(const DimTab *t, Dim a, Dim b);

// Does a parameter or an output have the dim in its type?
bool fe_dim_in_types(const Decl *d, uint32_t sym);

// The dim that a checked extent or slice end stands for.
Dim fe_dim_of(const Decl *d, const Expr *e);

// The index over the batch axis of a ragged extent, NULL if `extent` is not
// ragged or d has no such index.
Sym *fe_batch_index(const Decl *d, Dim extent);
// The parameter that holds the lengths or offsets of a ragged dim.
Sym *fe_ragged_by(const Decl *d, Dim extent, bool *offsets);

// exclusive = true of a scan.
bool fe_exclusive(const Expr *scan);

// An index by name, or by an entry of a table: S0[b], S0[slot[b]].
bool fe_names_place(const Item *it, bool table);

// `state M = S0[b, h]`, `S0[slot[b], h]` of an inout S0: that parameter; else
// NULL.
const Param *fe_state_inout(const Decl *d, const Stmt *state);

// Checks `prog` again with its dtype generics bound as in `binds`.
bool fe_retype(Ctx *cx, Decl *prog, const FeBind *binds, uint32_t nbinds);

// Domain predicates that no key can satisfy, and the like: the value of a
// scalar integer or bool expression as an interval (bools: 0..1).
typedef struct Range {
  int64_t lo, hi;  // INT64_MIN, INT64_MAX: unknown
} Range;
Range fe_range(const Decl *d, const Expr *e);

#endif
