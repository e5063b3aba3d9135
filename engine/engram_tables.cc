// The addressing constants are not tensors of the checkpoint: they follow from a few numbers of the
// configuration, so each is derived and then held against what the checkpoint says about itself. A
// checkpoint with constants of its own says so in engram_tables.json beside its config.json:
//   token_map             [vocab_size] class ids                     taken
//   multipliers           [layers][max_ngram] decimal strings        taken
//   compressed_vocab_size, pad_id, primes [layers][orders][heads], offsets [layers][columns]
//                                                                    must equal the derived ones
// A key may be absent; then the derived value stands.
#include "engine/engram_tables.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <new>
#include <numeric>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "engine/numpy_random.h"

namespace cairn::engine {
namespace {

namespace json = boost::json;

constexpr std::string_view kFileName = "engram_tables.json";
// Trial division stays instant below this; the released search starts at 16 million.
constexpr std::int64_t kMaxPrimeStart = std::int64_t{1} << 36;
constexpr std::int64_t kMaxClasses = std::int64_t{1} << 24;
// The release seeds the generator of a layer's multipliers with this times the layer id.
constexpr std::uint64_t kSeedFactor = 10007;

Status contradiction(std::string_view what, std::string_view expected, std::string_view found) {
  return corrupt("engram: " + std::string(what) + ": expected " + std::string(expected) +
                 ", found " + std::string(found));
}

// Half the largest multiplier that cannot overflow: class id times multiplier stays below 2^63.
std::uint64_t multiplier_bound(const ModelConfig& config) {
  const auto n_classes = static_cast<std::uint64_t>(config.engram_n_classes);
  return static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / n_classes / 2;
}

std::vector<std::uint64_t> derive_multipliers(const ModelConfig& config, int layer) {
  NumpyRandom random(kSeedFactor * static_cast<std::uint64_t>(layer));
  const std::uint64_t bound = multiplier_bound(config);
  std::vector<std::uint64_t> multipliers(static_cast<std::size_t>(config.engram_max_ngram));
  std::generate(multipliers.begin(), multipliers.end(),
                [&] { return 2 * random.below(bound) + 1; });
  return multipliers;
}

bool is_prime(std::uint64_t n) {
  if (n < 4) return n >= 2;
  if (n % 2 == 0) return false;
  for (std::uint64_t divisor = 3; divisor * divisor <= n; divisor += 2) {
    if (n % divisor == 0) return false;
  }
  return true;
}

// Hands out primes in increasing order, each once.
class PrimeSequence {
 public:
  explicit PrimeSequence(std::int64_t start) : candidate_(static_cast<std::uint64_t>(start)) {}
  std::uint64_t next() {
    while (!is_prime(candidate_)) ++candidate_;
    return candidate_++;
  }

 private:
  std::uint64_t candidate_;
};

std::vector<EngramTables::Layer> derive_layers(const ModelConfig& config) {
  PrimeSequence primes(config.engram_prime_start);
  const auto n_columns = static_cast<std::size_t>(config.engram_columns());
  std::vector<EngramTables::Layer> layers;
  for (const int layer_id : config.engram_layers) {
    EngramTables::Layer& layer = layers.emplace_back();
    layer.multipliers = derive_multipliers(config, layer_id);
    layer.primes.resize(n_columns);
    std::generate(layer.primes.begin(), layer.primes.end(), [&] { return primes.next(); });
    layer.offsets.resize(n_columns);
    std::exclusive_scan(layer.primes.begin(), layer.primes.end(), layer.offsets.begin(),
                        std::uint64_t{0});
  }
  return layers;
}

// What derive_layers and multiplier_bound rely on.
Status check_config(const ModelConfig& config) {
  const auto range_error = [](std::string_view key, std::int64_t value) {
    return Status(StatusCode::kUnsupported, "engram: " + std::string(key) + " = " +
                                                std::to_string(value) + " is out of range");
  };
  if (config.engram_max_ngram < 2 || config.engram_max_ngram > 64) {
    return range_error("engram_max_ngram_size", config.engram_max_ngram);
  }
  if (config.engram_n_heads < 1 || config.engram_n_heads > 4096) {
    return range_error("engram_n_heads", config.engram_n_heads);
  }
  if (config.engram_prime_start < 2 || config.engram_prime_start > kMaxPrimeStart) {
    return range_error("engram_vocab_size", config.engram_prime_start);
  }
  if (config.engram_n_classes < 1 || config.engram_n_classes > kMaxClasses) {
    return range_error("engram_compressed_vocab_size", config.engram_n_classes);
  }
  if (config.engram_pad_id < 0 || config.engram_pad_id >= config.vocab_size) {
    return range_error("engram_pad_token_id", config.engram_pad_id);
  }
  if (config.engram_rows.size() != config.engram_layers.size()) {
    return contradiction("number of engram_num_embeddings",
                         std::to_string(config.engram_layers.size()),
                         std::to_string(config.engram_rows.size()));
  }
  return {};
}

Status check_rows(const ModelConfig& config, const std::vector<EngramTables::Layer>& layers) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::uint64_t sum = layers[i].offsets.back() + layers[i].primes.back();
    if (sum != static_cast<std::uint64_t>(config.engram_rows[i])) {
      return contradiction("rows of the table of layer " + std::to_string(config.engram_layers[i]),
                           std::to_string(sum) + " (the sum of its primes)",
                           std::to_string(config.engram_rows[i]));
    }
  }
  return {};
}

