// Time of every kernel at the shapes of the released model. Prints the best of several runs, with
// the bytes it must read and the operations it must do; kernels/DESIGN.md compares them with what
// the machine can.
//
//   kernels_bench [--threads N] [--only NAME] [--set scalar|avx2|avx512|neon]       NAME "limits":
//   what the machine can, nothing else
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/kv_row.h"
#include "kernels/machine_limits.h"
#include "kernels/number_formats.h"

namespace {

using namespace cairn::kernels;  // NOLINT: one program
using Clock = std::chrono::steady_clock;

constexpr double kSecondsPerKernel = 0.4;

struct Options {
  int threads = 1;
  std::string only;
  cairn::InstructionSet set = cairn::InstructionSet::kBest;
};

cairn::InstructionSet set_named(const std::string& name) {
  using cairn::InstructionSet;
  if (name == "scalar") return InstructionSet::kScalar;
  if (name == "avx2") return InstructionSet::kAvx2;
  if (name == "avx512") return InstructionSet::kAvx512;
  if (name == "neon") return InstructionSet::kNeon;
  return InstructionSet::kBest;
}

class Bench {
 public:
  explicit Bench(Options options) : options_(std::move(options)), context_(options_.threads) {
    std::printf("%-34s %12s %10s %10s\n", "kernel", "us", "GB/s", "GFLOP/s");
  }
  Context& context() { return context_; }

  bool wants(const std::string& name) const {
    return options_.only.empty() || name.find(options_.only) != std::string::npos;
  }

  // `bytes`: weights, caches and activations that a call reads. `flops`: products and sums.
  void run(const std::string& name, double bytes, double flops, const std::function<void()>& call) {
    if (!wants(name)) return;
    call();  // warm
    double best = 1e9, total = 0;
    while (total < kSecondsPerKernel) {
      const auto start = Clock::now();
      call();
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      best = std::min(best, seconds);
      total += seconds;
    }
    std::printf("%-34s %12.2f %10.3f %10.3f\n", name.c_str(), best * 1e6, bytes / best / 1e9,
                flops / best / 1e9);
  }

 private:
  Options options_;
  Context context_;
};

std::mt19937 random_bits(1);

std::vector<float> floats(std::int64_t n) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& v : x) v = round_to_bf16(normal(random_bits));
  return x;
}
std::vector<Bf16> bf16s(std::int64_t n) {
  std::vector<Bf16> x;
  for (const float v : floats(n)) x.push_back(to_bf16(v));
  return x;
}
// Codes that are never NaN, and scales near 1.
std::vector<std::uint8_t> codes(std::int64_t n) {
  std::vector<std::uint8_t> x(static_cast<std::size_t>(n));
  for (auto& c : x) c = static_cast<std::uint8_t>(random_bits() & 0xBF);
  return x;
}
std::vector<std::uint8_t> scales(std::int64_t n) {
  return std::vector<std::uint8_t>(static_cast<std::size_t>(n), 127);
}

std::vector<std::byte> rows_of(RowFormat format, std::int64_t n, std::int64_t dim) {
  std::vector<std::byte> rows(static_cast<std::size_t>(n * row_bytes(format, dim)));
  for (std::int64_t i = 0; i < n; ++i) {
    encode_row(format, floats(dim).data(), dim, rows.data() + i * row_bytes(format, dim));
  }
  return rows;
}

std::vector<const std::byte*> pages_of(const std::vector<std::byte>& rows,
                                       std::int64_t page_bytes) {
  std::vector<const std::byte*> pages;
  for (std::size_t at = 0; at < rows.size(); at += static_cast<std::size_t>(page_bytes)) {
    pages.push_back(rows.data() + at);
  }
  return pages;
}

std::string shape(const char* name, std::int64_t rows, std::int64_t out, std::int64_t in) {
  return std::string(name) + " " + std::to_string(rows) + "x" + std::to_string(out) + "x" +
         std::to_string(in);
}

double d(std::int64_t n) { return static_cast<double>(n); }

