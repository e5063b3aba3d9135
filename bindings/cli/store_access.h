// What the commands on a store have in common: their arguments, the secret, opening, errors.
#ifndef CAIRN_BINDINGS_CLI_STORE_ACCESS_H_
#define CAIRN_BINDINGS_CLI_STORE_ACCESS_H_

#include <string>

#include "cairn/store.h"

namespace CLI {
class App;
}

namespace cairn::cli {

struct StoreArguments {
  std::string store;
  std::string passphrase_file;  // empty = as the environment says
  bool as_json = false;
};
// The store, --passphrase-file and --json of a command. `arguments` outlives the parsing.
void add_store_arguments(CLI::App& command, StoreArguments& arguments);

Result<StoreReader> open_reader(const StoreArguments& arguments);
// For commands that change the store: nobody else has it open then.
Result<Store> open_owned(const StoreArguments& arguments, bool create = false);

// Says on stderr what went wrong; kExitNoAnswer.
int fail(const Status& status);
// Puts `text` out; kExitFine.
int print(const std::string& text);

// "In use by pid 1234; this is how it stood a moment ago.\n"; empty where nobody has the store.
std::string owner_line(const StoreReader& reader);

}  // namespace cairn::cli

#endif  // CAIRN_BINDINGS_CLI_STORE_ACCESS_H_
