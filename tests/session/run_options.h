// How the stores of a test run are opened.
#ifndef CAIRN_TESTS_SESSION_RUN_OPTIONS_H_
#define CAIRN_TESTS_SESSION_RUN_OPTIONS_H_

#include <array>
#include <cstdint>
#include <cstdlib>

#include "cairn/store.h"

namespace cairn::test {

// A key of the host's that is `byte` again and again.
inline StoreSecret secret_key(std::uint8_t byte = 0x5e) {
  return {.key = [byte](std::array<std::uint8_t, 32>& key) {
    key.fill(byte);
    return Status();
  }};
}

// Whole programs run a second time on encrypted stores (cairn_encrypted_test in
// tests/session/CMakeLists.txt).
inline StoreOptions run_options() {
  StoreOptions options;
  if (std::getenv("CAIRN_TEST_ENCRYPTED") != nullptr) options.secret = secret_key();
  return options;
}

}  // namespace cairn::test

#endif  // CAIRN_TESTS_SESSION_RUN_OPTIONS_H_
