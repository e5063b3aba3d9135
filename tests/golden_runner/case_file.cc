#include "tests/golden_runner/case_file.h"

#include <boost/json.hpp>
#include <cstring>
#include <fstream>
#include <iterator>

#include "kernels/number_formats.h"

namespace cairn::golden {
namespace {

template <class T>
std::vector<float> widen(const engine::TensorEntry& entry) {
  std::vector<float> out(static_cast<std::size_t>(entry.n_bytes) / sizeof(T));
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, entry.data + i * sizeof(T), sizeof(T));
    if constexpr (std::is_same_v<T, kernels::Bf16>) {
      out[i] = kernels::to_f32(value);
    } else {
      out[i] = static_cast<float>(value);
    }
  }
  return out;
}

std::vector<float> widen_any(const engine::TensorEntry& entry) {
  switch (entry.dtype) {
    case engine::DType::kBf16:
      return widen<kernels::Bf16>(entry);
    case engine::DType::kF32:
      return widen<float>(entry);
    case engine::DType::kI32:
      return widen<std::int32_t>(entry);
    case engine::DType::kI16:
      return widen<std::int16_t>(entry);
    case engine::DType::kI64:
      return widen<std::int64_t>(entry);
    default:
      return widen<std::uint8_t>(entry);
  }
}

// "short.ref.safetensors" -> "short.json"
std::string json_path(const std::string& path) {
  std::string stem = path.substr(0, path.rfind(".safetensors"));
  const std::size_t dot = stem.rfind('.'), slash = stem.rfind('/');
  if (dot != std::string::npos && (slash == std::string::npos || dot > slash)) stem.resize(dot);
  return stem + ".json";
}

}  // namespace

Result<CaseFile> CaseFile::open(const std::string& path, const std::string& mode) {
  CAIRN_ASSIGN_OR_RETURN(engine::SafetensorsFile file, engine::SafetensorsFile::open(path));
  CaseFile result(std::move(file));
  std::ifstream in(json_path(path), std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  boost::system::error_code error;
  const boost::json::value json = boost::json::parse(text, error);
  if (error || !json.is_object()) return result;  // cases without details need none
  const std::string key = mode == "ref" ? "detail_positions" : "detail_positions_" + mode;
  if (const auto* positions = json.as_object().if_contains(key);
      positions && positions->is_array()) {
    for (const auto& p : positions->as_array()) {
      result.detail_positions_.push_back(p.to_number<std::int64_t>());
    }
  }
  return result;
}

Tensor CaseFile::tensor(const std::string& name) const {
  const engine::TensorEntry* entry = file_.find(name);
  if (!entry) return {};
  return {entry->shape, widen_any(*entry)};
}

std::vector<std::int64_t> CaseFile::integers(const std::string& name) const {
  const Tensor t = tensor(name);
  return {t.values.begin(), t.values.end()};
}

std::vector<std::string> CaseFile::names() const {
  std::vector<std::string> names;
  for (const engine::TensorEntry& entry : file_.tensors()) names.push_back(entry.name);
  return names;
}

}  // namespace cairn::golden