void products(Bench& bench, const KernelTable& k) {
  for (const std::int64_t rows : {1, 64}) {
    const std::int64_t out = 1280, in = 5120;  // wq_a
    const auto x = codes(rows * in), xs = scales(rows * in / 32), w = codes(out * in),
               ws = scales(out * in / 1024);
    std::vector<float> y(static_cast<std::size_t>(rows * out));
    bench.run(shape("matmul_fp8_q8", rows, out, in), d(out * in), 2 * d(rows * out * in), [&] {
      k.matmul_fp8_q8(bench.context(), {.x = {x.data(), xs.data()},
                                        .rows = rows,
                                        .w = {w.data(), ws.data(), out, in},
                                        .out = {y.data(), out, true}});
    });
  }
  for (const std::int64_t rows : {1, 8}) {
    const std::int64_t out = 2304, in = 5120;  // an expert's w1
    const auto x = codes(rows * in), xs = scales(rows * in / 32), w = codes(out * in / 2),
               ws = scales(out * in / 32);
    std::vector<float> y(static_cast<std::size_t>(rows * out));
    bench.run(shape("matmul_fp4_q8", rows, out, in), d(out * in) * 17 / 32, 2 * d(rows * out * in),
              [&] {
                k.matmul_fp4_q8(bench.context(), {.x = {x.data(), xs.data()},
                                                  .rows = rows,
                                                  .w = {w.data(), ws.data(), out, in},
                                                  .out = {y.data(), out, true}});
              });
  }
  {
    const std::int64_t out = 1024, in = 4096;  // one group of wo_a
    const auto x = floats(in);
    const auto w = codes(out * in), ws = scales(out * in / 1024);
    std::vector<float> y(static_cast<std::size_t>(out));
    bench.run(shape("matmul_fp8", 1, out, in), d(out * in), 2 * d(out * in), [&] {
      k.matmul_fp8(bench.context(), {.x = x.data(),
                                     .rows = 1,
                                     .x_stride = in,
                                     .w = {w.data(), ws.data(), out, in},
                                     .out = {y.data(), out, true}});
    });
  }
  {
    const std::int64_t out = 4096, in = 5120;  // a part of the head
    const auto x = floats(in);
    const auto w = bf16s(out * in);
    std::vector<float> y(static_cast<std::size_t>(out));
    bench.run(shape("matmul_bf16", 1, out, in), 2 * d(out * in), 2 * d(out * in), [&] {
      k.matmul_bf16(bench.context(), {.x = x.data(),
                                      .rows = 1,
                                      .x_stride = in,
                                      .w = {w.data(), out, in},
                                      .out = {y.data(), out, false}});
    });
  }
}

void streams(Bench& bench, const KernelTable& k) {
  const std::int64_t dim = 5120, s = 4, n = s * (2 + s);
  const auto h = floats(s * dim), fn = floats(n * s * dim), y = floats(dim), base = floats(n);
  const std::vector<float> scale = {1, 1, 1};
  std::vector<float> pre(4), post(4), comb(16), out(dim), stream = h;
  bench.run("hc_mix 4x5120", 4 * d(n * s * dim), 2 * d((n + 1) * s * dim), [&] {
    k.hc_mix(bench.context(), {.h = h.data(),
                               .rows = 1,
                               .n_streams = s,
                               .dim = dim,
                               .fn = {fn.data(), n, s * dim},
                               .scale = scale.data(),
                               .base = base.data(),
                               .sinkhorn_iterations = 20,
                               .eps = 1e-6f,
                               .norm_eps = 1e-20f,
                               .pre = pre.data(),
                               .post = post.data(),
                               .comb = comb.data()});
  });
  bench.run("hc_collapse 4x5120", 4 * d(s * dim), 2 * d(s * dim), [&] {
    k.hc_collapse(bench.context(), {.h = h.data(),
                                    .weights = pre.data(),
                                    .rows = 1,
                                    .n_streams = s,
                                    .dim = dim,
                                    .out = out.data(),
                                    .round_bf16 = true});
  });
  bench.run("hc_expand 4x5120", 4 * d((s + 1) * dim), 2 * d((s + 1) * s * dim), [&] {
    k.hc_expand(bench.context(), {.y = y.data(),
                                  .post = post.data(),
                                  .comb = comb.data(),
                                  .rows = 1,
                                  .n_streams = s,
                                  .dim = dim,
                                  .h = stream.data(),
                                  .round_bf16 = true});
  });
  for (const std::int64_t rows : {1, 64}) {
    const auto many = floats(rows * s * dim), outputs = floats(rows * dim);
    auto streams_of_rows = many;
    std::vector<float> pres(static_cast<std::size_t>(rows * s), 0.5f), posts = pres, next = pres;
    std::vector<float> combs(static_cast<std::size_t>(rows * s * s), 0.25f);
    std::vector<float> collapsed(static_cast<std::size_t>(rows * dim)), normed = collapsed;
    const auto weights = bf16s(dim);
    bench.run(shape("hc_pass", rows, s, dim), 4 * d(n * s * dim + rows * (2 * s + 3) * dim),
              2 * d(rows * (n + 7) * s * dim), [&] {
                k.hc_pass(bench.context(), {.expand = {.y = outputs.data(),
                                                       .post = posts.data(),
                                                       .comb = combs.data(),
                                                       .rows = rows,
                                                       .n_streams = s,
                                                       .dim = dim,
                                                       .h = streams_of_rows.data(),
                                                       .round_bf16 = true},
                                            .weights = pres.data(),
                                            .norm = weights.data(),
                                            .collapsed = collapsed.data(),
                                            .normed = normed.data(),
                                            .mix = {.fn = {fn.data(), n, s * dim},
                                                    .scale = scale.data(),
                                                    .base = base.data(),
                                                    .sinkhorn_iterations = 20,
                                                    .eps = 1e-6f,
                                                    .norm_eps = 1e-20f,
                                                    .pre = next.data(),
                                                    .post = posts.data(),
                                                    .comb = combs.data()}});
              });
  }
  const auto norm = bf16s(dim);
  bench.run("rms_norm 5120", 6 * d(dim), 4 * d(dim), [&] {
    k.rms_norm(bench.context(), {.x = y.data(),
                                 .rows = 1,
                                 .dim = dim,
                                 .x_stride = dim,
                                 .weight = norm.data(),
                                 .eps = 1e-20f,
                                 .out = out.data(),
                                 .out_stride = dim,
                                 .round_bf16 = true});
  });
}

