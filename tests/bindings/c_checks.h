/* What the C programs that test the API share: checks, a runtime with a model and a store, and
 * reading a turn to its end. For one program, not for several files of one. */
#ifndef CAIRN_TESTS_BINDINGS_C_CHECKS_H_
#define CAIRN_TESTS_BINDINGS_C_CHECKS_H_

#include <cairn/cairn.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;
static const char* checkpoint = NULL;
static const char* folder = NULL;

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                             \
    }                                                                         \
  } while (0)

/* Checks a code; on another one prints the error that came with it. Destroys the error. */
static inline void expect_code(int line, cairn_code expected, cairn_code code,
                               cairn_error** error) {
  if (code != expected) {
    fprintf(stderr, "%s:%d: expected %s, got %s: %s\n", __FILE__, line, cairn_code_name(expected),
            cairn_code_name(code), cairn_error_message(*error));
    ++failures;
  }
  cairn_error_destroy(error);
}
#define EXPECT(expected, call)                     \
  do {                                             \
    cairn_error* error = NULL;                     \
    const cairn_code code = (call);                \
    expect_code(__LINE__, expected, code, &error); \
  } while (0)
#define EXPECT_OK(call) EXPECT(CAIRN_OK, call)

static inline const char* path_in_folder(const char* name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

/* A runtime, a model and a store, opened for one test. */
typedef struct fixture {
  cairn_runtime* runtime;
  cairn_model* model;
  cairn_store* store;
} fixture;

static inline fixture open_fixture(const char* store_name) {
  fixture f = {NULL, NULL, NULL};
  EXPECT_OK(cairn_runtime_create(NULL, &f.runtime, &error));
  EXPECT_OK(cairn_model_open(f.runtime, checkpoint, CAIRN_CSTRING, NULL, &f.model, &error));
  EXPECT_OK(cairn_store_open(f.runtime, path_in_folder(store_name), CAIRN_CSTRING, NULL, &f.store,
                             &error));
  return f;
}

static inline void close_fixture(fixture* f) {
  cairn_store_destroy(&f->store);
  cairn_model_destroy(&f->model);
  cairn_runtime_destroy(&f->runtime);
}

static inline cairn_turn_options short_answer(void) {
  cairn_turn_options options = CAIRN_TURN_OPTIONS_INIT;
  options.max_tokens = 24;
  options.greedy = 1;
  return options;
}

static inline cairn_session* open_session(const fixture* f, const char* name) {
  cairn_session* session = NULL;
  EXPECT_OK(cairn_session_open_or_create(f->model, f->store, name, CAIRN_CSTRING, NULL, &session,
                                         &error));
  return session;
}

/* What read_answer saw of one turn. */
typedef struct answer {
  char text[4096];
  size_t n_bytes;
  int64_t n_replayed; /* events */
  int32_t end_reason;
  cairn_usage usage;
  cairn_reuse reuse; /* detail is not kept */
} answer;

/* `last`: the number of the event before, 0 for the first. */
static inline void read_event(const cairn_event* event, uint64_t last, answer* out) {
  size_t n_bytes = 0;
  const int32_t kind = cairn_event_kind(event);
  const char* bytes = cairn_event_bytes(event, &n_bytes);
  CHECK(cairn_event_sequence(event) > last);
  CHECK((last == 0) == (kind == CAIRN_EVENT_TURN_STARTED));
  out->n_replayed += cairn_event_replayed(event);
  if (kind == CAIRN_EVENT_BLOCK_BYTES && out->n_bytes + n_bytes < sizeof out->text) {
    CHECK(n_bytes > 0 && cairn_event_block(event) >= 0);
    memcpy(out->text + out->n_bytes, bytes, n_bytes);
    out->n_bytes += n_bytes;
  }
  if (kind == CAIRN_EVENT_PREFILL_PROGRESS) {
    int64_t done = -1, total = -1;
    cairn_event_get_progress(event, &done, &total);
    CHECK(0 <= done && done <= total);
  }
  if (kind == CAIRN_EVENT_USAGE) EXPECT_OK(cairn_event_get_usage(event, &out->usage, &error));
  if (kind == CAIRN_EVENT_TURN_STARTED) {
    EXPECT_OK(cairn_event_get_reuse(event, &out->reuse, &error));
    CHECK(out->reuse.detail != NULL);
  }
  if (kind == CAIRN_EVENT_TURN_END) out->end_reason = cairn_event_end_reason(event);
}

/* Reads a turn to its end and destroys it; cancels it after `cancel_after` bytes unless that is 0.
 */
static inline answer read_answer(cairn_turn* turn, size_t cancel_after) {
  answer out;
  cairn_event* event = NULL;
  cairn_event* last = NULL;
  uint64_t sequence = 0;
  cairn_code code = CAIRN_OK;
  cairn_error* error = NULL;
  struct pollfd wake = {cairn_turn_wake_fd(turn), POLLIN, 0};
  memset(&out, 0, sizeof out);
  out.usage.struct_size = sizeof out.usage;
  out.reuse.struct_size = sizeof out.reuse;
  for (;;) {
    code = cairn_turn_next(turn, 0, &event, &error);
    if (code == CAIRN_TIMEOUT) {
      CHECK(error == NULL && event == NULL);
      CHECK(poll(&wake, 1, 60000) == 1);
      continue;
    }
    if (code != CAIRN_OK) break;
    read_event(event, sequence, &out);
    sequence = cairn_event_sequence(event);
    if (cancel_after != 0 && out.n_bytes >= cancel_after) cairn_turn_cancel(turn);
    cairn_event_destroy(&last);
    last = event;
  }
  CHECK(code == CAIRN_NOT_FOUND && error == NULL);
  cairn_turn_destroy(&turn);
  CHECK(cairn_event_kind(last) == CAIRN_EVENT_TURN_END); /* the event outlives the turn */
  CHECK(cairn_event_error(last) == NULL);
  cairn_event_destroy(&last);
  return out;
}

static inline answer ask(cairn_session* session) {
  cairn_turn* turn = NULL;
  const cairn_turn_options options = short_answer();
  EXPECT_OK(cairn_session_start_turn(session, &options, &turn, &error));
  return read_answer(turn, 0);
}

#endif /* CAIRN_TESTS_BINDINGS_C_CHECKS_H_ */
