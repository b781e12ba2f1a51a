// attnc: the command line of the compiler. Dispatch only; a command is one
// file of tools/attnc/.
#include "codegen/codegen.h"
#include "tools/attnc/attnc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <unistd.h>

// A failed assertion or a fault is a bug of the compiler; say so and leave
// with the code that scripts know it by.
static void internal_error(int sig) {
  static const char text[] =
      "attnc: internal error. Please report it with the input and the "
      "command line.\n";
  (void)sig;
  if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(EXIT_INTERNAL);
  _exit(EXIT_INTERNAL);
}

static void catch_faults(void) {
#if !defined(__SANITIZE_ADDRESS__)
  static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
    signal(signals[i], internal_error);
#else
  signal(SIGABRT, internal_error);
#endif
}

// LLVM would end the process with code 1.
static void llvm_error(const char *reason) {
  fprintf(stderr, "attnc: LLVM: %s\n", reason);
  internal_error(0);
}

// LLVM and C++ cannot go on without memory.
static void no_memory(void) {
  static const char text[] = "attnc: out of memory\n";
  (void)!write(STDERR_FILENO, text, sizeof text - 1);
  _exit(EXIT_ENV);
}

static void no_memory_of(void *arena) {
  (void)arena;
  no_memory();
}

static void print_targets(void) {
  uint32_t n;
  const Target *t = target_list(&n);
  printf("%-28s every level of the CPU family of this machine\n", "cpu");
  for (uint32_t i = 0; i < n; i++)
    printf("%-28s %u lanes of f32, %u vector registers%s\n", t[i].name,
           t[i].lanes, t[i].regs,
           t[i].amx      ? ", tile registers"
           : t[i].dpbf16 ? ", products of bf16 pairs"
                         : "");
  t = target_gpus(&n);
  for (uint32_t i = 0; i < n; i++)
    if (t[i].gpu.vendor == VENDOR_AMD)
      printf("%-28s AMD, waves of %u threads\n", t[i].name, t[i].gpu.wave);
    else
      printf("%-28s NVIDIA, compute capability %u.%u%s\n", t[i].name,
             t[i].gpu.cc / 10, t[i].gpu.cc % 10,
             t[i].gpu.hopper ? " only" : " and later");
}

static int run(Cli *cli, int argc, char **argv) {
  if (!cli_parse(cli, argc, argv)) return EXIT_USAGE;
  if (cli->help) cli_help(cli, stdout);
  else if (cli->version) drv_print_version(stdout);
  else if (cli->print_targets) print_targets();
  else if (cli_manual(cli, stdout)) return EXIT_OK;
  else return cli->cmd->run(cli);
  return EXIT_OK;
}

// A file that is opened must not get the number of a closed standard stream:
// what is printed would go there. Writing to what stands in fails.
static void fill_streams(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0)
      (void)!open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}

// What was printed may not have arrived; a reader that left wanted no more.
static int printed(int rc) {
  errno = 0;
  bool lost = fflush(stdout) != 0 || ferror(stdout);
  if (!lost || rc != EXIT_OK) return rc;
  if (errno && errno != EPIPE)
    fprintf(stderr, "attnc: cannot write standard output: %s\n",
            strerror(errno));
  return EXIT_ENV;
}

// Memory in which code for one kernel was made serves the next; to give it back
// and to have it cleared again takes a tenth of a compilation's time.
static void keep_memory(void) {
#ifdef __GLIBC__
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_MMAP_THRESHOLD, 1 << 25);
#endif
}

int main(int argc, char **argv) {
  Cli cli = {.arena = {.oom = no_memory_of}};
  keep_memory();
  fill_streams();
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // too long a file is an error of write
  catch_faults();
  cg_on_fatal(llvm_error);
  cg_on_no_memory(no_memory);
  int rc = printed(run(&cli, argc, argv));
  arena_drop(&cli.arena);
  return rc;
}
