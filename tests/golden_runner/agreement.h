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
  kCoefficient,  // 5e-7 relative, plus the caller's noise
  kNear,         // 1e-4 absolute
  kF32,          // the caller's noise, relative to the row's magnitude
  kReport,       // printed, not judged
};

// Four standard deviations of what rounding leaves in an f32 sum of `length` terms, relative to the
// norm of the terms. With u = 2^-24 each of the partial sums, about sqrt(k) * rms of a term after k
// terms, is rounded by up to u of itself; the squares add up to u^2 * rms^2 * length^2 / 2, and the
// norm is rms * sqrt(length). Sums in lanes or blocks, as of most libraries, stay below it. Four
// roundings more stand for what is done with the sum.
double f32_sum_noise(std::int64_t length);

class Agreement {
 public:
  // Compares n numbers as one row of `kind`. NaN equals nothing; equal infinities are equal.
  void compare(const std::string& kind, Rule rule, const float* ours, const float* golden,
               std::int64_t n, double noise = 0);
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
    double max_abs = 0, max_relative = 0, max_ulps = 0;
    double max_of_limit = 0;  // kCoefficient and kF32: largest difference over what is allowed
    double least_share = -1;  // >= 0: a share
  };
  static bool holds(const Kind& kind);

  std::map<std::string, Kind> kinds_;
};

}  // namespace cairn::golden

#endif  // CAIRN_TESTS_GOLDEN_RUNNER_AGREEMENT_H_
