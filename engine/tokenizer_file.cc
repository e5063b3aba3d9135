// Reads the two shapes of tokenizer.json in use: the released one, whose pre-tokenizer spells out
// its regular expressions, and GPT-2's, which leaves the expression to the reader. Not read,
// because they do not change how text becomes ids: decoder options, post_processor (offsets, and
// templates that add a BOS which a prompt spells out already), truncation and padding (whole
// batches), unk_token (every byte has a symbol) and the `special` and `normalized` flags (nothing
// normalises).
#include "engine/tokenizer_file.h"

#include <boost/json.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>
#include <optional>
#include <utility>

namespace cairn::engine {
namespace {

namespace json = boost::json;

// The expression behind ByteLevel's use_regex, as published with GPT-2.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

std::string at(std::string_view path, std::size_t index) {
  return std::string(path) + "[" + std::to_string(index) + "]";
}

Status wrong_type(std::string_view path, std::string_view expected) {
  return corrupt(std::string(path) + ": expected " + std::string(expected));
}

Status unsupported(std::string_view path, const json::value& found) {
  constexpr std::size_t kMaxQuote = 100;  // a component can hold tables
  std::string quote = json::serialize(found);
  if (quote.size() > kMaxQuote) quote.replace(kMaxQuote, quote.npos, "...");
  return {StatusCode::kUnsupported, std::string(path) + ": " + quote +
                                        " is not supported: text would be encoded differently"};
}

// Null and absent are the same in these files.
const json::value* find(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<const json::object*> object_at(const json::object& parent, std::string_view key,
                                      std::string_view path) {
  const json::value* value = find(parent, key);
  if (value == nullptr || !value->is_object()) return wrong_type(path, "an object");
  return &value->get_object();
}

Result<const json::array*> array_at(const json::object& parent, std::string_view key,
                                    std::string_view path) {
  const json::value* value = find(parent, key);
  if (value == nullptr || !value->is_array()) return wrong_type(path, "an array");
  return &value->get_array();
}

// "type" of a component; empty if there is none.
std::string_view type_of(const json::object& component) {
  const json::value* type = find(component, "type");
  return type != nullptr && type->is_string() ? view(type->get_string()) : std::string_view();
}

// Refuses a flag with another value than the one under which it has no effect.
Status require_flag(const json::object& object, std::string_view key, bool expected,
                    std::string_view path) {
  const json::value* value = find(object, key);
  if (value == nullptr || (value->is_bool() && value->get_bool() == expected)) return {};
  return unsupported(std::string(path) + "." + std::string(key), *value);
}

Status require_empty_text(const json::object& object, std::string_view key, std::string_view path) {
  const json::value* value = find(object, key);
  if (value == nullptr || (value->is_string() && value->get_string().empty())) return {};
  return unsupported(std::string(path) + "." + std::string(key), *value);
}

Result<TokenId> token_id(const json::value& value, std::string_view path) {
  if (!value.is_int64()) return wrong_type(path, "an integer id");
  const std::int64_t id = value.get_int64();
  if (id < 0 || id > kMaxTokenId) {
    return corrupt(std::string(path) + ": id " + std::to_string(id) + " is outside 0 to " +
                   std::to_string(kMaxTokenId));
  }
  return static_cast<TokenId>(id);
}

Status parse_normalizer(const json::object& root) {
  const json::value* value = find(root, "normalizer");
  if (value == nullptr) return {};
  if (!value->is_object()) return wrong_type("normalizer", "an object");
  const json::value* steps = find(value->get_object(), "normalizers");
  const bool idle = type_of(value->get_object()) == "Sequence" && steps != nullptr &&
                    steps->is_array() && steps->get_array().empty();
  return idle ? Status() : unsupported("normalizer", *value);
}

Status parse_split(const json::object& split, std::string_view path, TokenizerFile& file) {
  const json::value* behavior = find(split, "behavior");
  if (behavior == nullptr || !behavior->is_string()) {
    return wrong_type(std::string(path) + ".behavior", "a string");
  }
  if (view(behavior->get_string()) != "Isolated") {
    return unsupported(std::string(path) + ".behavior", *behavior);
  }
  CAIRN_RETURN_IF_ERROR(require_flag(split, "invert", false, path));
  const std::string pattern_path = std::string(path) + ".pattern";
  CAIRN_ASSIGN_OR_RETURN(const json::object* pattern, object_at(split, "pattern", pattern_path));
  const json::value* regex = find(*pattern, "Regex");
  if (regex == nullptr) return unsupported(pattern_path, *find(split, "pattern"));
  if (!regex->is_string()) return wrong_type(pattern_path + ".Regex", "a string");
  file.split_patterns.emplace_back(view(regex->get_string()));
  return {};
}

Status parse_byte_level(const json::object& component, std::string_view path, TokenizerFile& file) {
  const json::value* prefix = find(component, "add_prefix_space");
  if (prefix == nullptr || !prefix->is_bool() || prefix->get_bool()) {  // absent means true
    return unsupported(std::string(path) + ".add_prefix_space",
                       prefix != nullptr ? *prefix : json::value(true));
  }
  const json::value* use_regex = find(component, "use_regex");  // absent means true
  if (use_regex != nullptr && !use_regex->is_bool()) {
    return wrong_type(std::string(path) + ".use_regex", "a boolean");
  }
  if (use_regex == nullptr || use_regex->get_bool()) file.split_patterns.emplace_back(kGpt2Pattern);
  return {};
}

// Splits, then ByteLevel as the last step: after it the text is in the byte alphabet.
Status parse_pre_tokenizer(const json::object& root, TokenizerFile& file) {
  CAIRN_ASSIGN_OR_RETURN(const json::object* top,
                         object_at(root, "pre_tokenizer", "pre_tokenizer"));
  if (type_of(*top) == "ByteLevel") return parse_byte_level(*top, "pre_tokenizer", file);
  if (type_of(*top) != "Sequence") {
    return unsupported("pre_tokenizer.type", json::string(type_of(*top)));
  }
  constexpr std::string_view kSteps = "pre_tokenizer.pretokenizers";
  CAIRN_ASSIGN_OR_RETURN(const json::array* steps, array_at(*top, "pretokenizers", kSteps));
  for (std::size_t i = 0; i < steps->size(); ++i) {
    const std::string path = at(kSteps, i);
    if (!(*steps)[i].is_object()) return wrong_type(path, "an object");
    const json::object& step = (*steps)[i].get_object();
    const bool last = i + 1 == steps->size();
    if (type_of(step) == "Split" && !last) {
      CAIRN_RETURN_IF_ERROR(parse_split(step, path, file));
    } else if (type_of(step) == "ByteLevel" && last) {
      return parse_byte_level(step, path, file);
    } else {
      return unsupported(path + ".type", json::string(type_of(step)));
    }
  }
  return wrong_type(kSteps, "a ByteLevel step at the end");
}

Status parse_decoder(const json::object& root) {
  const json::value* value = find(root, "decoder");
  if (value == nullptr) return {};
  if (!value->is_object()) return wrong_type("decoder", "an object");
  const std::string_view type = type_of(value->get_object());
  return type == "ByteLevel" ? Status() : unsupported("decoder.type", json::string(type));
}

Status parse_model_options(const json::object& model, TokenizerFile& file) {
  const json::value* type = find(model, "type");  // absent in the oldest files
  if (type != nullptr && type_of(model) != "BPE") return unsupported("model.type", *type);
  const json::value* dropout = find(model, "dropout");
  if (dropout != nullptr) return unsupported("model.dropout", *dropout);
  CAIRN_RETURN_IF_ERROR(require_flag(model, "byte_fallback", false, "model"));
  CAIRN_RETURN_IF_ERROR(require_empty_text(model, "continuing_subword_prefix", "model"));
  CAIRN_RETURN_IF_ERROR(require_empty_text(model, "end_of_word_suffix", "model"));
  const json::value* ignore = find(model, "ignore_merges");
  if (ignore != nullptr && !ignore->is_bool())
    return wrong_type("model.ignore_merges", "a boolean");
  file.ignore_merges = ignore != nullptr && ignore->get_bool();
  return {};
}

Status parse_vocabulary(const json::object& model, TokenizerFile& file) {
  CAIRN_ASSIGN_OR_RETURN(const json::object* vocabulary, object_at(model, "vocab", "model.vocab"));
  file.vocabulary.reserve(vocabulary->size());
  for (const json::key_value_pair& entry : *vocabulary) {
    const std::string_view spelling(entry.key().data(), entry.key().size());
    auto id = token_id(entry.value(), "model.vocab");
    if (!id.ok()) {
      return corrupt(std::string(id.status().message()) + ", entry '" + std::string(spelling) +
                     "'");
    }
    file.vocabulary.push_back({std::string(spelling), *id});
  }
  return {};
}

// "a b", or ["a", "b"] in files of later library versions.
std::optional<TokenizerFile::Merge> parse_merge(const json::value& value) {
  if (value.is_string()) {
    const std::string_view text = view(value.get_string());
    const std::size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos) return {};
    return TokenizerFile::Merge{std::string(text.substr(0, space)),
                                std::string(text.substr(space + 1))};
  }
  if (!value.is_array() || value.get_array().size() != 2) return {};
  const json::array& pair = value.get_array();
  if (!pair[0].is_string() || !pair[1].is_string()) return {};
  return TokenizerFile::Merge{std::string(view(pair[0].get_string())),
                              std::string(view(pair[1].get_string()))};
}

Status parse_merges(const json::object& model, TokenizerFile& file) {
  CAIRN_ASSIGN_OR_RETURN(const json::array* merges, array_at(model, "merges", "model.merges"));
  file.merges.reserve(merges->size());
  for (std::size_t i = 0; i < merges->size(); ++i) {
    auto merge = parse_merge((*merges)[i]);
    if (!merge) return wrong_type(at("model.merges", i), "\"a b\" or [\"a\", \"b\"]");
    file.merges.push_back(std::move(*merge));
  }
  return {};
}

Status parse_added_token(const json::value& value, const std::string& path, TokenizerFile& file) {
  if (!value.is_object()) return wrong_type(path, "an object");
  const json::object& token = value.get_object();
  const json::value* id = find(token, "id");
  if (id == nullptr) return wrong_type(path + ".id", "an integer id");
  TokenizerFile::Entry entry;
  CAIRN_ASSIGN_OR_RETURN(entry.id, token_id(*id, path + ".id"));
  const json::value* content = find(token, "content");
  if (content == nullptr || !content->is_string() || content->get_string().empty()) {
    return wrong_type(path + ".content", "a spelling");
  }
  entry.spelling = view(content->get_string());
  for (const std::string_view flag : {"single_word", "lstrip", "rstrip"}) {
    CAIRN_RETURN_IF_ERROR(require_flag(token, flag, false, path));
  }
  file.added.push_back(std::move(entry));
  return {};
}

Status parse_added_tokens(const json::object& root, TokenizerFile& file) {
  if (find(root, "added_tokens") == nullptr) return {};
  CAIRN_ASSIGN_OR_RETURN(const json::array* tokens, array_at(root, "added_tokens", "added_tokens"));
  for (std::size_t i = 0; i < tokens->size(); ++i) {
    CAIRN_RETURN_IF_ERROR(parse_added_token((*tokens)[i], at("added_tokens", i), file));
  }
  return {};
}

using Spellings = boost::unordered_flat_map<TokenId, std::string_view>;

// Ids of one list, or an error if two entries share an id.
Result<Spellings> index_by_id(const std::vector<TokenizerFile::Entry>& entries,
                              std::string_view list) {
  Spellings by_id;
  by_id.reserve(entries.size());
  for (const auto& entry : entries) {
    const auto [known, is_new] = by_id.try_emplace(entry.id, entry.spelling);
    if (!is_new) {
      return corrupt(std::string(list) + ": id " + std::to_string(entry.id) +
                     " is given to both '" + std::string(known->second) + "' and '" +
                     entry.spelling + "'");
    }
  }
  return by_id;
}

Status check_ids(const TokenizerFile& file) {
  CAIRN_ASSIGN_OR_RETURN(const Spellings vocabulary, index_by_id(file.vocabulary, "model.vocab"));
  CAIRN_ASSIGN_OR_RETURN(const Spellings added, index_by_id(file.added, "added_tokens"));
  boost::unordered_flat_set<std::string_view> spellings;
  for (const auto& [id, spelling] : added) {
    if (!spellings.insert(spelling).second) {
      return corrupt("added_tokens: '" + std::string(spelling) + "' is listed twice");
    }
    const auto base = vocabulary.find(id);
    if (base != vocabulary.end() && base->second != spelling) {
      return corrupt("added_tokens: id " + std::to_string(id) + " is '" + std::string(spelling) +
                     "' but '" + std::string(base->second) + "' in model.vocab");
    }
  }
  for (const auto& entry : file.vocabulary) {
    if (spellings.contains(entry.spelling) && !added.contains(entry.id)) {
      return corrupt("added_tokens: '" + entry.spelling + "' has another id in model.vocab");
    }
  }
  return {};
}

}  // namespace

Result<TokenizerFile> parse_tokenizer_file(std::string_view text) {
  json::monotonic_resource memory;
  boost::system::error_code error;
  const json::value value = json::parse(text, error, &memory);
  if (error) return corrupt("not JSON: " + error.message());
  if (!value.is_object()) return wrong_type("top level", "an object");
  const json::object& root = value.get_object();
  TokenizerFile file;
  CAIRN_RETURN_IF_ERROR(parse_normalizer(root));
  CAIRN_RETURN_IF_ERROR(parse_pre_tokenizer(root, file));
  CAIRN_RETURN_IF_ERROR(parse_decoder(root));
  CAIRN_ASSIGN_OR_RETURN(const json::object* model, object_at(root, "model", "model"));
  CAIRN_RETURN_IF_ERROR(parse_model_options(*model, file));
  CAIRN_RETURN_IF_ERROR(parse_vocabulary(*model, file));
  CAIRN_RETURN_IF_ERROR(parse_merges(*model, file));
  CAIRN_RETURN_IF_ERROR(parse_added_tokens(root, file));
  CAIRN_RETURN_IF_ERROR(check_ids(file));
  return file;
}

}  // namespace cairn::engine
