// Scratch of one pass, allocated once for the largest chunk. Row t is position first + t.
#ifndef CAIRN_ENGINE_ACTIVATIONS_H_
#define CAIRN_ENGINE_ACTIVATIONS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model_config.h"
#include "engine/step_memory.h"

namespace cairn::engine {

struct Activations {
  Activations(const ModelConfig& config, std::int64_t max_rows)
      : max_rows(max_rows),
        h(size(max_rows, config.hc_mult, config.dim)),
        pre(size(max_rows, config.hc_mult)),
        pre_attention(pre.size()),
        pre_ffn(pre.size()),
        post(pre.size()),
        comb(size(max_rows, config.hc_mult, config.hc_mult)),
        collapsed(size(max_rows, config.dim)),
        normed(collapsed.size()),
        sublayer_out(collapsed.size()),
        top_k(size(max_rows, config.index_top_k)),
        kept_blocks(static_cast<std::size_t>(max_rows)),
        taps(size(max_rows, static_cast<std::int64_t>(config.draft_target_layers.size()),
                  config.dim)) {}

  std::int64_t max_rows;
  std::vector<float> h;              // [rows, hc, dim] residual streams
  std::vector<float> pre;            // [rows, hc] collapse weights handed to the next sublayer
  std::vector<float> pre_attention;  // [rows, hc] predicted by the attention sublayer of a layer
  std::vector<float> pre_ffn;        // [rows, hc] predicted by its feed-forward sublayer
  std::vector<float> post, comb;     // [rows, hc], [rows, hc, hc]
  std::vector<float> collapsed;      // [rows, dim]
  std::vector<float> normed;         // [rows, dim]
  std::vector<float> sublayer_out;   // [rows, dim]
  std::vector<std::int32_t> top_k;   // [rows, index_top_k] last published list, -1 padded
  // Candidate pool of each row, by block; empty = everything visible is in the pool.
  std::vector<std::vector<std::uint8_t>> kept_blocks;
  std::vector<float> taps;  // [rows, targets, dim] means of the streams that draft stages look at
  std::vector<std::byte>
      window_rows;    // rows of the ring that the chunk needs, then the chunk's own
  StepMemory memory;  // of all that lives no longer than a layer

 private:
  static std::size_t size(std::int64_t a, std::int64_t b, std::int64_t c = 1) {
    return static_cast<std::size_t>(a * b * c);
  }
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_ACTIVATIONS_H_
