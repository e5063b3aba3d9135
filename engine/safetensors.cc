// Header reader. The JSON goes through an event parser rather than a tree: a tree drops repeated
// keys, and two tensors of one name are an error that has to be seen.

#include "engine/safetensors.h"

#include <algorithm>
#include <array>
#include <boost/json/basic_parser_impl.hpp>
#include <limits>
#include <new>
#include <optional>
#include <set>

namespace cairn::engine {
namespace {

namespace json = boost::json;

constexpr std::size_t kLengthBytes = 8;
// The limit of the format's own library. The released shards stay below 261 KB.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::int64_t n_bytes;
};
constexpr DTypeInfo kDTypes[] = {
    {DType::kBool, "BOOL", 1},      {DType::kU8, "U8", 1},          {DType::kI8, "I8", 1},
    {DType::kF8E4M3, "F8_E4M3", 1}, {DType::kF8E5M2, "F8_E5M2", 1}, {DType::kF8E8M0, "F8_E8M0", 1},
    {DType::kI16, "I16", 2},        {DType::kU16, "U16", 2},        {DType::kF16, "F16", 2},
    {DType::kBf16, "BF16", 2},      {DType::kI32, "I32", 4},        {DType::kU32, "U32", 4},
    {DType::kF32, "F32", 4},        {DType::kI64, "I64", 8},        {DType::kU64, "U64", 8},
    {DType::kF64, "F64", 8},
};

const DTypeInfo& info_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }

// What the header says about one tensor, before it is checked.
struct HeaderEntry {
  std::string name, dtype;
  std::vector<std::int64_t> shape, offsets;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

// Event handler of the header: {"name": {"dtype": s, "shape": [n...], "data_offsets": [n, n]}...,
// "__metadata__": {s: s...}}. Every callback returns false to stop at the first error.
class HeaderHandler {
 public:
  static constexpr std::size_t max_object_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_array_size = 64;  // dimensions of a tensor
  static constexpr std::size_t max_key_size = 4096;
  static constexpr std::size_t max_string_size = 1 << 20;

  std::vector<HeaderEntry> entries;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string problem;  // empty = none

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }

  bool on_object_begin(json::error_code& ec) {
    if (depth_ == Depth::kStart) return depth_ = Depth::kTop, true;
    if (depth_ == Depth::kTop) {
      depth_ = in_metadata_ ? Depth::kMetadata : Depth::kTensor;
      return true;
    }
    return stop(ec, "unexpected object");
  }
  bool on_object_end(std::size_t, json::error_code& ec) {
    if (depth_ == Depth::kTensor && !complete(ec)) return false;
    depth_ = depth_ == Depth::kTop ? Depth::kStart : Depth::kTop;
    return true;
  }
  bool on_array_begin(json::error_code& ec) {
    if (depth_ == Depth::kTensor && (key_ == "shape" || key_ == "data_offsets")) {
      depth_ = Depth::kList;
      return true;
    }
    return stop(ec, "unexpected list");
  }
  bool on_array_end(std::size_t, json::error_code&) {
    depth_ = Depth::kTensor;
    return true;
  }

