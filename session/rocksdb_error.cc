#include "session/rocksdb_error.h"

namespace cairn::session {
namespace {

StatusCode code_of(const rocksdb::Status& status) {
  if (status.IsNotFound()) return StatusCode::kNotFound;
  if (status.IsCorruption()) return StatusCode::kCorrupt;
  if (status.IsNoSpace() || status.subcode() == rocksdb::Status::kNoSpace ||
      status.subcode() == rocksdb::Status::kSpaceLimit) {
    return StatusCode::kOutOfDisk;
  }
  if (status.IsMemoryLimit()) return StatusCode::kOutOfMemory;
  if (status.IsNotSupported()) return StatusCode::kUnsupported;
  if (status.IsBusy() || status.IsTryAgain()) return StatusCode::kBusy;
  if (status.IsIOError() || status.IsShutdownInProgress() || status.IsAborted()) {
    return StatusCode::kIoError;
  }
  return StatusCode::kInternal;
}

}  // namespace

Status to_status(const rocksdb::Status& status, const std::string& what, const char* hint) {
  if (status.ok()) return {};
  return {code_of(status), "store: " + what + ": " + status.ToString(), hint};
}

Status ErrorLatch::latch(const rocksdb::Status& status, const char* what) {
  if (status.ok()) return {};
  const Status error = to_status(status, what, kReopenHint);
  const std::lock_guard lock(mutex_);
  if (first_.ok()) first_ = error;
  return error;
}

Status ErrorLatch::first() const {
  const std::lock_guard lock(mutex_);
  return first_;
}

}  // namespace cairn::session
