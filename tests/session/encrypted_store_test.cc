// Encrypted stores: who gets in, what their files tell, and what a changed byte does.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "session/encrypted_storage.h"
#include "session/storage_key.h"
#include "tests/session/store_samples.h"
#include "tests/support/temporary_folder.h"

namespace cairn::session {
namespace {

namespace fs = std::filesystem;
using test::Bytes;
using test::code_of;
using test::SampleBlock;
using test::TemporaryFolder;

const StoreOptions kByKey = {.secret = test::secret_key()};
const StoreOptions kByPassphrase = {.secret = {.passphrase = "correct horse battery staple"}};

Status open_status(const std::string& path, const StoreSecret& secret) {
  return SessionStore::open(path, {.secret = secret}).status();
}

// Every file below `path`, one after the other.
std::string all_bytes(const std::string& path) {
  std::string bytes;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) bytes += test::read_file(entry.path());
  }
  return bytes;
}

std::map<std::string, std::string> files_of(const std::string& path) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) files[entry.path()] = test::read_file(entry.path());
  }
  return files;
}

// -- who gets in --

TEST(EncryptedStore, opens_with_its_secret_only) {
  for (const StoreOptions& options : {kByKey, kByPassphrase}) {
    const TemporaryFolder folder;
    const std::string path = folder / "store";
    test::create(*test::open_store(path, options), "name");
    const auto before = files_of(path);

    EXPECT_EQ(open_status(path, {}).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(open_status(path, test::secret_key(1)).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(open_status(path, {.passphrase = "wrong"}).code(), StatusCode::kInvalidArgument);
    const StoreSecret both = {options.secret.passphrase + "x", test::secret_key().key};
    EXPECT_EQ(open_status(path, both).code(), StatusCode::kInvalidArgument);
    const Status refused = {StatusCode::kCancelled, "the user said no"};
    const StoreSecret failing = {.key = [&](std::array<std::uint8_t, 32>&) { return refused; }};
    if (!options.secret.key) {
      EXPECT_EQ(open_status(path, failing).code(), StatusCode::kInvalidArgument);
    } else {
      const Status status = open_status(path, failing);
      EXPECT_EQ(status.code(), refused.code());
      EXPECT_TRUE(status.message().ends_with(refused.message())) << status.to_string();
    }
    auto after = files_of(path);
    after[path + "/LOCK"] = before.at(path + "/LOCK");
    EXPECT_EQ(after, before) << "a refused opening changed a file";

    const auto store = test::open_store(path, options);
    EXPECT_TRUE(store->find_by_name("name").ok());
  }
}

TEST(EncryptedStore, says_what_is_wrong_with_the_secret) {
  const TemporaryFolder folder;
  test::open_store(folder / "store", kByKey);
  EXPECT_NE(open_status(folder / "store", test::secret_key(1)).message().find("wrong secret"),
            std::string_view::npos);
  EXPECT_NE(open_status(folder / "store", {}).message().find("a key"), std::string_view::npos);
  EXPECT_FALSE(open_status(folder / "store", {}).hint().empty());
  test::open_store(folder / "plain", {});
  const Status plain = open_status(folder / "plain", test::secret_key());
  EXPECT_EQ(plain.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(plain.message().find("not encrypted"), std::string_view::npos);
  EXPECT_FALSE(plain.hint().empty());
}

TEST(EncryptedStore, asks_for_the_key_once) {
  const TemporaryFolder folder;
  int n_asked = 0;
  const StoreOptions options = {.secret = {.key = [&](std::array<std::uint8_t, 32>& key) {
                                  ++n_asked;
                                  key.fill(3);
                                  return Status();
                                }}};
  test::open_store(folder / "store", options);
  EXPECT_EQ(n_asked, 1);
  test::open_store(folder / "store", options);
  EXPECT_EQ(n_asked, 2);
}

TEST(EncryptedStore, a_lost_format_file_is_written_again_with_the_key_in_it) {
  for (const StoreOptions& options : {kByKey, kByPassphrase}) {
    const TemporaryFolder folder;
    const std::string path = folder / "store", format = path + "/FORMAT";
    test::create(*test::open_store(path, options), "name");
    const std::string text = test::read_file(format);
    for (const std::string damage : {"", "cairn store\n"}) {
      fs::remove(format);
      if (!damage.empty()) test::write_file(format, damage);
      EXPECT_EQ(open_status(path, test::secret_key(1)).code(), StatusCode::kInvalidArgument);
      EXPECT_TRUE(test::open_store(path, options)->find_by_name("name").ok());
      EXPECT_EQ(test::read_file(format), text);
    }
  }
}

TEST(EncryptedStore, two_stores_with_one_secret_have_different_keys) {
  const TemporaryFolder folder;
  const auto a = test::open_store(folder / "a", kByKey), b = test::open_store(folder / "b", kByKey);
  EXPECT_EQ(a->kv_salt().size(), 32u);
  EXPECT_NE(a->kv_salt(), b->kv_salt());
  EXPECT_NE(a->header().key_wrap->wrapped_key, b->header().key_wrap->wrapped_key);
  EXPECT_EQ(test::open_store(folder / "c", {})->kv_salt(), "");
}

TEST(EncryptedStore, block_keys_do_not_tell_who_tries_prompts) {
  const TemporaryFolder folder;
  std::string salt;
  {
    const auto store = test::open_store(folder / "store", kByKey);
    salt = store->kv_salt();
  }
  EXPECT_EQ(test::open_store(folder / "store", kByKey)->kv_salt(), salt);
  EXPECT_EQ(all_bytes(folder / "store").find(salt), std::string::npos);
}

// -- what the files tell --

// Words that no file holds by chance.
class Words {
 public:
  explicit Words(std::uint32_t seed) : random_(seed) {}

  std::string next(std::size_t n_letters = 16) {
    std::string word;
    while (word.size() < n_letters) word += static_cast<char>('a' + random_() % 26);
    all_.push_back(word);
    return word;
  }
  std::uint32_t number() { return static_cast<std::uint32_t>(random_()); }
  const std::vector<std::string>& all() const { return all_; }

 private:
  std::mt19937 random_;
  std::vector<std::string> all_;
};

// Writes one of everything that sessions store, each text a word or bytes that `words` remembers.
void write_session(SessionStore& store, Words& words, std::uint32_t seed) {
  const std::string salt = words.next();
  const std::uint32_t number = *store.open_namespace({words.next(), 1, store.kv_salt() + salt});
  auto made = store.create_session({.name = words.next(),
                                    .model_fingerprint = words.next(),
                                    .options = {.salt = salt},
                                    .kv_namespace = number});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  SessionRecord record = *made;
  record.labels = {{words.next(), words.next()}};
  Message message = Message::user(words.next(300));
  message.reasoning = words.next();
  message.tool_calls.push_back({words.next(), words.next(), words.next(40)});
  TurnEnded ended = {.message = message, .status_message = words.next()};
  const std::vector<SampleBlock> blocks = test::sample_chain(seed, 3, 5'000);
  Commit commit = {.session = record.id, .kv_namespace = number, .record = record};
  commit.events.push_back({1, 0, 1, MessageAppended{message}});
  commit.events.push_back(test::token_event(2, test::random_tokens(seed, 20)));
  commit.events.push_back({3, 2, 1, std::move(ended)});
  commit.events.push_back({4, 3, 1, MarkSet{.name = words.next()}});
  commit.events.push_back({5, 4, 1, ModelChanged{words.next()}});
  for (const SampleBlock& block : blocks) commit.blocks.push_back(block.view());
  const Bytes tail = test::random_bytes(seed, 3'000);
  commit.tail = NewTail{.position = 400, .payload = tail};
  ASSERT_TRUE(store.commit(commit).ok());
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// How many of the sessions' words and payloads, in pieces of 16 bytes, lie in the files.
int n_found(const std::string& files, const Words& words, std::uint32_t n_sessions) {
  int n = 0;
  for (const std::string& word : words.all()) n += files.find(word) != std::string::npos;
  for (std::uint32_t seed = 0; seed < n_sessions; ++seed) {
    std::vector<std::string> payloads = {text_of(test::random_bytes(seed, 3'000))};
    for (const SampleBlock& block : test::sample_chain(seed, 3, 5'000)) {
      payloads.push_back(text_of(block.payload));
    }
    for (const std::string& payload : payloads) {
      for (std::size_t at = 0; at + 16 <= payload.size(); at += 500) {
        n += files.find(payload.substr(at, 16)) != std::string::npos;
      }
    }
  }
  return n;
}

TEST(EncryptedStore, no_file_holds_a_word_or_a_row_of_a_session) {
  constexpr std::uint32_t kSessions = 6;
  for (const bool encrypted : {false, true}) {
    const TemporaryFolder folder;
    Words words(4711);
    auto store = test::open_store(folder / "store", encrypted ? kByKey : StoreOptions());
    for (std::uint32_t seed = 0; seed < kSessions; ++seed) write_session(*store, words, seed);
    // In the log, then in tables.
    const int n_in_log = n_found(all_bytes(folder / "store"), words, kSessions);
    store.reset();
    const int n_in_tables = n_found(all_bytes(folder / "store"), words, kSessions);
    // The search finds them where there is no encryption; long texts are compressed there.
    EXPECT_EQ(n_in_log > 100, !encrypted);
    EXPECT_EQ(n_in_tables > 100, !encrypted);
    if (encrypted) {
      EXPECT_EQ(n_in_log + n_in_tables, 0);
    }
  }
}

TEST(EncryptedStore, a_copy_of_the_open_directory_opens_with_the_secret) {
  const TemporaryFolder folder;
  Words words(7);
  const auto store = test::open_store(folder / "store", kByPassphrase);
  for (std::uint32_t seed = 0; seed < 3; ++seed) write_session(*store, words, seed);
  fs::copy(folder / "store", folder / "copy", fs::copy_options::recursive);
  EXPECT_EQ(open_status(folder / "copy", {}).code(), StatusCode::kInvalidArgument);
  const auto copy = test::open_store(folder / "copy", kByPassphrase);
  const auto sessions = copy->list();
  ASSERT_TRUE(sessions.ok()) << sessions.status().to_string();
  ASSERT_EQ(sessions->size(), 3u);
  for (const SessionRecord& record : *sessions) {
    EXPECT_EQ(copy->find_by_name(record.name)->id, record.id);
    EXPECT_EQ(copy->read_events(record.id)->size(), 5u);
    EXPECT_TRUE(copy->get_tail(record.id).ok());
  }
  for (const SampleBlock& block : test::sample_chain(2, 3, 5'000)) {
    EXPECT_TRUE(copy->get_block(block.key, block.tokens).ok());
  }
}

}  // namespace
}  // namespace cairn::session
