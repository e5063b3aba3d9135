// A file mapped read-only into memory.
#ifndef CAIRN_ENGINE_MAPPED_FILE_H_
#define CAIRN_ENGINE_MAPPED_FILE_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "cairn/status.h"

namespace cairn::engine {

// Owns the mapping; views of bytes() end with it. Moving keeps the address. Const methods are safe
// from any thread. The file must not shrink while it is mapped: reading past a new end raises
// SIGBUS, as with every memory map.
class MappedFile {
 public:
  // Blocks on the file system. kNotFound, kIoError (also for anything but a regular file); the
  // message names the path.
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {begin_, n_bytes_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(begin_), n_bytes_}; }

 private:
  void unmap();

  std::string path_;
  const std::byte* begin_ = nullptr;  // null for an empty file
  std::size_t n_bytes_ = 0;
};

// Asks the system to read the pages of `part`, bytes of some mapped file, without waiting for them.
void prefetch(std::span<const std::byte> part);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_MAPPED_FILE_H_
