// Phases in front of a program: what a phase makes is stored in a shared
// tensor, which is a parameter of both, and the program loads it.
//
//   before  func @p(%x) { %v = f(%x)  .. %v .. }
//   after   func @p.made(%x, %v.made: tensor<..> shared) {
//             %v = f(%x)  store(%v.made, %v, ..) }
//           func @p(%x, %v.made: .. shared) { %v = load(%v.made, ..)  .. }
//
// A pass finds v, adds the tensor, opens the phase, copies what v is made of
// into it, stores, puts the phase in front of the program and has the program
// read.
#ifndef ATTNC_PASSES_SUPPORT_OUTLINE_H
#define ATTNC_PASSES_SUPPORT_OUTLINE_H

#include "ir/ir.h"

// Is v an input of f, which a phase too has?
bool outline_is_input(const Func *f, Value v);
// Can a phase do op again: is it a load, a coordinate, a number, or
// elementwise?
bool outline_can_repeat(const Op *op);
// Axes of tasks of all that is stored; 0: outputs differ in them, or ops are no
// plain list.
uint64_t outline_tasks(const Func *f);

// The program that f is a phase of, or f.
const Func *outline_last(const Func *f);
// Workspaces lie in the order of parameters: what f has, functions behind it of
// the same program have at the same place. Gives them that one, number `at`.
void outline_share(const Func *f, const char *name, Type t, uint32_t at);
// The shared tensor "of.what", a new parameter of f, and of functions behind f
// that it is a phase of.
Value outline_tensor(Func *f, const char *of, const char *what, Type t);
// A function without a body that has f's parameters, and `axes`: its axes and
// grid. Its name is "f.what", with the number if that is not 0. It is not in
// the module's list (outline_put).
Func *outline_func(const Func *f, const char *what, uint32_t number, bool axes);
// Maps f's parameters to those of its phase g.
void outline_params(ValueMap *map, const Func *f, const Func *g);
// A builder behind what defines v in f.
Builder outline_behind(Func *f, Value v);
// Phases that a program has beside itself: half of ATTN_MAX_PHASES, for each
// may get one more, which joins parts of the keys.
enum { MAX_FRONT = 23 };
// Phases in front of f; those of the whole program that f is, or is one of.
uint32_t outline_count(const Func *f);
uint32_t outline_beside(const Func *f);
// g goes in front of f, behind the phases that are there.
void outline_put(Func *g, const Func *f);

#endif
