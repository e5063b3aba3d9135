#include "tests/support/random_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "engine/model_config.h"
#include "engine/weights_loader.h"
#include "kernels/number_formats.h"
#include "tests/support/safetensors_text.h"
#include "tests/support/temporary_folder.h"

namespace cairn::test {
namespace {

using engine::DType;

// Numbers of a size that keeps a random network alive: every sublayer moves the streams.
class RandomTensor {
 public:
  explicit RandomTensor(std::uint64_t seed) : random_(seed) {}

  void append(const engine::ExpectedTensor& tensor, std::string& out) {
    const bool is_norm = tensor.name.ends_with("norm.weight") || tensor.name == "norm.weight";
    std::int64_t n = 1;
    for (const std::int64_t d : tensor.shape) n *= d;
    const std::int64_t fan_in = tensor.shape.back();
    for (std::int64_t i = 0; i < n; ++i) {
      switch (tensor.dtype) {
        case DType::kBf16: {
          const float x = is_norm ? 1 + 0.1f * normal() : normal() / std::sqrt(float(fan_in));
          put(kernels::to_bf16(tensor.name == "head.weight" ? 3 * x : x), out);
          break;
        }
        case DType::kF32:
          put(0.3f * normal() / std::sqrt(float(fan_in)), out);
          break;
        case DType::kF8E4M3:
          put(kernels::to_e4m3(normal()), out);
          break;
        // 2^-4 to 2^-3: columns of some hundreds sum to about one.
        case DType::kF8E8M0:
          put(static_cast<std::uint8_t>(123 + random_() % 2), out);
          break;
        default:
          put(static_cast<std::uint8_t>(random_()), out);
          break;
      }
    }
  }

 private:
  float normal() { return distribution_(random_); }
  template <class T>
  static void put(T value, std::string& out) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out.append(bytes, sizeof value);
  }

  std::mt19937_64 random_;
  std::normal_distribution<float> distribution_;
};

}  // namespace

Status write_random_checkpoint(const std::string& folder, const std::string& config_json,
                               const std::string& tokenizer_json, std::uint64_t seed) {
  CAIRN_ASSIGN_OR_RETURN(const engine::ModelConfig config,
                         engine::parse_model_config(config_json, nullptr));
  RandomTensor random(seed);
  std::string header = "{", data;
  // Wide elements first: without gaps that keeps every tensor aligned.
  std::vector<engine::ExpectedTensor> tensors = engine::expected_tensors(config);
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return engine::dtype_bytes(a.dtype) > engine::dtype_bytes(b.dtype);
  });
  for (const engine::ExpectedTensor& tensor : tensors) {
    if (!tensor.required_for_text) continue;
    const std::size_t begin = data.size();
    random.append(tensor, data);
    std::string shape;
    for (const std::int64_t d : tensor.shape) {
      shape += (shape.empty() ? "" : ",") + std::to_string(d);
    }
    header += (header.size() > 1 ? "," : "") + ("\"" + tensor.name) + "\":{\"dtype\":\"" +
              std::string(engine::dtype_name(tensor.dtype)) + "\",\"shape\":[" + shape +
              "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) +
              "]}";
  }
  header += "}";
  write_file(folder + "/config.json", config_json);
  write_file(folder + "/tokenizer.json", tokenizer_json);
  write_file(folder + "/model-00001-of-00001.safetensors", safetensors_file(header, data));
  return {};
}

}  // namespace cairn::test
