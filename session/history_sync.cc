// Both histories are read in steps of what the format takes for one turn: a system message, an
// answer, a run of user messages and tool results. Runs are compared as the prompt shows them,
// since clients merge and split the messages in them. Where a step does not fit, the log is left;
// answers after it are still looked for, because their tokens are better than their text.
#include "session/history_sync.h"

#include <algorithm>
#include <map>
#include <utility>

#include "session/message_match.h"

namespace cairn::session {
namespace {

bool is_input(const Message& message) {
  return message.role == Role::kUser || message.role == Role::kTool;
}

// One block of a run, as the prompt shows it.
struct Part {
  bool is_result = false;
  std::string id, text;
  std::size_t message = 0;  // of the run

  bool operator==(const Part&) const = default;
};

std::vector<Part> parts_of(const Message& message, std::size_t index) {
  if (message.role == Role::kTool) {
    return {{true, message.tool_call_id, shown_text(message), index}};
  }
  std::vector<Part> parts;
  for (const ContentBlock& block : message.content) {
    const bool is_result = block.kind == ContentBlock::Kind::kToolResult;
    parts.push_back({is_result, block.tool_call_id, block.text, index});
  }
  return parts;
}

std::vector<Part> parts_of(std::span<const Message> run) {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < run.size(); ++i)
    std::ranges::move(parts_of(run[i], i), std::back_inserter(parts));
  return parts;
}

// The run as the prompt shows it: results in the order of their calls, in the places of results.
std::string run_text(std::span<const Message> run, std::span<const ToolCall> calls) {
  std::vector<Part> parts = parts_of(run);
  std::vector<Part> results;
  std::ranges::copy_if(parts, std::back_inserter(results), &Part::is_result);
  std::ranges::stable_sort(results, {}, [&](const Part& part) {
    const auto call = std::ranges::find(calls, part.id, &ToolCall::id);
    return call == calls.end() ? calls.begin() : call;
  });
  auto next = results.begin();
  std::string text;
  for (Part& part : parts) {
    if (part.is_result) part = std::move(*next++);
    text += (&part == parts.data() ? "" : "\n\n") + std::string(part.is_result ? "\x01" : "") +
            part.text + (part.is_result ? "\x01" : "");
  }
  for (const Message& message : run) text += message.task;
  return text;
}

bool begins_with_any(const std::string& text, const std::vector<std::string>& prefixes) {
  return std::ranges::any_of(prefixes,
                             [&](const std::string& prefix) { return text.starts_with(prefix); });
}

void erase_lines(std::string& text, const std::vector<std::string>& prefixes, std::string& erased) {
  std::string kept;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t newline = text.find('\n', begin);
    const std::size_t end = newline == std::string::npos ? text.size() : newline + 1;
    const std::string line = text.substr(begin, end - begin);
    const bool is_volatile = begins_with_any(line, prefixes);
    (is_volatile ? erased : kept) += line;
    begin = end;
  }
  text = std::move(kept);
}

std::string newest_reminder(std::span<const Message> messages) {
  const auto found = std::find_if(messages.rbegin(), messages.rend(), is_volatile_reminder);
  return found == messages.rend() ? std::string() : shown_text(*found);
}

class Alignment {
 public:
  Alignment(std::span<const Message> stored, std::span<const Message> others,
            std::span<const Message> given, const SyncOptions& options)
      : stored_(stored), others_(others) {
    for (const Message& message : given) {
      SplitMessage split = split_volatile(message, options);
      if (split.stable.role == Role::kSystem) {
        add_text(system_volatile_, split.volatile_text);
        split.volatile_text.clear();
      }
      given_.push_back(std::move(split.stable));
      volatile_.push_back(std::move(split.volatile_text));
    }
    sync_.synced.resize(given_.size());
  }

  HistorySync run() {
    while (step()) {
    }
    sync_.n_kept = at_stored_;
    append_rest();
    return std::move(sync_);
  }

 private:
  static void add_text(std::string& text, const std::string& more) {
    if (more.empty()) return;
    if (!text.empty() && !text.ends_with('\n')) text += '\n';
    text += more;
  }

