#include "tests/golden_runner/agreement.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace cairn::golden {
namespace {

// "A few": what a cancellation between terms of the row's magnitude can leave behind when one of
// them is rounded the other way.
constexpr double kMaxUlps = 4;
constexpr double kLeastEqual = 0.999;
constexpr double kCoefficientRelative = 5e-7;

// Spacing of bf16 numbers at |x|.
double bf16_ulp(double x) {
  if (x == 0) return 0x1p-133;
  return std::ldexp(1.0, std::max(std::ilogb(x), -126) - 7);
}

const char* rule_text(Rule rule) {
  switch (rule) {
    case Rule::kExact:
      return "exact";
    case Rule::kBf16:
      return ">=99.9% equal, rest <=4 ulp";
    case Rule::kCoefficient:
      return "5e-7 relative + f32 sum noise";
    case Rule::kNear:
      return "1e-4 absolute";
    case Rule::kF32:
      return "f32 sum noise";
    case Rule::kReport:
      return "(not judged)";
  }
  return "";
}

}  // namespace

double f32_sum_noise(std::int64_t length) {
  return 4 * 0x1p-24 * (1 + std::sqrt(static_cast<double>(length) / 2));
}

void Agreement::compare(const std::string& kind, Rule rule, const float* ours, const float* golden,
                        std::int64_t n, double noise) {
  Kind& k = kinds_[kind];
  k.rule = rule;
  double magnitude = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (std::isfinite(golden[i])) magnitude = std::max(magnitude, std::fabs(double{golden[i]}));
  }
  for (std::int64_t i = 0; i < n; ++i) {
    ++k.total;
    if (ours[i] == golden[i]) {
      ++k.equal;
      continue;
    }
    double difference = std::fabs(double{ours[i]} - double{golden[i]});
    if (!std::isfinite(difference)) difference = std::numeric_limits<double>::infinity();
    k.max_abs = std::max(k.max_abs, difference);
    k.max_relative = std::max(k.max_relative, difference / std::fabs(double{golden[i]}));
    const double limit = rule == Rule::kF32
                             ? noise * magnitude
                             : (kCoefficientRelative + noise) * std::fabs(double{golden[i]});
    k.max_of_limit = std::max(k.max_of_limit, difference / limit);
    k.max_ulps = std::max(k.max_ulps, difference / bf16_ulp(magnitude));
  }
}

void Agreement::share(const std::string& kind, std::int64_t good, std::int64_t total,
                      double least) {
  Kind& k = kinds_[kind];
  k.least_share = least;
  k.equal += good;
  k.total += total;
}

void Agreement::require(const std::string& kind, bool holds) { share(kind, holds, 1, 1.0); }

bool Agreement::holds(const Kind& k) {
  const double equal =
      k.total == 0 ? 0 : static_cast<double>(k.equal) / static_cast<double>(k.total);
  if (k.least_share >= 0) {
    // Few rows say little about a share: three standard deviations of the binomial are allowed.
    const double n = static_cast<double>(k.total), miss = 1 - k.least_share;
    return n * (1 - equal) <= n * miss + 3 * std::sqrt(n * miss * (1 - miss)) || k.least_share == 0;
  }
  switch (k.rule) {
    case Rule::kExact:
      return k.equal == k.total;
    case Rule::kBf16:
      return equal >= kLeastEqual && k.max_ulps <= kMaxUlps;
    case Rule::kCoefficient:
    case Rule::kF32:
      return k.max_of_limit <= 1;
    case Rule::kNear:
      return k.max_abs <= 1e-4;
    case Rule::kReport:
      return true;
  }
  return false;
}

bool Agreement::report() const {
  bool all = !kinds_.empty();
  std::printf("%-34s %10s %10s %11s %11s %7s  %s\n", "kind", "elements", "equal %", "max abs",
              "max rel", "ulps", "rule");
  for (const auto& [name, k] : kinds_) {
    const bool good = holds(k);
    all = all && good;
    const double equal =
        k.total == 0 ? 0 : 100.0 * static_cast<double>(k.equal) / static_cast<double>(k.total);
    if (k.least_share >= 0) {
      std::printf("%-34s %10lld %10.3f %11s %11s %7s  >= %.4g %% %s\n", name.c_str(),
                  static_cast<long long>(k.total), equal, "", "", "", 100 * k.least_share,
                  good ? "" : " FAILED");
    } else {
      std::printf("%-34s %10lld %10.3f %11.3g %11.3g %7.2f  %s%s\n", name.c_str(),
                  static_cast<long long>(k.total), equal, k.max_abs, k.max_relative, k.max_ulps,
                  rule_text(k.rule), good ? "" : "  FAILED");
    }
  }
  return all;
}

}  // namespace cairn::golden
