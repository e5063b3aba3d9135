// The tiny model with a tokenizer that knows where reasoning ends.
#ifndef CAIRN_TESTS_SESSION_THINKING_MODEL_H_
#define CAIRN_TESTS_SESSION_THINKING_MODEL_H_

#include <boost/json.hpp>
#include <filesystem>
#include <string>

#include "tests/session/live_session.h"

namespace cairn::test {

// The tiny tokenizer has no id to spare: these are those of its last merges.
inline constexpr TokenId kThinkBeginId = 506, kThinkEndId = 507;

inline void add_token(boost::json::object& tokenizer, TokenId id, const char* spelling) {
  boost::json::object& model = tokenizer["model"].as_object();
  boost::json::object& vocabulary = model["vocab"].as_object();
  for (auto entry = vocabulary.begin(); entry != vocabulary.end(); ++entry) {
    if (entry->value().as_int64() != id) continue;
    vocabulary.erase(entry);
    break;
  }
  model["merges"].as_array().pop_back();
  tokenizer["added_tokens"].as_array().push_back({{"id", id},
                                                  {"content", spelling},
                                                  {"single_word", false},
                                                  {"lstrip", false},
                                                  {"rstrip", false},
                                                  {"normalized", false},
                                                  {"special", true}});
}

// Made once for the program.
inline const std::string& thinking_folder() {
  static const TemporaryFolder folder;
  static const std::string path = [] {
    for (const auto& file : std::filesystem::directory_iterator(kTinyA)) {
      if (file.path().filename() == "tokenizer.json") continue;
      std::filesystem::create_symlink(file.path(), folder.path() / file.path().filename());
    }
    boost::json::object tokenizer =
        boost::json::parse(read_file(std::string(kTinyA) + "/tokenizer.json")).as_object();
    add_token(tokenizer, kThinkBeginId, "<think>");
    add_token(tokenizer, kThinkEndId, "</think>");
    write_file(folder / "tokenizer.json", boost::json::serialize(tokenizer));
    return folder.path().string();
  }();
  return path;
}
inline const Model& thinking_model() {
  static const Model model = [] {
    Result<Model> opened =
        Model::open(live_runtime(), thinking_folder(), {.prefill_chunk = 32, .drafts = -1});
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return std::move(*opened);
  }();
  return model;
}

}  // namespace cairn::test

#endif  // CAIRN_TESTS_SESSION_THINKING_MODEL_H_
