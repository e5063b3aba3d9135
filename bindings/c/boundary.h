// What every function of cairn.h does at its edges: stop exceptions, turn a Status into a code and
// an error object, check what the caller passed, and fill what the caller gets. No logic of the
// engine or of sessions lives in this directory.
#ifndef CAIRN_BINDINGS_C_BOUNDARY_H_
#define CAIRN_BINDINGS_C_BOUNDARY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "cairn/cairn.h"
#include "cairn/status.h"

struct cairn_error {
  cairn::Status status;
};

namespace cairn::c_api {

// Option structs beyond this size are taken for uninitialised memory.
inline constexpr std::size_t kMaxStructBytes = 4096;

// Sets *error to an owned error for `status`, or to nullptr if that is ok or memory is short.
// `error` may be null. Never throws.
cairn_code report(const Status& status, cairn_error** error) noexcept;
cairn_code report_exception(cairn_error** error) noexcept;

// Runs `body` (which returns a Status) and reports how it ended. Nothing is thrown past it.
template <class Body>
cairn_code guarded(cairn_error** error, Body&& body) noexcept {
  try {
    return report(body(), error);
  } catch (...) {
    return report_exception(error);
  }
}

// Destroys *handle and clears it; both may be null.
template <class Handle>
void destroy(Handle** handle) noexcept {
  if (handle == nullptr) return;
  std::unique_ptr<Handle> owner(std::exchange(*handle, nullptr));
}

// Checks that a handle or pointer argument is there; `name` is the parameter's.
Status required(const void* pointer, std::string_view name);

// Clears an out parameter before anything else can fail.
template <class T>
Status cleared(T** out, std::string_view name) {
  CAIRN_RETURN_IF_ERROR(required(out, name));
  *out = nullptr;
  return {};
}

// Makes a handle of the given parts and hands it to the caller.
template <class Handle, class... Parts>
Status give(Handle** out, Parts&&... parts) {
  *out = std::unique_ptr<Handle>(new Handle{std::forward<Parts>(parts)...}).release();
  return {};
}

// Room for a handle, taken before what it will hold is made: what has happened by then (a turn has
// started, an event was read) is not lost for want of memory.
template <class Handle>
class Room {
 public:
  Room() : memory_(::operator new(sizeof(Handle))) {}
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() { ::operator delete(memory_); }

  // Makes the handle of the given parts, which are moved, and hands it to the caller.
  template <class... Parts>
  Status give(Handle** out, Parts&&... parts) noexcept {
    *out = new (std::exchange(memory_, nullptr)) Handle{std::forward<Parts>(parts)...};
    return {};
  }

 private:
  void* memory_;
};

// A text argument as a view of the caller's memory: (pointer, length) or, for CAIRN_CSTRING, up to
// the terminating zero. kInvalidArgument unless it is UTF-8.
Result<std::string_view> text_argument(const char* text, std::size_t length, std::string_view name);
// A file name: any bytes but zero, at least one.
Result<std::string> path_argument(const char* path, std::size_t length, std::string_view name);

// A reserved option may get a meaning; a caller that sets it expects that meaning.
Status expect_reserved_zero(std::int32_t reserved);

Status check_struct_size(std::size_t given, std::string_view name);
Status check_unknown_tail(const void* given, std::size_t known_bytes, std::size_t given_bytes,
                          std::string_view name);

// The caller's option struct as this library knows it: fields the caller lacks are zero, which is
// the default. kUnsupported if the caller set a field that is not known here.
template <class Options>
Result<Options> read_options(const Options* given, std::string_view name) {
  Options options = {};
  if (given == nullptr) return options;
  CAIRN_RETURN_IF_ERROR(check_struct_size(given->struct_size, name));
  CAIRN_RETURN_IF_ERROR(check_unknown_tail(given, sizeof(Options), given->struct_size, name));
  std::memcpy(&options, given, std::min(sizeof(Options), given->struct_size));
  return options;
}

// Fills as much of the caller's result struct as it has room for and zeroes what is not known here.
template <class Values>
Status write_result(Values values, Values* given, std::string_view name) {
  CAIRN_RETURN_IF_ERROR(required(given, name));
  CAIRN_RETURN_IF_ERROR(check_struct_size(given->struct_size, name));
  const std::size_t given_bytes = given->struct_size;
  values.struct_size = given_bytes;
  std::memset(static_cast<void*>(given), 0, given_bytes);
  std::memcpy(given, &values, std::min(sizeof(Values), given_bytes));
  return {};
}

}  // namespace cairn::c_api

#endif  // CAIRN_BINDINGS_C_BOUNDARY_H_
