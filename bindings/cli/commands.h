// The subcommands of `cairn`. Each function adds one to `app` and writes its exit code when it
// runs: 0 = fine, 1 = the answer is bad news, 2 = the question could not be answered.
#ifndef CAIRN_BINDINGS_CLI_COMMANDS_H_
#define CAIRN_BINDINGS_CLI_COMMANDS_H_

namespace CLI {
class App;
}

namespace cairn::cli {

inline constexpr int kExitFine = 0;
inline constexpr int kExitBadNews = 1;
inline constexpr int kExitNoAnswer = 2;

// `cairn info PATH [--json]`: what a checkpoint is and whether it is complete.
void add_info_command(CLI::App& app, int& exit_code);

}  // namespace cairn::cli

#endif  // CAIRN_BINDINGS_CLI_COMMANDS_H_
