// Stores, lists of sessions and store readers of cairn.h (see cairn.cc).
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/c/handles.h"

using cairn::Result;
using cairn::Status;
using cairn::StatusCode;
using cairn::c_api::cleared;
using cairn::c_api::destroy;
using cairn::c_api::expect_reserved_zero;
using cairn::c_api::give;
using cairn::c_api::guarded;
using cairn::c_api::path_argument;
using cairn::c_api::read_options;
using cairn::c_api::required;
using cairn::c_api::session_info;
using cairn::c_api::text_argument;
using cairn::c_api::write_result;

namespace cairn::c_api {

cairn_session_info session_info(const SessionInfo& identity, const SessionInfo& current) {
  cairn_session_info info = CAIRN_SESSION_INFO_INIT;
  info.id = identity.id.c_str();
  info.name = identity.name.c_str();
  info.model_fingerprint = identity.model_fingerprint.c_str();
  info.created_ms = current.created_ms;
  info.used_ms = current.used_ms;
  info.n_events = current.n_events;
  info.n_tokens = current.n_tokens;
  info.turn_open = current.turn_open ? 1 : 0;
  info.forked_from = identity.forked_from.c_str();
  info.n_labels = current.labels.size();
  return info;
}

}  // namespace cairn::c_api

namespace {

Result<cairn::StoreSecret> secret(const cairn_store_options& read) {
  cairn::StoreSecret secret;
  CAIRN_ASSIGN_OR_RETURN(const std::string_view passphrase,
                         text_argument(read.passphrase, read.passphrase_length, "passphrase"));
  secret.passphrase = passphrase;
  if (read.key != nullptr) {
    secret.key = [read](std::array<std::uint8_t, 32>& key) -> Status {
      std::int32_t code = 0;
      try {
        code = read.key(read.key_user, key.data());
      } catch (...) {
        return {StatusCode::kCancelled, "the key function threw an exception"};
      }
      if (code == 0) return {};
      return {StatusCode::kCancelled, "the key function returned " + std::to_string(code)};
    };
  }
  return secret;
}

Result<cairn::StoreOptions> store_options(const cairn_store_options* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_store_options read, read_options(given, "options"));
  cairn::StoreOptions options;
  options.create_if_missing = read.must_exist == 0;
  options.allow_network_file_system = read.allow_network_file_system != 0;
  options.quota_bytes = read.quota_bytes;
  options.live_bytes = read.live_bytes;
  CAIRN_ASSIGN_OR_RETURN(options.secret, secret(read));
  return options;
}

Status give_list(std::vector<cairn::SessionInfo> sessions, cairn_session_list** list) {
  std::vector<std::vector<std::pair<std::string, std::string>>> labels;
  for (const cairn::SessionInfo& session : sessions) {
    labels.emplace_back(session.labels.begin(), session.labels.end());
  }
  return give(list, std::move(sessions), std::move(labels));
}

cairn_store_stats stats(const cairn::StoreStats& from, const std::string& recovery_detail) {
  cairn_store_stats values = CAIRN_STORE_STATS_INIT;
  values.bytes_on_disk = from.bytes_on_disk;
  values.n_sessions = from.n_sessions;
  values.n_blocks = from.n_blocks;
  values.n_tails = from.n_tails;
  values.quota_bytes = from.quota_bytes;
  values.bytes_live = from.bytes_live;
  values.recovery_detail = recovery_detail.c_str();
  values.commits_lost = from.recovery.commits_lost;
  values.rolled_back = from.recovery.rolled_back ? 1 : 0;
  const cairn::StoreCounters& counters = from.counters;
  values.turns = counters.turns;
  values.tokens_from_memory = counters.tokens_from_memory;
  values.tokens_from_disk = counters.tokens_from_disk;
  values.tokens_replayed = counters.tokens_replayed;
  values.tokens_prefilled = counters.tokens_prefilled;
  values.tokens_generated = counters.tokens_generated;
  values.bytes_committed = counters.bytes_committed;
  values.bytes_written = counters.bytes_written;
  values.blocks_written = counters.blocks_written;
  values.blocks_shared = counters.blocks_shared;
  values.blocks_evicted = counters.blocks_evicted;
  values.tails_evicted = counters.tails_evicted;
  values.blocks_corrupt = counters.blocks_corrupt;
  values.tails_corrupt = counters.tails_corrupt;
  values.commits_without_state = counters.commits_without_state;
  return values;
}

