/* Callers that were compiled against an older or a newer cairn.h: every struct that begins with
 * `struct_size`, at every function that takes it. tests/layout_test.cc checks that none is missing.
 *
 * An older caller's struct ends earlier: what lies behind it is not read and not written. A newer
 * caller's has a tail: as an option it must be zero, as a result it becomes zero. */
#include <stdint.h>

#include "c_checks.h"

enum { kTail = 24, kRoom = 1024, kUnwritten = 0xAB };

/* What the functions under test work on. */
static fixture f;
static cairn_session* session;
static cairn_store_reader* reader;
static cairn_session_list* sessions;
static cairn_message_list* messages;
static cairn_mark_list* marks;
static cairn_event* event;

static const char kBody[] = "[{\"role\": \"user\", \"content\": \"hello\"}]";

static const char* new_name(void) {
  static char name[32];
  static int n_names = 0;
  snprintf(name, sizeof name, "session %d", ++n_names);
  return name;
}

/* ---- Options: one call of each function that takes them ------------------------------------- */

static cairn_code create_runtime(const void* options, cairn_error** error) {
  cairn_runtime* made = NULL;
  const cairn_code code = cairn_runtime_create(options, &made, error);
  cairn_runtime_destroy(&made);
  return code;
}

static cairn_code open_model(const void* options, cairn_error** error) {
  cairn_model* made = NULL;
  const cairn_code code =
      cairn_model_open(f.runtime, checkpoint, CAIRN_CSTRING, options, &made, error);
  cairn_model_destroy(&made);
  return code;
}

static cairn_code open_store(const void* options, cairn_error** error) {
  cairn_store* made = NULL;
  const cairn_code code =
      cairn_store_open(f.runtime, path_in_folder("other"), CAIRN_CSTRING, options, &made, error);
  cairn_store_destroy(&made);
  return code;
}

static cairn_code open_reader(const void* options, cairn_error** error) {
  cairn_store_reader* made = NULL;
  const cairn_code code =
      cairn_store_reader_open(path_in_folder("sizes"), CAIRN_CSTRING, options, &made, error);
  cairn_store_reader_destroy(&made);
  return code;
}

static cairn_code collect(const void* options, cairn_error** error) {
  return cairn_store_collect(f.store, options, NULL, error);
}

static cairn_code create_session(const void* options, cairn_error** error) {
  cairn_session* made = NULL;
  const cairn_code code =
      cairn_session_create(f.model, f.store, new_name(), CAIRN_CSTRING, options, &made, error);
  cairn_session_destroy(&made);
  return code;
}

static cairn_code open_or_create_session(const void* options, cairn_error** error) {
  cairn_session* made = NULL;
  const cairn_code code = cairn_session_open_or_create(f.model, f.store, new_name(), CAIRN_CSTRING,
                                                       options, &made, error);
  cairn_session_destroy(&made);
  return code;
}

static cairn_code open_with_options(const void* options, cairn_error** error) {
  cairn_session* made = NULL;
  const cairn_code code = cairn_session_open_with_options(f.model, f.store, "closed", CAIRN_CSTRING,
                                                          options, &made, error);
  cairn_session_destroy(&made);
  return code;
}

static cairn_code start_turn(const void* options, cairn_error** error) {
  cairn_turn* turn = NULL;
  EXPECT_OK(cairn_session_append_user(session, "again", CAIRN_CSTRING, &error));
  const cairn_code code = cairn_session_start_turn(session, options, &turn, error);
  cairn_turn_destroy(&turn);
  return code;
}

static cairn_code count_tokens(const void* options, cairn_error** error) {
  int64_t n_tokens = 0;
  return cairn_session_count_tokens(session, NULL, 0, options, &n_tokens, error);
}

static cairn_code plan_turn(const void* options, cairn_error** error) {
  cairn_plan plan = CAIRN_PLAN_INIT;
  return cairn_session_plan(session, NULL, 0, NULL, options, &plan, NULL, error);
}

static cairn_code plan_sync(const void* options, cairn_error** error) {
  cairn_plan plan = CAIRN_PLAN_INIT;
  return cairn_session_plan(session, kBody, CAIRN_CSTRING, options, NULL, &plan, NULL, error);
}

static cairn_code sync_session(const void* options, cairn_error** error) {
  return cairn_session_sync(session, kBody, CAIRN_CSTRING, options, NULL, NULL, error);
}

/* ---- Results -------------------------------------------------------------------------------- */

