// Private to the driver: running modules in the interpreter.
#ifndef ATTNC_DRIVER_RUN_FORMS_H
#define ATTNC_DRIVER_RUN_FORMS_H

#include "tools/driver/driver.h"

// Executes the call's program at a level, all in f64; the outputs of the call
// become f64 arrays. False with a diagnostic, or with *skip set if it would
// take too long.
bool drv_interpret(DrvCall *c, Level level, const DrvOptions *opt,
                   const char **skip);

// The argument as the interpreter takes it.
void drv_interp_tensor(const DrvArg *a, InterpTensor *t);
// Values of the module's dim symbols for this call.
const int64_t *drv_module_dims(const DrvCall *c, const Module *m,
                               const Func *f);

#endif
