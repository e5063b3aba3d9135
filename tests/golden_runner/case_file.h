// A golden case: a safetensors file of named tensors and the JSON beside it (tests/golden/README.md
// section 3).
#ifndef CAIRN_TESTS_GOLDEN_RUNNER_CASE_FILE_H_
#define CAIRN_TESTS_GOLDEN_RUNNER_CASE_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cairn/status.h"
#include "engine/safetensors.h"

namespace cairn::golden {

// A tensor widened to f32 (integers up to 2^24 are exact).
struct Tensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;

  std::int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  std::int64_t row_size() const {
    return rows() == 0 ? 0 : static_cast<std::int64_t>(values.size()) / rows();
  }
  const float* row(std::int64_t i) const { return values.data() + i * row_size(); }
};

class CaseFile {
 public:
  // `mode` picks the list of detail positions in the JSON: "ref", "f32c" or "f32".
  static Result<CaseFile> open(const std::string& path, const std::string& mode);

  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  // Aborts the comparison with an empty tensor if absent; check has() first.
  Tensor tensor(const std::string& name) const;
  std::vector<std::int64_t> integers(const std::string& name) const;
  const std::vector<std::int64_t>& detail_positions() const { return detail_positions_; }
  std::vector<std::string> names() const;

 private:
  explicit CaseFile(engine::SafetensorsFile file) : file_(std::move(file)) {}
  engine::SafetensorsFile file_;
  std::vector<std::int64_t> detail_positions_;
};

}  // namespace cairn::golden

#endif  // CAIRN_TESTS_GOLDEN_RUNNER_CASE_FILE_H_
