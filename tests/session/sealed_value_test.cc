#include "session/sealed_value.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/session/store_samples.h"

namespace cairn::session {
namespace {

using test::Bytes;
using test::random_bytes;

std::string payload_value(Family family, std::string_view key, std::string_view descriptor,
                          const Bytes& payload) {
  std::string value = seal_payload(family, key, descriptor, payload);
  value.append(reinterpret_cast<const char*>(payload.data()), payload.size());
  return value;
}

TEST(SealedValue, records_come_back) {
  for (const std::size_t n : {0, 1, 95, 96, 97, 5000}) {
    const std::string content(n, 'c');
    const auto value = seal_record(Family::kEvents, "key", content);
    ASSERT_TRUE(value.ok());
    const auto back = unseal_record(Family::kEvents, "key", *value);
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(*back, content);
  }
  EXPECT_LT(seal_record(Family::kEvents, "key", std::string(5000, 'c'))->size(), 100u);
}

TEST(SealedValue, payloads_come_back) {
  const Bytes payload = random_bytes(1, 3000);
  const std::string value = payload_value(Family::kBlocks, "key", "descriptor", payload);
  const auto view = unseal_payload(Family::kBlocks, "key", value);
  ASSERT_TRUE(view.ok()) << view.status().to_string();
  EXPECT_EQ(view->descriptor, "descriptor");
  EXPECT_TRUE(test::same_bytes(std::as_bytes(std::span(view->payload)), payload));
}

TEST(SealedValue, another_key_or_family_does_not_check) {
  const std::string record = *seal_record(Family::kEvents, "key", "content");
  EXPECT_EQ(unseal_record(Family::kEvents, "kez", record).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(unseal_record(Family::kSessions, "key", record).status().code(), StatusCode::kCorrupt);
  const std::string payload = payload_value(Family::kBlocks, "key", "d", random_bytes(1, 10));
  EXPECT_EQ(unseal_payload(Family::kBlocks, "kez", payload).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(unseal_payload(Family::kTails, "key", payload).status().code(), StatusCode::kCorrupt);
}

TEST(SealedValue, every_flipped_bit_and_every_cut_is_found) {
  const std::string plain = *seal_record(Family::kEvents, "key", "a short content");
  const std::string compressed = *seal_record(Family::kEvents, "key", std::string(300, 'z'));
  const std::string payload = payload_value(Family::kBlocks, "key", "descr", random_bytes(2, 200));
  const auto code = [&](const std::string& original, const std::string& value) {
    return &original == &payload ? unseal_payload(Family::kBlocks, "key", value).status().code()
                                 : unseal_record(Family::kEvents, "key", value).status().code();
  };
  for (const std::string* original : {&plain, &compressed, &payload}) {
    ASSERT_EQ(code(*original, *original), StatusCode::kOk);
    for (std::size_t i = 0; i < original->size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string damaged = *original;
        damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
        EXPECT_EQ(code(*original, damaged), StatusCode::kCorrupt) << i << " bit " << bit;
      }
      EXPECT_EQ(code(*original, original->substr(0, i)), StatusCode::kCorrupt) << i;
    }
  }
}

TEST(SealedValue, records_above_the_limit_are_refused) {
  const std::string large(kRecordBytesMax + 1, 'a');
  EXPECT_EQ(seal_record(Family::kEvents, "key", large).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn::session
