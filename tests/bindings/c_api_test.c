/* The C API as a C program uses it: conventions first, then a whole session with tool calls.
 *   c_api_test CHECKPOINT EMPTY_FOLDER */
#define _GNU_SOURCE /* sched_getcpu */
#include <sched.h>

#include "c_checks.h"

/* ---- Conventions ---------------------------------------------------------------------------- */

static void header_and_library_are_of_one_version(void) {
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", CAIRN_VERSION_MAJOR, CAIRN_VERSION_MINOR,
           CAIRN_VERSION_PATCH);
  CHECK(strcmp(version, cairn_version()) == 0);
  CHECK(cairn_abi_version() == CAIRN_ABI_VERSION);
  CHECK(cairn_has_feature("persistence") == 1);
  CHECK(cairn_has_feature("no such feature") == 0);
  CHECK(cairn_has_feature(NULL) == 0);
}

static void codes_have_names(void) {
  CHECK(strcmp(cairn_code_name(CAIRN_OK), "OK") == 0);
  CHECK(strcmp(cairn_code_name(CAIRN_ALREADY_EXISTS), "ALREADY_EXISTS") == 0);
  CHECK(strcmp(cairn_code_name(12345), "UNKNOWN") == 0);
}

static void destroy_accepts_null_and_null_handles(void) {
  cairn_runtime* runtime = NULL;
  cairn_event* event = NULL;
  cairn_runtime_destroy(NULL);
  cairn_runtime_destroy(&runtime);
  cairn_model_destroy(NULL);
  cairn_store_destroy(NULL);
  cairn_session_destroy(NULL);
  cairn_session_list_destroy(NULL);
  cairn_message_list_destroy(NULL);
  cairn_turn_destroy(NULL);
  cairn_event_destroy(&event);
  cairn_error_destroy(NULL);
  cairn_buffer_destroy(NULL);
  cairn_token_list_destroy(NULL);
  cairn_mark_list_destroy(NULL);
  cairn_store_reader_destroy(NULL);
}

static void accessors_of_null_are_empty(void) {
  size_t n = 9;
  int64_t done = 9, total = 9;
  CHECK(cairn_error_code(NULL) == CAIRN_OK);
  CHECK(strcmp(cairn_error_name(NULL), "OK") == 0);
  CHECK(strcmp(cairn_error_message(NULL), "") == 0);
  CHECK(strcmp(cairn_error_hint(NULL), "") == 0);
  CHECK(strcmp(cairn_buffer_bytes(NULL, &n), "") == 0 && n == 0);
  CHECK(cairn_token_list_ids(NULL, &n) == NULL && n == 0);
  CHECK(cairn_session_list_size(NULL) == 0);
  CHECK(cairn_message_list_size(NULL) == 0);
  CHECK(cairn_event_kind(NULL) == -1);
  CHECK(cairn_event_sequence(NULL) == 0);
  CHECK(cairn_event_replayed(NULL) == 0);
  CHECK(cairn_event_block(NULL) == -1);
  CHECK(cairn_event_block_kind(NULL) == 0);
  CHECK(cairn_event_end_reason(NULL) == 0);
  CHECK(strcmp(cairn_event_bytes(NULL, NULL), "") == 0);
  cairn_event_get_progress(NULL, &done, &total);
  CHECK(done == 0 && total == 0);
  double remaining_ms = 9;
  cairn_event_get_estimate(NULL, &done, &remaining_ms);
  CHECK(done == 0 && remaining_ms == -1);
  CHECK(cairn_event_error(NULL) == NULL);
  CHECK(cairn_turn_wake_fd(NULL) == -1);
  cairn_turn_cancel(NULL);
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_turn_end_thinking(NULL, &error));
  cairn_turn_acknowledge(NULL, 1);
  cairn_turn_detach(NULL);
}

static void missing_arguments_are_errors_not_crashes(void) {
  cairn_model* model = (cairn_model*)&failures; /* must be cleared */
  cairn_session* session = NULL;
  cairn_session_info info = CAIRN_SESSION_INFO_INIT;
  const cairn_code bad = CAIRN_INVALID_ARGUMENT;
  EXPECT(bad, cairn_runtime_create(NULL, NULL, &error));
  EXPECT(bad, cairn_model_open(NULL, "x", 1, NULL, &model, &error));
  CHECK(model == NULL);
  EXPECT(bad, cairn_model_get_info(NULL, NULL, &error));
  EXPECT(bad, cairn_store_list(NULL, NULL, &error));
  EXPECT(bad, cairn_store_remove(NULL, "x", 1, &error));
  EXPECT(bad, cairn_session_create(NULL, NULL, "x", 1, NULL, &session, &error));
  EXPECT(bad, cairn_session_open(NULL, NULL, "x", 1, &session, &error));
  EXPECT(bad, cairn_session_open_or_create(NULL, NULL, "x", 1, NULL, &session, &error));
  EXPECT(bad, cairn_session_append_user(NULL, "x", 1, &error));
  EXPECT(bad, cairn_session_append_json(NULL, "{}", 2, &error));
  EXPECT(bad, cairn_session_start_turn(NULL, NULL, NULL, &error));
  EXPECT(bad, cairn_session_resume_turn(NULL, NULL, &error));
  EXPECT(bad, cairn_session_get_info(NULL, &info, &error));
  EXPECT(bad, cairn_session_list_get(NULL, 0, &info, &error));
  EXPECT(bad, cairn_turn_next(NULL, 0, NULL, &error));
  EXPECT(bad, cairn_event_get_reuse(NULL, NULL, &error));
  CHECK(cairn_runtime_create(NULL, NULL, NULL) == CAIRN_INVALID_ARGUMENT); /* no error wanted */
}

