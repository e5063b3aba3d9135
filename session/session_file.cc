// Every frame is checked by itself (its sum covers its place in the file), so that damage is found
// where it is, and all of them together by a digest at the end, so that none can be missing.
#include "session/session_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "session/sealed_value.h"
#include "session/storage_key.h"

namespace cairn::session {
namespace {

constexpr std::string_view kMagic = "CAIRN SESSION\r\n\x1a";  // 16 bytes
constexpr std::uint32_t kFileVersion = 1;
constexpr std::size_t kFrameHeadBytes = 8;
// A sealed record is at most a little longer than what it holds.
constexpr std::uint64_t kRecordFrameBytesMax = kRecordBytesMax + (1 << 20);

static_assert(kMagic.size() == 16);

Status errno_status(const std::string& what, int error) {
  StatusCode code = StatusCode::kIoError;
  if (error == ENOENT) code = StatusCode::kNotFound;
  if (error == EEXIST) code = StatusCode::kAlreadyExists;
  if (error == ENOSPC || error == EDQUOT) code = StatusCode::kOutOfDisk;
  return {code, what + ": " + std::generic_category().message(error)};
}

// What seeds the sums of a kind of frame.
Family family_of(FrameKind kind) {
  switch (kind) {
    case FrameKind::kSession:
      return Family::kSessions;
    case FrameKind::kNamespace:
    case FrameKind::kEnd:
      return Family::kMeta;
    case FrameKind::kEvent:
      return Family::kEvents;
    case FrameKind::kBlock:
      return Family::kBlocks;
    case FrameKind::kTail:
      return Family::kTails;
  }
  return Family::kMeta;
}

bool holds_payload(FrameKind kind) { return kind == FrameKind::kBlock || kind == FrameKind::kTail; }

// Of the value in the frame with this number, 0 the first.
std::string frame_key(std::uint64_t number) {
  std::string key;
  append_little_endian64(number, key);
  return key;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string end_content(const engine::Sha256Digest& digest) {
  return {digest.begin(), digest.end()};
}

}  // namespace

// -- writing --

Result<SessionFileWriter> SessionFileWriter::create(const std::string& path) {
  SessionFileWriter writer(path, FileDescriptor());  // first what removes the file after an error
  writer.file_ =
      FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!writer.file_.ok()) return errno_status("session file: create " + path, errno);
  std::string start(kMagic);
  append_little_endian32(kFileVersion, start);
  append_little_endian32(0, start);
  CAIRN_RETURN_IF_ERROR(writer.write(start));
  return writer;
}

SessionFileWriter::~SessionFileWriter() {
  if (file_.ok() && !finished_) (void)unlink(path_.c_str());
}

std::string SessionFileWriter::next_key() { return frame_key(n_frames_); }

Status SessionFileWriter::add_record(FrameKind kind, std::string_view content) {
  CAIRN_ASSIGN_OR_RETURN(const std::string value,
                         seal_record(family_of(kind), next_key(), content));
  return write_frame(kind, value);
}

Status SessionFileWriter::add_payload(FrameKind kind, std::string_view descriptor,
                                      std::span<const std::byte> payload) {
  return write_frame(kind, seal_payload(family_of(kind), next_key(), descriptor, payload), payload);
}

Status SessionFileWriter::write_frame(FrameKind kind, std::string_view head,
                                      std::span<const std::byte> body) {
  if (head.size() + body.size() > UINT32_MAX) {
    return invalid_argument("session file: a value of more than 4 GiB");
  }
  std::string frame;
  append_little_endian32(static_cast<std::uint32_t>(kind), frame);
  append_little_endian32(static_cast<std::uint32_t>(head.size() + body.size()), frame);
  CAIRN_RETURN_IF_ERROR(write(frame.append(head)));
  CAIRN_RETURN_IF_ERROR(write({reinterpret_cast<const char*>(body.data()), body.size()}));
  ++n_frames_;
  return {};
}

Status SessionFileWriter::write(std::string_view bytes) {
  digest_.update(bytes_of(bytes));
  while (!bytes.empty()) {
    const ssize_t n = ::write(file_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_status("session file: write " + path_, errno);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Status SessionFileWriter::finish() {
  CAIRN_RETURN_IF_ERROR(add_record(FrameKind::kEnd, end_content(digest_.finish())));
  if (fsync(file_.get()) != 0) return errno_status("session file: sync " + path_, errno);
  finished_ = true;
  return {};
}

// -- reading --

Result<SessionFileReader> SessionFileReader::open(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.ok()) return errno_status("session file: open " + path, errno);
  struct stat info = {};
  if (fstat(file.get(), &info) != 0) return errno_status("session file: open " + path, errno);
  if (!S_ISREG(info.st_mode)) return invalid_argument("session file " + path + ": not a file");
  SessionFileReader reader(path, std::move(file), static_cast<std::uint64_t>(info.st_size));
  CAIRN_RETURN_IF_ERROR(reader.check_start());
  return reader;
}

Status SessionFileReader::check_start() {
  const Result<std::string> start = read(kMagic.size() + 8);
  if (!start.ok() || !start->starts_with(kMagic)) {
    return corrupt("session file " + path_ + ": not a session that was exported");
  }
  digest_.update(bytes_of(*start));
  const std::uint32_t version = little_endian32(std::string_view(*start).substr(kMagic.size()));
  if (version == kFileVersion) return {};
  return {StatusCode::kUnsupported,
          "session file " + path_ + ": of version " + std::to_string(version) +
              "; this one reads version " + std::to_string(kFileVersion),
          "use a newer version of Cairn"};
}

Status SessionFileReader::error_at(std::uint64_t offset, const Status& status) const {
  if (status.ok()) return status;
  return {status.code(),
          "session file " + path_ + ": at byte " + std::to_string(offset) + ": " +
              std::string(status.message()),
          std::string(status.hint())};
}

Result<SessionFileReader::Frame> SessionFileReader::next() {
  const std::uint64_t offset = at_;
  Result<Frame> frame = read_frame();
  if (!frame.ok()) return error_at(offset, frame.status());
  frame->offset = offset;
  return frame;
}

Result<SessionFileReader::Frame> SessionFileReader::read_frame() {
  CAIRN_ASSIGN_OR_RETURN(const std::string head, read(kFrameHeadBytes));
  const std::uint32_t kind = little_endian32(head);
  const std::uint32_t n_value = little_endian32(std::string_view(head).substr(4));
  CAIRN_RETURN_IF_ERROR(check_order(kind));
  Frame frame;
  frame.kind = static_cast<FrameKind>(kind);
  if (!holds_payload(frame.kind) && n_value > kRecordFrameBytesMax) {
    return corrupt("a record of " + std::to_string(n_value) + " bytes");
  }
  CAIRN_ASSIGN_OR_RETURN(std::string value, read(n_value));
  engine::Sha256Digest digest{};
  if (frame.kind == FrameKind::kEnd) digest = digest_.finish();  // of everything before the frame
  digest_.update(bytes_of(head));
  digest_.update(bytes_of(value));
  const std::string key = frame_key(n_frames_++);
  if (!holds_payload(frame.kind)) {
    CAIRN_ASSIGN_OR_RETURN(frame.content, unseal_record(family_of(frame.kind), key, value));
    if (frame.kind == FrameKind::kEnd) CAIRN_RETURN_IF_ERROR(check_end(frame.content, digest));
    return frame;
  }
  CAIRN_ASSIGN_OR_RETURN(const PayloadView view, unseal_payload(family_of(frame.kind), key, value));
  frame.content = std::string(view.descriptor);
  frame.payload_at = value.size() - view.payload.size();
  frame.value = std::move(value);
  return frame;
}

Status SessionFileReader::check_order(std::uint32_t kind) const {
  const auto last = static_cast<std::uint32_t>(FrameKind::kEnd);
  const bool first_two = n_frames_ < 2;
  const bool in_order =
      first_two ? kind == n_frames_ + 1
                : kind >= std::max(last_kind_, 3U) && kind <= last && last_kind_ != last;
  if (!in_order) return corrupt("a frame of kind " + std::to_string(kind) + " in this place");
  return {};
}

Status SessionFileReader::check_end(std::string_view content,
                                    const engine::Sha256Digest& digest) const {
  if (content != end_content(digest)) return corrupt("the digest of the file is wrong");
  if (at_ != n_bytes_) return corrupt("bytes after the end");
  return {};
}

Result<std::string> SessionFileReader::read(std::size_t n_bytes) {
  // Against the size of the file, before memory is taken.
  if (n_bytes > n_bytes_ - at_) return corrupt("cut short");
  std::string bytes(n_bytes, '\0');
  for (std::size_t done = 0; done < n_bytes;) {
    const ssize_t n =
        pread(file_.get(), bytes.data() + done, n_bytes - done, static_cast<off_t>(at_ + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_status("session file: read " + path_, errno);
    if (n == 0) return corrupt("cut short");
    done += static_cast<std::size_t>(n);
  }
  at_ += n_bytes;
  return bytes;
}

}  // namespace cairn::session