// Pairs of texts that end with a zero.
Result<std::map<std::string, std::string>> label_arguments(const char* const* keys,
                                                           const char* const* values,
                                                           std::size_t n_labels) {
  std::map<std::string, std::string> labels;
  if (n_labels == 0) return labels;
  CAIRN_RETURN_IF_ERROR(required(keys, "keys"));
  CAIRN_RETURN_IF_ERROR(required(values, "values"));
  for (std::size_t i = 0; i < n_labels; ++i) {
    CAIRN_ASSIGN_OR_RETURN(const std::string_view key,
                           text_argument(keys[i], CAIRN_CSTRING, "keys"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view value,
                           text_argument(values[i], CAIRN_CSTRING, "values"));
    if (!labels.emplace(key, value).second) {
      return cairn::invalid_argument("label '" + std::string(key) + "' is given twice");
    }
  }
  return labels;
}

Result<cairn::CollectOptions> collect_options(const cairn_collect_options* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_collect_options read, read_options(given, "options"));
  CAIRN_RETURN_IF_ERROR(expect_reserved_zero(read.reserved));
  return cairn::CollectOptions{.target_bytes = read.target_bytes, .branches = read.branches != 0};
}

cairn_verify_report verify_report(const cairn::VerifyReport& from) {
  cairn_verify_report values = CAIRN_VERIFY_REPORT_INIT;
  values.n_sessions = from.n_sessions;
  values.n_events = from.n_events;
  values.n_blocks = from.n_blocks;
  values.n_tails = from.n_tails;
  values.bytes_checked = from.bytes_checked;
  values.n_problems = static_cast<std::int64_t>(from.problems.size());
  return values;
}

}  // namespace

extern "C" {

// ---- Store

void cairn_store_options_init(cairn_store_options* options) {
  if (options != nullptr) *options = CAIRN_STORE_OPTIONS_INIT;
}

cairn_code cairn_store_open(const cairn_runtime* runtime, const char* directory,
                            size_t directory_length, const cairn_store_options* options,
                            cairn_store** store, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(store, "store"));
    CAIRN_RETURN_IF_ERROR(required(runtime, "runtime"));
    CAIRN_ASSIGN_OR_RETURN(const std::string path,
                           path_argument(directory, directory_length, "directory"));
    CAIRN_ASSIGN_OR_RETURN(const cairn::StoreOptions converted, store_options(options));
    CAIRN_ASSIGN_OR_RETURN(cairn::Store opened, cairn::Store::open(runtime->rep, path, converted));
    std::string recovery_detail = opened.recovery().detail;
    return give(store, std::move(opened), std::move(recovery_detail));
  });
}

cairn_code cairn_store_list(const cairn_store* store, cairn_session_list** list,
                            cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(list, "list"));
    CAIRN_RETURN_IF_ERROR(required(store, "store"));
    CAIRN_ASSIGN_OR_RETURN(std::vector<cairn::SessionInfo> sessions, store->rep.list());
    return give_list(std::move(sessions), list);
  });
}

cairn_code cairn_store_get_stats(const cairn_store* store, cairn_store_stats* stats,
                                 cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(store, "store"));
    CAIRN_ASSIGN_OR_RETURN(const cairn::StoreStats from, store->rep.stats());
    return write_result(::stats(from, store->recovery_detail), stats, "stats");
  });
}

cairn_code cairn_store_remove(cairn_store* store, const char* name, size_t name_length,
                              cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(store, "store"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view view, text_argument(name, name_length, "name"));
    return store->rep.remove(std::string(view));
  });
}

cairn_code cairn_store_count_misses(const cairn_store* store, int32_t cause, int64_t* count,
                                    cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(count, "count"));
    *count = 0;
    CAIRN_RETURN_IF_ERROR(required(store, "store"));
    if (cause < 0 || cause >= cairn::kMissCauseCount) {
      return cairn::invalid_argument("cause " + std::to_string(cause) + ": there is none");
    }
    CAIRN_ASSIGN_OR_RETURN(const cairn::StoreStats stats, store->rep.stats());
    *count = stats.counters.misses[static_cast<std::size_t>(cause)];
    return {};
  });
}

cairn_code cairn_store_rename(cairn_store* store, const char* name, size_t name_length,
                              const char* new_name, size_t new_name_length, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(store, "store"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view from, text_argument(name, name_length, "name"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view to,
                           text_argument(new_name, new_name_length, "new_name"));
    return store->rep.rename(std::string(from), std::string(to));
  });
}

cairn_code cairn_store_set_labels(cairn_store* store, const char* name, size_t name_length,
                                  const char* const* keys, const char* const* values,
                                  size_t n_labels, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(store, "store"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view view, text_argument(name, name_length, "name"));
    CAIRN_ASSIGN_OR_RETURN(const auto labels, label_arguments(keys, values, n_labels));
    return store->rep.set_labels(std::string(view), labels);
  });
}

void cairn_collect_options_init(cairn_collect_options* options) {
  if (options != nullptr) *options = CAIRN_COLLECT_OPTIONS_INIT;
}

