// A conversation as a stateless client sends it, laid beside the one that a session has: how much
// of the log stays, and what is to be appended.
#ifndef CAIRN_SESSION_HISTORY_SYNC_H_
#define CAIRN_SESSION_HISTORY_SYNC_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cairn/session.h"

namespace cairn::session {

// A message without its volatile text, and that text.
struct SplitMessage {
  Message stable;
  std::string volatile_text;
};
SplitMessage split_volatile(const Message& message, const SyncOptions& options);

bool has_volatile_text(const Message& message);
// A reminder that carries volatile text.
Message volatile_reminder(const std::string& text);
bool is_volatile_reminder(const Message& message);
// The message as it follows `before`: the volatile text, unless the newest reminder says it, stands
// in a reminder at the border of the turn; inside a turn that has begun it stays in the message.
std::vector<Message> place_volatile(SplitMessage message, std::span<const Message> before);

struct HistorySync {
  std::size_t n_kept = 0;             // of the stored messages, from the first on
  std::vector<Message> appended;      // what follows them
  std::vector<SyncedMessage> synced;  // of each given message
};

// `stored`: the session's conversation. `others`: further answers of the session, whose tokens a
// given message may still have. Given messages keep what they say; ids of calls become the stored
// ones.
HistorySync sync_history(std::span<const Message> stored, std::span<const Message> others,
                         std::span<const Message> given, const SyncOptions& options);

}  // namespace cairn::session

#endif  // CAIRN_SESSION_HISTORY_SYNC_H_
