// Scratch of a pass beside its activations: what the functions of a layer return to each other.
// Given out one behind the other and taken back by scope, so a step in warm memory allocates
// nothing.
#ifndef CAIRN_ENGINE_STEP_MEMORY_H_
#define CAIRN_ENGINE_STEP_MEMORY_H_

#include <algorithm>
#include <cstddef>
#include <memory_resource>
#include <vector>

#include "kernels/page_buffer.h"

namespace cairn::engine {

// A vector of scratch. Made with the memory of a LayerContext; ends with the scope it was made in.
template <class T>
using StepVector = std::pmr::vector<T>;

// Confined to the thread that runs passes. Allocation throws std::bad_alloc.
class StepMemory : public std::pmr::memory_resource {
 public:
  // Takes back, when it ends, what was given out since it began. Scopes nest.
  class Scope {
   public:
    explicit Scope(StepMemory& memory)
        : memory_(memory), block_(memory.block_), used_(memory.used_) {}
    ~Scope() {
      memory_.block_ = block_;
      memory_.used_ = used_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    StepMemory& memory_;
    const std::size_t block_, used_;
  };

 private:
  static constexpr std::size_t kAlignment = 64, kFirstBlock = std::size_t{2} << 20;

  void* do_allocate(std::size_t n_bytes, std::size_t /*alignment*/) override {
    const std::size_t n = (n_bytes + kAlignment - 1) / kAlignment * kAlignment;
    while (block_ < blocks_.size() && used_ + n > blocks_[block_].bytes().size()) {
      ++block_;
      used_ = 0;
    }
    if (block_ == blocks_.size()) add_block(n);
    std::byte* const given = blocks_[block_].bytes().data() + used_;
    used_ += n;
    return given;
  }
  void do_deallocate(void*, std::size_t, std::size_t) override {}
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  // As large as all before it, so that there are few.
  void add_block(std::size_t n) {
    std::size_t total = kFirstBlock;
    for (const kernels::PageBuffer& block : blocks_) total += block.bytes().size();
    blocks_.emplace_back(std::max(n, total));
  }

  std::vector<kernels::PageBuffer> blocks_;
  std::size_t block_ = 0, used_ = 0;  // where the next bytes are
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_STEP_MEMORY_H_
