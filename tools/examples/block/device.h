/* The little that the example needs of NVIDIA's driver, opened at run time. */
#ifndef DEVICE_H
#define DEVICE_H

#include <stddef.h>

/* NULL, or why there is no device. Its context stays current. */
const char *device_open(void);
/* Memory of the device with these bytes; NULL on failure. */
void *device_copy(const void *from, size_t bytes);
/* The same for a workspace; NULL also before device_open. */
void *device_scratch(size_t bytes);
/* Waits for all launches; 0 on failure. */
int device_fetch(void *to, const void *from, size_t bytes);

#endif
