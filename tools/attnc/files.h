// The inputs of a command that takes files and folders.
#ifndef ATTNC_ATTNC_FILES_H
#define ATTNC_ATTNC_FILES_H

#include "tools/attnc/attnc.h"

// Files as they were named; of a folder all .attn files in it and in its
// folders, by name, but nothing whose name begins with a point. They live in
// the Cli's arena. False if a folder cannot be read: that was said.
bool files_of(Cli *cli, Strings *out);

#endif