void attention(Bench& bench, const KernelTable& k) {
  const std::int64_t heads = 64, dim = 512, n_window = 128, n_main = 512;
  const auto q = floats(heads * dim), sink = floats(heads);
  const auto window = rows_of(RowFormat::kQ8, n_window, dim);
  const auto main = rows_of(RowFormat::kQn4, 4096, dim);
  const std::byte* window_page = window.data();
  const auto main_pages = pages_of(main, 128 * row_bytes(RowFormat::kQn4, dim));
  std::vector<std::int32_t> slots, list;
  for (std::int32_t i = 0; i < n_window; ++i) slots.push_back(i);
  for (std::int32_t i = 0; i < n_main; ++i) list.push_back(i * 7 % 4096);
  std::vector<float> o(q.size());
  bench.run("sparse_attention 64x512, 640 rows", d(n_window * 528 + n_main * 288),
            4 * d(heads * dim * (n_window + n_main)), [&] {
              k.sparse_attention(bench.context(),
                                 {.q = q.data(),
                                  .rows = 1,
                                  .n_heads = heads,
                                  .head_dim = dim,
                                  .window = {&window_page, RowFormat::kQ8},
                                  .window_slots = slots.data(),
                                  .n_window = n_window,
                                  .main = {main_pages.data(), RowFormat::kQn4, 128},
                                  .main_rows = list.data(),
                                  .n_main = n_main,
                                  .sink = sink.data(),
                                  .scale = 0.044194174f,
                                  .out = o.data(),
                                  .round_bf16 = true});
            });
  std::vector<float> frequencies = rope_frequencies(64, 160000, {16, 32, 1, 65536});
  const std::int64_t position = 100000;
  bench.run("rope 64x512", 4 * d(heads * 64), 6 * d(heads * 32), [&] {
    k.rope(bench.context(), {.x = o.data(),
                             .rows = 1,
                             .n_vectors = heads,
                             .dim = dim,
                             .rope_dim = 64,
                             .frequencies = frequencies.data(),
                             .positions = &position,
                             .round_bf16 = true});
  });

  const std::int64_t n_keys = 16384, index_heads = 32, index_dim = 128;
  const auto iq = rows_of(RowFormat::kQm4, index_heads, index_dim);
  const auto iw = floats(index_heads);
  const auto keys = rows_of(RowFormat::kQm4, n_keys, index_dim);
  const auto key_pages = pages_of(keys, 128 * row_bytes(RowFormat::kQm4, index_dim));
  std::vector<float> scores(static_cast<std::size_t>(n_keys));
  bench.run("index_scores 32x128, 16384 keys", d(n_keys * 68),
            2 * d(n_keys * index_heads * index_dim), [&] {
              k.index_scores(bench.context(), {.q = iq.data(),
                                               .w = iw.data(),
                                               .n_heads = index_heads,
                                               .dim = index_dim,
                                               .keys = {key_pages.data(), RowFormat::kQm4, 128},
                                               .n_visible = n_keys,
                                               .scores = scores.data(),
                                               .round_bf16 = true});
            });
  for (const std::int64_t n : {131072, 1048576}) {
    const auto many = floats(n);
    std::vector<std::int32_t> chosen(512);
    bench.run("top_k 512 of " + std::to_string(n), 4 * d(n), 0, [&] {
      k.top_k(bench.context(), {.scores = many.data(), .n = n, .k = 512, .out = chosen.data()});
    });
    std::vector<std::uint8_t> kept(static_cast<std::size_t>(n / 8));
    bench.run("candidate_blocks 2048 of " + std::to_string(n / 8), 4 * d(n), 0, [&] {
      k.candidate_blocks(bench.context(), {.scores = many.data(),
                                           .n = n,
                                           .block_size = 8,
                                           .top_blocks = 2048,
                                           .kept = kept.data()});
    });
  }
  const auto values = floats(2 * dim), gates = floats(2 * dim);
  bench.run("compressor_pool 2x512", 16 * d(dim), 8 * d(dim), [&] {
    k.compressor_pool(bench.context(), {.values = values.data(),
                                        .gates = gates.data(),
                                        .groups = 1,
                                        .ratio = 2,
                                        .dim = dim,
                                        .out = o.data(),
                                        .round_bf16 = true});
  });
  std::vector<std::byte> row(static_cast<std::size_t>(row_bytes(RowFormat::kQ8, dim)));
  for (const auto& [name, format] : {std::pair("encode_row Q8 512", RowFormat::kQ8),
                                     std::pair("encode_row QN4 512", RowFormat::kQn4)}) {
    bench.run(name, 4 * d(dim), 0, [&] { k.encode_row(format, values.data(), dim, row.data()); });
  }
  const auto activations = floats(5120);
  std::vector<std::uint8_t> q8(5120), q8_scales(160);
  bench.run("quantise_q8 5120", 5 * d(5120), 0, [&] {
    k.quantise_q8(
        bench.context(),
        {.x = activations.data(), .n = 5120, .codes = q8.data(), .scales = q8_scales.data()});
  });
}

