// Working memory that a thread keeps from one call of a kernel to the next, so that a step does not
// allocate. One user at a time on a thread: what was taken before is lost.
#ifndef CAIRN_KERNELS_CPU_SCRATCH_H_
#define CAIRN_KERNELS_CPU_SCRATCH_H_

#include <cstddef>

#include "kernels/page_buffer.h"

namespace cairn::kernels {

class Scratch {
 public:
  // At least n_bytes, aligned to 64, of unspecified content; valid until the next call on this
  // thread. Throws std::bad_alloc.
  static std::byte* take(std::size_t n_bytes) {
    thread_local PageBuffer kept;
    if (kept.bytes().size() < n_bytes) {
      kept = PageBuffer();
      kept = PageBuffer(n_bytes);
    }
    return kept.bytes().data();
  }
};

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_CPU_SCRATCH_H_