cairn_code cairn_store_collect(cairn_store* store, const cairn_collect_options* options,
                               cairn_collect_report* report, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(store, "store"));
    CAIRN_ASSIGN_OR_RETURN(const cairn::CollectOptions converted, collect_options(options));
    CAIRN_ASSIGN_OR_RETURN(const cairn::CollectReport from, store->rep.collect(converted));
    if (report == nullptr) return {};
    cairn_collect_report values = CAIRN_COLLECT_REPORT_INIT;
    values.bytes_before = from.bytes_before;
    values.bytes_after = from.bytes_after;
    values.blocks_removed = from.blocks_removed;
    values.tails_removed = from.tails_removed;
    values.events_removed = from.events_removed;
    return write_result(values, report, "report");
  });
}

cairn_code cairn_store_import_session(cairn_store* store, const char* file, size_t file_length,
                                      const char* name, size_t name_length, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(store, "store"));
    CAIRN_ASSIGN_OR_RETURN(const std::string path, path_argument(file, file_length, "file"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view view, text_argument(name, name_length, "name"));
    return store->rep.import_session(path, std::string(view)).status();
  });
}

void cairn_store_destroy(cairn_store** store) { destroy(store); }

size_t cairn_session_list_size(const cairn_session_list* list) {
  return list == nullptr ? 0 : list->sessions.size();
}

cairn_code cairn_session_list_get(const cairn_session_list* list, size_t index,
                                  cairn_session_info* info, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    if (index >= cairn_session_list_size(list)) {
      return cairn::invalid_argument("index " + std::to_string(index) + ": no such session");
    }
    const cairn::SessionInfo& from = list->sessions[index];
    return write_result(session_info(from, from), info, "info");
  });
}

cairn_code cairn_session_list_get_label(const cairn_session_list* list, size_t index,
                                        size_t label_index, const char** key, const char** value,
                                        cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(key, "key"));
    CAIRN_RETURN_IF_ERROR(cleared(value, "value"));
    if (index >= cairn_session_list_size(list) || label_index >= list->labels[index].size()) {
      return cairn::invalid_argument("session " + std::to_string(index) + ", label " +
                                     std::to_string(label_index) + ": no such label");
    }
    const auto& [label_key, label_value] = list->labels[index][label_index];
    *key = label_key.c_str();
    *value = label_value.c_str();
    return {};
  });
}

void cairn_session_list_destroy(cairn_session_list** list) { destroy(list); }

// ---- Store reader

cairn_code cairn_store_reader_open(const char* directory, size_t directory_length,
                                   const cairn_store_options* options, cairn_store_reader** reader,
                                   cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(reader, "reader"));
    CAIRN_ASSIGN_OR_RETURN(const std::string path,
                           path_argument(directory, directory_length, "directory"));
    CAIRN_ASSIGN_OR_RETURN(const cairn::StoreOptions converted, store_options(options));
    CAIRN_ASSIGN_OR_RETURN(cairn::StoreReader opened,
                           cairn::StoreReader::open(path, converted.secret));
    return give(reader, std::move(opened));
  });
}

cairn_code cairn_store_reader_list(const cairn_store_reader* reader, cairn_session_list** list,
                                   cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(cleared(list, "list"));
    CAIRN_RETURN_IF_ERROR(required(reader, "reader"));
    CAIRN_ASSIGN_OR_RETURN(std::vector<cairn::SessionInfo> sessions, reader->rep.list());
    return give_list(std::move(sessions), list);
  });
}

cairn_code cairn_store_reader_verify(const cairn_store_reader* reader, cairn_verify_report* report,
                                     cairn_buffer** problems, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    if (problems != nullptr) *problems = nullptr;
    CAIRN_RETURN_IF_ERROR(required(reader, "reader"));
    CAIRN_ASSIGN_OR_RETURN(const cairn::VerifyReport from, reader->rep.verify());
    if (report != nullptr) {
      CAIRN_RETURN_IF_ERROR(write_result(verify_report(from), report, "report"));
    }
    if (problems == nullptr) return {};
    std::string lines;
    for (const std::string& problem : from.problems) lines += problem + "\n";
    return give(problems, std::move(lines));
  });
}

cairn_code cairn_store_reader_export_session(const cairn_store_reader* reader, const char* name,
                                             size_t name_length, const char* file,
                                             size_t file_length, cairn_error** error) {
  return guarded(error, [&]() -> Status {
    CAIRN_RETURN_IF_ERROR(required(reader, "reader"));
    CAIRN_ASSIGN_OR_RETURN(const std::string_view view, text_argument(name, name_length, "name"));
    CAIRN_ASSIGN_OR_RETURN(const std::string path, path_argument(file, file_length, "file"));
    return reader->rep.export_session(std::string(view), path);
  });
}

void cairn_store_reader_destroy(cairn_store_reader** reader) { destroy(reader); }

}  // extern "C"
