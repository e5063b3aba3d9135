// A mapping is only page-aligned, so one is made that is a huge page longer, and its ends are given
// back.
#include "kernels/page_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace cairn::kernels {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

PageBuffer::PageBuffer(std::size_t n_bytes) {
  if (n_bytes == 0) return;
  if (n_bytes > SIZE_MAX - 2 * kHugePage) throw std::bad_alloc();
  const std::size_t n = (n_bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* const mapped = mmap(nullptr, n + kHugePage, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const first = static_cast<std::byte*>(mapped);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(first) % kHugePage;
  if (before > 0) munmap(first, before);
  munmap(first + before + n, kHugePage - before);
  begin_ = first + before;
  n_bytes_ = n;
  madvise(begin_, n_bytes_, MADV_HUGEPAGE);  // refused where there are none: no harm
}

PageBuffer::~PageBuffer() {
  if (begin_ != nullptr) munmap(begin_, n_bytes_);
}

}  // namespace cairn::kernels