  // Takes one turn of both; false: they part here, or one ends.
  bool step() {
    skip_reminders();
    if (at_given_ == given_.size() || at_stored_ == stored_.size()) return false;
    const Message& given = given_[at_given_];
    const Message& stored = stored_[at_stored_];
    if (is_input(given)) return is_input(stored) && step_over_run();
    if (given.role == Role::kAssistant) return step_over_answer();
    if (!says_the_same(given, stored)) return false;
    note(at_given_++, SyncMatch::kEqual, stored);
    ++at_stored_;
    return true;
  }

  void skip_reminders() {
    while (at_stored_ < stored_.size() && is_volatile_reminder(stored_[at_stored_]) &&
           (at_given_ == given_.size() || given_[at_given_].role != Role::kLatestReminder)) {
      ++at_stored_;
    }
  }

  void note(std::size_t given, SyncMatch match, const Message& stored) {
    sync_.synced[given] = {match, stored.event, false};
  }

  // -- answers --

  bool step_over_answer() {
    const Message& stored = stored_[at_stored_];
    SyncMatch match = match_answer(given_[at_given_], stored);
    std::size_t n_given = 1;
    if (match == SyncMatch::kNone && followed_by_answer(at_given_)) {
      match = match_answer(joined(at_given_), stored);
      n_given = 2;
    }
    if (match == SyncMatch::kNone) return false;
    take_answer(n_given, match, stored);
    ++at_stored_;
    return true;
  }

  bool followed_by_answer(std::size_t at) const {
    return at + 1 < given_.size() && given_[at + 1].role == Role::kAssistant;
  }
  // Two messages for the text and the calls of one answer.
  Message joined(std::size_t at) const {
    Message whole = given_[at];
    const Message& rest = given_[at + 1];
    std::ranges::copy(rest.content, std::back_inserter(whole.content));
    std::ranges::copy(rest.tool_calls, std::back_inserter(whole.tool_calls));
    return whole;
  }

  // The results that follow name the calls as the client does.
  void take_answer(std::size_t n_given, SyncMatch match, const Message& stored) {
    std::vector<std::string> ids;
    for (std::size_t i = 0; i < n_given; ++i, ++at_given_) {
      note(at_given_, match, stored);
      for (const ToolCall& call : given_[at_given_].tool_calls) ids.push_back(call.id);
    }
    ids_.clear();
    for (std::size_t i = 0; i < std::min(ids.size(), stored.tool_calls.size()); ++i) {
      ids_[ids[i]] = stored.tool_calls[i].id;
    }
    calls_ = stored.tool_calls;
  }

  // -- runs of user messages and tool results --

  std::size_t end_of_run(std::span<const Message> messages, std::size_t at) const {
    while (at < messages.size() && is_input(messages[at])) ++at;
    return at;
  }

