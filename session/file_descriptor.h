// Owner of one file descriptor.
#ifndef CAIRN_SESSION_FILE_DESCRIPTOR_H_
#define CAIRN_SESSION_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace cairn::session {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_FILE_DESCRIPTOR_H_