Status check_classes(const ModelConfig& config, const std::vector<std::int32_t>& classes) {
  const auto largest = std::max_element(classes.begin(), classes.end());
  const std::int64_t n_classes = largest == classes.end() ? 0 : std::int64_t{*largest} + 1;
  if (n_classes != config.engram_n_classes) {
    return corrupt("engram: the tokenizer gives " + std::to_string(n_classes) +
                       " token classes, the configuration says " +
                       std::to_string(config.engram_n_classes),
                   "use the tokenizer.json of this checkpoint");
  }
  const bool released = config.vocab_size == kReleasedVocabularySize &&
                        config.engram_n_classes == kReleasedEngramClassCount;
  if (!released) return {};
  const std::string digest = engram_classes_digest(classes);
  if (digest == kReleasedEngramClassesDigest) return {};
  return corrupt("engram: the tokenizer is not the checkpoint's: its class map has SHA-256 " +
                     digest + ", the released one " + std::string(kReleasedEngramClassesDigest),
                 "use the tokenizer.json of this checkpoint");
}

// The file's content; nothing if there is no such file.
Result<std::optional<std::string>> read_override(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder) / kFileName;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::optional<std::string>();
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file) return Status(StatusCode::kIoError, path.string() + ": cannot be read");
  return std::optional(std::move(text));
}

Status malformed(std::string_view key, std::string_view expected) {
  return corrupt(std::string(kFileName) + ": " + std::string(key) + ": expected " +
                 std::string(expected));
}

// A non-negative number, given as such or as a decimal string.
std::optional<std::uint64_t> parse_number(const json::value& value) {
  if (value.is_int64() && value.get_int64() >= 0) {
    return static_cast<std::uint64_t>(value.get_int64());
  }
  if (value.is_uint64()) return value.get_uint64();
  if (!value.is_string()) return std::nullopt;
  const json::string& text = value.get_string();
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
  if (error != std::errc() || end != text.end()) return std::nullopt;
  return number;
}

// Numbers of arbitrarily nested arrays in order; false if something else is among them.
bool flatten(const json::value& value, std::vector<std::uint64_t>& out) {
  if (value.is_array()) {
    return std::all_of(value.get_array().begin(), value.get_array().end(),
                       [&](const json::value& item) { return flatten(item, out); });
  }
  const auto number = parse_number(value);
  if (number) out.push_back(*number);
  return number.has_value();
}

// Layer `i` of `key` as a flat list of `count` numbers.
Result<std::vector<std::uint64_t>> layer_numbers(const json::value& value, std::string_view key,
                                                 std::size_t i, std::size_t count) {
  std::vector<std::uint64_t> numbers;
  if (!flatten(value.get_array()[i], numbers) || numbers.size() != count) {
    return malformed(std::string(key) + "[" + std::to_string(i) + "]",
                     std::to_string(count) + " numbers");
  }
  return numbers;
}

Status require_layers(const json::value& value, std::string_view key, std::size_t n_layers) {
  if (value.is_array() && value.get_array().size() == n_layers) return {};
  return malformed(key, "one list for each of " + std::to_string(n_layers) + " layers");
}

Status take_classes(const json::value& value, const ModelConfig& config, EngramTables& tables) {
  std::vector<std::uint64_t> numbers;
  const auto expected_size = static_cast<std::size_t>(config.vocab_size);
  if (!value.is_array() || !flatten(value, numbers) || numbers.size() != expected_size) {
    return malformed("token_map", std::to_string(expected_size) + " class ids");
  }
  for (const std::uint64_t number : numbers) {
    if (number >= static_cast<std::uint64_t>(config.engram_n_classes)) {
      return malformed("token_map", "class ids below " + std::to_string(config.engram_n_classes));
    }
    tables.classes.push_back(static_cast<std::int32_t>(number));
  }
  return {};
}

