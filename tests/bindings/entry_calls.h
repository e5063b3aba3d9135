// One call of every function that libcairn exports, with what it needs and what it must have done.
#ifndef CAIRN_TESTS_BINDINGS_ENTRY_CALLS_H_
#define CAIRN_TESTS_BINDINGS_ENTRY_CALLS_H_

#include <functional>
#include <iosfwd>
#include <vector>

#include "tests/bindings/c_world.h"

namespace cairn::test {

struct EntryCall {
  const char* name;
  // Exactly one call of the function, with results in world.made; functions without a code give OK.
  std::function<cairn_code(World&, cairn_error**)> call;
  std::function<void(World&)> prepare = nullptr;
  std::function<void(World&)> expect = nullptr;  // after OK: what the call has done
  bool changes_state_by_itself = false;          // a turn runs meanwhile
  bool may_be_done = false;    // after OUT_OF_MEMORY too: what cairn.h says of the function
  cairn_code code = CAIRN_OK;  // with enough memory
  bool is_slow = false;        // takes so long that fewer of its allocations are tried
};

std::ostream& operator<<(std::ostream& out, const EntryCall& entry);

const std::vector<EntryCall>& entry_calls();

}  // namespace cairn::test

#endif  // CAIRN_TESTS_BINDINGS_ENTRY_CALLS_H_
