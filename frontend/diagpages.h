// The pages behind `attnc explain CODE`: docs/diag/<CODE>.md.
#ifndef ATTNC_FRONTEND_DIAGPAGES_H
#define ATTNC_FRONTEND_DIAGPAGES_H

#include "ir/core/diag.h"

// Markdown text, or NULL if the code has no page.
const char *diag_page(DiagId id);

#endif
