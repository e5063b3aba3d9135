// Status and Result: how every operation of Cairn reports failure. Nothing in this library throws.
#ifndef CAIRN_STATUS_H_
#define CAIRN_STATUS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace cairn {

// Stable numbers, shared with the C API (cairn_code). Append only.
enum class StatusCode : std::int32_t {
  kOk = 0,
  kInvalidArgument = 1,  // the caller's mistake; retrying does not help
  kNotFound = 2,         // no such file, session, tool
  kUnsupported = 3,      // a valid input that this build does not handle
  kCorrupt = 4,          // stored data or a checkpoint is damaged or malformed
  kModelMismatch = 5,    // the session was made by another model
  kBusy = 6,             // another owner or writer holds the object; try later
  kCancelled = 7,
  kOutOfMemory = 8,
  kOutOfDisk = 9,
  kIoError = 10,
  kTimeout = 11,          // nothing happened within the given time; the object is still usable
  kContextFull = 12,      // the prompt or answer does not fit the context; the message has numbers
  kInternal = 13,         // a defect of this library
  kAlreadyExists = 14,
};

std::string_view status_code_name(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  Status(StatusCode code, std::string message, std::string hint = {})
      : error_(std::make_shared<Error>(Error{code, std::move(message), std::move(hint)})) {}

  bool ok() const { return error_ == nullptr; }
  StatusCode code() const { return error_ ? error_->code : StatusCode::kOk; }
  // What was attempted, on what, and what was found. Empty on success.
  std::string_view message() const { return error_ ? std::string_view(error_->message) : ""; }
  // What to do about it; may be empty.
  std::string_view hint() const { return error_ ? std::string_view(error_->hint) : ""; }
  // "CODE: message (hint)" for a log or a terminal.
  std::string to_string() const;

 private:
  struct Error {
    StatusCode code;
    std::string message, hint;
  };
  std::shared_ptr<const Error> error_;  // shared: copies of one error cost nothing
};

inline Status invalid_argument(std::string message, std::string hint = {}) {
  return {StatusCode::kInvalidArgument, std::move(message), std::move(hint)};
}
inline Status corrupt(std::string message, std::string hint = {}) {
  return {StatusCode::kCorrupt, std::move(message), std::move(hint)};
}
inline Status internal_error(std::string message) {
  return {StatusCode::kInternal, std::move(message)};
}

// A value or the Status that explains why there is none. Shape of std::expected.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}             // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}     // NOLINT: implicit on purpose

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status& status() const { return status_; }
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace cairn

#define CAIRN_CONCAT_(a, b) a##b
#define CAIRN_CONCAT(a, b) CAIRN_CONCAT_(a, b)

// Returns the status of `expression` from the enclosing function unless it is ok.
#define CAIRN_RETURN_IF_ERROR(expression)                  \
  do {                                                     \
    ::cairn::Status cairn_status_ = (expression);          \
    if (!cairn_status_.ok()) return cairn_status_;         \
  } while (false)

// `CAIRN_ASSIGN_OR_RETURN(auto x, f());` declares x from the Result of f() or returns its status.
#define CAIRN_ASSIGN_OR_RETURN(declaration, expression) \
  CAIRN_ASSIGN_OR_RETURN_(CAIRN_CONCAT(cairn_result_, __LINE__), declaration, expression)
#define CAIRN_ASSIGN_OR_RETURN_(result, declaration, expression) \
  auto result = (expression);                                    \
  if (!result.ok()) return result.status();                      \
  declaration = std::move(*result)

#endif  // CAIRN_STATUS_H_
