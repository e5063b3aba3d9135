// Changed records, values and FORMAT files, with right checksums where there are any: whoever can
// write to a store can compute them. A parser says what is wrong, or gives a value that comes back
// the same when it is written and read again.
#define XXH_INLINE_ALL
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <xxhash.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/sha256.h"
#include "session/compression.h"
#include "session/records.h"
#include "session/sealed_value.h"
#include "session/storage_key.h"
#include "tests/fuzz/mutation.h"
#include "tests/session/store_samples.h"
#include "tests/support/temporary_folder.h"

namespace cairn::session {
namespace {

using test::Mutation;
using test::n_inputs;

bool is_refusal(StatusCode code) {
  return code == StatusCode::kCorrupt || code == StatusCode::kUnsupported;
}

// -- records --

struct Kind {
  std::string name;
  std::vector<std::string> corpus;
  std::function<Result<std::string>(std::string_view)> encode_decoded;
};

template <class Decode>
Kind kind(std::string name, std::vector<std::string> corpus, Decode decode) {
  return {std::move(name), std::move(corpus), [decode](std::string_view bytes) {
            auto decoded = decode(bytes);
            return decoded.ok() ? Result<std::string>(encode(*decoded)) : decoded.status();
          }};
}

Message full_message() {
  Message message = Message::user("text of a message");
  message.content.push_back({ContentBlock::Kind::kToolResult, "result", "call_1"});
  message.tools_json = "[{}]";
  message.reasoning = "reasons";
  message.tool_calls = {{"call_2", "files::read", R"({"path": "a"})"}};
  message.sampled_tokens = {0, 1, 129279};
  return message;
}

std::vector<std::string> event_corpus() {
  const std::vector<EventBody> bodies = {
      MessageAppended{full_message()},
      TurnStarted{3, {}, 100, 1000, {}},
      TokensGenerated{4, test::random_tokens(1, 30)},
      TurnEnded{4, EndReason::kStop, 17, full_message(), StatusCode::kContextFull, "full"},
      MarkSet{"mark", {1, 2}, 3, 400},
      HeadMoved{5, {3}, 2, 300},
      ModelChanged{"fingerprint"}};
  std::vector<std::string> corpus;
  for (const EventBody& body : bodies) {
    LogEvent event = {7, 5, 9, body};
    corpus.push_back(*encode(event));
    event.head.emplace().n_tokens = 500;
    event.head->appended_tokens = 20;
    corpus.push_back(*encode(event));
  }
  return corpus;
}

SessionRecord full_session() {
  SessionRecord record;
  record.id.bytes = {1, 2, 3};
  record.name = "name";
  record.used_ms = 1'700'000'000'000;
  record.model_fingerprint = "fingerprint";
  record.options.salt = "salt";
  record.origin = SessionId{{9}};
  record.origin_sequence = 4;
  record.labels = {{"a", "1"}, {"b", "2"}};
  record.chain_key = {7};
  record.stored_blocks = 9;
  record.head_tokens = 1200;
  record.prefill_us_per_token = 1.5f;
  return record;
}

std::vector<Kind> kinds() {
  StoreHeader header;
  header.created_by = "cairn 1";
  StoreHeader with_key = header, with_passphrase = header;
  with_key.key_wrap.emplace();
  with_passphrase.key_wrap.emplace().source = SecretSource::kPassphrase;
  StoreCounters counters;
  counters.turns = 5;
  const NamespaceRecord name_space = {2, {"fingerprint", 3, "salt"}, 1ULL << 60};
  const BlockRecord block = {1, 1ULL << 40, {7}, 5, Provenance::kBounded, 128, 113920};
  const BlockDescriptor descriptor = {{1},       {2}, 3, Provenance::kExact, test::random_tokens(2),
                                      113'920ULL};
  const TailRecord tail = {{{9}}, 1, 2, {3}, 4, 5, 6};
  return {
      kind("header", {encode(header), encode(with_key), encode(with_passphrase)},
           decode_store_header),
      {"name",
       {encode_session_name(SessionId{{1, 2}})},
       [](std::string_view bytes) {
         const auto id = decode_session_name(bytes);
         return id.ok() ? Result<std::string>(encode_session_name(*id)) : id.status();
       }},
      kind("namespace", {encode(name_space)}, decode_namespace_record),
      kind("session", {encode(full_session()), encode(SessionRecord())}, decode_session_record),
      kind("event", event_corpus(), decode_event),
      kind("block", {encode(block)}, decode_block_record),
      kind("descriptor", {encode(descriptor)}, decode_block_descriptor),
      kind("tail", {encode(tail)}, decode_tail_record),
      kind("counters", {encode(counters)}, decode_store_counters),
      kind("incident", {encode(Incident{1, 2, "detail"})}, decode_incident),
  };
}

TEST(FuzzRecords, decode_to_something_that_comes_back_or_are_refused) {
  constexpr std::uint32_t kSeed = 1;
  int n_decoded = 0, n_refused = 0;
  for (const Kind& kind : kinds()) {
    Mutation mutation(kSeed);
    for (const std::string& bytes : kind.corpus) {
      EXPECT_EQ(*kind.encode_decoded(bytes), bytes) << kind.name;
    }
    for (int i = 0; i < n_inputs(30'000); ++i) {
      const std::string input = mutation.of(kind.corpus);
      const Result<std::string> once = kind.encode_decoded(input);
      if (!once.ok()) {
        ASSERT_TRUE(is_refusal(once.status().code())) << kind.name << " input " << i;
        ++n_refused;
        continue;
      }
      ++n_decoded;
      const Result<std::string> twice = kind.encode_decoded(*once);
      ASSERT_TRUE(twice.ok()) << kind.name << " input " << i << ": " << twice.status().to_string();
      ASSERT_EQ(*once, *twice) << kind.name << " input " << i;
    }
  }
  std::cout << "seed " << kSeed << ": " << n_decoded << " decoded, " << n_refused << " refused\n";
  EXPECT_GT(n_decoded, n_inputs(5'000));
  EXPECT_GT(n_refused, n_inputs(5'000));
}

TEST(FuzzRecords, decoded_numbers_are_possible) {
  constexpr std::uint32_t kSeed = 2;
  Mutation mutation(kSeed);
  const auto no_negative = [](const std::vector<TokenId>& tokens) {
    return std::ranges::none_of(tokens, [](TokenId id) { return id < 0; });
  };
  const std::vector<std::string> events = event_corpus();
  const std::vector<std::string> tails = {encode(TailRecord{{}, 1, 1000, {}, 2, 3, 4})};
  for (int i = 0; i < n_inputs(20'000); ++i) {
    const Result<TailRecord> tail = decode_tail_record(mutation.of(tails));
    ASSERT_TRUE(!tail.ok() || tail->position >= 0) << i;
    const Result<LogEvent> event = decode_event(mutation.of(events));
    if (!event.ok()) continue;
    ASSERT_LT(event->parent, event->sequence) << i;
    ASSERT_TRUE(!event->head || (event->head->n_tokens >= 0 && event->head->appended_tokens >= 0));
    if (const auto* generated = std::get_if<TokensGenerated>(&event->body)) {
      ASSERT_TRUE(no_negative(generated->tokens)) << i;
    } else if (const auto* appended = std::get_if<MessageAppended>(&event->body)) {
      ASSERT_TRUE(no_negative(appended->message.sampled_tokens)) << i;
    } else if (const auto* started = std::get_if<TurnStarted>(&event->body)) {
      ASSERT_TRUE(started->sampling.temperature >= 0 && started->max_tokens >= 0) << i;
    }
  }
}

// -- sealed values --

std::string with_sum(Family family, std::string_view key, std::string value, std::size_t sum_at) {
  if (value.size() < sum_at + 8) return value;
  XXH3_state_t state{};
  XXH3_64bits_reset_withSeed(&state, static_cast<XXH64_hash_t>(family));
  XXH3_64bits_update(&state, key.data(), key.size());
  XXH3_64bits_update(&state, value.data(), sum_at);
  XXH3_64bits_update(&state, value.data() + sum_at + 8, value.size() - sum_at - 8);
  std::string sum;
  append_little_endian64(XXH3_64bits_digest(&state), sum);
  return value.replace(sum_at, 8, sum);
}

TEST(FuzzValues, changed_records_and_payloads_with_right_sums_are_refused_or_plain) {
  constexpr std::uint32_t kSeed = 3;
  constexpr Family kFamily = Family::kEvents;
  Mutation mutation(kSeed);
  const std::string text(400, 't');
  const std::vector<std::string> records = {*seal_record(kFamily, "key", "short"),
                                            *seal_record(kFamily, "key", text)};
  std::vector<std::string> payloads = {seal_payload(kFamily, "key", "descriptor", {}),
                                       seal_payload(kFamily, "key", "", {})};
  payloads[0] += text;
  ASSERT_EQ(with_sum(kFamily, "key", records[1], 2), records[1]) << "the sum of this test";
  int n_ok = 0;
  const auto check = [&](const Status& status) {
    if (status.ok()) ++n_ok;
    return status.ok() || is_refusal(status.code());
  };
  for (int i = 0; i < n_inputs(10'000); ++i) {
    const std::string record = mutation.of(records), payload = mutation.of(payloads);
    ASSERT_TRUE(check(unseal_record(kFamily, "key", record).status())) << i;
    ASSERT_TRUE(check(unseal_payload(kFamily, "key", payload).status())) << i;
    ASSERT_TRUE(check(unseal_record(kFamily, "key", with_sum(kFamily, "key", record, 2)).status()))
        << i;
    const std::string summed = with_sum(kFamily, "key", payload, 8);
    const Result<PayloadView> view = unseal_payload(kFamily, "key", summed);
    ASSERT_TRUE(check(view.status())) << i;
    if (!view.ok()) continue;
    ASSERT_EQ(16 + view->descriptor.size() + view->payload.size(), summed.size());
  }
  std::cout << "seed " << kSeed << ": " << n_ok << " unsealed\n";
  EXPECT_GT(n_ok, n_inputs(1'000));
}

std::int64_t peak_bytes() {
  struct rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} << 10;
}

// Frames that promise much, deliver more than they promise, or deliver much out of little.
TEST(FuzzValues, compressed_bombs_take_no_more_than_a_record_may_have) {
  constexpr std::uint32_t kSeed = 4;
  Mutation mutation(kSeed);
  const std::string bomb = *compress(std::string(kRecordBytesMax, '\0'));
  const std::string over = *compress(std::string(kRecordBytesMax + 1, '\0'));
  ASSERT_LT(over.size(), 20'000u);
  EXPECT_EQ(decompress(bomb, kRecordBytesMax)->size(), kRecordBytesMax);
  EXPECT_EQ(decompress(over, kRecordBytesMax).status().code(), StatusCode::kCorrupt);
  const std::vector<std::string> corpus = {over.substr(0, 40), *compress("short"),
                                           *compress(std::string(3'000, 'a') + "b")};
  const std::int64_t before = peak_bytes();
  for (int i = 0; i < n_inputs(5'000); ++i) {
    constexpr std::size_t kMax = 1 << 20;
    const Result<std::string> bytes = decompress(mutation.of(corpus), kMax);
    ASSERT_TRUE(bytes.ok() ? bytes->size() <= kMax : is_refusal(bytes.status().code())) << i;
  }
  EXPECT_LT(peak_bytes() - before, std::int64_t{256} << 20) << "sanitizers keep freed memory";
}

// -- FORMAT --

std::string summed_format(const std::string& body) {
  return body + "sha256 " + engine::hex(engine::sha256(std::as_bytes(std::span(body)))) + "\n";
}

TEST(FuzzFormat, a_changed_format_file_is_damaged_refused_or_says_what_it_said) {
  constexpr std::uint32_t kSeed = 5;
  Mutation mutation(kSeed);
  const test::TemporaryFolder folder;
  std::vector<std::string> corpus;
  for (const StoreSecret& secret : {StoreSecret(), test::secret_key()}) {
    const std::string name = "made" + std::to_string(corpus.size());
    test::open_store(folder / name, {.secret = secret});
    const std::string text = test::read_file(folder / (name + "/FORMAT"));
    corpus.push_back(text.substr(0, text.find("sha256")));
  }
  std::string passphrase = corpus[1];
  passphrase.replace(passphrase.find("secret key"), 10,
                     "secret scrypt 17 8 1 000102030405060708090a0b0c0d0e0f");
  corpus.push_back(passphrase);

  const std::string path = folder / "store";
  std::filesystem::create_directory(path);
  int n_valid = 0, n_damaged = 0, n_refused = 0;
  for (int i = 0; i < n_inputs(3'000); ++i) {
    const std::string body = i < 3 ? corpus[static_cast<std::size_t>(i)] : mutation.of(corpus);
    test::write_file(path + "/FORMAT",
                     mutation.below(10) == 0 && i >= 3 ? body : summed_format(body));
    Result<StoreDirectory> directory = StoreDirectory::open(path, true);
    if (!directory.ok()) {
      ASSERT_EQ(directory.status().code(), StatusCode::kUnsupported)
          << directory.status().to_string();
      ++n_refused;
      continue;
    }
    ASSERT_NE(directory->format_file(), FormatFile::kMissing);
    const bool valid = directory->format_file() == FormatFile::kValid;
    ASSERT_TRUE(valid || i >= 3);
    ++(valid ? n_valid : n_damaged);
    if (!valid || n_valid % 50 != 1) continue;
    const StoreHeader header = directory->format();
    ASSERT_TRUE(directory->write_format(header).ok());
    *directory =
        std::move(*StoreDirectory::open(path + "/../made0", false));  // lets go of the lock
    const Result<StoreDirectory> again = StoreDirectory::open(path, true);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    ASSERT_EQ(again->format_file(), FormatFile::kValid);
    ASSERT_EQ(again->format(), header);
  }
  std::cout << "seed " << kSeed << ": " << n_valid << " valid, " << n_damaged << " damaged, "
            << n_refused << " refused\n";
  EXPECT_GT(n_valid, n_inputs(50));
  EXPECT_GT(n_damaged, n_inputs(500));
}

}  // namespace
}  // namespace cairn::session