static cairn_code model_info(void* out, cairn_error** error) {
  return cairn_model_get_info(f.model, out, error);
}
static cairn_code store_stats(void* out, cairn_error** error) {
  return cairn_store_get_stats(f.store, out, error);
}
static cairn_code session_info(void* out, cairn_error** error) {
  return cairn_session_get_info(session, out, error);
}
static cairn_code listed_session(void* out, cairn_error** error) {
  return cairn_session_list_get(sessions, 0, out, error);
}
static cairn_code collect_report(void* out, cairn_error** error) {
  return cairn_store_collect(f.store, NULL, out, error);
}
static cairn_code verify_report(void* out, cairn_error** error) {
  return cairn_store_reader_verify(reader, out, NULL, error);
}
static cairn_code mark(void* out, cairn_error** error) {
  return cairn_mark_list_get(marks, 0, out, error);
}
static cairn_code sync(void* out, cairn_error** error) {
  return cairn_session_sync(session, kBody, CAIRN_CSTRING, NULL, out, NULL, error);
}
static cairn_code plan(void* out, cairn_error** error) {
  return cairn_session_plan(session, kBody, CAIRN_CSTRING, NULL, NULL, out, NULL, error);
}
static cairn_code message(void* out, cairn_error** error) {
  return cairn_message_list_get(messages, 0, out, error);
}
static cairn_code tool_call(void* out, cairn_error** error) {
  return cairn_event_get_tool_call(event, out, error);
}
static cairn_code reuse(void* out, cairn_error** error) {
  return cairn_event_get_reuse(event, out, error);
}
static cairn_code usage(void* out, cairn_error** error) {
  return cairn_event_get_usage(event, out, error);
}

/* ---- The tables ----------------------------------------------------------------------------- */

