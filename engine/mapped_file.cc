// POSIX memory map. The descriptor is closed as soon as the mapping exists.

#include "engine/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace cairn::engine {
namespace {

Status system_error(const std::string& path, std::string_view call, int error) {
  const StatusCode code = error == ENOENT || error == ENOTDIR ? StatusCode::kNotFound
                          : error == ENOMEM                   ? StatusCode::kOutOfMemory
                                                              : StatusCode::kIoError;
  return {code, path + ": " + std::string(call) + ": " + std::generic_category().message(error)};
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  // Not blocking, so that a FIFO by this name ends in an error instead of a wait.
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return system_error(path, "open", errno);
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) return system_error(path, "stat", errno);
  if (!S_ISREG(info.st_mode)) {
    return Status(StatusCode::kIoError, path + ": not a regular file");
  }

  MappedFile file;
  file.path_ = path;
  const auto n_bytes = static_cast<std::size_t>(info.st_size);
  if (n_bytes == 0) return file;
  void* const address = ::mmap(nullptr, n_bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return system_error(path, "mmap", errno);
  file.begin_ = static_cast<const std::byte*>(address);
  file.n_bytes_ = n_bytes;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      begin_(std::exchange(other.begin_, nullptr)),
      n_bytes_(std::exchange(other.n_bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  path_ = std::move(other.path_);
  begin_ = std::exchange(other.begin_, nullptr);
  n_bytes_ = std::exchange(other.n_bytes_, 0);
  return *this;
}

MappedFile::~MappedFile() { unmap(); }

void MappedFile::unmap() {
  if (begin_ != nullptr) ::munmap(const_cast<std::byte*>(begin_), n_bytes_);
}

void prefetch(std::span<const std::byte> part) {
  if (part.empty()) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
  const std::uintptr_t offset = begin % page;
  // Advice only: nothing depends on its success.
  (void)::madvise(const_cast<std::byte*>(part.data()) - offset, part.size() + offset,
                  MADV_WILLNEED);
}

}  // namespace cairn::engine