static void errors_say_what_and_are_cleared_on_success(void) {
  cairn_error* error = (cairn_error*)&failures; /* what it held before is not looked at */
  cairn_runtime* runtime = NULL;
  cairn_model* model = NULL;
  CHECK(cairn_runtime_create(NULL, &runtime, &error) == CAIRN_OK);
  CHECK(error == NULL);
  const cairn_code code =
      cairn_model_open(runtime, "/no/such/checkpoint", CAIRN_CSTRING, NULL, &model, &error);
  CHECK(code == CAIRN_NOT_FOUND && model == NULL);
  CHECK(cairn_error_code(error) == CAIRN_NOT_FOUND);
  CHECK(strcmp(cairn_error_name(error), "NOT_FOUND") == 0);
  CHECK(strstr(cairn_error_message(error), "/no/such/checkpoint") != NULL);
  cairn_error_destroy(&error);
  CHECK(error == NULL);
  cairn_runtime_destroy(&runtime);
}

static void init_functions_equal_init_macros(void) {
  const cairn_runtime_options a = CAIRN_RUNTIME_OPTIONS_INIT;
  const cairn_turn_options b = CAIRN_TURN_OPTIONS_INIT;
  const cairn_session_options c = CAIRN_SESSION_OPTIONS_INIT;
  const cairn_model_options d = CAIRN_MODEL_OPTIONS_INIT;
  const cairn_store_options e = CAIRN_STORE_OPTIONS_INIT;
  const cairn_open_options g = CAIRN_OPEN_OPTIONS_INIT;
  const cairn_collect_options h = CAIRN_COLLECT_OPTIONS_INIT;
  cairn_runtime_options runtime;
  cairn_turn_options turn;
  cairn_session_options session;
  cairn_model_options model;
  cairn_store_options store;
  cairn_open_options open;
  cairn_collect_options collect;
  cairn_runtime_options_init(&runtime);
  cairn_turn_options_init(&turn);
  cairn_session_options_init(&session);
  cairn_model_options_init(&model);
  cairn_store_options_init(&store);
  cairn_store_options_init(NULL);
  cairn_open_options_init(&open);
  cairn_collect_options_init(&collect);
  CHECK(memcmp(&a, &runtime, sizeof a) == 0);
  CHECK(memcmp(&b, &turn, sizeof b) == 0);
  CHECK(memcmp(&c, &session, sizeof c) == 0);
  CHECK(memcmp(&d, &model, sizeof d) == 0);
  CHECK(memcmp(&e, &store, sizeof e) == 0);
  CHECK(memcmp(&g, &open, sizeof g) == 0);
  CHECK(memcmp(&h, &collect, sizeof h) == 0);
}

/* On LP64. Programs compiled against this header rely on it: fields are added at the end only. */
static void structs_keep_their_layout(void) {
  if (sizeof(void*) != 8) return;
  CHECK(offsetof(cairn_runtime_options, log_finalize) == 32);
  CHECK(offsetof(cairn_runtime_options, reserved) == 60);
  CHECK(offsetof(cairn_model_options, reserved_2) == 28);
  CHECK(offsetof(cairn_model_info, global_kv_bytes_per_token) == 72);
  CHECK(offsetof(cairn_store_options, key_user) == 56);
  CHECK(offsetof(cairn_store_stats, commits_without_state) == 192);
  CHECK(offsetof(cairn_session_info, n_labels) == 80);
  CHECK(offsetof(cairn_session_options, salt_bytes) == 32);
  CHECK(offsetof(cairn_turn_options, penalty_window) == 52);
  CHECK(offsetof(cairn_turn_options, n_stop) == 104);
  CHECK(offsetof(cairn_turn_options, response_format_json_length) == 144);
  CHECK(offsetof(cairn_message, reserved) == 60);
  CHECK(offsetof(cairn_tool_call, reserved) == 44);
  CHECK(offsetof(cairn_reuse, bytes_read) == 88);
  CHECK(offsetof(cairn_reuse, lost_ms) == 144);
  CHECK(offsetof(cairn_sync, reserved) == 84);
  CHECK(offsetof(cairn_plan, cause) == 100);
  CHECK(offsetof(cairn_mark, rewound) == 44);
  CHECK(offsetof(cairn_verify_report, n_problems) == 48);
  CHECK(offsetof(cairn_usage, drafts_withheld) == 200);
}

/* A caller compiled against a later header: the same struct with one more field. */
typedef struct newer_runtime_options {
  cairn_runtime_options known;
  int64_t later_field;
} newer_runtime_options;

static cairn_code create_with(const newer_runtime_options* options, cairn_error** error) {
  cairn_runtime* runtime = NULL;
  const cairn_code code = cairn_runtime_create(&options->known, &runtime, error);
  CHECK((code == CAIRN_OK) == (runtime != NULL));
  cairn_runtime_destroy(&runtime);
  return code;
}

static void option_structs_may_be_older_or_newer(void) {
  newer_runtime_options options = {CAIRN_RUNTIME_OPTIONS_INIT, 0};
  options.known.struct_size = sizeof options;
  EXPECT_OK(create_with(&options, &error));
  options.later_field = 1;
  EXPECT(CAIRN_UNSUPPORTED, create_with(&options, &error));
  options.known.struct_size = offsetof(cairn_runtime_options, log); /* older */
  EXPECT_OK(create_with(&options, &error));
  options.known.struct_size = 0;
  EXPECT(CAIRN_INVALID_ARGUMENT, create_with(&options, &error));
  options.known.struct_size = (size_t)-1;
  EXPECT(CAIRN_INVALID_ARGUMENT, create_with(&options, &error));
}

