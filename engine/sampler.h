// From logits to a token. A pure function of logits, recent tokens, parameters and position: the
// draw comes from a counter-based generator, so a resumed turn draws what the uninterrupted one
// drew.
#ifndef CAIRN_ENGINE_SAMPLER_H_
#define CAIRN_ENGINE_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "cairn/message.h"
#include "cairn/sampling.h"
#include "cairn/status.h"

namespace cairn::engine {

Status validate(const SamplingParams& params);

// Uniform in [0, 1), a function of seed and position only.
double uniform_draw(std::uint64_t seed, std::int64_t position);

// Makes every logit minus infinity whose bit (id % 64 of word id / 64) is not set in `allowed`.
void forbid_others(std::span<float> logits, std::span<const std::uint64_t> allowed);

// `logits`: [vocab]. `tokens`: the sequence so far (penalties look at its end). `masked`: ids never
// chosen. `position`: of the token to be chosen. `allowed`: as for forbid_others,
// with at least one id that is not masked; empty = all may come.
TokenId sample(std::span<const float> logits, std::span<const TokenId> tokens,
               std::span<const TokenId> masked, const SamplingParams& params, std::int64_t position,
               std::span<const std::uint64_t> allowed = {});

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_SAMPLER_H_
