// What every kernel test needs: seeded random numbers, buffers that notice writes beside them, the
// check that a row's result depends on that row only, and every instruction set of the machine.
#ifndef CAIRN_TESTS_KERNELS_KERNEL_ROWS_H_
#define CAIRN_TESTS_KERNELS_KERNEL_ROWS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/context.h"
#include "kernels/kernels.h"
#include "kernels/number_formats.h"
#include "kernels/sparse_attention.h"
#include "tests/golden_runner/case_file.h"

namespace cairn::kernels::test {

// --- Instruction sets ----------------------------------------------------------------------------

// The table under test: of the instruction set that the running test was made for.
inline KernelTable& tested_kernels() {
  static KernelTable table;
  return table;
}

// The instruction sets of this machine, the plain definitions first.
inline std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet set : {InstructionSet::kScalar, InstructionSet::kAvx2,
                                   InstructionSet::kAvx512, InstructionSet::kNeon}) {
    if (usable_instruction_set(set) == set) sets.push_back(set);
  }
  return sets;
}

// A test of kernels runs once with each instruction set: TEST_P in a suite of its own that
// CAIRN_KERNEL_SUITE declares, with tested_kernels() for the table.
class KernelSuite : public testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override { tested_kernels() = select_kernels(GetParam()); }
};

inline std::string instruction_set_name(const testing::TestParamInfo<InstructionSet>& info) {
  switch (info.param) {
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kAvx512:
      return "avx512";
    case InstructionSet::kNeon:
      return "neon";
    default:
      return "scalar";
  }
}

#define CAIRN_KERNEL_SUITE(name)      \
  class name : public KernelSuite {}; \
  INSTANTIATE_TEST_SUITE_P(With, name, testing::ValuesIn(instruction_sets()), instruction_set_name)

// What `call` gives with the plain definitions in the place of the table under test.
template <class Call>
auto by_scalar_kernels(const Call& call) {
  const KernelTable tested = tested_kernels();
  tested_kernels() = select_kernels(InstructionSet::kScalar);
  auto result = call();
  tested_kernels() = tested;
  return result;
}

// ---------------------------------------------------------------------------------------------------

inline golden::CaseFile unit_file(const std::string& name) {
  auto file =
      golden::CaseFile::open(CAIRN_TEST_DATA "/unit/" + name + ".safetensors", /*mode=*/"ref");
  if (!file.ok()) throw std::runtime_error(file.status().to_string());  // fails the test
  return std::move(*file);
}

class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n));
  }
  float uniform(float from, float to) {
    return from + (to - from) * static_cast<float>(bits() >> 40) * 0x1p-24f;
  }
  // Roughly normal, standard deviation 1.
  float normal() {
    float sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform(0, 1);
    return sum;
  }
  std::vector<float> normals(std::int64_t n) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (float& v : x) v = normal();
    return x;
  }
  std::vector<float> bf16_normals(std::int64_t n) {
    std::vector<float> x = normals(n);
    for (float& v : x) v = round_to_bf16(v);
    return x;
  }
  std::vector<Bf16> bf16_weights(std::int64_t n) {
    std::vector<Bf16> w;
    for (std::int64_t i = 0; i < n; ++i) w.push_back(to_bf16(normal()));
    return w;
  }
  // E4M3 codes without NaN.
  std::vector<std::uint8_t> e4m3_codes(std::int64_t n) {
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(n));
    for (auto& c : codes) {
      do c = static_cast<std::uint8_t>(bits());
      while ((c & 0x7F) == 0x7F);
    }
    return codes;
  }
  // E8M0 scales 2^-4 .. 2^3.
  std::vector<std::uint8_t> scales(std::int64_t n) {
    std::vector<std::uint8_t> s(static_cast<std::size_t>(n));
    for (auto& b : s) b = static_cast<std::uint8_t>(123 + below(8));
    return s;
  }

 private:
  std::uint64_t state_;
};