  bool on_key_part(json::string_view part, std::size_t, json::error_code&) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, std::size_t, json::error_code& ec) {
    text_.append(part.data(), part.size());
    key_ = std::exchange(text_, {});
    if (depth_ == Depth::kTop) return begin_value(ec);
    if (depth_ == Depth::kTensor) return begin_field(ec);
    return true;
  }
  bool on_string_part(json::string_view part, std::size_t, json::error_code&) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool on_string(json::string_view part, std::size_t, json::error_code& ec) {
    text_.append(part.data(), part.size());
    std::string text = std::exchange(text_, {});
    if (depth_ == Depth::kMetadata) return metadata.emplace_back(key_, std::move(text)), true;
    if (depth_ == Depth::kTensor && key_ == "dtype") {
      entries.back().dtype = std::move(text);
      return true;
    }
    return stop(ec, "unexpected string");
  }

  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t x, json::string_view, json::error_code& ec) {
    if (depth_ != Depth::kList || x < 0) return stop(ec, "unexpected number");
    HeaderEntry& entry = entries.back();
    (key_ == "shape" ? entry.shape : entry.offsets).push_back(x);
    return true;
  }
  bool on_uint64(std::uint64_t, json::string_view, json::error_code& ec) {
    return stop(ec, "number too large");
  }
  bool on_double(double, json::string_view, json::error_code& ec) {
    return stop(ec, "expected integers");
  }
  bool on_bool(bool, json::error_code& ec) { return stop(ec, "unexpected value"); }
  bool on_null(json::error_code& ec) { return stop(ec, "unexpected null"); }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  enum class Depth { kStart, kTop, kTensor, kMetadata, kList };

  bool begin_value(json::error_code& ec) {
    in_metadata_ = key_ == "__metadata__";
    if (!names_.insert(key_).second) return stop(ec, "appears twice");
    if (!in_metadata_) entries.push_back({.name = key_, .dtype = {}, .shape = {}, .offsets = {}});
    return true;
  }
  bool begin_field(json::error_code& ec) {
    HeaderEntry& entry = entries.back();
    bool* const seen = key_ == "dtype"          ? &entry.has_dtype
                       : key_ == "shape"        ? &entry.has_shape
                       : key_ == "data_offsets" ? &entry.has_offsets
                                                : nullptr;
    if (seen == nullptr) return stop(ec, "unknown field");
    if (*seen) return stop(ec, "repeated field");
    return *seen = true;
  }
  bool complete(json::error_code& ec) {
    const HeaderEntry& entry = entries.back();
    if (!entry.has_dtype || !entry.has_shape || !entry.has_offsets) {
      return stop(ec, "expected dtype, shape and data_offsets");
    }
    if (entry.offsets.size() != 2) return stop(ec, "expected two data_offsets");
    return true;
  }
  bool stop(json::error_code& ec, std::string_view what) {
    const bool in_tensor = depth_ == Depth::kTensor || depth_ == Depth::kList;
    const std::string where = in_tensor ? entries.back().name + ": " + key_ : key_;
    problem = where.empty() ? std::string(what) : where + ": " + std::string(what);
    ec = json::make_error_code(json::error::syntax);
    return false;
  }

  Depth depth_ = Depth::kStart;
  bool in_metadata_ = false;
  std::string key_, text_;
  std::set<std::string> names_;
};

Status malformed(const std::string& path, const std::string& what) {
  return corrupt(path + ": " + what, "the file is damaged or incomplete; fetch it again");
}

std::uint64_t little_endian(std::span<const std::byte> bytes) {
  std::uint64_t x = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    x = x << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  return x;
}

// The header's JSON text, between the length and the data section.
Result<std::string_view> header_text(const MappedFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() < kLengthBytes) {
    return malformed(file.path(), "truncated: " + std::to_string(bytes.size()) +
                                      " bytes, expected at least a header length of 8");
  }
  const std::uint64_t length = little_endian(bytes.first(kLengthBytes));
  if (length > kMaxHeaderBytes) {
    return malformed(file.path(), "header length is " + std::to_string(length) +
                                      " bytes, expected at most " +
                                      std::to_string(kMaxHeaderBytes));
  }
  if (length > bytes.size() - kLengthBytes) {
    return malformed(file.path(), "truncated: header of " + std::to_string(length) +
                                      " bytes in a file of " + std::to_string(bytes.size()));
  }
  return file.text().substr(kLengthBytes, length);
}

Result<HeaderHandler> parse_header(const std::string& path, std::string_view text) {
  // Strict UTF-8, no extensions; depth: file, tensor, list.
  json::parse_options options;
  options.max_depth = 4;
  json::basic_parser<HeaderHandler> parser(options);
  json::error_code error;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), error);
  HeaderHandler& handler = parser.handler();
  if (!handler.problem.empty()) return malformed(path, "header: " + handler.problem);
  if (error) {
    return malformed(
        path, "header: not valid JSON at byte " + std::to_string(used) + ": " + error.message());
  }
  if (text.find_first_not_of(" \t\r\n", used) != std::string_view::npos) {
    return malformed(path, "header: text after the JSON object");
  }
  return std::move(handler);
}

const DTypeInfo* find_dtype(std::string_view name) {
  const auto found = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                  [&](const DTypeInfo& info) { return info.name == name; });
  return found == std::end(kDTypes) ? nullptr : &*found;
}

// Product of dimensions and element size, or nothing if it exceeds 63 bits.
std::optional<std::int64_t> byte_size(const std::vector<std::int64_t>& shape,
                                      std::int64_t element_bytes) {
  std::int64_t n = element_bytes;
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(n, extent, &n)) return std::nullopt;
  }
  return n;
}

