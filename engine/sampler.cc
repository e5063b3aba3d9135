// Order of operations: mask, penalties, temperature, top-k, min-p, top-p, draw. Candidates are
// sorted by (logit descending, id ascending), so equal logits never depend on the sort.
#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_map>

namespace cairn::engine {
namespace {

struct Candidate {
  TokenId id;
  double value;  // logit, then probability
};

Status out_of_range(const char* name, float value, const char* range) {
  return invalid_argument(std::string("sampling: ") + name + " is " + std::to_string(value) +
                          ", must be " + range);
}

void apply_penalties(std::vector<float>& logits, std::span<const TokenId> tokens,
                     const SamplingParams& params) {
  if (params.repetition_penalty == 1.0f && params.frequency_penalty == 0.0f &&
      params.presence_penalty == 0.0f) {
    return;
  }
  const auto window = static_cast<std::size_t>(std::max(params.penalty_window, 0));
  if (tokens.size() > window) tokens = tokens.last(window);
  std::unordered_map<TokenId, int> counts;
  for (const TokenId token : tokens) ++counts[token];
  for (const auto& [token, count] : counts) {
    float& logit = logits[static_cast<std::size_t>(token)];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    logit -= params.frequency_penalty * static_cast<float>(count) + params.presence_penalty;
  }
}

// Candidates by descending logit, at most top_k of them.
std::vector<Candidate> sorted_candidates(const std::vector<float>& logits, std::int32_t top_k) {
  std::vector<Candidate> candidates;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] == -std::numeric_limits<float>::infinity()) continue;
    candidates.push_back({static_cast<TokenId>(id), static_cast<double>(logits[id])});
  }
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.value != b.value ? a.value > b.value : a.id < b.id;
  };
  const std::size_t n =
      top_k > 0 ? std::min(candidates.size(), static_cast<std::size_t>(top_k)) : candidates.size();
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(n),
                    candidates.end(), better);
  candidates.resize(n);
  return candidates;
}

// Logits to probabilities at `temperature`, then the tails cut off. Never empties the list.
void cut_tails(std::vector<Candidate>& candidates, const SamplingParams& params) {
  const double largest = candidates.front().value;
  double total = 0;
  for (Candidate& c : candidates) {
    c.value = std::exp((c.value - largest) / static_cast<double>(params.temperature));
    total += c.value;
  }
  const double least = static_cast<double>(params.min_p) * candidates.front().value;
  double kept_mass = 0;
  std::size_t kept = 0;
  while (kept < candidates.size()) {
    if (kept > 0 && (candidates[kept].value < least ||
                     kept_mass >= static_cast<double>(params.top_p) * total)) {
      break;
    }
    kept_mass += candidates[kept++].value;
  }
  candidates.resize(kept);
}

}  // namespace

Status validate(const SamplingParams& p) {
  // Written so that NaN fails every test.
  if (!(p.temperature >= 0 && p.temperature <= 100)) {
    return out_of_range("temperature", p.temperature, "in 0..100");
  }
  if (p.top_k < 0) return out_of_range("top_k", static_cast<float>(p.top_k), "0 or more");
  if (!(p.top_p > 0 && p.top_p <= 1)) return out_of_range("top_p", p.top_p, "in (0, 1]");
  if (!(p.min_p >= 0 && p.min_p <= 1)) return out_of_range("min_p", p.min_p, "in 0..1");
  if (!(p.repetition_penalty > 0 && p.repetition_penalty <= 100)) {
    return out_of_range("repetition_penalty", p.repetition_penalty, "in (0, 100]");
  }
  if (!(std::fabs(p.frequency_penalty) <= 100)) {
    return out_of_range("frequency_penalty", p.frequency_penalty, "in -100..100");
  }
  if (!(std::fabs(p.presence_penalty) <= 100)) {
    return out_of_range("presence_penalty", p.presence_penalty, "in -100..100");
  }
  if (p.penalty_window < 0) {
    return out_of_range("penalty_window", static_cast<float>(p.penalty_window), "0 or more");
  }
  return {};
}

// Whole words are kept or overwritten at once; in others only the rarer kind of bit is looked at.
void forbid_others(std::span<float> logits, std::span<const std::uint64_t> allowed) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  for (std::size_t word = 0; word < allowed.size() && word * 64 < logits.size(); ++word) {
    const std::span<float> here =
        logits.subspan(word * 64, std::min<std::size_t>(64, logits.size() - word * 64));
    const std::uint64_t in_range = ~std::uint64_t{0} >> (64 - here.size());
    std::uint64_t kept = allowed[word] & in_range, dropped = ~allowed[word] & in_range;
    if (dropped == 0) continue;
    if (std::popcount(kept) > 16) {
      for (; dropped != 0; dropped &= dropped - 1) {
        here[static_cast<std::size_t>(std::countr_zero(dropped))] = kNever;
      }
      continue;
    }
    std::array<float, 16> values;
    std::size_t n = 0;
    for (std::uint64_t bits = kept; bits != 0; bits &= bits - 1) {
      values[n++] = here[static_cast<std::size_t>(std::countr_zero(bits))];
    }
    std::ranges::fill(here, kNever);
    n = 0;
    for (; kept != 0; kept &= kept - 1) {
      here[static_cast<std::size_t>(std::countr_zero(kept))] = values[n++];
    }
  }
}

double uniform_draw(std::uint64_t seed, std::int64_t position) {
  // SplitMix64's finaliser over seed and counter: every position is an independent draw.
  std::uint64_t z = seed + 0x9E3779B97F4A7C15u * (static_cast<std::uint64_t>(position) + 1);
  for (int round = 0; round < 2; ++round) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
  }
  return static_cast<double>(z >> 11) * 0x1p-53;
}

TokenId sample(std::span<const float> logits, std::span<const TokenId> tokens,
               std::span<const TokenId> masked, const SamplingParams& params, std::int64_t position,
               std::span<const std::uint64_t> allowed) {
  std::vector<float> adjusted(logits.begin(), logits.end());
  apply_penalties(adjusted, tokens, params);
  for (const TokenId id : masked) {
    adjusted[static_cast<std::size_t>(id)] = -std::numeric_limits<float>::infinity();
  }
  forbid_others(adjusted, allowed);
  if (params.temperature == 0) {
    return static_cast<TokenId>(std::max_element(adjusted.begin(), adjusted.end()) -
                                adjusted.begin());
  }
  std::vector<Candidate> candidates = sorted_candidates(adjusted, params.top_k);
  cut_tails(candidates, params);
  double mass = 0;
  for (const Candidate& c : candidates) mass += c.value;
  double left = uniform_draw(params.seed, position) * mass;
  for (const Candidate& c : candidates) {
    left -= c.value;
    if (left < 0) return c.id;
  }
  return candidates.back().id;
}

}  // namespace cairn::engine