void experts_and_engram(Bench& bench, const KernelTable& k) {
  const auto logits = floats(384), bias = floats(384);
  std::vector<std::int32_t> ids(6);
  std::vector<float> weights(6);
  bench.run("route 6 of 384", 4 * d(384), 0, [&] {
    k.route(bench.context(), {.logits = logits.data(),
                              .bias = bias.data(),
                              .rows = 1,
                              .n_experts = 384,
                              .n_active = 6,
                              .ids = ids.data(),
                              .weights = weights.data()});
  });
  const auto gate = floats(2304), up = floats(2304);
  std::vector<float> a(2304);
  bench.run("swiglu 2304", 8 * d(2304), 0, [&] {
    k.swiglu(bench.context(), {.gate = gate.data(),
                               .up = up.data(),
                               .weights = weights.data(),
                               .rows = 1,
                               .dim = 2304,
                               .limit = 10,
                               .out = a.data(),
                               .round_bf16 = true});
  });
  const std::int64_t table_rows = 20000, dim = 5120;
  const auto table = codes(table_rows * 256), table_scales = scales(table_rows * 8);
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < 24; ++i) rows.push_back(i * 811 % table_rows);
  std::vector<float> gathered(24 * 256);
  bench.run("engram_gather 24x256", d(24 * 264), 0, [&] {
    k.engram_gather(bench.context(), {.table = {table.data(), table_scales.data(), table_rows, 256},
                                      .ids = rows.data(),
                                      .rows = 1,
                                      .n_columns = 24,
                                      .out = gathered.data(),
                                      .round_bf16 = true});
  });
  const auto kv = floats(5 * dim);
  const auto qw = bf16s(4 * dim), kw = bf16s(4 * dim);
  auto h = floats(4 * dim);
  bench.run("engram_update 4x5120", d(5 * 4 + 4 * 4 + 2 * 2 * 4) * d(dim), 12 * d(4 * dim), [&] {
    k.engram_update(bench.context(), {.kv = kv.data(),
                                      .rows = 1,
                                      .n_streams = 4,
                                      .dim = dim,
                                      .q_weight = qw.data(),
                                      .k_weight = kw.data(),
                                      .eps = 1e-20f,
                                      .h = h.data(),
                                      .gate = weights.data(),
                                      .round_bf16 = true});
  });
}

// The bounds, on the threads of the bench.
void limits(Bench& bench) {
  if (!bench.wants("limits")) return;
  std::vector<MachineLimit> all = measure_arithmetic_peaks(bench.context(), 3);
  all.insert(all.begin(), measure_read_bandwidth(bench.context(), 3));
  for (const MachineLimit& limit : all) {
    std::printf("limit: %-10s %-7s %9.1f %-8s on %d threads, %d repetitions, %d dropped\n",
                limit.name.c_str(), limit.instruction_set.c_str(), limit.value.median,
                limit.unit.c_str(), limit.n_threads, limit.value.n_kept, limit.value.n_dropped);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--threads") == 0)
      options.threads = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--only") == 0) options.only = argv[i + 1];
    if (std::strcmp(argv[i], "--set") == 0) options.set = set_named(argv[i + 1]);
  }
  Bench bench(options);
  const KernelTable k = select_kernels(options.set);
  limits(bench);
  products(bench, k);
  streams(bench, k);
  attention(bench, k);
  experts_and_engram(bench, k);
  return 0;
}
