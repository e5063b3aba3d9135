// What goes wrong in RocksDB, as a Status. Included by session/rocksdb_*.cc only.
#ifndef CAIRN_SESSION_ROCKSDB_ERROR_H_
#define CAIRN_SESSION_ROCKSDB_ERROR_H_

#include <rocksdb/listener.h>
#include <rocksdb/status.h>

#include <exception>
#include <mutex>
#include <new>
#include <string>

#include "cairn/status.h"

namespace cairn::session {

inline constexpr const char* kReopenHint = "close the store and open it again";

// Empty where `status` is ok. `what` was being done.
Status to_status(const rocksdb::Status& status, const std::string& what, const char* hint = "");

// Runs a call into RocksDB; what it throws becomes a Status.
template <class Call>
auto guarded(const char* what, Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, std::string("store: ") + what + ": out of memory");
  } catch (const std::exception& e) {
    return internal_error(std::string("store: ") + what + ": " + e.what());
  }
}

// Keeps the first error of the database, of its background work too, and forbids its attempts to
// resume. Safe from any thread.
class ErrorLatch : public rocksdb::EventListener {
 public:
  void OnBackgroundError(rocksdb::BackgroundErrorReason, rocksdb::Status* error) override {
    (void)latch(*error, "background work");
  }
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                            bool* auto_recovery) override {
    *auto_recovery = false;
  }

  // The error as a Status, kept if it is the first; ok where `status` is.
  Status latch(const rocksdb::Status& status, const char* what);
  Status first() const;

 private:
  mutable std::mutex mutex_;
  Status first_;
};

}  // namespace cairn::session

#endif  // CAIRN_SESSION_ROCKSDB_ERROR_H_
