// Private to the driver: code for GPUs. A variant's module becomes PTX, then,
// if there is a ptxas, machine code; all variants of a file are assembled at
// the same time.
#ifndef ATTNC_DRIVER_DEVICE_H
#define ATTNC_DRIVER_DEVICE_H

#include "tools/driver/compile.h"

// What was made for a CgDevice of a program, in the same order.
typedef struct Built {
  const Target *target;
  const Module *mod;
  uint32_t program;         // whose variant it is, by number
  CgKernels kernels;        // one for each phase
  Buf log;                  // of ptxas
} Built;
typedef Vec(Built) Builts;

// Appends a device to p. m: level mach of a GPU; its programs are called as p
// is.
bool drv_add_device(Ctx *cx, const Module *m, CgExpr when,
                    const DrvOptions *opt, CgProgram *p, Built *out);
// Machine code for the devices of p from number `from` on; built are theirs.
// Without a ptxas nothing happens.
bool drv_assemble(Ctx *cx, const DrvOptions *opt, CgProgram *p, Built *built,
                  uint32_t n);

// drv_program for one specialization and a GPU, with what is known of it.
bool drv_device_program(Ctx *cx, Decl *prog, const FeBind *binds, uint32_t n,
                        const Target *target, const DrvOptions *opt,
                        CgProgram *out, Built *built);

#endif