static void unknown_option_values_are_unsupported(void) {
  cairn_runtime_options options = CAIRN_RUNTIME_OPTIONS_INIT;
  cairn_model_options model_options = CAIRN_MODEL_OPTIONS_INIT;
  cairn_runtime* runtime = NULL;
  cairn_model* model = NULL;
  options.instruction_set = CAIRN_INSTRUCTIONS_NEON + 1;
  EXPECT(CAIRN_UNSUPPORTED, cairn_runtime_create(&options, &runtime, &error));
  options.instruction_set = CAIRN_INSTRUCTIONS_SCALAR;
  options.reserved = 1;
  EXPECT(CAIRN_UNSUPPORTED, cairn_runtime_create(&options, &runtime, &error));
  options.reserved = 0;
  options.log_level = CAIRN_LOG_ERROR + 1;
  cairn_error* unknown = NULL;
  CHECK(cairn_runtime_create(&options, &runtime, &unknown) == CAIRN_UNSUPPORTED);
  CHECK(strstr(cairn_error_message(unknown), "log_level: unknown value 6") != NULL);
  cairn_error_destroy(&unknown);
  EXPECT_OK(cairn_runtime_create(NULL, &runtime, &error));
  model_options.numerics = 99;
  EXPECT(CAIRN_UNSUPPORTED,
         cairn_model_open(runtime, checkpoint, CAIRN_CSTRING, &model_options, &model, &error));
  model_options.numerics = 0;
  model_options.reserved = 1;
  EXPECT(CAIRN_UNSUPPORTED,
         cairn_model_open(runtime, checkpoint, CAIRN_CSTRING, &model_options, &model, &error));
  cairn_runtime_destroy(&runtime);
}

static void threads_run_on_the_cpus_that_the_host_names(void) {
  cairn_runtime_options options = CAIRN_RUNTIME_OPTIONS_INIT;
  cairn_runtime* runtime = NULL;
  int32_t cpus[2] = {0, 0};
  cpus[0] = sched_getcpu();
  options.compute_cpus = cpus;
  options.n_compute_cpus = 1;
  EXPECT_OK(cairn_runtime_create(&options, &runtime, &error));
  cairn_runtime_destroy(&runtime);
  options.compute_threads = 2; /* more than there are CPUs for */
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_runtime_create(&options, &runtime, &error));
  options.n_compute_cpus = 2; /* one twice */
  cpus[1] = cpus[0];
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_runtime_create(&options, &runtime, &error));
  cpus[1] = -1;
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_runtime_create(&options, &runtime, &error));
  cpus[1] = 1 << 20;
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_runtime_create(&options, &runtime, &error));
  options.compute_cpus = NULL;
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_runtime_create(&options, &runtime, &error));
}

static void count_finalize(void* user) { ++*(int*)user; }
static void ignore_line(void* user, int32_t level, const char* text, size_t n_bytes) {
  (void)user;
  CHECK(level >= CAIRN_LOG_TRACE && level <= CAIRN_LOG_ERROR);
  CHECK(text != NULL && memchr(text, '\n', n_bytes) == NULL);
}

static void log_user_is_finalised_once_after_the_last_handle(void) {
  int n_finalized = 0;
  cairn_runtime_options options = CAIRN_RUNTIME_OPTIONS_INIT;
  cairn_runtime* runtime = NULL;
  cairn_model* model = NULL;
  options.log = ignore_line;
  options.log_user = &n_finalized;
  options.log_finalize = count_finalize;
  options.log_level = CAIRN_LOG_TRACE;
  EXPECT_OK(cairn_runtime_create(&options, &runtime, &error));
  EXPECT_OK(cairn_model_open(runtime, checkpoint, CAIRN_CSTRING, NULL, &model, &error));
  cairn_runtime_destroy(&runtime);
  CHECK(n_finalized == 0); /* the model keeps the runtime alive */
  cairn_model_destroy(&model);
  CHECK(n_finalized == 1);
  options.log_level = 99;
  EXPECT(CAIRN_UNSUPPORTED, cairn_runtime_create(&options, &runtime, &error));
  CHECK(n_finalized == 1); /* nothing was taken */
}

/* ---- Model and store ------------------------------------------------------------------------ */

static void model_describes_itself(void) {
  fixture f = open_fixture("describe");
  cairn_model_info info = CAIRN_MODEL_INFO_INIT;
  EXPECT_OK(cairn_model_get_info(f.model, &info, &error));
  CHECK(info.n_layers > 0 && info.vocab_size > 0 && info.max_context > 0);
  CHECK(info.architecture != NULL && info.architecture[0] != '\0');
  CHECK(info.fingerprint != NULL && info.fingerprint[0] != '\0');
  info.struct_size = offsetof(cairn_model_info, fingerprint); /* an older, shorter struct */
  info.fingerprint = NULL;
  EXPECT_OK(cairn_model_get_info(f.model, &info, &error));
  CHECK(info.architecture != NULL && info.fingerprint == NULL);
  close_fixture(&f);
}

