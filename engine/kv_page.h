// The global KV of one whole block of tokens, the unit that sequences share and a store keeps: for
// every KV source layer ascending its main rows, then its index rows (session/FORMAT.md "KV
// payload"). A page is written while its block grows and never again: from then on it is held by
// KvPagePtr, by any number of sequences and threads.
#ifndef CAIRN_ENGINE_KV_PAGE_H_
#define CAIRN_ENGINE_KV_PAGE_H_

#include <cstddef>
#include <memory>
#include <vector>

namespace cairn::engine {

struct KvPage {
  std::vector<std::byte> bytes;
};

using KvPagePtr = std::shared_ptr<const KvPage>;

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_KV_PAGE_H_
