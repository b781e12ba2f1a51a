// The check macro of the unit tests.
#ifndef ATTNC_TEST_EXPECT_H
#define ATTNC_TEST_EXPECT_H

#include <stdio.h>

static int failures;

#define EXPECT(c) \
  ((c) ? (void)0 \
       : (void)(failures++, printf("%s:%d: %s\n", __FILE__, __LINE__, #c)))

static inline int verdict(void) {
  puts(failures ? "FAILED" : "all good");
  return failures != 0;
}

#endif