static void tokens_round_trip(void) {
  static const char kText[] = "Hello, w\xC3\xB6rld!";
  fixture f = open_fixture("tokens");
  cairn_token_list* tokens = NULL;
  cairn_buffer* bytes = NULL;
  size_t n_tokens = 0, n_bytes = 0;
  EXPECT_OK(cairn_model_tokenize(f.model, kText, CAIRN_CSTRING, &tokens, &error));
  const int32_t* ids = cairn_token_list_ids(tokens, &n_tokens);
  CHECK(n_tokens > 0);
  EXPECT_OK(cairn_model_detokenize(f.model, ids, n_tokens, &bytes, &error));
  CHECK(strcmp(cairn_buffer_bytes(bytes, &n_bytes), kText) == 0 && n_bytes == strlen(kText));
  cairn_buffer_destroy(&bytes);
  cairn_token_list_destroy(&tokens);
  EXPECT_OK(cairn_model_tokenize(f.model, NULL, 0, &tokens, &error));
  CHECK(cairn_token_list_ids(tokens, &n_tokens) == NULL && n_tokens == 0);
  cairn_token_list_destroy(&tokens);
  const int32_t unknown = 1 << 30;
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_model_detokenize(f.model, &unknown, 1, &bytes, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_model_tokenize(f.model, "a\xFFz", 3, &tokens, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_model_tokenize(f.model, NULL, 5, &tokens, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT,
         cairn_model_tokenize(f.model, "a", (size_t)-2, &tokens, &error)); /* not read */
  close_fixture(&f);
}

static void bad_file_names_are_refused(void) {
  fixture f = open_fixture("names");
  cairn_store* store = NULL;
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_store_open(f.runtime, "", 0, NULL, &store, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_store_open(f.runtime, "a\0b", 3, NULL, &store, &error));
  close_fixture(&f);
}

static void store_lists_and_removes_sessions(void) {
  fixture f = open_fixture("list");
  cairn_session* session = NULL;
  cairn_session_list* list = NULL;
  cairn_session_info info = CAIRN_SESSION_INFO_INIT;
  cairn_store_stats stats = CAIRN_STORE_STATS_INIT;
  EXPECT_OK(cairn_session_create(f.model, f.store, "first", 5, NULL, &session, &error));
  EXPECT(CAIRN_BUSY, cairn_store_remove(f.store, "first", 5, &error));
  cairn_session_destroy(&session);
  EXPECT_OK(cairn_store_list(f.store, &list, &error));
  CHECK(cairn_session_list_size(list) == 1);
  EXPECT_OK(cairn_session_list_get(list, 0, &info, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_session_list_get(list, 1, &info, &error));
  EXPECT_OK(cairn_store_get_stats(f.store, &stats, &error));
  CHECK(stats.n_sessions == 1 && stats.bytes_on_disk > 0);
  EXPECT_OK(cairn_store_remove(f.store, "first", 5, &error));
  EXPECT(CAIRN_NOT_FOUND, cairn_store_remove(f.store, "first", 5, &error));
  close_fixture(&f);
  CHECK(strcmp(info.name, "first") == 0); /* the list outlives the store */
  CHECK(strlen(info.id) == 32);
  cairn_session_list_destroy(&list);
}

static void store_has_one_owner(void) {
  fixture f = open_fixture("owner");
  cairn_store* second = NULL;
  cairn_store_options options = CAIRN_STORE_OPTIONS_INIT;
  EXPECT(CAIRN_BUSY, cairn_store_open(f.runtime, path_in_folder("owner"), CAIRN_CSTRING, NULL,
                                      &second, &error));
  options.must_exist = 1;
  EXPECT(CAIRN_NOT_FOUND, cairn_store_open(f.runtime, path_in_folder("absent"), CAIRN_CSTRING,
                                           &options, &second, &error));
  close_fixture(&f);
}

/* ---- Sessions ------------------------------------------------------------------------------- */

static const char kTools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"add\", \"description\": \"Adds.\", "
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}}}}]";