// n elements between guard elements; intact() tells whether those were written.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::int64_t n)
      : bytes_((static_cast<std::size_t>(n) + 2 * kGuard) * sizeof(T), kPattern), n_(n) {}
  T* data() { return reinterpret_cast<T*>(bytes_.data()) + kGuard; }
  std::vector<T> values() { return {data(), data() + n_}; }
  bool intact() const {
    const auto clean = [&](std::size_t from, std::size_t to) {
      for (std::size_t i = from; i < to; ++i) {
        if (bytes_[i] != kPattern) return false;
      }
      return true;
    };
    return clean(0, kGuard * sizeof(T)) && clean(bytes_.size() - kGuard * sizeof(T), bytes_.size());
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::uint8_t kPattern = 0xA5;
  std::vector<std::uint8_t> bytes_;
  std::int64_t n_;
};

// Packed rows, copied into pages of their own that other bytes begin.
class PagedRows {
 public:
  PagedRows(const std::vector<std::byte>& rows, RowFormat format, std::int64_t dim,
            std::int64_t rows_per_page, std::int64_t offset)
      : view_{nullptr, format, rows_per_page, offset} {
    const auto page_bytes = static_cast<std::size_t>(rows_per_page * row_bytes(format, dim));
    for (std::size_t at = 0; at < rows.size(); at += page_bytes) {
      std::vector<std::byte>& page = pages_.emplace_back(static_cast<std::size_t>(offset));
      const std::size_t end = std::min(at + page_bytes, rows.size());
      page.insert(page.end(), rows.begin() + static_cast<std::ptrdiff_t>(at),
                  rows.begin() + static_cast<std::ptrdiff_t>(end));
    }
    for (const std::vector<std::byte>& page : pages_) starts_.push_back(page.data());
    view_.pages = starts_.data();
  }
  PagedRows(const PagedRows&) = delete;
  PagedRows& operator=(const PagedRows&) = delete;
  const KvRows& view() const { return view_; }

 private:
  std::vector<std::vector<std::byte>> pages_;
  std::vector<const std::byte*> starts_;
  KvRows view_;
};

// Runs rows first .. first+n-1 of a problem into out [n, width].
using RowKernel = std::function<void(Context&, std::int64_t first, std::int64_t n, float* out)>;

inline std::vector<float> run_rows(int threads, std::int64_t first, std::int64_t n,
                                   std::int64_t width, const RowKernel& kernel) {
  Context context(threads);
  Guarded<float> out(n * width);
  kernel(context, first, n, out.data());
  EXPECT_TRUE(out.intact()) << "wrote beside its output";
  return out.values();
}

// All rows at once on 1 to 4 threads, each row alone, an uneven split, and the plain definitions
// give the same bits. Returns the result. The kernel uses tested_kernels().
inline std::vector<float> expect_row_invariant(std::int64_t rows, std::int64_t width,
                                               const RowKernel& kernel) {
  const std::vector<float> whole = run_rows(1, 0, rows, width, kernel);
  for (const float v : whole) {
    if (std::isnan(v)) {
      ADD_FAILURE() << "NaN in the output";
      break;
    }
  }
  const auto same = [&](std::int64_t first, const std::vector<float>& part) {
    return std::memcmp(part.data(), whole.data() + first * width, part.size() * sizeof(float)) == 0;
  };
  const std::vector<float> scalar =
      by_scalar_kernels([&] { return run_rows(1, 0, rows, width, kernel); });
  EXPECT_TRUE(same(0, scalar)) << "the plain definition differs";
  for (int threads = 2; threads <= 4; ++threads) {
    EXPECT_TRUE(same(0, run_rows(threads, 0, rows, width, kernel))) << threads << " threads";
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    EXPECT_TRUE(same(row, run_rows(1, row, 1, width, kernel))) << "row " << row << " alone";
  }
  for (std::int64_t first = 0, n = 1; first < rows; first += n, n = 2 * n + 1) {
    const std::int64_t part = std::min(n, rows - first);
    EXPECT_TRUE(same(first, run_rows(3, first, part, width, kernel))) << "rows from " << first;
  }
  return whole;
}

// Distance in units of the last place of f32.
inline std::int64_t ulps(float a, float b) {
  const auto ordered = [](float x) {
    const auto bits = std::bit_cast<std::int32_t>(x);
    return static_cast<std::int64_t>(bits < 0 ? std::int32_t(0x80000000u) - bits : bits);
  };
  return std::llabs(ordered(a) - ordered(b));
}

}  // namespace cairn::kernels::test

#endif  // CAIRN_TESTS_KERNELS_KERNEL_ROWS_H_