// Checks one entry by itself and places it into the data section.
Result<TensorEntry> place(const std::string& path, const HeaderEntry& entry,
                          std::span<const std::byte> data) {
  const std::string who = path + ": tensor " + entry.name + ": ";
  const DTypeInfo* const dtype = find_dtype(entry.dtype);
  if (dtype == nullptr) {
    return Status(StatusCode::kUnsupported, who + "unknown dtype \"" + entry.dtype + "\"");
  }
  const std::int64_t begin = entry.offsets[0], end = entry.offsets[1];
  const auto n_data = static_cast<std::int64_t>(data.size());
  if (begin > end) {
    return corrupt(who + "data_offsets " + std::to_string(begin) + " to " + std::to_string(end) +
                   " run backwards");
  }
  if (end > n_data) {
    return malformed(path, "tensor " + entry.name + ": ends at byte " + std::to_string(end) +
                               " of a data section of " + std::to_string(n_data) +
                               ": file truncated");
  }
  const std::optional<std::int64_t> expected = byte_size(entry.shape, dtype->n_bytes);
  if (!expected || *expected != end - begin) {
    return corrupt(who + describe(dtype->dtype, entry.shape) + " needs " +
                   (expected ? std::to_string(*expected) : "more than 2^63") +
                   " bytes, data_offsets give " + std::to_string(end - begin));
  }
  TensorEntry tensor;
  tensor.name = entry.name;
  tensor.dtype = dtype->dtype;
  tensor.shape = entry.shape;
  tensor.data = data.data() + begin;
  tensor.n_bytes = end - begin;
  return tensor;
}

// `tensors` ascend; they have to follow each other from the first byte of `data` to the last.
Status check_coverage(const std::string& path, const std::vector<TensorEntry>& tensors,
                      std::span<const std::byte> data) {
  std::int64_t covered = 0;
  for (const TensorEntry& tensor : tensors) {
    const std::int64_t begin = tensor.data - data.data();
    if (begin != covered) {
      return corrupt(path + ": tensor " + tensor.name + ": begins at byte " +
                     std::to_string(begin) + ", expected " + std::to_string(covered) +
                     (begin < covered ? ": overlaps the tensor before it" : ": bytes between"));
    }
    covered += tensor.n_bytes;
  }
  if (covered == static_cast<std::int64_t>(data.size())) return {};
  return malformed(path, "data section has " + std::to_string(data.size()) +
                             " bytes, its tensors end at " + std::to_string(covered));
}

}  // namespace

std::string_view dtype_name(DType dtype) { return info_of(dtype).name; }
std::int64_t dtype_bytes(DType dtype) { return info_of(dtype).n_bytes; }

std::string describe(DType dtype, const std::vector<std::int64_t>& shape) {
  std::string text(dtype_name(dtype));
  text += " [";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) try {
  SafetensorsFile result;
  CAIRN_ASSIGN_OR_RETURN(result.file_, MappedFile::open(path));
  CAIRN_ASSIGN_OR_RETURN(const std::string_view text, header_text(result.file_));
  CAIRN_ASSIGN_OR_RETURN(HeaderHandler header, parse_header(path, text));
  const std::span<const std::byte> data = result.file_.bytes().subspan(kLengthBytes + text.size());

  result.tensors_.reserve(header.entries.size());
  for (const HeaderEntry& entry : header.entries) {
    CAIRN_ASSIGN_OR_RETURN(TensorEntry tensor, place(path, entry, data));
    result.tensors_.push_back(std::move(tensor));
  }
  // Empty tensors come first among those that begin at one byte.
  std::stable_sort(result.tensors_.begin(), result.tensors_.end(),
                   [](const TensorEntry& a, const TensorEntry& b) {
                     return a.data != b.data ? a.data < b.data : a.n_bytes < b.n_bytes;
                   });
  CAIRN_RETURN_IF_ERROR(check_coverage(path, result.tensors_, data));

  for (std::size_t i = 0; i < result.tensors_.size(); ++i) {
    result.by_name_.emplace(result.tensors_[i].name, i);
  }
  result.metadata_ = std::move(header.metadata);
  result.payload_bytes_ = static_cast<std::int64_t>(data.size());
  return result;
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kOutOfMemory, path + ": out of memory while reading the header");
} catch (const std::exception& e) {
  return internal_error(path + ": " + e.what());
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace cairn::engine