static void session_names_are_checked(void) {
  fixture f = open_fixture("session_names");
  cairn_session* session = NULL;
  EXPECT(CAIRN_INVALID_ARGUMENT,
         cairn_session_create(f.model, f.store, "", 0, NULL, &session, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT,
         cairn_session_create(f.model, f.store, "a\xFF", 2, NULL, &session, &error));
  EXPECT(CAIRN_NOT_FOUND, cairn_session_open(f.model, f.store, "x", 1, &session, &error));
  CHECK(session == NULL);
  EXPECT_OK(cairn_session_create(f.model, f.store, "x", 1, NULL, &session, &error));
  cairn_session* twin = NULL;
  EXPECT(CAIRN_ALREADY_EXISTS, cairn_session_create(f.model, f.store, "x", 1, NULL, &twin, &error));
  EXPECT(CAIRN_BUSY, cairn_session_open(f.model, f.store, "x", 1, &twin, &error));
  cairn_session_destroy(&session);
  close_fixture(&f);
}

static void messages_come_back_as_they_were_appended(void) {
  fixture f = open_fixture("messages");
  cairn_session* session = open_session(&f, "m");
  cairn_message_list* list = NULL;
  cairn_message m = CAIRN_MESSAGE_INIT;
  cairn_tool_call call = CAIRN_TOOL_CALL_INIT;
  EXPECT_OK(cairn_session_append_system(session, "Be brief.", CAIRN_CSTRING, kTools, CAIRN_CSTRING,
                                        &error));
  EXPECT_OK(cairn_session_append_json(session, "{\"role\": \"user\", \"content\": \"1+2?\"}",
                                      CAIRN_CSTRING, &error));
  EXPECT_OK(cairn_session_append_json(
      session,
      "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"call_1\", "
      "\"type\": "
      "\"function\", \"function\": {\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 1}\"}}]}",
      CAIRN_CSTRING, &error));
  EXPECT_OK(cairn_session_append_tool_result(session, "call_1", CAIRN_CSTRING, "3", 1, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_session_append_json(session, "[", 1, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_session_append_user(session, "\xC0\x80", 2, &error));
  EXPECT_OK(cairn_session_get_messages(session, &list, &error));
  cairn_session_destroy(&session);
  close_fixture(&f);

  CHECK(cairn_message_list_size(list) == 4);
  EXPECT_OK(cairn_message_list_get(list, 0, &m, &error));
  CHECK(m.role == CAIRN_ROLE_SYSTEM && strcmp(m.text, "Be brief.") == 0);
  EXPECT_OK(cairn_message_list_get(list, 1, &m, &error));
  CHECK(m.role == CAIRN_ROLE_USER && strcmp(m.text, "1+2?") == 0 && m.text_bytes == 4);
  EXPECT_OK(cairn_message_list_get(list, 2, &m, &error));
  CHECK(m.role == CAIRN_ROLE_ASSISTANT && m.n_tool_calls == 1);
  EXPECT_OK(cairn_message_list_get_tool_call(list, 2, 0, &call, &error));
  CHECK(strcmp(call.id, "call_1") == 0 && strcmp(call.name, "add") == 0);
  CHECK(strstr(call.arguments_json, "\"a\"") != NULL);
  EXPECT_OK(cairn_message_list_get(list, 3, &m, &error));
  CHECK(m.role == CAIRN_ROLE_TOOL && strcmp(m.tool_call_id, "call_1") == 0);
  CHECK(strcmp(m.text, "3") == 0);
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_message_list_get(list, 4, &m, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_message_list_get_tool_call(list, 2, 1, &call, &error));
  cairn_message_list_destroy(&list);
}

/* What a prompt costs is known before the model runs. */
static void prompts_are_rendered_and_counted_without_the_model(void) {
  static const char kUser[] = "[{\"role\": \"user\", \"content\": \"1+2?\"}]";
  fixture f = open_fixture("count");
  cairn_session* session = open_session(&f, "c");
  cairn_turn_options options = CAIRN_TURN_OPTIONS_INIT;
  cairn_buffer* text = NULL;
  int64_t n_rendered = 0, n_counted = 0, n_thinking = 0;
  EXPECT_OK(cairn_model_render(f.model, kUser, CAIRN_CSTRING, 0, 0, &text, &n_rendered, &error));
  CHECK(strstr(cairn_buffer_bytes(text, NULL), "1+2?") != NULL);
  cairn_buffer_destroy(&text);
  EXPECT_OK(cairn_session_count_tokens(session, kUser, CAIRN_CSTRING, NULL, &n_counted, &error));
  CHECK(n_counted == n_rendered);
  EXPECT_OK(cairn_session_append_user(session, "1+2?", CAIRN_CSTRING, &error));
  EXPECT_OK(cairn_session_count_tokens(session, "", 0, NULL, &n_counted, &error));
  CHECK(n_counted == n_rendered);
  options.thinking = CAIRN_THINKING_ON;
  options.effort = 30;
  EXPECT_OK(cairn_session_count_tokens(session, "", 0, &options, &n_thinking, &error));
  EXPECT_OK(cairn_model_render(f.model, kUser, CAIRN_CSTRING, 1, 30, NULL, &n_rendered, &error));
  CHECK(n_thinking == n_rendered && n_thinking > n_counted);
  const answer first = ask(session);
  CHECK(first.reuse.prompt_tokens == n_counted);
  EXPECT(CAIRN_INVALID_ARGUMENT,
         cairn_model_render(f.model, "{}", CAIRN_CSTRING, 0, 0, &text, NULL, &error));
  options.thinking = 3;
  EXPECT(CAIRN_UNSUPPORTED,
         cairn_session_count_tokens(session, "", 0, &options, &n_counted, &error));
  cairn_session_destroy(&session);
  close_fixture(&f);
}

static void check_account(const answer* a) {
  CHECK(a->reuse.prompt_tokens == a->reuse.from_memory + a->reuse.from_disk + a->reuse.prefilled);
  CHECK(a->reuse.prompt_tokens > 0 && a->reuse.exact == 1);
  CHECK(a->usage.output_tokens > 0 && a->usage.output_tokens <= 24);
  CHECK(a->usage.context_used <= a->usage.context_size);
}

/* A limit cut the answer off; the rest of it is the same message. */
static void an_answer_goes_on_where_a_limit_cut_it_off(void) {
  fixture f = open_fixture("continue");
  cairn_session* session = open_session(&f, "c");
  cairn_turn_options options = CAIRN_TURN_OPTIONS_INIT;
  cairn_turn* turn = NULL;
  cairn_message_list* list = NULL;
  cairn_message m = CAIRN_MESSAGE_INIT;
  options.greedy = 1;
  options.max_tokens = 6;
  EXPECT_OK(cairn_session_append_user(session, "Count.", CAIRN_CSTRING, &error));
  EXPECT_OK(cairn_session_start_turn(session, &options, &turn, &error));
  const answer first = read_answer(turn, 0);
  CHECK(first.end_reason == CAIRN_END_LENGTH);
  options.continue_answer = 1;
  EXPECT_OK(cairn_session_start_turn(session, &options, &turn, &error));
  EXPECT(CAIRN_UNSUPPORTED,
         cairn_turn_end_thinking(turn, &error)); /* the tiny tokenizer has no end */
  const answer second = read_answer(turn, 0);
  CHECK(second.n_replayed > 0 && second.reuse.prefilled == 1);
  CHECK(second.usage.output_tokens == 6);
  EXPECT_OK(cairn_session_get_messages(session, &list, &error));
  CHECK(cairn_message_list_size(list) == 2);
  EXPECT_OK(cairn_message_list_get(list, 1, &m, &error));
  CHECK(m.event > 0 && m.text_bytes == second.n_bytes);
  cairn_message_list_destroy(&list);
  options.effort = 101;
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_session_start_turn(session, &options, &turn, &error));
  cairn_session_destroy(&session);
  close_fixture(&f);
}

/* A call as the host's own model might have made it; the tiny model makes none. */
static void append_call(cairn_session* session, const char* id) {
  char json[256];
  snprintf(json, sizeof json,
           "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"%s\", "
           "\"type\": \"function\", \"function\": {\"name\": \"add\", \"arguments\": "
           "\"{\\\"a\\\": 1}\"}}]}",
           id);
  EXPECT_OK(cairn_session_append_json(session, json, CAIRN_CSTRING, &error));
}

/* The point of the library, through its C API: what was computed once is not computed again,
 * neither in the same process nor after the session was closed and opened. */
static void a_tool_session_reuses_what_it_computed(void) {
  fixture f = open_fixture("tool_session");
  cairn_session* session = open_session(&f, "tools");
  cairn_session_info info = CAIRN_SESSION_INFO_INIT;
  EXPECT_OK(cairn_session_append_system(session, "Be brief.", CAIRN_CSTRING, kTools, CAIRN_CSTRING,
                                        &error));
  EXPECT_OK(cairn_session_append_user(session, "What is 1+2?", CAIRN_CSTRING, &error));
  const answer first = ask(session);
  check_account(&first);
  CHECK(first.reuse.prefilled == first.reuse.prompt_tokens);

  append_call(session, "call_1");
  EXPECT_OK(cairn_session_append_tool_result(session, "call_1", CAIRN_CSTRING, "3", 1, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT,
         cairn_session_append_tool_result(session, "call_1", CAIRN_CSTRING, "3", 1, &error));
  const answer second = ask(session);
  check_account(&second);
  CHECK(second.reuse.from_memory >= first.reuse.prompt_tokens);
  CHECK(second.reuse.prefilled < first.reuse.prompt_tokens / 2);

  EXPECT_OK(cairn_session_get_info(session, &info, &error));
  CHECK(info.turn_open == 0 && info.n_tokens > second.reuse.prompt_tokens);
  CHECK(strcmp(info.name, "tools") == 0);
  cairn_session_destroy(&session);
  close_fixture(&f);

  f = open_fixture("tool_session");
  session = open_session(&f, "tools");
  append_call(session, "call_2");
  EXPECT_OK(cairn_session_append_tool_result(session, "call_2", CAIRN_CSTRING, "3", 1, &error));
  const answer third = ask(session);
  check_account(&third);
  CHECK(third.reuse.from_disk >= second.reuse.prompt_tokens);
  CHECK(third.reuse.from_memory == 0);
  CHECK(third.reuse.prefilled < first.reuse.prompt_tokens / 2);
  cairn_session_destroy(&session);
  close_fixture(&f);
}

/* The same two questions as three protocols send them. */
static const char kChatBody[] =
    "{\"model\": \"x\", \"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\\nTime: "
    "1\"}, "
    "{\"role\": \"user\", \"content\": \"1+2?\"}]}";
static const char kMessagesBody[] =
    "{\"model\": \"x\", \"max_tokens\": 9, \"system\": [{\"type\": \"text\", \"text\": "
    "\"Be brief.\\nTime: 2\"}], \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": "
    "\"text\", "
    "\"text\": \"1+2?\"}]}]}";
static const char kResponsesBody[] =
    "{\"model\": \"x\", \"instructions\": \"Be brief.\\nTime: 3\", \"input\": [{\"type\": "
    "\"message\", \"role\": \"user\", \"content\": [{\"type\": \"input_text\", \"text\": "
    "\"1+2?\"}]}]}";

static void histories_of_three_protocols_are_one(void) {
  const char* const bodies[] = {kChatBody, kMessagesBody, kResponsesBody};
  fixture f = open_fixture("history");
  cairn_session* session = open_session(&f, "h");
  cairn_sync_options options = CAIRN_SYNC_OPTIONS_INIT;
  cairn_sync sync = CAIRN_SYNC_INIT;
  cairn_plan plan = CAIRN_PLAN_INIT;
  cairn_buffer* details = NULL;
  options.volatile_lines = "Time:\n";
  options.volatile_lines_bytes = 6;
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; ++i) {
    EXPECT_OK(cairn_session_plan(session, bodies[i], CAIRN_CSTRING, &options, NULL, &plan, &details,
                                 &error));
    CHECK(strstr(cairn_buffer_bytes(details, NULL), "\"prefill_ms\"") != NULL);
    cairn_buffer_destroy(&details);
    EXPECT_OK(
        cairn_session_sync(session, bodies[i], CAIRN_CSTRING, &options, &sync, &details, &error));
    CHECK(strstr(cairn_buffer_bytes(details, NULL), "\"n_kept\"") != NULL);
    cairn_buffer_destroy(&details);
    CHECK(sync.n_messages == 2 && sync.n_kept == (i == 0 ? 0 : 2));
    CHECK(sync.n_appended == (i == 0 ? 2 : 0) && sync.forked == 0);
    CHECK(plan.prompt_tokens == sync.prompt_tokens && plan.memory_bytes > 0);
  }
  const answer first = ask(session);
  CHECK(first.reuse.prompt_tokens == plan.prompt_tokens);
  CHECK(first.reuse.prefilled == plan.prefilled);

  /* Undeclared, the line is part of the system text: the session goes back to its beginning. */
  EXPECT_OK(cairn_session_plan(session, kChatBody, CAIRN_CSTRING, NULL, NULL, &plan, NULL, &error));
  CHECK(plan.cause == CAIRN_MISS_SYSTEM_CHANGED && plan.lost_tokens > 0);
  EXPECT_OK(cairn_session_sync(session, kChatBody, CAIRN_CSTRING, NULL, &sync, NULL, &error));
  CHECK(sync.forked == 1 && sync.cause == CAIRN_MISS_SYSTEM_CHANGED);
  CHECK(sync.difference_message == 0 && sync.difference_byte > 0);
  const answer second = ask(session);
  CHECK(second.reuse.cause == CAIRN_MISS_SYSTEM_CHANGED);
  CHECK(second.reuse.lost_tokens == plan.lost_tokens);
  CHECK(second.reuse.prefilled == plan.prefilled);

  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_session_sync(session, "{", 1, NULL, NULL, NULL, &error));
  EXPECT(CAIRN_INVALID_ARGUMENT,
         cairn_session_plan(session, "", 0, NULL, NULL, &plan, NULL, &error));
  cairn_session_destroy(&session);
  close_fixture(&f);
}

static void parents_may_be_destroyed_first(void) {
  fixture f = open_fixture("order");
  cairn_session* session = open_session(&f, "s");
  cairn_turn* turn = NULL;
  const cairn_turn_options options = short_answer();
  close_fixture(&f);
  CHECK(f.runtime == NULL && f.model == NULL && f.store == NULL);
  EXPECT_OK(cairn_session_append_user(session, "Hi", CAIRN_CSTRING, &error));
  EXPECT_OK(cairn_session_start_turn(session, &options, &turn, &error));
  cairn_session_destroy(&session);
  const answer a = read_answer(turn, 0);
  check_account(&a);
}

static void a_cancelled_turn_goes_on_where_it_stopped(void) {
  fixture f = open_fixture("cancel");
  cairn_turn* turn = NULL;
  cairn_session* plain = open_session(&f, "plain");
  cairn_session* cancelled = open_session(&f, "cancelled");
  EXPECT_OK(cairn_session_append_user(plain, "Count.", CAIRN_CSTRING, &error));
  EXPECT_OK(cairn_session_append_user(cancelled, "Count.", CAIRN_CSTRING, &error));
  const answer expected = ask(plain);
  EXPECT(CAIRN_NOT_FOUND, cairn_session_resume_turn(plain, &turn, &error));

  const cairn_turn_options options = short_answer();
  EXPECT_OK(cairn_session_start_turn(cancelled, &options, &turn, &error));
  const answer part = read_answer(turn, 1);
  if (part.end_reason == CAIRN_END_CANCELLED) { /* else it was quicker than the cancel */
    EXPECT_OK(cairn_session_resume_turn(cancelled, &turn, &error));
    const answer whole = read_answer(turn, 0);
    CHECK(whole.n_replayed > 0);
    CHECK(whole.n_bytes == expected.n_bytes);
    CHECK(memcmp(whole.text, expected.text, expected.n_bytes) == 0);
    CHECK(whole.end_reason == expected.end_reason);
  }
  cairn_session_destroy(&plain);
  cairn_session_destroy(&cancelled);
  close_fixture(&f);
}

static void destroying_a_running_turn_frees_the_session(void) {
  fixture f = open_fixture("destroy");
  cairn_session* session = open_session(&f, "s");
  cairn_turn* turn = NULL;
  cairn_turn* second = NULL;
  cairn_turn_options options = short_answer();
  options.max_tokens = 2000;
  EXPECT_OK(cairn_session_append_user(session, "Hi", CAIRN_CSTRING, &error));
  EXPECT_OK(cairn_session_start_turn(session, &options, &turn, &error));
  EXPECT(CAIRN_BUSY, cairn_session_start_turn(session, &options, &second, &error));
  EXPECT(CAIRN_BUSY, cairn_session_append_user(session, "more", CAIRN_CSTRING, &error));
  cairn_turn_destroy(&turn);
  CHECK(turn == NULL);
  EXPECT_OK(cairn_session_resume_turn(session, &turn, &error));
  cairn_turn_destroy(&turn);
  cairn_session_destroy(&session);
  close_fixture(&f);
}

/* Reads the turn to its end and counts events; *last is the number of the last of a block. */
static int read_numbers(cairn_turn* turn, uint64_t* last) {
  int n_content = 0;
  cairn_event* event = NULL;
  while (cairn_turn_next(turn, -1, &event, NULL) == CAIRN_OK) {
    const int32_t kind = cairn_event_kind(event);
    if (kind == CAIRN_EVENT_BLOCK_BEGIN || kind == CAIRN_EVENT_BLOCK_BYTES ||
        kind == CAIRN_EVENT_BLOCK_END) {
      CHECK(cairn_event_sequence(event) > *last);
      *last = cairn_event_sequence(event);
      ++n_content;
    }
    if (kind == CAIRN_EVENT_PREFILL_PROGRESS) {
      int64_t reused = -1;
      double remaining_ms = -2;
      cairn_event_get_estimate(event, &reused, &remaining_ms);
      CHECK(reused == 0 && remaining_ms >= -1);
    }
    cairn_event_destroy(&event);
  }
  return n_content;
}

static void a_turn_outlives_its_reader(void) {
  fixture f = open_fixture("reader");
  cairn_session* session = open_session(&f, "s");
  cairn_turn* turn = NULL;
  cairn_turn* again = NULL;
  uint64_t last = 0, last_again = 0;
  const cairn_turn_options options = short_answer();
  EXPECT(CAIRN_NOT_FOUND, cairn_session_attach_turn(session, 0, &turn, &error));
  EXPECT_OK(cairn_session_append_user(session, "Hi", CAIRN_CSTRING, &error));
  EXPECT_OK(cairn_session_start_turn(session, &options, &turn, &error));
  cairn_turn_detach(&turn);
  CHECK(turn == NULL);
  EXPECT_OK(cairn_session_attach_turn(session, 0, &turn, &error));
  const int n_content = read_numbers(turn, &last);
  CHECK(n_content > 2);
  EXPECT_OK(cairn_session_attach_turn(session, 0, &again, &error));
  cairn_event* event = NULL;
  EXPECT(CAIRN_BUSY, cairn_turn_next(turn, 0, &event, &error));
  CHECK(read_numbers(again, &last_again) == n_content && last_again == last);
  cairn_turn_acknowledge(again, last);
  cairn_turn_detach(&again);
  cairn_turn_destroy(&turn); /* reads nothing any more: stops nothing */
  EXPECT_OK(cairn_session_attach_turn(session, 0, &again, &error));
  CHECK(read_numbers(again, &last_again) == 0);
  cairn_turn_destroy(&again);
  cairn_session_destroy(&session);
  close_fixture(&f);
}

static void a_turn_ends_at_its_limits(void) {
  fixture f = open_fixture("limits");
  cairn_session* session = open_session(&f, "s");
  cairn_turn* turn = NULL;
  cairn_turn_options options = short_answer();
  EXPECT_OK(cairn_session_append_user(session, "Hi", CAIRN_CSTRING, &error));
  const answer free = ask(session);
  CHECK(free.n_bytes > 4);
  static const char* stop[] = {"never said", NULL};
  options.n_stop = 2;
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_session_start_turn(session, &options, &turn, &error));
  options.stop = stop;
  EXPECT(CAIRN_INVALID_ARGUMENT, cairn_session_start_turn(session, &options, &turn, &error));
  options.n_stop = 1;
  options.max_context_tokens = 4;
  EXPECT_OK(cairn_session_append_user(session, "Hi", CAIRN_CSTRING, &error));
  EXPECT(CAIRN_CONTEXT_FULL, cairn_session_start_turn(session, &options, &turn, &error));
  options.max_context_tokens = free.usage.context_size;
  options.max_time_ms = 3600000;
  options.max_tool_calls = 1;
  options.priority = CAIRN_PRIORITY_BACKGROUND;
  EXPECT_OK(cairn_session_start_turn(session, &options, &turn, &error));
  const answer limited = read_answer(turn, 0);
  CHECK(limited.end_reason == CAIRN_END_STOP || limited.end_reason == CAIRN_END_LENGTH);
  cairn_session_destroy(&session);

  session = open_session(&f, "stopped");
  char said[5] = {0};
  memcpy(said, free.text, 4); /* four bytes that the answer begins with, if they are characters */
  stop[0] = said;
  options.max_time_ms = 0;
  EXPECT_OK(cairn_session_append_user(session, "Hi", CAIRN_CSTRING, &error));
  const cairn_code code = cairn_session_start_turn(session, &options, &turn, NULL);
  if (code == CAIRN_OK) {
    const answer stopped = read_answer(turn, 0);
    CHECK(stopped.end_reason == CAIRN_END_STOP_STRING && stopped.n_bytes == 0);
  } else {
    CHECK(code == CAIRN_INVALID_ARGUMENT);
  }
  cairn_session_destroy(&session);
  close_fixture(&f);
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: c_api_test CHECKPOINT EMPTY_FOLDER\n"), 2;
  checkpoint = argv[1];
  folder = argv[2];
#define RUN(test) fprintf(stderr, "%s\n", #test), test()
  RUN(header_and_library_are_of_one_version);
  RUN(codes_have_names);
  RUN(destroy_accepts_null_and_null_handles);
  RUN(accessors_of_null_are_empty);
  RUN(missing_arguments_are_errors_not_crashes);
  RUN(errors_say_what_and_are_cleared_on_success);
  RUN(init_functions_equal_init_macros);
  RUN(structs_keep_their_layout);
  RUN(option_structs_may_be_older_or_newer);
  RUN(unknown_option_values_are_unsupported);
  RUN(threads_run_on_the_cpus_that_the_host_names);
  RUN(log_user_is_finalised_once_after_the_last_handle);
  RUN(model_describes_itself);
  RUN(tokens_round_trip);
  RUN(bad_file_names_are_refused);
  RUN(store_lists_and_removes_sessions);
  RUN(store_has_one_owner);
  RUN(session_names_are_checked);
  RUN(messages_come_back_as_they_were_appended);
  RUN(prompts_are_rendered_and_counted_without_the_model);
  RUN(a_tool_session_reuses_what_it_computed);
  RUN(histories_of_three_protocols_are_one);
  RUN(an_answer_goes_on_where_a_limit_cut_it_off);
  RUN(parents_may_be_destroyed_first);
  RUN(a_cancelled_turn_goes_on_where_it_stopped);
  RUN(destroying_a_running_turn_frees_the_session);
  RUN(a_turn_outlives_its_reader);
  RUN(a_turn_ends_at_its_limits);
  fprintf(stderr, "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
