#include "cairn/status.h"

#include "cairn/version.h"

namespace cairn {

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "OK";
    case StatusCode::kInvalidArgument: return "INVALID_ARGUMENT";
    case StatusCode::kNotFound: return "NOT_FOUND";
    case StatusCode::kUnsupported: return "UNSUPPORTED";
    case StatusCode::kCorrupt: return "CORRUPT";
    case StatusCode::kModelMismatch: return "MODEL_MISMATCH";
    case StatusCode::kBusy: return "BUSY";
    case StatusCode::kCancelled: return "CANCELLED";
    case StatusCode::kOutOfMemory: return "OUT_OF_MEMORY";
    case StatusCode::kOutOfDisk: return "OUT_OF_DISK";
    case StatusCode::kIoError: return "IO_ERROR";
    case StatusCode::kTimeout: return "TIMEOUT";
    case StatusCode::kContextFull: return "CONTEXT_FULL";
    case StatusCode::kInternal: return "INTERNAL";
    case StatusCode::kAlreadyExists: return "ALREADY_EXISTS";
  }
  return "UNKNOWN";
}

std::string Status::to_string() const {
  if (ok()) return "OK";
  std::string text(status_code_name(code()));
  text.append(": ").append(message());
  if (!hint().empty()) text.append(" (").append(hint()).append(")");
  return text;
}

#define CAIRN_STRING_(x) #x
#define CAIRN_STRING(x) CAIRN_STRING_(x)

const char* version() {
  return CAIRN_STRING(CAIRN_VERSION_MAJOR) "." CAIRN_STRING(CAIRN_VERSION_MINOR) "." CAIRN_STRING(
      CAIRN_VERSION_PATCH);
}

}  // namespace cairn