typedef struct option_case {
  const char* name;
  size_t size;
  cairn_code (*use)(const void* options, cairn_error** error);
} option_case;
#define OPTIONS(type, use) \
  { #type " " #use, sizeof(type), use }

static const option_case kOptions[] = {
    OPTIONS(cairn_runtime_options, create_runtime),
    OPTIONS(cairn_model_options, open_model),
    OPTIONS(cairn_store_options, open_store),
    OPTIONS(cairn_store_options, open_reader),
    OPTIONS(cairn_collect_options, collect),
    OPTIONS(cairn_session_options, create_session),
    OPTIONS(cairn_session_options, open_or_create_session),
    OPTIONS(cairn_open_options, open_with_options),
    OPTIONS(cairn_turn_options, start_turn),
    OPTIONS(cairn_turn_options, count_tokens),
    OPTIONS(cairn_turn_options, plan_turn),
    OPTIONS(cairn_sync_options, plan_sync),
    OPTIONS(cairn_sync_options, sync_session),
};

typedef struct result_case {
  const char* name;
  size_t size;
  cairn_code (*fill)(void* out, cairn_error** error);
} result_case;
#define RESULT(type, fill) \
  { #type " " #fill, sizeof(type), fill }

static const result_case kResults[] = {
    RESULT(cairn_model_info, model_info),
    RESULT(cairn_store_stats, store_stats),
    RESULT(cairn_session_info, session_info),
    RESULT(cairn_session_info, listed_session),
    RESULT(cairn_collect_report, collect_report),
    RESULT(cairn_verify_report, verify_report),
    RESULT(cairn_mark, mark),
    RESULT(cairn_sync, sync),
    RESULT(cairn_plan, plan),
    RESULT(cairn_message, message),
    RESULT(cairn_tool_call, tool_call),
    RESULT(cairn_reuse, reuse),
    RESULT(cairn_usage, usage),
};

/* Memory of a struct of any type, aligned for all. */
typedef union room {
  size_t struct_size;
  double alignment;
  unsigned char bytes[kRoom];
} room;

static void expect_use(const option_case* c, cairn_code expected, const room* options) {
  cairn_error* error = NULL;
  const cairn_code code = c->use(options, &error);
  if (code != expected) fprintf(stderr, "%s, %zu bytes:\n", c->name, options->struct_size);
  expect_code(__LINE__, expected, code, &error);
}

static void check_options(const option_case* c) {
  room options;
  CHECK(c->size + kTail <= sizeof options);
  /* Older: every earlier end. What lies behind is the caller's, here nonsense. */
  for (size_t size = sizeof(size_t); size < c->size; size += sizeof(int32_t)) {
    memset(&options, 0xFF, sizeof options);
    memset(&options, 0, size);
    options.struct_size = size;
    expect_use(c, CAIRN_OK, &options);
  }
  memset(&options, 0, sizeof options);
  options.struct_size = c->size + kTail;
  expect_use(c, CAIRN_OK, &options);
  /* Newer, with a field set that the library lacks: its first byte and its last. */
  options.bytes[c->size] = 1;
  expect_use(c, CAIRN_UNSUPPORTED, &options);
  options.bytes[c->size] = 0;
  options.bytes[c->size + kTail - 1] = 1;
  expect_use(c, CAIRN_UNSUPPORTED, &options);
  options.struct_size = 0;
  expect_use(c, CAIRN_INVALID_ARGUMENT, &options);
  options.struct_size = (size_t)-1;
  expect_use(c, CAIRN_INVALID_ARGUMENT, &options);
}

static int all_are(const unsigned char* begin, const unsigned char* end, int value) {
  for (; begin < end; ++begin) {
    if (*begin != value) return 0;
  }
  return 1;
}

static void check_result_of_size(const result_case* c, size_t size) {
  room out;
  cairn_error* error = NULL;
  memset(&out, kUnwritten, sizeof out);
  out.struct_size = size;
  const cairn_code code = c->fill(&out, &error);
  const int n_failures = failures;
  expect_code(__LINE__, CAIRN_OK, code, &error);
  CHECK(out.struct_size == size);
  CHECK(all_are(out.bytes + size, out.bytes + sizeof out, kUnwritten));
  for (size_t i = sizeof(size_t); i + sizeof(int32_t) <= size; i += sizeof(int32_t)) {
    CHECK(!all_are(out.bytes + i, out.bytes + i + sizeof(int32_t), kUnwritten));
  }
  if (size > c->size) CHECK(all_are(out.bytes + c->size, out.bytes + size, 0));
  if (failures != n_failures) fprintf(stderr, "that was %s, %zu bytes\n", c->name, size);
}

static void check_result(const result_case* c) {
  room out;
  CHECK(c->size + kTail <= sizeof out);
  for (size_t size = sizeof(size_t); size <= c->size; size += sizeof(int32_t)) {
    check_result_of_size(c, size);
  }
  check_result_of_size(c, c->size + kTail);
  memset(&out, kUnwritten, sizeof out);
  out.struct_size = 0;
  EXPECT(CAIRN_INVALID_ARGUMENT, c->fill(&out, &error));
  CHECK(all_are(out.bytes + sizeof(size_t), out.bytes + sizeof out, kUnwritten));
}

static void set_up(void) {
  uint64_t place = 0;
  cairn_turn* turn = NULL;
  const cairn_turn_options options = short_answer();
  f = open_fixture("sizes");
  cairn_session* closed = open_session(&f, "closed");
  cairn_session_destroy(&closed);
  session = open_session(&f, "open");
  EXPECT_OK(cairn_session_append_user(session, "hello", CAIRN_CSTRING, &error));
  EXPECT_OK(cairn_session_mark(session, "here", CAIRN_CSTRING, 0, &place, &error));
  EXPECT_OK(cairn_session_get_marks(session, &marks, &error));
  EXPECT_OK(cairn_session_get_messages(session, &messages, &error));
  EXPECT_OK(cairn_session_start_turn(session, &options, &turn, &error));
  EXPECT_OK(cairn_turn_next(turn, -1, &event, &error));
  cairn_turn_destroy(&turn);
  EXPECT_OK(cairn_store_list(f.store, &sessions, &error));
  EXPECT_OK(cairn_store_reader_open(path_in_folder("sizes"), CAIRN_CSTRING, NULL, &reader, &error));
}

static void tear_down(void) {
  cairn_event_destroy(&event);
  cairn_mark_list_destroy(&marks);
  cairn_message_list_destroy(&messages);
  cairn_session_list_destroy(&sessions);
  cairn_store_reader_destroy(&reader);
  cairn_session_destroy(&session);
  close_fixture(&f);
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: c_struct_size_test CHECKPOINT FOLDER\n"), 2;
  checkpoint = argv[1];
  folder = argv[2];
  set_up();
  for (size_t i = 0; i < sizeof kResults / sizeof *kResults; ++i) check_result(&kResults[i]);
  for (size_t i = 0; i < sizeof kOptions / sizeof *kOptions; ++i) check_options(&kOptions[i]);
  tear_down();
  return failures == 0 ? 0 : 1;
}
