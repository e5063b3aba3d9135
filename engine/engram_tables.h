// What Engram needs to address its tables: token classes, primes, offsets, multipliers
// (spec/engram.md sections 3 to 5). Pure functions of the tokenizer and the configuration.
#ifndef CAIRN_ENGINE_ENGRAM_TABLES_H_
#define CAIRN_ENGINE_ENGRAM_TABLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/status.h"
#include "engine/engram_classes.h"
#include "engine/model_config.h"
#include "engine/tokenizer.h"

namespace cairn::engine {

struct EngramTables {
  std::vector<std::int32_t> classes;  // [vocab_size], token id -> class
  std::int32_t pad_class = 0;         // classes[engram_pad_id]
  struct Layer {
    std::vector<std::uint64_t> multipliers;  // [max_ngram], odd; times a class id below 2^63
    std::vector<std::uint64_t> primes;       // [columns], order-major then head
    std::vector<std::uint64_t> offsets;      // [columns], exclusive prefix sums of primes
  };
  std::vector<Layer> layers;  // one per engram layer
};

// Derives everything and checks it: class count against the configuration, the published digest for
// the released vocabulary, sum of primes against the table rows. `folder` may hold an
// engram_tables.json, whose multipliers and map then take the place of the derived ones.
// A configuration without engram layers gives empty tables. kCorrupt: the parts of the checkpoint
// contradict each other, or the file is malformed; kUnsupported: sizes beyond what is searched.
Result<EngramTables> make_engram_tables(const ModelConfig& config, const Tokenizer& tokenizer,
                                        const std::string& folder);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_ENGRAM_TABLES_H_
