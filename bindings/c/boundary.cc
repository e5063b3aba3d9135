#include "bindings/c/boundary.h"

#include <cstdint>

#include "engine/utf8.h"

namespace cairn::c_api {
namespace {

Result<std::string_view> bytes_argument(const char* bytes, std::size_t length,
                                        std::string_view name) {
  if (bytes == nullptr) {
    if (length == 0 || length == CAIRN_CSTRING) return std::string_view();
    return invalid_argument(std::string(name) + ": NULL with a length of " +
                            std::to_string(length));
  }
  if (length == CAIRN_CSTRING) return std::string_view(bytes);
  if (length > static_cast<std::size_t>(PTRDIFF_MAX)) {  // a negative number; no object is so large
    return invalid_argument(std::string(name) + ": a length of " + std::to_string(length) +
                            " bytes");
  }
  return std::string_view(bytes, length);
}

// Making the Status may run out of memory; then there is a code and no error object.
template <class Make>
cairn_code report_made(StatusCode code, cairn_error** error, const Make& make) noexcept {
  try {
    return report(make(), error);
  } catch (...) {
    return static_cast<cairn_code>(code);
  }
}

}  // namespace

cairn_code report(const Status& status, cairn_error** error) noexcept {
  if (error != nullptr) {
    *error = status.ok() ? nullptr : new (std::nothrow) cairn_error{status};
  }
  return static_cast<cairn_code>(status.code());
}

// Called inside a catch block.
cairn_code report_exception(cairn_error** error) noexcept {
  if (error != nullptr) *error = nullptr;
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return report_made(StatusCode::kOutOfMemory, error, [] {
      return Status(StatusCode::kOutOfMemory, "the host is out of memory");
    });
  } catch (const std::exception& e) {
    return report_made(StatusCode::kInternal, error, [&] {
      return internal_error(std::string("unexpected exception: ") + e.what());
    });
  } catch (...) {
    return report_made(StatusCode::kInternal, error,
                       [] { return internal_error("unexpected exception"); });
  }
}

Status required(const void* pointer, std::string_view name) {
  if (pointer != nullptr) return {};
  return invalid_argument(std::string(name) + ": NULL is not allowed");
}

Result<std::string_view> text_argument(const char* text, std::size_t length,
                                       std::string_view name) {
  CAIRN_ASSIGN_OR_RETURN(const std::string_view bytes, bytes_argument(text, length, name));
  const std::size_t valid = engine::valid_utf8_prefix(bytes);
  if (valid == bytes.size()) return bytes;
  return invalid_argument(std::string(name) + ": not UTF-8 at byte " + std::to_string(valid));
}

Result<std::string> path_argument(const char* path, std::size_t length, std::string_view name) {
  CAIRN_ASSIGN_OR_RETURN(const std::string_view bytes, bytes_argument(path, length, name));
  if (bytes.empty()) return invalid_argument(std::string(name) + ": empty file name");
  if (bytes.find('\0') != std::string_view::npos) {
    return invalid_argument(std::string(name) + ": zero byte in a file name");
  }
  return std::string(bytes);
}

Status expect_reserved_zero(std::int32_t reserved) {
  if (reserved == 0) return {};
  return {StatusCode::kUnsupported, "options.reserved is " + std::to_string(reserved),
          "leave it zero"};
}

Status check_struct_size(std::size_t given, std::string_view name) {
  if (given >= sizeof(std::size_t) && given <= kMaxStructBytes) return {};
  return invalid_argument(std::string(name) + ".struct_size is " + std::to_string(given),
                          "set it to sizeof the struct, or use the INIT macro");
}

Status check_unknown_tail(const void* given, std::size_t known_bytes, std::size_t given_bytes,
                          std::string_view name) {
  if (given_bytes <= known_bytes) return {};
  const auto* begin = static_cast<const unsigned char*>(given) + known_bytes;
  const auto* end = static_cast<const unsigned char*>(given) + given_bytes;
  const auto* set = std::find_if(begin, end, [](unsigned char byte) { return byte != 0; });
  if (set == end) return {};
  return {StatusCode::kUnsupported,
          std::string(name) + ": the field at byte " +
              std::to_string(set - static_cast<const unsigned char*>(given)) +
              " is set, but this library knows " + std::to_string(known_bytes) + " bytes",
          "leave the field zero or use a newer libcairn"};
}

}  // namespace cairn::c_api
