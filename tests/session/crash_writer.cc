// Commits to a store until it is killed: crash_writer <store>. Writes the number of each commit to
// the standard output, 4 bytes in the machine's order, once it is acknowledged.
#include <unistd.h>

#include "tests/session/crash_script.h"

namespace {

using namespace cairn;

int run(const std::string& path) {
  auto store = session::SessionStore::open(path, test::run_options());
  if (!store.ok()) return 2;
  auto record = (*store)->find_by_name(test::kCrashSession);
  if (!record.ok()) record = (*store)->create_session({.name = test::kCrashSession});
  const auto name_space = (*store)->open_namespace(test::kSampleNamespace);
  if (!record.ok() || !name_space.ok()) return 3;

  session::BlockKey parent = session::root_key(test::kSampleNamespace);
  const auto first = static_cast<std::uint32_t>(record->head_sequence / 2 + 1);
  for (std::uint32_t i = 1;; ++i) {
    const test::CrashCommit content = test::crash_commit(i, parent);
    parent = content.block.key;
    if (i < first) continue;
    record->head_sequence = record->n_events = 2 * i;
    const auto receipt = (*store)->commit(
        {.session = record->id,
         .events = content.events,
         .kv_namespace = *name_space,
         .blocks = {content.block.view()},
         .tail = session::NewTail{.position = i, .chain_key = parent, .payload = content.tail},
         .record = *record,
         .durability = test::crash_durability(i)});
    if (!receipt.ok()) return 4;
    if (write(STDOUT_FILENO, &i, sizeof i) != sizeof i) return 5;
  }
}

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? run(argv[1]) : 1; }
