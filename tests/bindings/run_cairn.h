// Runs the command-line program as a person would.
#ifndef CAIRN_TESTS_BINDINGS_RUN_CAIRN_H_
#define CAIRN_TESTS_BINDINGS_RUN_CAIRN_H_

#include <sys/wait.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace cairn::test {

struct Outcome {
  int exit_code = -1;
  std::string text;  // stdout and stderr
};

inline Outcome run_cairn(const std::string& arguments) {
  const std::string command = std::string("'" CAIRN_CLI_PATH "' ") + arguments + " 2>&1";
  Outcome outcome;
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    outcome.text.append(buffer, n);
  }
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  return outcome;
}

inline bool contains(const Outcome& outcome, std::string_view part) {
  return outcome.text.find(part) != std::string::npos;
}

}  // namespace cairn::test

#endif  // CAIRN_TESTS_BINDINGS_RUN_CAIRN_H_
