// How the next token is chosen from the logits. Plain data.
#ifndef CAIRN_SAMPLING_H_
#define CAIRN_SAMPLING_H_

#include <cstdint>

namespace cairn {

struct SamplingParams {
  float temperature = 1.0f;         // 0 = greedy (argmax, ties to the lower id)
  std::int32_t top_k = 0;           // keep the k most likely; 0 = all
  float top_p = 0.95f;              // keep the smallest set with at least this mass; 1 = all
  float min_p = 0.0f;               // drop tokens below min_p times the most likely one
  float repetition_penalty = 1.0f;  // divides positive / multiplies negative logits of seen tokens
  float frequency_penalty = 0.0f;   // subtracted once per earlier occurrence
  float presence_penalty = 0.0f;    // subtracted once if the token occurred
  std::int32_t penalty_window = 256;  // how many of the latest tokens the penalties look at
  std::uint64_t seed = 0;           // the draw depends on (seed, position) only
};

}  // namespace cairn

#endif  // CAIRN_SAMPLING_H_