  void rename(std::string& id) const {
    if (const auto known = ids_.find(id); known != ids_.end()) id = known->second;
  }
  void rename_results(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (given_[i].role == Role::kTool) rename(given_[i].tool_call_id);
      for (ContentBlock& block : given_[i].content) {
        if (block.kind == ContentBlock::Kind::kToolResult) rename(block.tool_call_id);
      }
    }
  }

  bool step_over_run() {
    const std::size_t end = end_of_run(given_, at_given_);
    const std::size_t end_stored = end_of_run(stored_, at_stored_);
    rename_results(at_given_, end);
    const std::span given = std::span(given_).subspan(at_given_, end - at_given_);
    const std::span stored = stored_.subspan(at_stored_, end_stored - at_stored_);
    if (run_text(given, calls_) != run_text(stored, calls_)) {
      keep_beginning(given, stored);
      return false;
    }
    for (std::size_t i = 0; i < given.size(); ++i) {
      note(at_given_ + i, SyncMatch::kEqual, stored[std::min(i, stored.size() - 1)]);
    }
    at_given_ = end;
    at_stored_ = end_stored;
    return true;
  }

  // The stored messages of the run that the given run begins with, in whichever order the results
  // come. What is left of the given run replaces its messages.
  void keep_beginning(std::span<const Message> given, std::span<const Message> stored) {
    std::vector<Part> left = parts_of(given);
    std::size_t n_kept = 0;
    while (n_kept < stored.size() && take_parts(stored[n_kept], left)) ++n_kept;
    if (n_kept == 0) return;
    std::vector<Message> rest = messages_of(given, left);
    std::vector<Message> whole(stored.begin(),
                               stored.begin() + static_cast<std::ptrdiff_t>(n_kept));
    whole.insert(whole.end(), rest.begin(), rest.end());
    if (run_text(whole, calls_) != run_text(given, calls_)) return;
    for (std::size_t i = 0; i < given.size(); ++i) {
      const bool is_left = std::ranges::find(left, i, &Part::message) != left.end();
      if (!is_left) note(at_given_ + i, SyncMatch::kEqual, stored[std::min(i, n_kept - 1)]);
    }
    run_rest_ = std::move(rest);
    run_rest_from_ = at_given_;
    at_given_ += given.size();
    at_stored_ += n_kept;
    for (std::size_t i = run_rest_from_; i < at_given_; ++i) {
      if (sync_.synced[i].match == SyncMatch::kNone) sync_.synced[i].appended = true;
    }
  }

  static bool take_parts(const Message& message, std::vector<Part>& left) {
    std::vector<Part> after = left;
    for (const Part& part : parts_of(message, 0)) {
      const auto fits = [&](const Part& other) {
        return other.is_result == part.is_result && other.text == part.text &&
               (!part.is_result || other.id == part.id);
      };
      const auto found = part.is_result ? std::ranges::find_if(after, fits)
                                        : std::ranges::find(after, false, &Part::is_result);
      if (found == after.end() || !fits(*found)) return false;
      after.erase(found);
    }
    left = std::move(after);
    return true;
  }

  static std::vector<Message> messages_of(std::span<const Message> given,
                                          const std::vector<Part>& left) {
    std::vector<Message> messages;
    std::size_t from = given.size();
    for (const Part& part : left) {
      if (given[part.message].role == Role::kTool) {
        messages.push_back(given[part.message]);
      } else if (part.message == from) {
        messages.back().content.push_back(block_of(part));
      } else {
        Message message = given[part.message];
        message.content = {block_of(part)};
        messages.push_back(std::move(message));
      }
      from = part.message;
    }
    return messages;
  }
  static ContentBlock block_of(const Part& part) {
    return {part.is_result ? ContentBlock::Kind::kToolResult : ContentBlock::Kind::kText, part.text,
            part.id};
  }

  // -- what the log does not have --

  void append_rest() {
    for (Message& message : run_rest_) append(std::move(message), "");
    const std::size_t last_run = begin_of_last_run();
    while (at_given_ < given_.size()) {
      const std::size_t i = at_given_;
      if (given_[i].role == Role::kAssistant) {
        append_answer();
        continue;
      }
      std::string reminder = volatile_[i];
      if (i == last_run) reminder = with_system_text(reminder);
      rename_results(i, i + 1);
      sync_.synced[i].appended = true;
      append(given_[i], reminder);
      ++at_given_;
    }
  }

  std::size_t begin_of_last_run() const {
    std::size_t at = given_.size();
    while (at > 0 && !is_input(given_[at - 1])) --at;
    while (at > 0 && is_input(given_[at - 1])) --at;
    return at;
  }
  std::string with_system_text(const std::string& own) const {
    std::string text = system_volatile_;
    add_text(text, own);
    return text;
  }

  void append(Message message, const std::string& reminder) {
    if (reminder.empty()) {
      sync_.appended.push_back(std::move(message));
      return;
    }
    std::vector<Message> before(stored_.begin(),
                                stored_.begin() + static_cast<std::ptrdiff_t>(sync_.n_kept));
    std::ranges::copy(sync_.appended, std::back_inserter(before));
    for (Message& placed : place_volatile({std::move(message), reminder}, before)) {
      sync_.appended.push_back(std::move(placed));
    }
  }

  void append_answer() {
    const Message& given = given_[at_given_];
    const Message* stored = find_answer(given);
    SyncMatch match = stored == nullptr ? SyncMatch::kNone : match_answer(given, *stored);
    std::size_t n_given = 1;
    if (stored == nullptr && followed_by_answer(at_given_)) {
      const Message whole = joined(at_given_);
      stored = find_answer(whole);
      if (stored != nullptr) {
        match = match_answer(whole, *stored);
        n_given = 2;
      }
    }
    for (std::size_t i = 0; i < n_given; ++i) sync_.synced[at_given_ + i].appended = true;
    if (stored == nullptr) {
      sync_.appended.push_back(given);
      take_reasoning_out(sync_.appended.back());
      calls_ = given.tool_calls;
      ids_.clear();
      ++at_given_;
      return;
    }
    sync_.appended.push_back(*stored);
    const std::size_t first = at_given_;
    take_answer(n_given, match, *stored);
    for (std::size_t i = first; i < at_given_; ++i) sync_.synced[i].appended = true;
  }

  // The next answer after those found before; else any.
  const Message* find_answer(const Message& given) {
    const auto fits = [&](const Message& message) {
      return match_answer(given, message) != SyncMatch::kNone;
    };
    const std::span left = stored_.subspan(next_answer_ > at_stored_ ? next_answer_ : at_stored_);
    if (const auto found = std::ranges::find_if(left, fits); found != left.end()) {
      next_answer_ = static_cast<std::size_t>(&*found - stored_.data()) + 1;
      return &*found;
    }
    for (const std::span messages : {stored_, others_}) {
      const auto found = std::ranges::find_if(messages, fits);
      if (found != messages.end()) return &*found;
    }
    return nullptr;
  }

  const std::span<const Message> stored_, others_;
  std::vector<Message> given_;
  std::vector<std::string> volatile_;  // of each given message that is no system message
  std::string system_volatile_;
  std::size_t at_given_ = 0, at_stored_ = 0, next_answer_ = 0;
  std::map<std::string, std::string> ids_;  // of the newest answer's calls: the client's to ours
  std::vector<ToolCall> calls_;             // of the newest answer that made calls
  std::vector<Message> run_rest_;
  std::size_t run_rest_from_ = 0;
  HistorySync sync_;
};

}  // namespace

