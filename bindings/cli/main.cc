// The command-line program. Uses the public API only; prints results to stdout, errors to stderr.

#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "bindings/cli/commands.h"
#include "cairn/version.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app("Runs DeepSeek-V4.1-Flash models with durable sessions.", "cairn");
  app.set_version_flag("--version", cairn::version());
  app.require_subcommand(1);
  int exit_code = cairn::cli::kExitFine;
  for (const auto add_command :
       {cairn::cli::add_info_command, cairn::cli::add_sessions_command,
        cairn::cli::add_show_command, cairn::cli::add_why_command, cairn::cli::add_stats_command,
        cairn::cli::add_verify_command, cairn::cli::add_gc_command, cairn::cli::add_export_command,
        cairn::cli::add_import_command, cairn::cli::add_remove_command,
        cairn::cli::add_rename_command, cairn::cli::add_bench_command,
        cairn::cli::add_run_command}) {
    add_command(app, exit_code);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    // Help and version arrive here too, with exit code 0.
    return app.exit(e) == 0 ? cairn::cli::kExitFine : cairn::cli::kExitNoAnswer;
  }
  if (std::fflush(stdout) != 0) {
    std::perror("cairn: stdout");
    return cairn::cli::kExitNoAnswer;
  }
  return exit_code;
}

// A store may have more tables than a shell's usual limit of open files.
void raise_limit_of_open_files() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  raise_limit_of_open_files();
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "cairn: %s\n", e.what());
    return cairn::cli::kExitNoAnswer;
  }
}
