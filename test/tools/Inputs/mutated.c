// A comment: a < b, and "a string" of it.
#include <assert.h>
#define TWICE(x) ((x) + (x))

// The least of some, or -1.
static int least(const int *at, int n) {
  int low = -1;
  assert(n < 100 && "n + 1");
  for (int i = 0; i < n; i++)
    if (low < 0 || at[i] < at[low]) low = i;  // the first
    else continue;
  return low;
}

static bool found(const int *at, int n, int what) {
  switch (what) {
  case 7: return true;
  default: break;
  }
  if (n == 0) return false;
  mark(at, OP_MIN);
  return at[n - 1] == what ||
         found(at, n - 1, what);
}
