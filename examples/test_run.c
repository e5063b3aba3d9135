/* The script runs in a process group of its own, so that the time limit ends all that it started,
 * and it dies with the agent. It has the rights of this process: a product would use a sandbox. */
#define _GNU_SOURCE
#include "test_run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kPollMs = 20 };

static volatile sig_atomic_t was_cancelled;

void cancel_tests(void) { was_cancelled = 1; }

static double now_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* In the child of a process with threads: system calls only. Does not return. */
static void become_script(const char* folder, int output) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int input = open("/dev/null", O_RDONLY);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  if (chdir(folder) == 0) execl("/bin/sh", "sh", "run_tests.sh", (char*)NULL);
  _exit(127);
}

/* Appends what can be read within kPollMs: 1 = something, 0 = nothing yet, -1 = no more. */
static int read_some(int output, tool_result* result) {
  char chunk[4096];
  struct pollfd wait = {output, POLLIN, 0};
  if (poll(&wait, 1, kPollMs) <= 0) return 0;
  const ssize_t n_bytes = read(output, chunk, sizeof chunk);
  if (n_bytes < 0) return errno == EINTR ? 0 : -1;
  if (n_bytes > 0) append_bytes(result, chunk, (size_t)n_bytes);
  return n_bytes > 0 ? 1 : -1;
}

static void sleep_a_moment(void) {
  const struct timespec moment = {0, kPollMs * 1000000L};
  nanosleep(&moment, NULL);
}

/* Follows the child until it has ended and all is read. Returns why it was ended early, or NULL. */
static const char* follow(pid_t child, int output, double seconds, int* status,
                          tool_result* result) {
  const double deadline = now_seconds() + seconds;
  int has_more = 1;
  for (;;) {
    const int got = has_more ? read_some(output, result) : -1;
    if (got < 0) {
      has_more = 0;
      sleep_a_moment();
    }
    if (got <= 0 && waitpid(child, status, WNOHANG) == child) break;
    const char* reason = was_cancelled              ? "cancelled"
                         : now_seconds() > deadline ? "time limit reached"
                                                    : NULL;
    if (reason == NULL) continue;
    kill(-child, SIGKILL);
    waitpid(child, status, 0);
    return reason;
  }
  while (has_more && read_some(output, result) > 0) continue;
  return NULL;
}

void run_test_script(const char* folder, double seconds, tool_result* result) {
  int ends[2], status = 0;
  was_cancelled = 0;
  const pid_t child = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
  if (child < 0) {
    append_text(result, "error: run_tests: %s", strerror(errno));
    return;
  }
  if (child == 0) become_script(folder, ends[1]);
  setpgid(child, child); /* whoever of both comes first */
  close(ends[1]);
  const char* reason = follow(child, ends[0], seconds, &status, result);
  kill(-child, SIGKILL); /* what it left in the background */
  close(ends[0]);
  drop_last_newlines(result);
  if (reason != NULL) {
    append_text(result, "%serror: run_tests: %s", result->n_bytes > 0 ? "\n" : "", reason);
  } else if (result->n_bytes == 0) {
    append_text(result, "exit status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
}