SplitMessage split_volatile(const Message& message, const SyncOptions& options) {
  SplitMessage split = {message, {}};
  split.stable.content.clear();
  for (const ContentBlock& block : message.content) {
    const bool is_declared = message.role == Role::kUser &&
                             block.kind == ContentBlock::Kind::kText &&
                             begins_with_any(block.text, options.volatile_lines);
    if ((block.is_volatile || is_declared) && message.role != Role::kLatestReminder) {
      if (!split.volatile_text.empty()) split.volatile_text += '\n';
      split.volatile_text += block.text;
      continue;
    }
    split.stable.content.push_back(block);
    if (message.role == Role::kSystem && !options.volatile_lines.empty()) {
      std::string& text = split.stable.content.back().text;
      const bool had_text = !text.empty();
      erase_lines(text, options.volatile_lines, split.volatile_text);
      if (had_text && text.empty()) split.stable.content.pop_back();
    }
  }
  while (split.volatile_text.ends_with('\n')) split.volatile_text.pop_back();
  return split;
}

bool has_volatile_text(const Message& message) {
  return message.role != Role::kLatestReminder &&
         std::ranges::any_of(message.content, &ContentBlock::is_volatile);
}

std::vector<Message> place_volatile(SplitMessage message, std::span<const Message> before) {
  std::vector<Message> placed;
  const std::string& text = message.volatile_text;
  const bool in_run = !before.empty() && is_input(before.back()) && is_input(message.stable);
  if (text.empty()) {
    placed.push_back(std::move(message.stable));
  } else if (in_run) {
    placed.push_back(std::move(message.stable));
    if (placed.back().role == Role::kUser) {
      placed.back().content.push_back({ContentBlock::Kind::kText, text, {}});
    }
  } else if (text == newest_reminder(before)) {
    placed.push_back(std::move(message.stable));
  } else if (is_input(message.stable)) {
    placed.push_back(volatile_reminder(text));
    placed.push_back(std::move(message.stable));
  } else {
    placed.push_back(std::move(message.stable));
    placed.push_back(volatile_reminder(text));
  }
  return placed;
}

Message volatile_reminder(const std::string& text) {
  Message reminder;
  reminder.role = Role::kLatestReminder;
  reminder.content.push_back({ContentBlock::Kind::kText, text, {}, /*is_volatile=*/true});
  return reminder;
}

bool is_volatile_reminder(const Message& message) {
  return message.role == Role::kLatestReminder && !message.content.empty() &&
         std::ranges::all_of(message.content, &ContentBlock::is_volatile);
}

HistorySync sync_history(std::span<const Message> stored, std::span<const Message> others,
                         std::span<const Message> given, const SyncOptions& options) {
  return Alignment(stored, others, given, options).run();
}

}  // namespace cairn::session
