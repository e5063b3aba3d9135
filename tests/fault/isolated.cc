// fork without exec: the child has the parent's test data already, and nothing is started twice.
#include "tests/fault/isolated.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "tests/fault/syscall_tap.h"

namespace cairn::test {
namespace {

std::string run_guarded(const Child::Body& body) {
  try {
    return body();
  } catch (const std::exception& e) {
    return std::string("an exception came out: ") + e.what();
  }
}

}  // namespace

void* shared_memory(std::size_t n_bytes) {
  void* const memory =
      mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return memory;
}

std::string Ending::problem() const {
  if (hung) return "it hung";
  if (signal != 0) return std::string("it ended by signal ") + strsignal(signal);
  return complaint;
}

Child::Child(const Body& body) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  std::fflush(nullptr);
  pid_ = fork();
  if (pid_ < 0) std::abort();
  if (pid_ == 0) {
    close(ends[0]);
    const std::string complaint = run_guarded(body);
    tap_ignore();
    (void)!write(ends[1], complaint.data(), complaint.size());
    _exit(complaint.empty() ? 0 : 1);
  }
  close(ends[1]);
  complaints_ = ends[0];
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), complaints_(std::exchange(other.complaints_, -1)) {}

Child::~Child() {
  if (pid_ < 0) return;
  kill_now();
  (void)wait();
}

void Child::kill_now() const { kill(pid_, SIGKILL); }

Ending Child::wait(std::chrono::milliseconds patience) {
  Ending ending;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  char buffer[4096];
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd entry = {complaints_, POLLIN, 0};
    const int ready = ending.hung ? 1 : poll(&entry, 1, static_cast<int>(left.count()));
    if (ready <= 0 || left.count() <= 0) {
      if (ending.hung) break;
      ending.hung = true;
      kill_now();
      continue;
    }
    const ssize_t n = read(complaints_, buffer, sizeof buffer);
    if (n <= 0) break;
    ending.complaint.append(buffer, static_cast<std::size_t>(n));
  }
  close(complaints_);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  if (WIFSIGNALED(status)) ending.signal = WTERMSIG(status);
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0 && ending.complaint.empty()) {
    ending.complaint = "it exited with " + std::to_string(WEXITSTATUS(status));
  }
  return ending;
}

void use_memory_file_system() {
  if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
}

int fault_scale() {
  const char* const text = std::getenv("CAIRN_FAULT_SCALE");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

}  // namespace cairn::test
