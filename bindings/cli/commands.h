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

// `cairn sessions | stats | verify STORE`, `cairn show STORE NAME`, `cairn export STORE NAME FILE`:
// a store seen from outside, while another process may have it open.
void add_sessions_command(CLI::App& app, int& exit_code);
void add_show_command(CLI::App& app, int& exit_code);
void add_stats_command(CLI::App& app, int& exit_code);
void add_verify_command(CLI::App& app, int& exit_code);
void add_export_command(CLI::App& app, int& exit_code);

// `cairn why STORE NAME FILE --model FOLDER`: what the request in FILE would reuse of a session. Exit
// code 1: something that was computed before has to be computed again.
void add_why_command(CLI::App& app, int& exit_code);

// `cairn gc | import | remove | rename STORE ...`: changes to a store that nobody else has open.
void add_gc_command(CLI::App& app, int& exit_code);
void add_import_command(CLI::App& app, int& exit_code);
void add_remove_command(CLI::App& app, int& exit_code);
void add_rename_command(CLI::App& app, int& exit_code);

// `cairn run MODEL`: a conversation with an agent that works in a folder.
void add_run_command(CLI::App& app, int& exit_code);

// `cairn bench`: how near this machine comes to what it can do, at a model's dimensions.
void add_bench_command(CLI::App& app, int& exit_code);

}  // namespace cairn::cli

#endif  // CAIRN_BINDINGS_CLI_COMMANDS_H_