Status take_multipliers(const json::value& value, const ModelConfig& config, EngramTables& tables) {
  CAIRN_RETURN_IF_ERROR(require_layers(value, "multipliers", tables.layers.size()));
  const std::uint64_t limit = 2 * multiplier_bound(config) + 1;
  for (std::size_t i = 0; i < tables.layers.size(); ++i) {
    std::vector<std::uint64_t>& multipliers = tables.layers[i].multipliers;
    CAIRN_ASSIGN_OR_RETURN(multipliers, layer_numbers(value, "multipliers", i, multipliers.size()));
    for (const std::uint64_t multiplier : multipliers) {
      if (multiplier % 2 == 0 || multiplier >= limit) {
        return malformed("multipliers", "odd numbers below " + std::to_string(limit));
      }
    }
  }
  return {};
}

Status compare_layers(const json::value& value, std::string_view key,
                      std::vector<std::uint64_t> EngramTables::Layer::*derived,
                      const EngramTables& tables) {
  CAIRN_RETURN_IF_ERROR(require_layers(value, key, tables.layers.size()));
  for (std::size_t i = 0; i < tables.layers.size(); ++i) {
    const std::vector<std::uint64_t>& expected = tables.layers[i].*derived;
    CAIRN_ASSIGN_OR_RETURN(const auto numbers, layer_numbers(value, key, i, expected.size()));
    if (numbers != expected) {
      return malformed(std::string(key) + "[" + std::to_string(i) + "]",
                       "the numbers that follow from the configuration");
    }
  }
  return {};
}

Status compare_number(const json::value& value, std::string_view key, std::int64_t expected) {
  const auto number = parse_number(value);
  if (number && *number == static_cast<std::uint64_t>(expected)) return {};
  return malformed(key, std::to_string(expected) + " as in the configuration");
}

Status apply_override(std::string_view text, const ModelConfig& config, EngramTables& tables) {
  boost::system::error_code error;
  const json::value root = json::parse(text, error);
  if (error) return corrupt(std::string(kFileName) + ": not JSON: " + error.message());
  if (!root.is_object()) return malformed("top level", "an object");
  const json::object& object = root.get_object();
  if (const auto* value = object.if_contains("compressed_vocab_size")) {
    CAIRN_RETURN_IF_ERROR(compare_number(*value, "compressed_vocab_size", config.engram_n_classes));
  }
  if (const auto* value = object.if_contains("pad_id")) {
    CAIRN_RETURN_IF_ERROR(compare_number(*value, "pad_id", config.engram_pad_id));
  }
  if (const auto* value = object.if_contains("primes")) {
    CAIRN_RETURN_IF_ERROR(compare_layers(*value, "primes", &EngramTables::Layer::primes, tables));
  }
  if (const auto* value = object.if_contains("offsets")) {
    CAIRN_RETURN_IF_ERROR(compare_layers(*value, "offsets", &EngramTables::Layer::offsets, tables));
  }
  if (const auto* value = object.if_contains("token_map")) {
    CAIRN_RETURN_IF_ERROR(take_classes(*value, config, tables));
  }
  if (const auto* value = object.if_contains("multipliers")) {
    CAIRN_RETURN_IF_ERROR(take_multipliers(*value, config, tables));
  }
  return {};
}

Result<EngramTables> derive_and_check(const ModelConfig& config, const Tokenizer& tokenizer,
                                      const std::string& folder) {
  EngramTables tables;
  if (config.engram_layers.empty()) return tables;
  CAIRN_RETURN_IF_ERROR(check_config(config));
  tables.layers = derive_layers(config);
  CAIRN_RETURN_IF_ERROR(check_rows(config, tables.layers));
  CAIRN_ASSIGN_OR_RETURN(const std::optional<std::string> override_text, read_override(folder));
  if (override_text) CAIRN_RETURN_IF_ERROR(apply_override(*override_text, config, tables));
  if (tables.classes.empty()) tables.classes = build_engram_classes(tokenizer, config.vocab_size);
  CAIRN_RETURN_IF_ERROR(check_classes(config, tables.classes));
  tables.pad_class = tables.classes[static_cast<std::size_t>(config.engram_pad_id)];
  return tables;
}

}  // namespace

Result<EngramTables> make_engram_tables(const ModelConfig& config, const Tokenizer& tokenizer,
                                        const std::string& folder) try {
  return derive_and_check(config, tokenizer, folder);
} catch (const std::bad_alloc&) {
  return Status(StatusCode::kOutOfMemory, "engram: out of memory while making the tables");
} catch (const std::exception& e) {
  return internal_error(std::string("engram: ") + e.what());
}

}  // namespace cairn::engine
