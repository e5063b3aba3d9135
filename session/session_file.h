// A session as one file (FORMAT.md section 10): the frames, and nothing of what they mean.
#ifndef CAIRN_SESSION_SESSION_FILE_H_
#define CAIRN_SESSION_SESSION_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cairn/status.h"
#include "engine/sha256.h"
#include "session/file_descriptor.h"

namespace cairn::session {

// In the order in which they stand in a file. Numbers are on disk.
enum class FrameKind : std::uint32_t {
  kSession = 1,    // one
  kNamespace = 2,  // one
  kEvent = 3,
  kBlock = 4,
  kTail = 5,
  kEnd = 6,  // one
};

// Writes a new file, readable by its owner only. Confined to one thread. Destroyed before finish()
// succeeded, it removes the file. All fail with kOutOfDisk, kIoError besides what they name.
class SessionFileWriter {
 public:
  // kAlreadyExists where there is a file.
  static Result<SessionFileWriter> create(const std::string& path);
  SessionFileWriter(SessionFileWriter&&) noexcept = default;
  ~SessionFileWriter();

  // kInvalidArgument above kRecordBytesMax.
  Status add_record(FrameKind kind, std::string_view content);
  Status add_payload(FrameKind kind, std::string_view descriptor,
                     std::span<const std::byte> payload);
  // Ends the file and makes it durable.
  Status finish();

 private:
  SessionFileWriter(std::string path, FileDescriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}
  std::string next_key();  // of the frame's value
  Status write_frame(FrameKind kind, std::string_view head, std::span<const std::byte> body = {});
  Status write(std::string_view bytes);

  std::string path_;
  FileDescriptor file_;
  bool finished_ = false;
  std::uint64_t n_frames_ = 0;
  engine::Sha256 digest_;  // of everything written
};

// Reads a file that may be damaged or hostile: takes no more memory than its largest value does,
// which is no larger than the file or kRecordBytesMax. Confined to one thread.
class SessionFileReader {
 public:
  struct Frame {
    FrameKind kind = FrameKind::kEnd;
    std::uint64_t offset = 0;  // of the frame in the file
    std::string content;       // the record, or the payload's descriptor
    std::string value;         // of a payload; owns it
    std::size_t payload_at = 0;

    std::span<const std::byte> payload() const {
      return std::as_bytes(std::span(value)).subspan(payload_at);
    }
  };

  // Fails with kNotFound, kIoError, kCorrupt (no such file), kUnsupported (of a later version).
  static Result<SessionFileReader> open(const std::string& path);

  // The next frame, checked; the last is kEnd, and then the whole file was. Fails with kCorrupt,
  // with the offset in the message, kUnsupported, kIoError.
  Result<Frame> next();

  // An error in what a frame says, in the words of this file.
  Status error_at(std::uint64_t offset, const Status& status) const;

 private:
  SessionFileReader(std::string path, FileDescriptor file, std::uint64_t n_bytes)
      : path_(std::move(path)), file_(std::move(file)), n_bytes_(n_bytes) {}
  Status check_start();
  Result<Frame> read_frame();
  Status check_order(std::uint32_t kind) const;
  Status check_end(std::string_view content, const engine::Sha256Digest& digest) const;
  Result<std::string> read(std::size_t n_bytes);  // from at_ on, which moves

  std::string path_;
  FileDescriptor file_;
  std::uint64_t n_bytes_ = 0, at_ = 0;
  std::uint64_t n_frames_ = 0;
  std::uint32_t last_kind_ = 0;
  engine::Sha256 digest_;  // of everything read
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_SESSION_FILE_H_
