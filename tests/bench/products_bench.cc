// Matrix products at the shapes of the released model against what the machine can do, measured in
// the same run: bytes a second of mat-vec against reads of memory, operations a second of mat-mul
// against the arithmetic peaks. Weights come from a pool that no cache holds.
//
//   products_bench [--threads N] [--instructions scalar|avx2|avx512] [--only NAME] [--pool MIB]
//                  [--limits 0|1|2]   0: no limits, 1: reads only, 2: all (default)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/kv_row.h"
#include "kernels/machine_limits.h"
#include "kernels/machine_load.h"
#include "kernels/page_buffer.h"
#include "tests/bench/measure.h"

namespace {

using namespace cairn::kernels;  // NOLINT: one program
using cairn::InstructionSet;
using cairn::bench::Clock;
using cairn::bench::ms_since;

constexpr double kMsOfRepetition = 110;  // what measure() wants at least

double d(std::int64_t n) { return static_cast<double>(n); }

// Weights of one after another matrix, as in a model: a matrix is read again when all others were.
class Pool {
 public:
  explicit Pool(std::int64_t n_bytes) : memory_(static_cast<std::size_t>(n_bytes)), n_(n_bytes) {
    std::uint64_t state = 1;
    for (std::byte& b : memory_.bytes()) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      b = static_cast<std::byte>(state >> 56 & 0xBF);  // never a NaN code
    }
  }
  const std::uint8_t* take(std::int64_t n_bytes) {
    if (at_ + n_bytes > n_) at_ = 0;
    const auto* taken = reinterpret_cast<const std::uint8_t*>(memory_.bytes().data()) + at_;
    at_ += (n_bytes + 63) / 64 * 64;
    return taken;
  }

 private:
  PageBuffer memory_;
  std::int64_t n_, at_ = 0;
};

struct Limits {
  double read = 0, fma = 0, integer = 0;  // GB/s, GFLOP/s, GFLOP/s of 16-bit pairs
};

class Bench {
 public:
  Bench(const cairn::bench::Flags& flags)
      : context_(flags.number("--threads", 1)),
        only_(flags.text("--only")),
        pool_(std::int64_t{flags.number("--pool", 640)} << 20) {
    const std::string set = flags.text("--instructions");
    ceiling_ = set == "scalar"   ? InstructionSet::kScalar
               : set == "avx2"   ? InstructionSet::kAvx2
               : set == "avx512" ? InstructionSet::kAvx512
                                 : InstructionSet::kBest;
    k = select_kernels(ceiling_);
    measure_limits(flags.number("--limits", 2));
    std::printf("%-40s %10s %8s %9s %8s %8s\n", "product", "us", "GB/s", "GFLOP/s", "of read",
                "of peak");
  }

  Context& context() { return context_; }
  Pool& pool() { return pool_; }
  KernelTable k;

  // `peak`: GFLOP/s that the product's instruction can do; 0 if unknown.
  void run(const std::string& name, double bytes, double flops, double peak,
           const std::function<void()>& call) {
    if (!only_.empty() && name.find(only_) == std::string::npos) return;
    call();
    const Measured seconds = measure(5, 15, [&] {
      const auto start = Clock::now();
      int n = 0;
      do {
        call();
        ++n;
      } while (ms_since(start) < kMsOfRepetition);
      return ms_since(start) / 1e3 / n;
    });
    const double gbs = bytes / seconds.median / 1e9, gflops = flops / seconds.median / 1e9;
    std::printf("%-40s %10.1f %8.2f %9.1f %7.0f%% %7.0f%%  %d kept, %d dropped\n", name.c_str(),
                seconds.median * 1e6, gbs, gflops, limits.read > 0 ? 100 * gbs / limits.read : 0,
                peak > 0 ? 100 * gflops / peak : 0, seconds.n_kept, seconds.n_dropped);
    std::fflush(stdout);
  }
  Limits limits;

 private:
  void measure_limits(int how_many) {
    if (how_many < 1) return;
    limits.read = measure_read_bandwidth(context_, 3).value.median;
    const bool avx2 = ceiling_ == InstructionSet::kAvx2;
    const auto peaks =
        how_many < 2 ? std::vector<MachineLimit>() : measure_arithmetic_peaks(context_, 3);
    for (const MachineLimit& limit : peaks) {
      if (avx2 && limit.instruction_set == "avx512") continue;
      if (limit.name == "f32_fma") limits.fma = std::max(limits.fma, limit.value.median);
      if (limit.name == "pmaddwd" || limit.name == "vpdpwssd") {
        limits.integer = std::max(limits.integer, 2 * limit.value.median);
      }
    }
    std::printf("%d threads: read %.2f GB/s, f32 FMA %.1f GFLOP/s, 16-bit pairs %.1f GFLOP/s\n",
                context_.n_threads(), limits.read, limits.fma, limits.integer);
  }

  Context context_;
  std::string only_;
  Pool pool_;
  InstructionSet ceiling_ = InstructionSet::kBest;
};

