// Memory for what is large and lives long: whole pages from the system, huge ones where they fit.
#ifndef CAIRN_KERNELS_PAGE_BUFFER_H_
#define CAIRN_KERNELS_PAGE_BUFFER_H_

#include <cstddef>
#include <span>
#include <utility>

namespace cairn::kernels {

// Owns zeroed bytes at an address that is a multiple of 2 MiB; moving keeps the address. Pages are
// taken when they are first touched, huge ones (madvise) if the system has them.
class PageBuffer {
 public:
  PageBuffer() = default;
  // Throws std::bad_alloc.
  explicit PageBuffer(std::size_t n_bytes);
  PageBuffer(PageBuffer&& other) noexcept
      : begin_(std::exchange(other.begin_, nullptr)), n_bytes_(std::exchange(other.n_bytes_, 0)) {}
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    std::swap(begin_, other.begin_);
    std::swap(n_bytes_, other.n_bytes_);
    return *this;
  }
  PageBuffer(const PageBuffer&) = delete;
  PageBuffer& operator=(const PageBuffer&) = delete;
  ~PageBuffer();

  std::span<std::byte> bytes() const { return {begin_, n_bytes_}; }

 private:
  std::byte* begin_ = nullptr;
  std::size_t n_bytes_ = 0;  // a multiple of 2 MiB
};

}  // namespace cairn::kernels

#endif  // CAIRN_KERNELS_PAGE_BUFFER_H_
