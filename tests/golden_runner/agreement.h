// Counts how far numbers agree, per kind of tensor, and judges them by the rules of
// tests/golden/README.md section 5.
#ifndef CAIRN_TESTS_GOLDEN_RUNNER_AGREEMENT_H_
#define CAIRN_TESTS_GOLDEN_RUNNER_AGREEMENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cairn::golden {

enum class Rule {
  kExact,        // every element equal
  kBf16,         // >= 99.9 % equal, the rest within a few bf16 ulps of the row's magnitude
  kCoefficient,  // 5e-7 relative
  kNear,         // 1e-4 absolute
  kF32,          // the noise of f32 sums, relative to the row's magnitude
  kReport,       // printed, not judged
};

class Agreement {
 public:
  // Compares n numbers as one row of `kind`. NaN equals nothing; equal infinities are equal.
  void compare(const std::string& kind, Rule rule, const float* ours, const float* golden,
               std::int64_t n);
  // A share that must reach `least`, e.g. argmax agreement.
  void share(const std::string& kind, std::int64_t good, std::int64_t total, double least);
  // A fact that must hold.
  void require(const std::string& kind, bool holds);

  // Prints one line per kind; true if every rule holds and anything was compared.
  bool report() const;

 private:
  struct Kind {
    Rule rule = Rule::kReport;
    std::int64_t total = 0, equal = 0;
    double max_abs = 0, max_relative = 0, max_ulps = 0, max_of_row = 0;
    double least_share = -1;  // >= 0: a share
  };
  static bool holds(const Kind& kind);

  std::map<std::string, Kind> kinds_;
};

}  // namespace cairn::golden

#endif  // CAIRN_TESTS_GOLDEN_RUNNER_AGREEMENT_H_