// Normal activations, as they come from a quantiser.
struct Activations {
  explicit Activations(std::int64_t n)
      : codes(static_cast<std::size_t>(n)), scales(static_cast<std::size_t>(n / 32)) {
    std::mt19937 bits(1);
    std::normal_distribution<float> normal;
    std::vector<float> x(codes.size());
    for (float& v : x) v = normal(bits);
    quantise_q8(x.data(), n, codes.data(), scales.data());
  }
  Q8Rows rows() const { return {codes.data(), scales.data()}; }
  std::vector<std::uint8_t> codes, scales;
};
std::vector<std::uint8_t> scales(std::int64_t n) {
  return std::vector<std::uint8_t>(static_cast<std::size_t>(n), 127);
}

std::string title(const char* name, std::int64_t rows, std::int64_t out, std::int64_t in) {
  return std::string(name) + " " + std::to_string(rows) + "x" + std::to_string(out) + "x" +
         std::to_string(in);
}

struct Shape {
  std::int64_t out, in;
};

void fp4(Bench& bench, std::int64_t rows, Shape s) {
  const Activations x(rows * s.in);
  const auto w_scales = scales(s.out * s.in / 32);
  std::vector<float> y(static_cast<std::size_t>(rows * s.out));
  bench.run(title("matmul_fp4_q8", rows, s.out, s.in), d(s.out * s.in) * 17 / 32,
            2 * d(rows * s.out * s.in), bench.limits.integer, [&] {
              const std::uint8_t* w = bench.pool().take(s.out * s.in / 2);
              bench.k.matmul_fp4_q8(bench.context(), {.x = x.rows(),
                                                      .rows = rows,
                                                      .w = {w, w_scales.data(), s.out, s.in},
                                                      .out = {y.data(), s.out, true}});
            });
}

void fp8(Bench& bench, std::int64_t rows, Shape s) {
  const Activations x(rows * s.in);
  const auto w_scales = scales((s.out + 31) / 32 * s.in / 32);
  std::vector<float> y(static_cast<std::size_t>(rows * s.out));
  bench.run(title("matmul_fp8_q8", rows, s.out, s.in), d(s.out * s.in) * 1025 / 1024,
            2 * d(rows * s.out * s.in), bench.limits.fma, [&] {
              const std::uint8_t* w = bench.pool().take(s.out * s.in);
              bench.k.matmul_fp8_q8(bench.context(), {.x = x.rows(),
                                                      .rows = rows,
                                                      .w = {w, w_scales.data(), s.out, s.in},
                                                      .out = {y.data(), s.out, true}});
            });
}

// Products in f64 lanes: a group of wo_a, and rows of the head.
void wide(Bench& bench, std::int64_t rows, Shape s) {
  const std::vector<float> x(static_cast<std::size_t>(rows * s.in), 0.5f);
  const auto w_scales = scales((s.out + 31) / 32 * s.in / 32);
  std::vector<float> y(static_cast<std::size_t>(rows * s.out));
  const double flops = 2 * d(rows * s.out * s.in);
  bench.run(title("matmul_fp8", rows, s.out, s.in), d(s.out * s.in) * 1025 / 1024, flops,
            bench.limits.fma / 2, [&] {
              const std::uint8_t* w = bench.pool().take(s.out * s.in);
              bench.k.matmul_fp8(bench.context(), {.x = x.data(),
                                                   .rows = rows,
                                                   .x_stride = s.in,
                                                   .w = {w, w_scales.data(), s.out, s.in},
                                                   .out = {y.data(), s.out, true}});
            });
  bench.run(title("matmul_bf16", rows, s.out, s.in), d(s.out * s.in) * 2, flops,
            bench.limits.fma / 2, [&] {
              const auto* w = reinterpret_cast<const Bf16*>(bench.pool().take(2 * s.out * s.in));
              bench.k.matmul_bf16(bench.context(), {.x = x.data(),
                                                    .rows = rows,
                                                    .x_stride = s.in,
                                                    .w = {w, s.out, s.in},
                                                    .out = {y.data(), s.out, false}});
            });
}

}  // namespace

int main(int argc, char** argv) {
  const cairn::bench::Flags flags(argc, argv);
  Bench bench(flags);
  if (flags.number("--tiny", 0) != 0) {
    fp4(bench, 1, {256, 5120});
    fp8(bench, 1, {128, 5120});
    return 0;
  }
  const Shape w1{2304, 5120}, w2{5120, 2304}, wq_a{1280, 5120}, wo_b{5120, 8192};
  for (const Shape& s : {w1, w2}) {
    for (const std::int64_t rows : {1, 2, 4, 8, 32, 128}) fp4(bench, rows, s);
  }
  for (const Shape& s : {wq_a, wo_b}) {
    for (const std::int64_t rows : {1, 2, 4, 8, 32, 128}) fp8(bench, rows, s);
  }
  for (const std::int64_t rows : {1, 8, 64}) wide(bench, rows, {1024, 4096});
  return 0;
}
