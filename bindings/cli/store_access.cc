#include "bindings/cli/store_access.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "bindings/cli/commands.h"
#include "bindings/cli/terminal_text.h"
#include "cairn/engine.h"

namespace cairn::cli {
namespace {

constexpr const char* kPassphraseVariable = "CAIRN_PASSPHRASE";

// The first line of the file.
Result<StoreSecret> secret_in(const std::string& file) {
  std::ifstream in(file);
  StoreSecret secret;
  if (!in || !std::getline(in, secret.passphrase)) {
    return Status(StatusCode::kIoError, "passphrase file " + file + ": cannot be read");
  }
  if (secret.passphrase.ends_with('\r')) secret.passphrase.pop_back();
  if (secret.passphrase.empty()) {
    return invalid_argument("passphrase file " + file + ": its first line is empty");
  }
  return secret;
}

StoreSecret secret_of_environment() {
  const char* const passphrase = std::getenv(kPassphraseVariable);
  return {.passphrase = passphrase == nullptr ? "" : passphrase, .key = {}};
}

// A passphrase in the environment is there for every store, encrypted or not: it is given only to
// one that asks for it.
template <class T>
Result<T> open_with_secret(const StoreArguments& arguments, bool create,
                           const std::function<Result<T>(const StoreSecret&)>& open) {
  if (!arguments.passphrase_file.empty()) {
    CAIRN_ASSIGN_OR_RETURN(const StoreSecret secret, secret_in(arguments.passphrase_file));
    return open(secret);
  }
  const StoreSecret secret = secret_of_environment();
  if (secret.empty()) return open({});
  Result<T> opened = open(create ? secret : StoreSecret());
  if (opened.status().code() != StatusCode::kInvalidArgument) return opened;
  return open(create ? StoreSecret() : secret);
}

}  // namespace

void add_store_arguments(CLI::App& command, StoreArguments& arguments) {
  command.add_option("STORE", arguments.store, "the store's directory")->required();
  command.add_option("--passphrase-file", arguments.passphrase_file,
                     "its first line opens an encrypted store (else: the variable "
                     "CAIRN_PASSPHRASE)");
  command.add_flag("--json", arguments.as_json, "print one JSON object instead of text");
}

Result<StoreReader> open_reader(const StoreArguments& arguments) {
  return open_with_secret<StoreReader>(arguments, /*create=*/false, [&](const StoreSecret& secret) {
    return StoreReader::open(arguments.store, secret);
  });
}

Result<Store> open_owned(const StoreArguments& arguments, bool create) {
  RuntimeOptions runtime_options;
  runtime_options.compute_threads = 1;
  CAIRN_ASSIGN_OR_RETURN(const Runtime runtime, Runtime::create(runtime_options));
  return open_with_secret<Store>(arguments, create, [&](const StoreSecret& secret) {
    StoreOptions options;
    options.create_if_missing = create;
    options.secret = secret;
    return Store::open(runtime, arguments.store, options);
  });
}

int fail(const Status& status) {
  std::fprintf(stderr, "cairn: %s\n", printable(status.to_string()).c_str());
  return kExitNoAnswer;
}

int print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kExitFine;
}

std::string owner_line(const StoreReader& reader) {
  const std::string owner = reader.owner();
  if (owner.empty()) return "";
  return "In use by " + printable(owner) + "; this is how it stood a moment ago.\n";
}

}  // namespace cairn::cli
