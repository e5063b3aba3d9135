// One safetensors file: 8-byte little-endian header length, JSON header, tensor data
// (spec/checkpoint.md section 2). Used for model shards and for golden data.
#ifndef CAIRN_ENGINE_SAFETENSORS_H_
#define CAIRN_ENGINE_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cairn/status.h"
#include "engine/mapped_file.h"

namespace cairn::engine {

enum class DType {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64,
};

std::string_view dtype_name(DType dtype);  // the format's spelling: "F8_E4M3"
std::int64_t dtype_bytes(DType dtype);     // of one element; also its alignment

struct TensorEntry {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<std::int64_t> shape;  // empty = a scalar
  const std::byte* data = nullptr;  // n_bytes in the mapped file, at any alignment
  std::int64_t n_bytes = 0;         // product of shape times dtype_bytes

  bool aligned() const {
    return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::size_t>(dtype_bytes(dtype)) ==
           0;
  }
};

// "F8_E4M3 [1280, 5120]", for messages.
std::string describe(DType dtype, const std::vector<std::int64_t>& shape);

// Owns the mapping that its entries point into; moving keeps them valid. Const methods are safe
// from any thread.
class SafetensorsFile {
 public:
  // Maps the file and checks the whole header: every tensor lies inside the data section, sizes
  // follow from shapes, and the tensors cover the section without overlaps, gaps or a rest.
  // kNotFound and kIoError from the file system, kCorrupt for a malformed file, kUnsupported for an
  // unknown dtype. Messages name file, tensor, expected and found. Payload is not read.
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const MappedFile& file() const { return file_; }
  const std::vector<TensorEntry>& tensors() const { return tensors_; }  // ascending in the file
  const TensorEntry* find(std::string_view name) const;                 // nullptr if absent
  // Free-form strings of the header's "__metadata__", in file order.
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return metadata_; }
  std::int64_t payload_bytes() const { return payload_bytes_; }

 private:
  MappedFile file_;
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string_view, std::size_t> by_name_;  // keys live in tensors_
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::int64_t payload_bytes_ = 0;
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_SAFETENSORS_H_
